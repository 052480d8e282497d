"""Outputs of the engine: actions for its driver, and decisions that become events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.events import AgentEnded, AgentReady

if TYPE_CHECKING:
    from agent_magic.engine.calls import Call
    from agent_magic.record.answer import Status
    from agent_magic.record.request import Request


class Send(NamedTuple):
    """Send the next request of a step now."""

    step: int
    number: int
    held_by: str  # `slot`, `barrier`, `backoff`, a limit, `paused`, `retry`, or empty


class Begin(NamedTuple):
    """Call a function, and report its result with `Engine.call_ended`."""

    call: Call


class Ask(NamedTuple):
    """Ask a person to approve a call, or an answer if it has no function; report it with `Engine.decided`."""

    call: Call


class Count(NamedTuple):
    """Count the input of a request, and report it with `Engine.counted`."""

    step: int
    request: Request


class Abort(NamedTuple):
    """Abort a step's request or call, and report its end."""

    step: int
    why: str  # `late`: the step's deadline; `over`: the run's; `stopped`: on demand


class WakeAt(NamedTuple):
    """Call `wake` at this time, unless it is called earlier."""

    at_s: float


class Done(NamedTuple):
    """The run is over. `cut` if a person stopped it."""

    cut: bool


class Take(NamedTuple):
    """The step takes the answer of an identical step, `leader`; nothing is sent."""

    step: int
    leader: int
    held_by: str


class Backoff(NamedTuple):
    """The attempt failed; the next may start at `until_s`."""

    step: int
    until_s: float
    why: str


class Skipped(NamedTuple):
    """The step is skipped because an ancestor, `cause`, did not succeed. Final."""

    step: int
    cause: int

    @property
    def status(self) -> Status:
        return "skipped"


class Reopened(NamedTuple):
    """The step failed and runs again, after its parents."""

    step: int


Action = Send | Begin | Ask | Count | Abort | WakeAt | Done
Decision = Send | Take | Abort | WakeAt | Done | AgentReady | AgentEnded | Skipped | Backoff | Reopened
