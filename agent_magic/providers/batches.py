"""The seam to a provider's batches: requests that are answered together, hours later and at a lower price.

```
create(requests by id) ── state(id) ... state(id) ── ended ── items(id): an answer, an error or neither, by id
                          cancel(id): the rest is not answered, and not billed
recent(since): what was created, for whoever was killed before it had read the id
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request


class BatchState(NamedTuple):
    """What a provider says of a batch.

    Attributes:
        id: Its own name for it.
        requests: How many are in it.
        created_at: When it was created, in seconds since the epoch.
        ended_at: When it ended; `None` while it is under way.
        cancelling: Whether somebody has cancelled it.
        ask_again_s: In how many seconds the provider wants to be asked again; `None` where it does not say.
    """

    id: str
    requests: int
    created_at: float
    ended_at: float | None = None
    cancelling: bool = False
    ask_again_s: float | None = None


class BatchItem(NamedTuple):
    """What came of one request of a batch. With neither answer nor error it expired, or was cancelled.

    Attributes:
        id: The name that `create` gave it.
        answer: The answer.
        error: Why there is none.
        status: The HTTP status that an error would have had.
        cancelled: Whether it was cancelled.
        simulated: Whether it is the mock server that says so.
    """

    id: str
    answer: Answer | None = None
    error: CallError | None = None
    status: int | None = None
    cancelled: bool = False
    simulated: bool = False


class Batches(Protocol):
    """Sends requests as batches. Each method is one request, raises `CallError`, and never retries.

    Attributes:
        most_requests: How many a batch can hold.
        most_bytes: How long the texts of its requests can be together.
    """

    @property
    def most_requests(self) -> int: ...  # noqa: D102
    @property
    def most_bytes(self) -> int: ...  # noqa: D102

    async def create(self, requests: Mapping[str, Request]) -> BatchState:
        """Create a batch of requests, each under a name of 1 to 64 letters, digits, `_` and `-`."""
        ...

    async def state(self, batch: str) -> BatchState | None:
        """Return the state of a batch; `None` where the provider does not know it, maybe not yet."""
        ...

    async def recent(self, since: float) -> Sequence[BatchState]:
        """Return the batches that were created since a time, in seconds since the epoch.

        Raises:
            CallError: It failed. `Rejected` where the server has no batches.
        """
        ...

    def items(self, batch: str) -> AsyncIterator[BatchItem]:
        """Yield what came of each request of a batch that has ended, in any order."""
        ...

    async def cancel(self, batch: str) -> None:
        """Have no more requests of a batch answered. It ends soon, with the answers there are by then."""
        ...
