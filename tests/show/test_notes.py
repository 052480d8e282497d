"""What has to be said of a run in words."""

from __future__ import annotations

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.engine import Budget, Worst
from agent_magic.record import AgentEnded, RunRecord
from agent_magic.show import REJECTED, budget_note
from agent_magic.show.notes import no_items_note, rejected_note
from tests.live.virtual import Reply, drive


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
    assert "Not sent, over the budget of $0.5000: a. Run again with a larger budget to continue." == note
    record = stopped(a="BudgetExceeded: 9 of 1,000 tokens are used, and it may take 999")
    both = Policy(budget_usd=0.5, budget_tokens=1000)
    assert "Not sent, over the budget of 1,000 tokens: a." in budget_note(record, both)
    assert not budget_note(stopped(a="stopped"), Policy(budget_usd=0.5))


def test_more_budget_does_not_help_without_a_price() -> None:
    """Of a model without a price it says so, as it was told: not that the budget is too small."""
    budget = Budget(1.0)
    record = stopped(a=f"BudgetExceeded: {budget.why_not(Worst(None, 10), 'model')}")
    note = budget_note(record, Policy(budget_usd=1.0))
    assert note.startswith("Not sent, a budget in dollars needs a known price: a. Set one: %agents prices MODEL")
    assert "over the budget" not in note


def test_who_is_not_asked_again_is_said_in_one_way():
    """Of one agent and of several, with what to do; the reason is that of the agents themselves."""
    assert "a is not asked again, since the same request was rejected as wrong. Fix it; " in rejected_note(["a"])
    assert rejected_note(["a", "b"]).startswith(f"a, b are {REJECTED}. Fix them; %agents retry a sends it")


def test_who_was_asked_about_no_items_is_named() -> None:
    """An answer about an empty list is bought; what leaves it out is said, and does."""

    def run(when: str | None) -> RunRecord:
        agents = [
            Agent("steps", "x", returns=list[str]),
            Agent("work", "{{ item }}", each="steps", most=3),
            Agent("sum", "Sum {{ work }}", when=when),
        ]
        return drive(Plan(agents), lambda *_: Reply(1.0, text='{"value": []}'))[0]

    said = 'steps has no items, so sum was asked about no answer of work. --when "work | length > 0" leaves it out.'
    assert said == no_items_note(run(None))
    left = run("work | length > 0")
    assert ("skipped", "") == (left["sum"].status, no_items_note(left))
