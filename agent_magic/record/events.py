"""Events: the one source of everything a run shows.

Every time is in seconds since the run began, on a monotonic clock, in steps of 2**-20 s. Steps of a power of two make
sums and differences of times exact, so the parts of a duration add up to it to the last bit.
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
    """Round a time to the grid of 2**-20 s."""
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


class AgentReady(NamedTuple):
    """All parents of an agent have succeeded."""

    at_s: float
    agent: int


class AttemptStarted(NamedTuple):
    """A request was sent.

    Attributes:
        number: 1 for the first attempt.
        granted_s: When the agent was let go; from there to `at_s` its prompt was written.
        held_by: What it waited for before, or an empty string: `slot`, `barrier`, `backoff`.
        request: What was asked.
        endpoint: To which of several endpoints it went; empty where there is one.
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
    """An attempt is over: answered, failed or cancelled.

    Attributes:
        answer: The complete reply, or `None`. A refusal is one too, and has an error beside it.
        error: What went wrong, in one line; `None` for a success.
        kind: The class of the error, such as `RateLimited`, or `cancelled`; `None` for a success.
        partial: The text that had arrived where there is no complete reply.
        usage: Tokens of the attempt, answered or not.
        price: What it cost.
        source: Where it came from; `None` where nobody answered.
        status_code: The HTTP status; `None` where there was none.
        worker: The worker process that made the request; empty where the kernel did.
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
    """A function is called: a tool that a response asks for, or a task.

    It is stored before the function runs: where its end is missing after a kill, it may have run.

    Attributes:
        number: 1 for the first call of its agent.
        turn: The number of the attempt whose response asked for it; 0 for a task.
        id: The provider's id of the call; empty for a task.
        tool: The name of the function.
        arguments: What the model gave it, as JSON text; empty for a task.
        held_by: What it waited for before, or an empty string; see `agent_magic.record.reasons`.
        code: The fingerprint of the function's source; empty where nobody knows it.
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
    """A file that was written.

    Attributes:
        path: Relative to the folder of the notebook, parted by `/`.
        sha256: Of what was written.
    """

    path: str
    sha256: str


class CallEnded(NamedTuple):
    """A call is over.

    Attributes:
        status: `cancelled` where nobody waited for its end: it may have finished all the same. `denied` by a person.
        result: What it returned: the text, or the content blocks as JSON, that the model gets; a task's value as text.
        error: What went wrong, in one line; `None` for a success.
        kind: The class of the error; `None` for a success.
        source: Where the result came from.
        value: The value of a task as JSON (`agent_magic.declare.packing`); `None` where it cannot be written.
        prints: What the function printed.
        trace: The traceback of an error, from the user's own line on.
        blocks: Whether `result` is content blocks.
        takes: What a task took, as fingerprints; see `agent_magic.record.taken`.
        artifacts: The files it wrote, as far as it has said so.
        files: The pictures and PDFs in `result`, where the sha256 of each stands for its bytes.
        worker: The worker process that made it; empty where the kernel's machine did.
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
        """Return it with the bytes of its files; see `with_bytes`."""
        return self._replace(files=with_bytes(self.files, file_of)) if self.files else self


class AgentEnded(NamedTuple):
    """An agent reached its last status.

    Attributes:
        error: Why it did not succeed, in one line.
        kind: What that is: the class of the error, such as `RateLimited` or `BudgetExceeded`, `Stopped` where somebody
            stopped or skipped it, `Skipped` where an ancestor did not succeed. `None` for a success.
    """

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
