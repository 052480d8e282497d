"""The gate of a run: what it asks whom, and what it gives back."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

from __future__ import annotations

from agent_magic import Limits
from agent_magic.engine import Budget, Gate, Need, Pacer, Pool, Worst

MODEL = "claude-haiku-5-5"


def two_gates() -> tuple[Gate, Gate]:
    """Return the gates of two runs of a session that may send a request a second."""
    pacer, need = Pacer({MODEL: Limits(requests=60)}, seed=1), Need(MODEL, 10, 10, Worst(0.0, 0))
    return Gate([MODEL] * 2, lambda _: need, pacer=pacer), Gate([MODEL] * 2, lambda _: need, pacer=pacer)


def test_what_flows_in_is_saved_for_who_waits_longest():
    """The other run waits behind it, though there is room."""
    first, second = two_gates()
    assert first.enter(0, 1.0) is None
    until_s = first.enter(1, 1.0).until_s
    assert second.enter(0, 1.0) is not None
    assert "requests" == second.enter(0, until_s).reason


def test_a_run_that_was_paused_gives_its_turn_away():
    """Nothing is saved for it, nor for one that is over."""
    first, second = two_gates()
    first.enter(0, 1.0)
    until_s = first.enter(1, 1.0).until_s
    first.forgo()
    assert second.enter(0, until_s) is None


def test_a_run_without_a_slot_gives_its_turn_away():
    """A turn that it could not use would be idle for two seconds."""
    first, second = two_gates()
    first.enter(0, 1.0)
    until_s = first.enter(1, 1.0).until_s
    pool = Pool()
    seat, other = pool.join(1, lambda: True), pool.join(1, lambda: True)
    first.begin(0.0, seat)
    other.take()
    assert "slot" == first.enter(1, until_s).reason
    assert second.enter(0, until_s) is None


def test_a_provider_that_says_to_wait_is_named_with_the_time_that_is_left():
    """Nobody of that class goes meanwhile; a second, which is over before anybody reads of it, is not told."""
    need = Need(MODEL, 10, 10, Worst(0.0, 0))
    gate, began_s = Gate([MODEL] * 2, lambda _: need, pacer=Pacer(seed=1)), 0.0
    for wait_s, left in ((1.0, ()), (30.0, (f"{MODEL} was told to wait (429): 30.0 s more",))):
        assert gate.enter(0, 10.0) is None
        gate.refused(0, wait_s, None, None, 10.0)
        assert left == gate.halted(10.5)
        assert () == gate.halted(50.0)
        began_s += 100.0
        gate.begin(began_s, None)


def test_where_a_budget_has_no_room_for_a_turn_the_last_one_may_fit():
    """It is cheaper, and tried only where waiting does not help. Where it does not fit either, what there is stays."""
    turn = Need(MODEL, 10, 10, Worst(2.0, 0), keeps=True)
    needs = [turn]

    def close(agent: int) -> bool:
        needs.append(needs[-1]._replace(worst=Worst(1.0, 0)))
        return len(needs) == 2

    for cap_usd, held in ((1.5, None), (0.5, ("BudgetExceeded", True))):
        del needs[1:]
        gate = Gate([MODEL], lambda _: needs[-1], budget=Budget(cap_usd), close=close)
        never = gate.enter(0, 0.0)
        assert held == (None if never is None else (never.kind, never.keeps))
        assert 2 == len(needs)
