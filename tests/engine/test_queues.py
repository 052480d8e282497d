"""What an agent in a line is said to have waited for."""

from __future__ import annotations

from agent_magic import Policy
from agent_magic.declare import build_dag
from agent_magic.engine import Order, Queues


def three_in_a_line() -> Queues:
    """Return a line of three."""
    lines = Queues(lambda _: "", Order(build_dag([(), (), ()]), Policy(), None))
    for agent in range(3):
        lines.join(agent)
    return lines


def test_what_held_longest_is_named_not_what_held_last() -> None:
    """A short wait at the end does not hide the long one before it, and grows to be the longer one."""
    lines = three_in_a_line()
    lines.hold(0, "key", 0.0)
    lines.hold(0, "requests", 0.5)
    assert "key" == lines.leave(0, 0.0, 0.51)
    lines.hold(1, "output", 0.6)
    assert "key" == lines.leave(1, 0.0, 0.7)
    assert "output" == lines.leave(2, 0.0, 1.2)


def test_only_what_held_the_agent_itself_counts() -> None:
    """Whoever came when the long wait was over did not wait for it."""
    lines = three_in_a_line()
    lines.hold(0, "slot", 0.0)
    lines.hold(0, "input", 9.0)
    assert "input" == lines.leave(0, 8.5, 10.0)
    assert "slot" == lines.leave(1, 7.0, 10.0)


def test_an_empty_line_forgets() -> None:
    """What held a line before it was empty says nothing of who comes later."""
    lines = three_in_a_line()
    lines.hold(0, "breaker", 0.0)
    for agent in range(3):
        assert "breaker" == lines.leave(agent, 0.0, 5.0)
    lines.join(0)
    assert not lines.leave(0, 6.0, 6.0)
