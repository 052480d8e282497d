"""A pacer that is told what another one had learned does as that one does."""

from __future__ import annotations

from agent_magic.engine import Pacer, Ticket
from agent_magic.forecast import Provider
from agent_magic.record import Ceiling

LIMITS = {"m": {"requests": Ceiling(1000, 900), "input": Ceiling(2e6, 1e6), "output": Ceiling(400_000, 100_000)}}
LATER_S = 60.0


def taught():
    """A pacer after twenty answers, each expected to have four times the input."""
    pacer, provider = Pacer(seed=1), Provider(LIMITS)
    for number in range(20):
        now = float(number)
        ticket = pacer.ask("m", 40_000, 4000, now)
        assert isinstance(ticket, Ticket)
        provider.take("m", 10_000, now)
        pacer.heard(ticket, provider.readings("m", now + 0.3), now + 0.3)
        pacer.finished(ticket, 10_000, 40, now + 0.8)
    return pacer


def starts(pacer, count=150):
    """When the pacer lets so many requests go that all want to go at once."""
    now, found = LATER_S, []
    while len(found) < count:
        answer = pacer.ask("m", 40_000, 4000, now)
        if isinstance(answer, Ticket):
            found.append(round(now - LATER_S, 6))
        else:
            now = answer.until_s
    return found


def told(learned):
    """A pacer that knows the limits, and what it is told."""
    pacer = Pacer(seed=1)
    pacer.recall(taught().ceilings(), learned, LATER_S)
    return pacer


def test_what_was_learned_goes_on():
    """The same requests leave at the same times; without it, later: large ones are expected then."""
    expected = starts(taught())
    assert expected == starts(told(taught().learned(LATER_S)))
    assert starts(told({}))[-1] > 1.5 * expected[-1]


def test_what_is_left_of_a_limit_is_learned_too():
    """A bucket that was nearly empty is not taken for a full one."""
    learned = taught().learned(LATER_S)
    empty = {"m": learned["m"]._replace(levels=(2.0, 1e6, 1e5))}
    assert starts(told(empty), 30)[-1] > 1.5
    assert starts(told(learned), 30)[-1] < 1.5
