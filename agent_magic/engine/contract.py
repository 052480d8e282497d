"""What the engine asks of whoever writes its requests, and what its driver reports of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agent_magic.record.answer import NOT_BILLED, NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

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
    """Whoever decides, while a run goes on, which steps are left out; see `agent_magic.declare.flow`."""

    @property
    def decides(self) -> Container[int]:
        """The steps it is asked about when their parents are done."""
        ...

    @property
    def ahead_of(self) -> Mapping[int, frozenset[int]]:
        """The steps that begin before they are decided, each with the parents it does not wait for."""
        ...

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None:
        """Return why a step does not run, whose parents are done; `None` where it does.

        Args:
            step: The step.
            left: The steps that were left out so far.
        """
        ...


class Requests(Protocol):
    """What the steps of a run ask, and what each request may use."""

    @property
    def models(self) -> Sequence[str]:
        """Per step, the model it asks."""
        ...

    @property
    def limit_classes(self) -> Sequence[str]:
        """Per step, the models whose rate limits its model shares, as the provider names them."""
        ...

    @property
    def prefixes(self) -> Prefixes | None:
        """Who shares a cached context with whom; `None` shares none."""
        ...

    @property
    def batching(self) -> Batching | None:
        """Decides which requests go by batch; `None` where none does."""
        ...

    def max_turns(self, step: int) -> int:
        """Return the most requests for one answer of a step."""
        ...

    def write(self, step: int) -> Request:
        """Return the request of a step whose parents are done.

        Raises:
            DeclarationError: Its prompt cannot be filled in.
        """
        ...

    def need(self, step: int) -> Need:
        """Return what the step's next request may use."""
        ...

    def count(self, step: int) -> bool:
        """Have the input of the step's next request counted. Tells whether to wait for that."""
        ...

    def to_count(self) -> Sequence[tuple[int, Request]]:
        """Return the requests to have counted since the last call."""
        ...

    def counted(self, step: int, tokens: int | None) -> None:
        """Record how much input the step's next request has; `None` where nobody says."""
        ...

    def used(self, step: int, usage: Usage) -> None:
        """Record what a request has used, which may be more than was thought possible."""
        ...

    def close(self, step: int) -> bool:
        """Make the step's next request the last of its conversation. Tells whether it was not yet."""
        ...

    @property
    def checked(self) -> Mapping[int, bool]:
        """The steps whose answers have to fit something; whether such an answer stands in its last turn alone."""
        ...

    def fault(self, step: int, answer: Answer) -> CallError | None:
        """Return what is wrong with the answer of such a step; `None` where it fits.

        `Escalated` is nothing wrong, but says that the next model of its cascade is to answer.
        """
        ...

    @property
    def falls_back(self) -> bool:
        """Whether any step has a model to fall back to."""
        ...

    def fall_back(self, step: int) -> bool:
        """Have the step ask its next fallback model. `False` where it has none, or its conversation has begun."""
        ...

    def shares(self, step: int) -> bool:
        """Tell whether the step's next request can still read the context that others had cached."""
        ...

    def ease(self, step: int) -> bool:
        """Make the step's next request cheaper, as the policy allows. `False` where it is, or a conversation goes on.

        Its line may be another one then: `fall_back` is called next, and is `True` once.
        """
        ...

    def escalate(self, step: int) -> None:
        """Have the step ask the next model of its cascade. Called where `fault` was `Escalated`."""
        ...

    def is_silent(self, answer: Answer) -> bool:
        """Tell whether an answer that goes on from calls says nothing, so that it is asked for once more."""
        ...

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        """Record what the step's next request goes on from; `None` begins a new conversation.

        Args:
            step: The step.
            answer: The response.
            reply: What is said to it; nothing where it goes on by itself.
        """
        ...

    def answered(self, step: int, text: str) -> None:
        """Record the text of a step, which its children use."""
        ...

    @property
    def tasks(self) -> Mapping[int, Wanted]:
        """The steps that are tasks, each with the call it makes in place of requests."""
        ...

    @property
    def flow(self) -> Choices | None:
        """Decides which steps are left out; `None` leaves none out."""
        ...

    @property
    def holds(self) -> Mapping[int, tuple[Held, ...]]:
        """What steps hold while they run."""
        ...

    @property
    def asked_of(self) -> Container[int]:
        """The steps whose answers a person has to agree to before they are passed on."""
        ...

    @property
    def saved(self) -> Container[int]:
        """The steps whose answers are written to files before they are passed on."""
        ...

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        """Return the calls that a response asks for before the conversation goes on; nothing for an answer."""
        ...

    def called(self, call: Call, result: Result) -> None:
        """Record what came of a call. After the last of a turn, the next request goes on from them."""
        ...


class Outcome(NamedTuple):
    """What came of one request, as its driver reports it.

    Attributes:
        answer: The complete response; `None` where there is none.
        failure: Why there is none; `None` for an answer, and where the request was aborted.
        status: The HTTP status; `None` where no reply came.
        usage: Its tokens; `None` is unknown.
        source: Who answered; `None` where nobody did.
        partial: The text that had arrived where there is no complete response.
        readings: What the reply said of rate limits; `None` where it said nothing.
        price: What it cost, if the driver knows that; `None` has it priced by its usage.
        worker: The worker process that made it; empty where the kernel did.
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
"""Of a request that never left."""


UNBOUNDED = 1_000_000
"""So many turns no conversation has."""


class WithoutCalls:
    """The part of `Requests` that is about calls and other models, of requests that have none."""

    tasks: Mapping[int, Wanted] = {}
    holds: Mapping[int, tuple[Held, ...]] = {}
    flow: Choices | None = None
    asked_of: Container[int] = frozenset[int]()
    saved: Container[int] = frozenset[int]()
    batching: Batching | None = None
    falls_back = False

    def close(self, step: int) -> bool:
        """Do nothing."""
        del step
        return False

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        """Return nothing."""
        del step, answer
        return ()

    def called(self, call: Call, result: Result) -> None:
        """Do nothing."""

    def fall_back(self, step: int) -> bool:
        """Return `False`: there is no other model."""
        del step
        return False

    def shares(self, step: int) -> bool:
        """Return `True`: it asks what was planned."""
        del step
        return True

    def ease(self, step: int) -> bool:
        """Return `False`: no request becomes cheaper."""
        del step
        return False

    def escalate(self, step: int) -> None:
        """Do nothing: no answer is escalated."""

    def is_silent(self, answer: Answer) -> bool:
        """Return `False`: there were no calls."""
        del answer
        return False

    def max_turns(self, step: int) -> int:
        """Return no bound."""
        del step
        return UNBOUNDED
