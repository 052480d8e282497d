"""Interfaces of the engine: its actions for a driver, outcomes that this reports, and the writer of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agent_magic.record.answer import NOT_BILLED, NOTHING_USED
from agent_magic.record.events import AgentEnded, AgentReady

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Mapping, Sequence

    from agent_magic.declare.flow import Left
    from agent_magic.declare.resources import Held
    from agent_magic.engine.admission.budget import Worst
    from agent_magic.engine.admission.prefix import Prefixes
    from agent_magic.engine.calls import Call, Result, Wanted
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.policy import Batching
    from agent_magic.engine.retry import Failure
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer, Price, Source, Status, Usage
    from agent_magic.record.reasons import Reason
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


NO_STEPS: Final = frozenset[int]()


class Choices(Protocol):
    """Decides during a run which steps are skipped; see `agent_magic.declare.flow`."""

    @property
    def decides(self) -> Container[int]:
        """Steps to decide about once their parents are done."""
        ...

    @property
    def ahead_of(self) -> Mapping[int, frozenset[int]]:
        """Steps that start before their decision, each with the parents it does not wait for."""
        ...

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None: ...


class Requests(Protocol):
    """Writes the requests of a run's steps and bounds their use."""

    @property
    def models(self) -> Sequence[str]: ...

    @property
    def limit_classes(self) -> Sequence[str]: ...

    @property
    def prefixes(self) -> Prefixes | None: ...

    @property
    def batching(self) -> Batching | None: ...

    def max_turns(self, step: int) -> int: ...

    def write(self, step: int) -> Request:
        """Return the request of a step; raise a `DeclarationError` if its prompt cannot be filled in."""
        ...

    def need(self, step: int) -> Need: ...

    def identity(self, step: int) -> Hashable:
        """Return a key of the step's first request: equal keys share one answer, except `None`."""
        ...

    def count(self, step: int) -> bool:
        """Queue the step's next request for token counting; return True if it must wait for the count."""
        ...

    def to_count(self) -> Sequence[tuple[int, Request]]: ...

    def counted(self, step: int, tokens: int | None) -> None: ...

    def used(self, step: int, usage: Usage, model: str) -> None:
        """Record the usage of a request, which may exceed its estimate."""
        ...

    def close(self, step: int) -> bool:
        """Make the step's next request the last of its conversation; return True if this is a change."""
        ...

    @property
    def checked(self) -> Mapping[int, bool]:
        """Steps with a check of the answer; True if only the last turn is checked."""
        ...

    def fault(self, step: int, answer: Answer) -> CallError | None:
        """Return the error in an answer; `Escalated` asks for the next model of the cascade."""
        ...

    @property
    def falls_back(self) -> bool: ...

    def fall_back(self, step: int) -> bool:
        """Switch to the next fallback model; return False if there is none or the conversation has begun."""
        ...

    def shares(self, step: int) -> bool:
        """Return whether the step's next request can still read the shared cached context."""
        ...

    def ease(self, step: int) -> bool:
        """Make the step's next request cheaper, if the policy allows; `fall_back` then returns True once."""
        ...

    def escalate(self, step: int) -> None: ...

    def is_silent(self, answer: Answer) -> bool:
        """Return whether the answer after tool calls is empty, so that it is asked for once more."""
        ...

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        """Record the turn to continue, with the user message `reply` after it; `None` starts a new conversation."""
        ...

    def answered(self, step: int, text: str) -> None: ...

    @property
    def tasks(self) -> Mapping[int, Wanted]: ...

    @property
    def flow(self) -> Choices | None: ...

    @property
    def holds(self) -> Mapping[int, tuple[Held, ...]]: ...

    @property
    def asked_of(self) -> Container[int]:
        """Steps with answers that need approval before they are passed on."""
        ...

    @property
    def saved(self) -> Container[int]:
        """Steps with answers that are saved to files before they are passed on."""
        ...

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]: ...

    def called(self, call: Call, result: Result) -> None: ...


class Outcome(NamedTuple):
    """The outcome of one request, as the driver reports it."""

    answer: Answer | None = None
    failure: Failure | None = None  # `None` for an answer or an aborted request
    status: int | None = None
    usage: Usage | None = None
    source: Source | None = None
    partial: str = ""  # text received before the response broke off
    readings: Readings | None = None
    price: Price | None = None  # `None` to compute it from usage
    worker: str = ""


UNSENT = Outcome(usage=NOTHING_USED, price=NOT_BILLED)


UNBOUNDED = 1_000_000


class WithoutCalls:
    """Defaults of `Requests` for steps without tools, cascades and other models."""

    tasks: Mapping[int, Wanted] = {}
    holds: Mapping[int, tuple[Held, ...]] = {}
    flow: Choices | None = None
    asked_of: Container[int] = frozenset[int]()
    saved: Container[int] = frozenset[int]()
    batching: Batching | None = None
    falls_back = False

    def identity(self, step: int) -> Hashable:
        del step
        return None

    def close(self, step: int) -> bool:
        del step
        return False

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        del step, answer
        return ()

    def called(self, call: Call, result: Result) -> None: ...

    def fall_back(self, step: int) -> bool:
        del step
        return False

    def shares(self, step: int) -> bool:
        del step
        return True

    def ease(self, step: int) -> bool:
        del step
        return False

    def escalate(self, step: int) -> None: ...

    def is_silent(self, answer: Answer) -> bool:
        del answer
        return False

    def max_turns(self, step: int) -> int:
        del step
        return UNBOUNDED


FOREVER: Final = float("inf")


class Hold(NamedTuple):
    """The request must wait."""

    reason: Reason
    until_s: float  # try again then, and after every answer, which may free more than expected
    falls_back: bool = False  # its model does not answer now and another may


class Never(NamedTuple):
    """The request can never be sent in this run."""

    why: str
    kind: str  # its class, such as `BudgetExceeded`
    keeps: bool = False  # end as `capped`, passing on the partial answer
    falls_back: bool = False  # its model does not answer and another may


class Need(NamedTuple):
    """The needs of a request."""

    model: str
    input_tokens: int
    output_tokens: int  # expected; the pacer learns the real distribution
    worst: Worst
    free: bool = False  # its answer is available and nothing is sent
    shared_tokens: int = 0  # input that may be read from the cache, outside of limits
    least: Worst | None = None  # the most with the shortest possible input; `None` if only `worst` is known
    keeps: bool = False  # a partial answer can be passed on if the budget does not allow the rest


class Room(Protocol):
    """Admits agents."""

    def line(self, agent: int) -> str: ...

    def enter(self, agent: int, now: float) -> Hold | Never | None:
        """Reserve for the agent and return `None`, or return the hold."""
        ...
