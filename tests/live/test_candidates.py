"""Races, hedges and steps that begin early, in drawn plans: a run ends whatever fails, or is stopped or asked again."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.declare import CONDITION
from agent_magic.errors import Overloaded, Rejected
from tests.conftest import NIGHTLY
from tests.live.virtual import Reply, drive

NO, BUSY = Rejected("no", status=400), Overloaded("busy", status=529)
KINDS = {None, "Unused", "Skipped", "Beaten", "Condition", "Rejected", "Late", "Stopped", "Overloaded", "NoAnswer"}
"""How steps may end here; anything else is a fault of the engine."""


@st.composite
def plans(draw: st.DrawFn) -> am.Plan:
    """A plan in which some steps race, some have a hedge, and some have a condition about another one."""
    steps: list[Any] = []
    names: list[str] = []
    unused: list[str] = []
    for number in range(draw(st.integers(3, 8))):
        name = f"s{number}"
        used = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        kind = draw(st.sampled_from(["plain", "hedge", "condition", "early", "race"]))
        if kind == "race" and len(unused) > 1:
            racing = draw(st.lists(st.sampled_from(unused), min_size=2, max_size=3, unique=True))
            names, unused = [[one for one in ones if one not in racing] for ones in (names, unused)]
            steps.append(am.first_of(name, racing))
            used = []
        else:
            options: dict[str, Any] = {}
            prompt = f"{name} {' '.join(f'{{{{ {one} }}}}' for one in used)}"
            if kind == "hedge":
                options["hedge"] = draw(st.sampled_from([0.5, 2.0, 4.0]))
            elif kind in {"condition", "early"} and (others := [one for one in names if one not in used]):
                about = draw(st.sampled_from(others))
                options["when"] = f"'{draw(st.integers(0, 3))}' in ({about} | string)"
                options["speculate"] = kind == "early"
                used.append(about)
            steps.append(am.Agent(name, prompt, **options))
            unused.append(name)
        unused = [one for one in unused if one not in used]
        names.append(name)
    return am.Plan(steps)


@st.composite
def controls(draw: st.DrawFn, names: list[str]) -> list[tuple[float, str, Any]]:
    """What a person does during a run; a pause ends."""
    some = st.lists(st.sampled_from(names), min_size=1, max_size=2)
    one = st.tuples(st.sampled_from([0.5, 2.0, 4.0, 6.5]), st.sampled_from(["retry", "skip", "stop"]), some)
    asked = draw(st.lists(one, max_size=3))
    return [*asked, (1.5, "pause", None), (2.5, "resume", None)] if draw(st.booleans()) else asked


def answers(seed: int, *, together: bool = True) -> Any:
    """A provider that answers with numbers and fails at times; `together` in whole seconds, so that ends coincide."""

    def script(prompt: str, number: int) -> Reply:
        chance = Random(f"{seed} {prompt} {number}")
        takes_s = chance.choice([1.0, 2.0, 3.0, 9.0]) if together else chance.uniform(0.6, 9.0)
        failing = chance.random()
        if failing < 0.2:
            return Reply(takes_s, NO, status=400) if failing < 0.1 else Reply(takes_s, BUSY, status=529)
        return Reply(takes_s, text=str(chance.randint(0, 9999)), first_s=0.5)

    return script


POLICIES = st.builds(
    Policy,
    concurrency=st.sampled_from([1, 2, 20]),
    seed=st.just(1),
    max_attempts=st.integers(1, 2),
    deadline_s=st.sampled_from([None, None, 5.0]),
    timeout_s=st.sampled_from([60.0, 4.0]),
    schedule=st.sampled_from(["ready", "layers", "sequential"]),
)


@settings(max_examples=20_000 if NIGHTLY else 200, deadline=None)
@given(plans(), POLICIES, st.integers(0, 99), st.data())
def test_every_run_ends(plan: am.Plan, policy: Policy, seed: int, data: st.DataObject) -> None:
    """Each step has an end of a known kind, a race an answer if a candidate has one; a replay ends as the run did."""
    record, _ = drive(plan, answers(seed), policy, controls=data.draw(controls([one.name for one in plan.agents])))
    assert {one.kind for one in record.results} <= KINDS
    assert all(one.status for one in record.results)
    for number, one in enumerate(record.results):
        parents = [record.results[at].status for at in plan.dag.parents[number]]
        if one.status == "succeeded" and not plan.agents[number].race:
            assert {"succeeded"} >= set(parents)
        if one.kind == "NoAnswer":
            assert "succeeded" not in parents
    with TemporaryDirectory() as folder:
        am.Run(record).save(f"{folder}/run.jsonl")
        found = plan.replay(f"{folder}/run.jsonl").record
    assert [(one.status, one.kind, one.finished_s, one.text) for one in record.results] == [
        (one.status, one.kind, one.finished_s, one.text) for one in found.results
    ]


@settings(max_examples=20_000 if NIGHTLY else 100, deadline=None)
@given(plans(), POLICIES, st.integers(0, 99))
def test_a_forecast_of_what_was_ends_as_it_did(plan: am.Plan, policy: Policy, seed: int) -> None:
    """The same steps are kept and dropped at the same times; what a deadline cut goes on in a forecast."""
    record, _ = drive(plan, answers(seed, together=False), replace(policy, deadline_s=None, timeout_s=60.0))
    found = am.Run(record).forecast().record
    assert [(one.name, one.status, one.kind, one.finished_s) for one in record.rows] == [
        (one.name, one.status, one.kind, one.finished_s) for one in found.rows
    ]


def checked(text: str) -> Any:
    """A provider that gives one answer, late to prompts with `slow` in them, and rejects those with `no` in them."""

    def script(prompt: str, _: int) -> Reply:
        return Reply(1.0, NO, status=400) if "no" in prompt else Reply(9.0 if "slow" in prompt else 1.0, text=text)

    return script


def ends(record: Any) -> dict[str, tuple[str, Any]]:
    """How each step ended."""
    return {one.name: (one.status, one.kind) for one in record.results if one.status != "unused"}


def test_a_run_ends_at_its_deadline_while_a_condition_is_open() -> None:
    """A step that began early fails then, like the step that its condition is about, and nobody decides any more."""
    plan = am.Plan([am.Agent("a", "slow"), am.Agent("b", "slow too", when="a == '1'", speculate=True)])
    record, _ = drive(plan, checked("1"), Policy(seed=1, deadline_s=3.0))
    assert (3.0, {"a": ("failed", "Late"), "b": ("skipped", "Skipped")}) == (record.ended_s, ends(record))


@pytest.mark.parametrize("hedge", [False, True])
def test_a_race_whose_candidates_are_all_left_out(hedge: bool) -> None:
    """The race is left out with them, and so is the step that uses it."""
    left = am.Agent("a", "A", when="start == '2'")
    if hedge:
        steps = [am.Agent("start", "S"), left, am.Agent("b", "{{ a }}", hedge=5.0), am.Agent("end", "{{ b }}")]
    else:
        other = am.Agent("c", "C", when="start == '2'")
        steps = [am.Agent("start", "S"), left, other, am.first_of("b", ["a", "c"]), am.Agent("end", "{{ b }}")]
    record, _ = drive(am.Plan(steps), checked("1"), Policy(seed=1))
    assert ("skipped", CONDITION) == ends(record)["end"] == ends(record)["b"]


def test_a_step_does_not_begin_early_without_what_its_prompt_uses() -> None:
    """What it uses was left out, so it is not asked although its own condition is still open."""
    steps = [
        am.Agent("start", "S"),
        am.Agent("a", "A", when="start == '2'"),
        am.Agent("late", "slow"),
        am.Agent("b", "B {{ a }}", when="late == '1'", speculate=True),
    ]
    record, client = drive(am.Plan(steps), checked("1"), Policy(seed=1))
    assert ("skipped", CONDITION) == ends(record)["b"]
    assert 2 == len(client.asked)


def test_a_race_that_was_skipped_can_be_asked_again() -> None:
    """It waits for those that run again with it, and for no others."""
    steps = [
        am.Agent("a", "no"),
        am.Agent("b", "slow"),
        am.first_of("first", ["a", "b"]),
        am.Agent("end", "{{ first }}"),
    ]
    skip, again = (0.5, "skip", ["first"]), (2.0, "retry", None)
    record, _ = drive(am.Plan(steps), checked("1"), Policy(seed=1), controls=[skip, again])
    assert ("succeeded", None) == ends(record)["first"]


def test_a_hedge_that_is_asked_again_is_asked_at_once() -> None:
    """Its first request is overdue already; both fail with the run's deadline, and each has one end."""

    def script(_: str, number: int) -> Reply:
        return Reply(1.0, NO, status=400) if number == 2 else Reply(9.0)

    plan, policy = am.Plan([am.Agent("a", "A", hedge=0.5)]), Policy(2, seed=1, deadline_s=5.0, max_attempts=1)
    record, _ = drive(plan, script, policy, controls=[(4.0, "retry", ["a_hedge"])])
    assert ([0.5, 4.0], 5.0) == ([one.started_s for one in record["a_hedge"].attempts], record.ended_s)
    assert {"a": "cancelled", "a_first": "failed", "a_hedge": "failed"} == {
        one.name: one.status for one in record.results
    }
