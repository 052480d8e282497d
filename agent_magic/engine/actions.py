"""What the engine says: actions for its driver, and decisions of the conductor that become events. Plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.events import AgentEnded, AgentReady

if TYPE_CHECKING:
    from agent_magic.engine.calls import Call
    from agent_magic.record.answer import Status
    from agent_magic.record.request import Request


class Send(NamedTuple):
    """Send the next request of a step now.

    Attributes:
        number: 1 for its first attempt.
        held_by: What it waited for: `slot`, `barrier`, `backoff`, a limit, `paused`, `retry`, or an empty string.
    """

    step: int
    number: int
    held_by: str


class Begin(NamedTuple):
    """Call a function, and report its end by `Engine.call_ended`."""

    call: Call


class Ask(NamedTuple):
    """Ask a person whether this may be done, and report the answer by `Engine.decided`.

    Attributes:
        call: A call that is to begin; for an answer that is to be passed on, a call without a function.
    """

    call: Call


class Count(NamedTuple):
    """Have the input of a request counted, and report it by `Engine.counted`."""

    step: int
    request: Request


class Abort(NamedTuple):
    """Stop what is under way for a step, and report its end.

    Attributes:
        why: `late` where the step's deadline has passed, `over` the run's, `stopped` where somebody asked.
    """

    step: int
    why: str


class WakeAt(NamedTuple):
    """Call `wake` at this time, if not called before."""

    at_s: float


class Done(NamedTuple):
    """Nothing runs and nothing waits. `cut` where somebody stopped the run."""

    cut: bool


class Backoff(NamedTuple):
    """The attempt failed; another follows at `until_s`, not sooner."""

    step: int
    until_s: float
    why: str


class Skipped(NamedTuple):
    """The step will not run, because an ancestor, `cause`, did not succeed. This is its last status."""

    step: int
    cause: int

    @property
    def status(self) -> Status:
        """As `AgentEnded` has one."""
        return "skipped"


class Reopened(NamedTuple):
    """The step had ended without success and is to run again. It waits for its parents as at first."""

    step: int


Action = Send | Begin | Ask | Count | Abort | WakeAt | Done
"""What a driver does."""
Decision = Send | Abort | WakeAt | Done | AgentReady | AgentEnded | Skipped | Backoff | Reopened
"""What the conductor decides."""
