"""Events: the only source of all that a run shows.

Times are in seconds since the run began, on a monotonic clock, in steps of 2**-20 s: sums and differences of these are
exact, so the parts of a duration add up to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar, cast

from agent_magic.declare.content import Attachment, with_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.record.answer import Answer, Price, Source, Status, Usage
    from agent_magic.record.request import Request

TICKS_PER_S = 1 << 20
CallStatus = Literal["succeeded", "failed", "denied", "cancelled"]


def on_grid(seconds: float) -> float:
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


class AgentReady(NamedTuple):
    """All parents of an agent have succeeded."""

    at_s: float
    agent: int


class AttemptStarted(NamedTuple):
    """A request was sent. Its agent was admitted at `granted_s`, and waited for `held_by` before."""

    at_s: float
    agent: int
    number: int
    granted_s: float
    held_by: str
    request: Request
    endpoint: str = ""


class FirstToken(NamedTuple):
    """The first token of an attempt's answer arrived."""

    at_s: float
    agent: int
    number: int


class AttemptEnded(NamedTuple):
    """An attempt ended: answered (a refusal has an error, too), failed or cancelled.

    `kind` is the class of the error; `partial` the text of a broken reply; `worker` is empty for the kernel.
    """

    at_s: float
    agent: int
    number: int
    answer: Answer | None
    error: str | None
    kind: str | None
    partial: str
    usage: Usage | None
    price: Price
    source: Source | None
    status_code: int | None
    worker: str = ""


class BackoffStarted(NamedTuple):
    """An attempt failed and will be repeated at `until_s`, not sooner."""

    at_s: float
    agent: int
    until_s: float
    why: str


class CallStarted(NamedTuple):
    """A tool (`turn` and `id` say by whom) or a task is called, which is stored before.

    `code` is the fingerprint of its source, if known.
    """

    at_s: float
    agent: int
    number: int
    turn: int
    id: str
    tool: str
    arguments: str
    held_by: str = ""
    code: str = ""


class Artifact(NamedTuple):
    """A written file; its path is relative to the notebook's folder, with `/`."""

    path: str
    sha256: str


class CallEnded(NamedTuple):
    """A call ended.

    Attributes:
        status: `cancelled` if its end was not awaited: it may have finished. `denied` by a person.
        result: The text, or content blocks as JSON, sent to the model; a task's value as text.
        value: A task's value as JSON (`agent_magic.declare.values`); `None` if it cannot be serialised.
        trace: Traceback of an error, from the user's own line on.
        takes: A task's inputs as fingerprints; see `agent_magic.record.task_inputs`.
        files: Pictures and PDFs, which `result` names by their sha256.
    """

    at_s: float
    agent: int
    number: int
    status: CallStatus
    result: str
    error: str | None
    kind: str | None
    source: Source
    value: str | None = None
    prints: str = ""
    trace: str = ""
    blocks: bool = False
    takes: str = ""
    artifacts: tuple[Artifact, ...] = ()
    files: tuple[Attachment, ...] = ()
    worker: str = ""

    def with_files(self, file_of: Callable[[str], bytes]) -> CallEnded:
        return self._replace(files=with_bytes(self.files, file_of)) if self.files else self


class AgentEnded(NamedTuple):
    """An agent reached its final status; `kind` may be `Stopped` (by a person) or `Skipped` (for an ancestor)."""

    at_s: float
    agent: int
    status: Status
    error: str | None
    kind: str | None = None


class AgentReopened(NamedTuple):
    """An agent that had ended without success is to run again."""

    at_s: float
    agent: int


class RunEnded(NamedTuple):
    """Nothing runs and nothing waits any more."""

    at_s: float
    cut: bool


Event = (
    AgentReady
    | AttemptStarted
    | FirstToken
    | AttemptEnded
    | CallStarted
    | CallEnded
    | BackoffStarted
    | AgentEnded
    | AgentReopened
    | RunEnded
)


T = TypeVar("T", bound=tuple[object, ...])


class Making(Protocol):
    """Constructor of a named tuple."""

    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T:
        """Create one of this kind from all fields in order, unchecked."""
        ...


new_tuple: Final = cast("Making", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
"""Make one of many tuples at half the cost of `Kind(field, ...)`."""
