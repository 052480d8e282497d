"""The whole engine on a virtual clock: random plans, latencies, limits, faults and hands.

`AGENT_MAGIC_HYPOTHESIS=nightly` runs a hundred thousand scenes, others each time, instead of the same some thousand;
`AGENT_MAGIC_SHARD=0/2` runs every second part of them.
"""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magic import Policy
from tests.engine.whole_cases import CASES
from tests.engine.whole_draws import ENDLESS, anything, fates, good, scenes, seconds, tokens
from tests.engine.whole_scene import Asked
from tests.engine.whole_world import play

NIGHTLY = os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "nightly"
EACH, PARTS = (2_500, 44) if NIGHTLY else (1_200, 1)
SHARD, SHARDS = (int(one) for one in os.environ.get("AGENT_MAGIC_SHARD", "0/1").split("/"))


def many(share):
    """Draw this share of the scenes, in parts: each is a test of its own, and takes less than a minute."""

    def parts(test):
        drawn = settings(max_examples=int(EACH * share), suppress_health_check=list(HealthCheck))(test)
        return pytest.mark.parametrize("part", range(SHARD, PARTS, SHARDS))(drawn)

    return parts


@pytest.mark.parametrize("name", CASES)
def test_what_once_broke_holds(name):
    """Every scene that was ever found to break a rule is kept."""
    play(CASES[name])


@many(0.74)
@given(anything)
def test_every_scene_ends_and_breaks_no_rule(part, scene):
    """Parents first, nobody twice, slots, budget, pauses and stops kept, followers behind leaders, and an end."""
    run = play(scene).first
    if scene.policy.budget_tokens is not None:
        assert run.book.spent_tokens <= scene.policy.budget_tokens


@many(0.02)
@given(anything)
def test_the_same_scene_gives_the_same_run(part, scene):
    """Nothing is decided by chance that the seed does not set."""
    assert [run.launches for run in play(scene).runs] == [run.launches for run in play(scene).runs]


@many(0.12)
@given(
    scenes(
        asked=st.builds(
            Asked,
            seconds,
            tokens,
            tokens,
            good | fates.map(lambda row: (*row[:-1], "ok") if row[-1] in ENDLESS else row),
        ),
        limits=st.none(),
        policies=st.builds(
            Policy, st.just(5), max_attempts=st.integers(1, 4), breaker_share=st.none(), seed=st.just(1)
        ),
        hands=st.just([]),
        capped=False,
    ),
    st.integers(1, 5),
    st.sampled_from(["ready", "layers", "sequential"]),
)
def test_results_do_not_depend_on_the_schedule(part, scene, slots, schedule):
    """Without limits, deadlines and hands, the same agents end the same way and use the same in any order."""
    scene = replace(scene, asked=tuple(replace(one, timeout_s=1e5) for one in scene.asked))
    if any({"401", "429 for good"} & set(one.fates) for one in scene.asked):  # these stop the others, whoever they are
        return
    other = replace(scene, policy=replace(scene.policy, concurrency=slots, schedule=schedule))
    run, again = play(scene).first, play(other).first
    assert run.book.status == again.book.status
    assert run.book.used == again.book.used


@many(0.12)
@given(
    scenes(
        asked=st.builds(Asked, seconds),
        limits=st.none(),
        policies=st.builds(Policy, st.integers(1, 5), seed=st.just(1)),
        hands=st.just([]),
        capped=False,
    )
)
def test_no_slot_is_left_idle(part, scene):
    """Without limits and faults the end comes within Graham's bound for list scheduling.

    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969: path + (work - path) / slots.
    """
    scene = replace(scene, asked=tuple(replace(one, timeout_s=1e5) for one in scene.asked), key=False)
    scene = replace(scene, limits=(6e6, 6e9, 6e9), told=True)  # nobody waits to hear of limits
    run = play(scene).first
    takes_s, slots = [one.takes_s for one in scene.asked], scene.policy.concurrency
    path_s, work_s = run.dag.longest_path(takes_s)[1], sum(takes_s)
    assert max(path_s, work_s / slots) <= run.end_s + 1e-9
    assert run.end_s <= path_s + (work_s - path_s) / slots + 1e-9
    assert all(status == "succeeded" for status in run.book.status.values())
