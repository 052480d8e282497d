"""What a run ran under is kept with its record."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

from agent_magic import Agent, Limits, Policy
from agent_magic.api import Ledger
from agent_magic.declare import Plan
from agent_magic.engine import Pacer
from agent_magic.record import Ceiling
from agent_magic.record.terms import Learned
from tests.live.virtual import MODEL, Reply, drive

NOTHING = Learned((1, 1), (1, 1), (0, 0), 0, 8, (0, 0, 0), (0, 0, 0))
PLAN = Plan([Agent("a", "one"), Agent("b", "two {{ a }}")])


def test_the_policy_is_kept_and_the_seed_that_was_drawn():
    """A policy without a seed gets one, so that a forecast can draw the same jitter."""
    record, _ = drive(PLAN, lambda *_: Reply(), Policy(3, schedule="layers"))
    assert Policy(**record.terms.policy) == Policy(3, schedule="layers", seed=record.terms.policy["seed"])
    assert isinstance(record.terms.policy["seed"], int)
    assert not record.terms.paced


def test_the_limits_that_were_known_are_kept():
    """Those the user gave are known from the first request on, per model class and minute."""
    record, _ = drive(PLAN, lambda *_: Reply(), pacer=Pacer({MODEL: Limits(requests=120)}))
    assert record.terms.paced
    assert {} == record.terms.before
    assert {MODEL: {"requests": Ceiling(120, 2.0)}} == record.terms.after


def test_a_run_opened_from_the_ledger_has_them_all(tmp_path):
    """What was learned by its end too."""
    ledger = Ledger(tmp_path / "runs.sqlite3")
    record, _ = drive(PLAN, lambda *_: Reply(), pacer=Pacer({MODEL: Limits(requests=120)}), ledger=ledger)
    assert record.terms == ledger.open(1).record.terms
    assert record.terms.after
    ledger.close()


def test_what_the_pacer_had_learned_is_kept(tmp_path):
    """A second run of a session knows what the answers of the first one taught, and so does its forecast."""
    plan = Plan([Agent(f"a{n}", f"{n}", max_tokens=4000) for n in range(12)])
    pacer = Pacer({MODEL: Limits(1000, output_tokens=200_000, burst_s=60.0)})
    ledger = Ledger(tmp_path / "runs.sqlite3")

    def again():
        return drive(plan, lambda *_: Reply(1.0, first_s=0.5, tokens=(10, 50, 0, 0)), pacer=pacer, ledger=ledger)[0]

    first, second = again(), again()
    assert (0, 12) == (first.terms.learned.get(MODEL, NOTHING).answers, second.terms.learned[MODEL].answers)
    assert second.terms == ledger.open(2).record.terms
    ledger.close()
