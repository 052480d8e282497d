"""The interface of a provider's batches: requests answered together, hours later and at a lower price.

```
create(requests by id) ── state(id) ... state(id) ── ended ── items(id): an answer, an error or neither, by id
                          cancel(id): the rest is not answered, and not billed
recent(since): created batches, for a process that was killed before it read the id
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request


class BatchState(NamedTuple):
    """Times are seconds since the epoch; `ask_again_s` is the provider's wish."""

    id: str
    requests: int
    created_at: float
    ended_at: float | None = None
    cancelling: bool = False
    ask_again_s: float | None = None


class BatchItem(NamedTuple):
    """The outcome of one request; without answer and error it expired or was cancelled."""

    id: str
    answer: Answer | None = None
    error: CallError | None = None
    status: int | None = None
    cancelled: bool = False
    simulated: bool = False


class Batches(Protocol):
    """Sends requests as batches, with texts of `most_bytes`.

    Each method is one request, raises `CallError`, never retries.
    """

    @property
    def most_requests(self) -> int: ...
    @property
    def most_bytes(self) -> int: ...

    async def create(self, requests: Mapping[str, Request]) -> BatchState:
        """Create a batch of requests, each under a name of 1 to 64 letters, digits, `_` and `-`."""
        ...

    async def state(self, batch: str) -> BatchState | None:
        """Return `None` if the provider does not know it, possibly not yet."""
        ...

    async def recent(self, since: float) -> Sequence[BatchState]:
        """Return the batches created since a time of the epoch; raise `Rejected` if the server has no batches."""
        ...

    def items(self, batch: str) -> AsyncIterator[BatchItem]:
        """Yield the outcomes of a finished batch, in any order."""
        ...

    async def cancel(self, batch: str) -> None:
        """Cancel the unanswered requests. The batch ends soon, with the answers so far."""
        ...


def no_batches(endpoint: str) -> PlanError:
    return PlanError(
        f"{endpoint} has no batches, so nothing was sent: the API of Anthropic has them, the clouds and servers of "
        "your own do not. Run it without --batch (Policy(batch=False)), or connect elsewhere: %agents connect api."
    )
