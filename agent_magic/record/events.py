"""Events: the only source of all that a run shows.

Times are in seconds since the run began, on a monotonic clock, in steps of 2**-20 s: sums and differences of these are
exact, so the parts of a duration add up to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

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
    """A request was sent.

    Attributes:
        granted_s: When the agent was admitted; until `at_s` its prompt was written.
        held_by: The reason it waited before: `slot`, `barrier`, `backoff`, ..., or empty.
        endpoint: Empty if there is only one.
    """

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
    """An attempt ended: answered, failed or cancelled.

    Attributes:
        answer: The complete reply, if any. A refusal is one, with an error beside it.
        kind: Class of the error, such as `RateLimited`, or `cancelled`; `None` on success.
        partial: Text received before an incomplete reply broke off.
        worker: The worker process that made the request; empty for the kernel.
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
    """A function is called: a tool requested by a response, or a task. Stored before the function runs.

    Attributes:
        turn: Number of the attempt that requested it; 0 for a task.
        id: The provider's id of the call; empty for a task.
        arguments: The model's arguments as JSON text; empty for a task.
        code: Fingerprint of the function's source; empty if unknown.
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
    """A written file: its path, relative to the notebook's folder with `/`, and its fingerprint."""

    path: str
    sha256: str


class CallEnded(NamedTuple):
    """A call ended.

    Attributes:
        status: `cancelled` if its end was not awaited: it may have finished. `denied` by a person.
        result: The text, or content blocks as JSON, sent to the model; a task's value as text.
        value: A task's value as JSON (`agent_magic.declare.values`); `None` if it cannot be serialised.
        trace: Traceback of an error, from the user's own line on.
        blocks: True if `result` is content blocks.
        takes: A task's inputs as fingerprints; see `agent_magic.record.task_inputs`.
        files: Pictures and PDFs in `result`, which has the sha256 of each.
        worker: The worker process that made it; empty for the kernel's machine.
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
