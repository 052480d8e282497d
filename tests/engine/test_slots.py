"""Retries at full concurrency first, and one at a time when failures say that a crowd is the trouble."""

from __future__ import annotations

import pytest

from agent_magic import Policy
from agent_magic.declare import build_dag
from agent_magic.engine import Failure, Slots, failure_of
from agent_magic.errors import Overloaded, RateLimited, Rejected, Truncated, Unreachable
from tests.engine.clockwork import Clockwork, Step

CROWDED = Failure("529", 3, crowded=True)
OTHER = Failure("cut", 3)


@pytest.mark.parametrize(
    ("error", "crowded"),
    [(Overloaded("x"), True), (Unreachable("x"), True), (RateLimited("x"), False), (Truncated("x"), False)],
)
def test_what_a_crowd_can_cause(error: Exception, crowded: bool):
    """Overload and lost connections; a 429 is the pacer's, and a garbled reply nobody's."""
    assert crowded == failure_of(error, 3).crowded
    assert not failure_of(Rejected("x", status=400), 3).crowded


def test_the_last_try_goes_alone_where_half_have_failed():
    """Not before an agent's last try, not for others' reasons, and not on less evidence."""
    slots = Slots(8)
    for _ in range(4):
        slots.failed(0, CROWDED, tries_left=2)
    assert 8 == slots.width
    slots.failed(0, OTHER, tries_left=1)
    assert 8 == slots.width
    slots.failed(0, CROWDED, tries_left=1)
    assert 1 == slots.width
    slots = Slots(8)
    slots.failed(0, CROWDED, tries_left=2)
    slots.failed(0, CROWDED, tries_left=1)
    assert 8 == slots.width


def test_one_agents_bad_luck_holds_nobody_up():
    """Where most attempts were answered, its last try goes with the others."""
    slots = Slots(8)
    for _ in range(6):
        slots.answered(9)
    slots.failed(0, CROWDED, tries_left=2)
    slots.failed(0, CROWDED, tries_left=1)
    assert 8 == slots.width


def test_each_answer_doubles_the_width():
    """From one at a time back to all at once."""
    slots = Slots(6)
    for _ in range(3):
        slots.failed(0, CROWDED, tries_left=1)
    widths = [slots.width]
    slots.answered(9)  # somebody else's: the last try is still to come
    widths.append(slots.width)
    slots.ended(0)
    for _ in range(4):
        slots.answered(9)
        widths.append(slots.width)
    assert [1, 1, 2, 4, 6, 6] == widths


def test_a_service_that_bears_one_at_a_time_is_served_in_the_end():
    """Six agents, three tries each, against a service that fails whenever two are asking at once: all succeed."""
    dag = build_dag([()] * 6)
    clock: Clockwork

    def step(agent: int, number: int) -> Step:
        del agent, number
        return Step(1.0, CROWDED if clock.running else None)

    clock = Clockwork(dag, step, policy=Policy(6, seed=1))
    clock.run()
    assert ["succeeded"] * 6 == [clock.status[agent] for agent in range(6)]
    assert max(number for _, _, number, _ in clock.launches) <= 3
