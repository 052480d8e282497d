"""What has to be said of a run in words."""

from __future__ import annotations

from agent_magic.declare.agent import Agent
from agent_magic.declare.plan import Plan
from agent_magic.record.events import AgentEnded
from agent_magic.record.results import RunRecord
from agent_magic.schedule.policy import Policy
from agent_magic.show.notes import budget_note
from tests.run.virtual import Reply, drive


def stopped(**errors: str) -> RunRecord:
    """A run of which these agents ended with these errors."""
    record = drive(Plan([Agent(name, "x") for name in errors]), lambda *_: Reply(1.0))[0]
    for number, error in enumerate(errors.values()):
        record.add(AgentEnded(9.0, number, "cancelled", error))
    return record


def test_a_budget_that_ends_says_how_to_go_on() -> None:
    """Whom it kept from being asked, and that more of it goes on; silence where it kept nobody."""
    record = stopped(a="BudgetExceeded: $1 of $2 are spent", b="stopped")
    note = budget_note(record, Policy(budget_usd=0.5))
    assert "Not asked, the budget of $0.5000 being too small for their worst case: a. A run with more goes on." == note
    assert "budget of 1,000 tokens" in budget_note(record, Policy(budget_tokens=1000))
    assert not budget_note(stopped(a="stopped"), Policy(budget_usd=0.5))
