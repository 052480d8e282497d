"""The whole engine on a virtual clock: random plans, latencies, limits, faults and hands.

`AGENT_MAGIC_HYPOTHESIS=nightly` runs a hundred thousand scenes instead of some thousand.
"""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magic.schedule.policy import Policy
from tests.schedule.whole import FAULTS, Asked, Scene, Whole
from tests.schedule.whole_cases import CASES

NIGHTLY = os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "nightly"
MOST = 9
seconds = st.integers(1, 400).map(lambda one: one / 16)
tokens = st.integers(0, 400).map(lambda one: one * 25)
good = st.just(("ok",))
fates = st.lists(st.sampled_from(["ok", "ok", "ok", "hang", *FAULTS]), min_size=1, max_size=3).map(tuple)
parents = st.lists(st.sets(st.integers(0, MOST), max_size=3), min_size=1, max_size=MOST).map(
    lambda rows: tuple(tuple(sorted(one for one in row if one < number)) for number, row in enumerate(rows))
)
asked = st.builds(
    Asked,
    seconds,
    tokens,
    tokens,
    good | fates,
    st.sampled_from(["claude-haiku-5-5", "claude-haiku-5-5", "claude-opus-5"]),
    st.sampled_from([None, None, "context"]),
    st.sampled_from([5.0, 60.0, 1000.0]),
    st.sampled_from([0.25, 1.0, 8.0]),
)
policies = st.builds(
    Policy,
    st.integers(1, 5),
    st.sampled_from(["ready", "ready", "layers", "sequential"]),
    max_attempts=st.integers(1, 4),
    deadline_s=st.sampled_from([None, None, None, 30.0]),
    budget_tokens=st.none() | st.integers(1, 60_000),
    seed=st.just(1),
)
limits = st.none() | st.tuples(
    st.sampled_from([6.0, 60.0, 1_000.0]),
    st.sampled_from([20_000.0, 200_000.0, 5e6]),
    st.sampled_from([20_000.0, 200_000.0, 5e6]),
)
agents = st.none() | st.lists(st.integers(0, MOST - 1), min_size=1, max_size=3).map(tuple)
hands = st.lists(st.tuples(seconds, st.sampled_from(["cancel", "skip", "retry", "pause"]), agents), max_size=3)


@st.composite
def scenes(draw, asked=asked, limits=limits, policies=policies, hands=hands):
    """A scene; whoever pauses resumes, and nobody is named that the plan does not have."""
    rows = draw(parents)
    controls = []
    for at_s, what, who in draw(hands):
        known = None if who is None else tuple(one for one in who if one < len(rows))
        controls.append((at_s, what, () if what == "skip" and known is None else known))
        if what == "pause":
            controls.append((at_s + 7.0, "resume", None))
    return Scene(
        rows,
        tuple(draw(asked) for _ in rows),
        draw(policies),
        draw(limits),
        draw(st.sampled_from([1.0, 10.0, 60.0])),
        draw(st.booleans()),
        tuple(controls),
    )


def many(share):
    """Run so much of the whole number of scenes."""
    whole = 110_000 if NIGHTLY else 3_000
    return settings(max_examples=int(whole * share), suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", CASES)
def test_what_once_broke_holds(name):
    """Every scene that was ever found to break a rule is kept."""
    Whole(CASES[name]).run()


@many(0.7)
@given(scenes())
def test_every_scene_ends_and_breaks_no_rule(scene):
    """Parents first, nobody twice, slots, budget, pauses and stops kept, followers behind leaders, and an end."""
    run = Whole(scene).run()
    if scene.policy.budget_tokens is not None:
        assert run.spent_tokens <= scene.policy.budget_tokens
    again = Whole(scene).run()
    assert run.launches == again.launches, "the same scene gives the same run"


@many(0.15)
@given(
    scenes(
        asked=st.builds(
            Asked, seconds, tokens, tokens, good | fates.map(lambda row: tuple(set(row) - {"hang"}) or ("ok",))
        ),
        limits=st.none(),
        policies=st.builds(Policy, st.just(5), max_attempts=st.integers(1, 4), seed=st.just(1)),
        hands=st.just([]),
    ),
    st.integers(1, 5),
    st.sampled_from(["ready", "layers", "sequential"]),
)
def test_tokens_and_results_do_not_depend_on_the_schedule(scene, slots, schedule):
    """Without limits, deadlines and hands, the same agents end the same way and use the same in any order."""
    scene = replace(scene, asked=tuple(replace(one, timeout_s=1e5) for one in scene.asked))
    if any({"401", "429 for good"} & set(one.fates) for one in scene.asked):  # these stop the others, whoever they are
        return
    other = replace(scene, policy=replace(scene.policy, concurrency=slots, schedule=schedule))
    run, again = Whole(scene).run(), Whole(other).run()
    assert run.status == again.status
    assert run.used == again.used


@many(0.15)
@given(
    scenes(
        asked=st.builds(Asked, seconds),
        limits=st.none(),
        policies=st.builds(Policy, st.integers(1, 5), seed=st.just(1)),
        hands=st.just([]),
    )
)
def test_no_slot_is_left_idle(scene):
    """Without limits and faults the end comes within Graham's bound for list scheduling.

    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969: path + (work - path) / slots.
    """
    scene = replace(scene, asked=tuple(replace(one, timeout_s=1e5) for one in scene.asked))
    run = Whole(scene).run()
    takes_s, slots = [one.takes_s for one in scene.asked], scene.policy.concurrency
    path_s, work_s = run.dag.longest_path(takes_s)[1], sum(takes_s)
    assert max(path_s, work_s / slots) <= run.end_s + 1e-9
    assert run.end_s <= path_s + (work_s - path_s) / slots + 1e-9
    assert all(status == "succeeded" for status in run.status.values())
