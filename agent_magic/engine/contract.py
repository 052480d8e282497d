"""Interfaces of the engine: the writer of requests, and the driver that reports outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agent_magic.record.answer import NOT_BILLED, NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Mapping, Sequence

    from agent_magic.declare.flow import Left
    from agent_magic.declare.resources import Held
    from agent_magic.engine.admission.prefix import Prefixes
    from agent_magic.engine.admission.room import Need
    from agent_magic.engine.batching import Batching
    from agent_magic.engine.calls import Call, Result, Wanted
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.retry import Failure
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer, Price, Source, Usage
    from agent_magic.record.request import Request


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

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None:
        """Return the reason to skip a step whose parents are done, or `None` to run it."""
        ...


class Requests(Protocol):
    """Writes the requests of a run's steps and bounds their use."""

    @property
    def models(self) -> Sequence[str]:
        """The model of each step."""
        ...

    @property
    def limit_classes(self) -> Sequence[str]:
        """The rate limit class of each step's model, as the provider names it."""
        ...

    @property
    def prefixes(self) -> Prefixes | None:
        """Steps that share a cached context, or `None` if caching is off."""
        ...

    @property
    def batching(self) -> Batching | None:
        """Decides which requests are sent in batches, or `None` if none are."""
        ...

    def max_turns(self, step: int) -> int:
        """Return the maximum number of requests per answer of a step."""
        ...

    def write(self, step: int) -> Request:
        """Return the request of a step whose parents are done.

        Raises:
            DeclarationError: The prompt cannot be filled in.
        """
        ...

    def need(self, step: int) -> Need:
        """Return the most that the step's next request may use."""
        ...

    def identity(self, step: int) -> Hashable:
        """Return a key of the step's first request: equal keys share one answer, except `None`."""
        ...

    def count(self, step: int) -> bool:
        """Queue the step's next request for token counting. Return True if it must wait for the count."""
        ...

    def to_count(self) -> Sequence[tuple[int, Request]]:
        """Return the requests queued for counting since the last call."""
        ...

    def counted(self, step: int, tokens: int | None) -> None:
        """Record the input tokens of the step's next request; `None` means the count failed."""
        ...

    def used(self, step: int, usage: Usage, model: str) -> None:
        """Record the usage of a request, which may exceed its estimate, and the model that answered."""
        ...

    def close(self, step: int) -> bool:
        """Make the step's next request the last of its conversation. Return True if this is a change."""
        ...

    @property
    def checked(self) -> Mapping[int, bool]:
        """Steps with a check of the answer; True if only the last turn is checked."""
        ...

    def fault(self, step: int, answer: Answer) -> CallError | None:
        """Return the error in an answer, or `None` if it is valid.

        `Escalated` is not an error: it asks for the next model of the cascade.
        """
        ...

    @property
    def falls_back(self) -> bool:
        """True if any step has a fallback model."""
        ...

    def fall_back(self, step: int) -> bool:
        """Switch the step to its next fallback model. Return False if it has none or its conversation has begun."""
        ...

    def shares(self, step: int) -> bool:
        """Return whether the step's next request can still read the shared cached context."""
        ...

    def ease(self, step: int) -> bool:
        """Make the step's next request cheaper, as the policy allows. Return False if nothing changed.

        The model, and so the queue, may change: `fall_back` is called next and returns True once.
        """
        ...

    def escalate(self, step: int) -> None:
        """Switch the step to the next model of its cascade, after `fault` returned `Escalated`."""
        ...

    def is_silent(self, answer: Answer) -> bool:
        """Return whether the answer after tool calls is empty, so that it is asked for once more."""
        ...

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        """Record the turn that the step's next request continues; `None` starts a new conversation.

        `reply` is the user message that follows; empty to continue without one.
        """
        ...

    def answered(self, step: int, text: str) -> None:
        """Record the text of a step for its children."""
        ...

    @property
    def tasks(self) -> Mapping[int, Wanted]:
        """Steps that are tasks, each with the call it makes instead of requests."""
        ...

    @property
    def flow(self) -> Choices | None:
        """Decides which steps are skipped, or `None` if none are."""
        ...

    @property
    def holds(self) -> Mapping[int, tuple[Held, ...]]:
        """Resources that steps hold while they run."""
        ...

    @property
    def asked_of(self) -> Container[int]:
        """Steps with answers that need approval before they are passed on."""
        ...

    @property
    def saved(self) -> Container[int]:
        """Steps with answers that are saved to files before they are passed on."""
        ...

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        """Return the tool calls in a response; empty for a final answer."""
        ...

    def called(self, call: Call, result: Result) -> None:
        """Record the result of a call. After the last call of a turn, the next request includes the results."""
        ...


class Outcome(NamedTuple):
    """The outcome of one request, as the driver reports it.

    Attributes:
        failure: The error; `None` for an answer or an aborted request.
        partial: Text received before an incomplete response broke off.
        price: The cost if the driver knows it; `None` to compute it from usage.
    """

    answer: Answer | None = None
    failure: Failure | None = None
    status: int | None = None
    usage: Usage | None = None
    source: Source | None = None
    partial: str = ""
    readings: Readings | None = None
    price: Price | None = None
    worker: str = ""


UNSENT = Outcome(usage=NOTHING_USED, price=NOT_BILLED)
"""The outcome of a request that was never sent."""


UNBOUNDED = 1_000_000
"""More turns than any conversation has."""


class WithoutCalls:
    """Defaults of `Requests` for steps without tools and alternative models."""

    tasks: Mapping[int, Wanted] = {}
    holds: Mapping[int, tuple[Held, ...]] = {}
    flow: Choices | None = None
    asked_of: Container[int] = frozenset[int]()
    saved: Container[int] = frozenset[int]()
    batching: Batching | None = None
    falls_back = False

    def identity(self, step: int) -> Hashable:
        """Return `None`: no answers are shared."""
        del step
        return None

    def close(self, step: int) -> bool:
        """Do nothing."""
        del step
        return False

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        """Return no calls."""
        del step, answer
        return ()

    def called(self, call: Call, result: Result) -> None:
        """Do nothing."""

    def fall_back(self, step: int) -> bool:
        """Return False: there is no fallback model."""
        del step
        return False

    def shares(self, step: int) -> bool:
        """Return True: requests never change."""
        del step
        return True

    def ease(self, step: int) -> bool:
        """Return False: requests never become cheaper."""
        del step
        return False

    def escalate(self, step: int) -> None:
        """Do nothing: there is no cascade."""

    def is_silent(self, answer: Answer) -> bool:
        """Return False: there are no tool calls."""
        del answer
        return False

    def max_turns(self, step: int) -> int:
        """Return the unbounded number of turns."""
        del step
        return UNBOUNDED
