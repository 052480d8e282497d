"""Forecasts beside the runs that came after them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

import agent_magic as am
from agent_magic import Limits, calibration
from agent_magic.api import Agent, Ledger, Plan, Policy, Run
from agent_magic.engine import Pacer
from tests.live.virtual import MODEL, Reply, Scripted, drive

CHEAP, DEAR = "claude-haiku-5-5", "claude-sonnet-5-5"
PLAN = Plan([Agent("a", "one"), Agent("b", "two"), Agent("c", "{{ a }} {{ b }}")])


def ran(policy, plan=PLAN, **more):
    """Run a plan on a virtual clock."""
    return Run(drive(plan, lambda prompt, _: Reply(float(len(prompt)), first_s=0.5), policy, **more)[0])


def test_a_forecast_that_was_run_is_put_beside_it():
    """What was predicted and what was measured stand in one row; what was never run has none."""
    base = ran(Policy(2))
    base.whatif(concurrency=[1, 2, 3])
    frame = calibration(base, ran(Policy(1)))
    assert [1] == list(frame["concurrency"])
    row = frame.iloc[0]
    assert abs(row["wall_error"]) < 0.01
    assert row["wall_in_range"]
    assert abs(row["cost_error"]) < 1e-9
    assert row["measured_rate_limited"] == row["predicted_rate_limited"] == 0
    assert row["made"] == "before"


def test_a_run_that_nobody_forecast_is_forecast_afterwards():
    """Without a what-if there is a row all the same: from the earliest run that it repeats in another way."""
    base, fewer, less = ran(Policy(2)), ran(Policy(1)), ran(Policy(2), Plan([Agent("a", "one"), Agent("c", "{{ a }}")]))
    frame = calibration(less, fewer, base)
    assert ["afterwards", "afterwards"] == list(frame["made"])
    assert [1, 2] == list(frame["concurrency"])
    assert ["b"] == list(frame["drop"].dropna())
    assert abs(frame["wall_error"][0]) < 0.01
    assert calibration(base).empty


def test_another_plan_is_no_measure_of_it():
    """A changed prompt or an earlier run is not what was forecast; a changed model is forecast afterwards."""
    base = ran(Policy(2))
    base.whatif(concurrency=1)
    other = Plan([*PLAN.agents[:2], replace(PLAN.agents[2], prompt="{{ a }} or {{ b }}")])
    dearer = Plan([replace(agent, model="claude-opus-5-5") for agent in PLAN.agents])
    frame = calibration(base, ran(Policy(1), other), ran(Policy(1), dearer), base)
    assert [("afterwards", "claude-opus-5-5")] == list(zip(frame["made"], frame["model"], strict=True))


def test_a_run_under_the_limits_that_were_asked_for_counts():
    """A forecast of other limits is held only against a run that found those."""
    base = ran(Policy(2), pacer=Pacer())
    base.whatif(limits=[60, 120])
    frame = calibration(base, ran(Policy(2), pacer=Pacer({MODEL: Limits(60)})))
    assert ["60 requests"] == list(frame["limits"])


def test_a_dropped_agent_is_matched_by_the_plan_without_it():
    """Its name is in the row."""
    base = ran(Policy(2))
    base.whatif(drop="b")
    frame = calibration(base, ran(Policy(2), Plan([Agent("a", "one"), Agent("c", "{{ a }}")])))
    assert ["b"] == list(frame["drop"])


def test_a_run_that_measures_nothing_says_why():
    """Answers from the ledger took no time: the row stands there without numbers, and with the reason."""
    ledger = Ledger()
    base = ran(Policy(2), ledger=ledger)
    base.whatif(concurrency=1)
    frame = calibration(base, ran(Policy(1), ledger=ledger))
    assert ["3 of 3 answers from the ledger"] == list(frame["left_out"])
    assert frame[["measured_wall_s", "wall_error", "wall_in_range", "measured_cost_usd"]].isna().all(axis=None)
    assert calibration(base, ran(Policy(1)))["left_out"].isna().all()


def worst(a):
    """Return the beginning of an answer."""
    return a[:1]


STEPS = {
    "a task": Plan([Agent("a", "one"), am.Task("worst", worst), Agent("b", "{{ worst }}")]),
    "a group": Plan([Agent("g", "Good? {{ item }}", each="rows", group=3, returns=bool)], {"rows": list(range(6))}),
    "a hedge": Plan([Agent("h", "one", hedge=900.0)]),
    "a race": Plan([Agent("a", "one"), Agent("b", "longer"), am.first_of("c", "a,b"), Agent("d", "{{ c }}")]),
}
GROUPED = json.dumps({"answers": [{"item": number, "answer": True} for number in (1, 2, 3)]})


@pytest.mark.parametrize("plan", STEPS.values(), ids=STEPS)
def test_a_plan_with_steps_that_ask_no_model_is_compared_too(plan):
    """A task has no model to change, and a run that repeats it is forecast like any other."""
    base, slower = (
        Run(drive(plan, lambda prompt, _: Reply(float(len(prompt)), text=GROUPED), Policy(slots))[0])
        for slots in (2, 1)
    )
    base.raise_for_failures()
    frame = calibration(base, slower)
    assert [(1, "afterwards")] == list(zip(frame["concurrency"], frame["made"], strict=True))


@dataclass
class Sure:
    """An answer, and how sure it is."""

    sure: float


class Script(Scripted):
    """Whose cheap model is as sure of each prompt as it says, and whose dear one is of all."""

    async def send(self, request, stream):
        """Answer a request."""
        sure = self.script[request.prompt] if request.model == CHEAP else 0.9
        return await self._play(Reply(2.0, text=json.dumps({"sure": sure})), request, stream)


def test_a_cascade_is_compared_with_one_of_its_models():
    """Of a cascade all rows change to that model, also one that had escalated to it; the row names what was asked."""
    given = {"escalate": "answer.sure < 0.7", "cascade": [CHEAP, DEAR], "returns": Sure}
    answers = Script({"a": 0.9, "b": 0.1})
    base, again, alone = (
        Run(drive(Plan([Agent(name, name, **options) for name in "ab"]), answers, Policy(slots))[0])
        for options, slots in ((given, 2), (given, 1), ({"model": DEAR, "returns": Sure}, 2))
    )
    assert [CHEAP, DEAR] == [one.model_used for one in base.record.results]
    frame = calibration(base, again, alone)
    assert [(f"{CHEAP} → {DEAR}", 1), (DEAR, 2)] == list(zip(frame["model"], frame["concurrency"], strict=True))
    surer = {**given, "escalate": "answer.sure < 1"}
    later = Run(drive(Plan([Agent(name, name, **surer) for name in "ab"]), answers)[0])
    assert calibration(alone, base, later).shape[0] == 1  # no forecast of a run asks for another cascade
