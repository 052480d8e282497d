"""What was recommended, forecast or tried becomes a changed plan and policy; the run stays as it is."""

from __future__ import annotations

import contextlib

import pandas as pd
import pytest

from agent_magic.api import Run
from agent_magic.errors import DeclarationError
from agent_magic.forecast.advice.rules import Finding
from agent_magic.measure.trial import Setting, Trial
from tests.measure.test_trial import trial
from tests.show.story import business_run

OPUS = "claude-opus-5-5"


@pytest.fixture
def run() -> Run:
    """Nine agents of a business plan."""
    return Run(business_run())


def test_a_row_of_a_whatif_changes_agents_and_policy(run):
    """Its columns that say something; what is so already is no change."""
    before = [agent.model for agent in run.plan.agents]
    frame = run.whatif(model=[OPUS], concurrency=[1, 3])
    found = run.apply(frame.iloc[1])
    assert {OPUS} == {agent.model for agent in found.plan.agents}
    assert 3 == found.policy.concurrency
    assert any(f"-> {OPUS}" in line for line in found.lines)
    assert any(line.startswith("run: concurrency ") and line.endswith("-> 3") for line in found.lines)
    assert before == [agent.model for agent in run.plan.agents]


def test_what_is_so_already_changes_nothing(run):
    """And says so."""
    policy = run.forecaster().policy
    found = run.apply({"concurrency": policy.concurrency})
    assert ([], policy) == (found.lines, found.policy)
    assert "Nothing changes" in repr(found)


def test_a_frame_of_one_row_is_its_row(run):
    """As `frame.head(1)` and a filter give it."""
    frame = run.whatif(concurrency=[3])
    assert 3 == run.apply(frame[frame["concurrency"] == 3]).policy.concurrency


def test_agents_are_dropped(run):
    """Those that nobody needs."""
    last = run.plan.layers[-1][0]
    found = run.apply({"drop": last})
    assert last not in found.plan.names
    assert f"{last}: dropped" in found.lines


def test_a_finding_is_applied_or_says_that_a_person_has_to(run):
    """By the arguments of a what-if that it carries."""
    finding = Finding("r", "m", change="Run it with concurrency=2.", source="s", apply={"concurrency": 2})
    assert 2 == run.apply(finding).policy.concurrency
    with pytest.raises(DeclarationError, match="Nobody but you can do that: Shorten it"):
        run.apply(Finding("r", "m", change="Shorten it", source="s"))
    with pytest.raises(DeclarationError, match="There is no change 99"):
        run.apply(99)
    for one in run.advise().changes:
        with contextlib.suppress(DeclarationError):  # one that nobody but a person can do
            assert run.apply(one).lines == run.apply(run.advise().changes.index(one) + 1).lines
        if one.apply:
            assert run.apply(one).lines


def test_what_a_trial_chose_is_applied_to_what_it_tried(run):
    """To the agents that were graded, and no others."""
    name = run.plan.names[0]
    tried = trial([1.0, 1.0], [0.0, 0.0]).tried
    found = Trial(
        name, (Setting(OPUS, "low"), Setting("claude-haiku-5-5", None)), tried, rows=2, margin=0.1, error_rate=0.05
    )
    plan = run.apply(found).plan
    assert (OPUS, "low") == (plan[name].model, plan[name].effort)  # pyright: ignore[reportAttributeAccessIssue]
    assert [name] == [one.name for one in plan.agents if one.model == OPUS]  # pyright: ignore[reportAttributeAccessIssue]
    run.trials.append(found)
    assert plan == run.apply(Setting(OPUS, "low")).plan


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (3.5, "3.5 cannot be applied.*run.whatif"),
        ({"wall_s": 3.0}, "changes nothing that is declared"),
        ({"rounds": 3}, "declared with the step"),
        ({"model": "a for x; b for y"}, "words for several agents"),
        (pd.DataFrame({"concurrency": [1, 3]}), "A frame of 2 rows is no change: choose one"),
    ],
)
def test_what_cannot_be_applied_is_said(run, what, message):
    """With what can."""
    with pytest.raises(DeclarationError, match=message):
        run.apply(what)
