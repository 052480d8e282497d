"""The contract between the live driver and a *ledger*, which keeps answers and runs; a *journal* records one run in it.

An attempt is `planned -> started -> finished | failed | cancelled | unknown`; `unknown` was under way when its kernel
was killed. Answers are kept by the fingerprint of their request, endpoint included, in order for repeated identical
requests. Refusals are never served again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from agent_magic.record.answer import Answer
    from agent_magic.record.events import CallEnded
    from agent_magic.record.ledger.batches import BatchBook
    from agent_magic.record.ledger.reviews import EditRows
    from agent_magic.record.prices import Prices
    from agent_magic.record.results import RunRecord

IN_DOUBT = "CallInDoubt"
"""The kind of failure of a call that may have happened and was not repeated."""


class Busy(NamedTuple):
    """The answer cannot be had now: another run (`by`) is buying it, or another process has locked the ledger."""

    by: str


class Done(NamedTuple):
    """A call has a reusable result. Older ledgers have no arguments."""

    arguments: str | None


class Doubt(NamedTuple):
    """A call was begun and its end is unknown: its kernel was killed or its end was not awaited."""

    began_at: float
    arguments: str | None = None


class CallKey(NamedTuple):
    """The identity of a function call.

    Attributes:
        key: Fingerprint of the response that requested it and its id there; of a pure call, of its computation.
        pure: True if its result may be reused for every equal call.
        repeats: True if it may run again after a doubt.
        shared: True if a run may use the result of a concurrent one.
    """

    key: str
    tool: str
    pure: bool = False
    repeats: bool = False
    arguments: str = ""
    shared: bool = True


class Journal(Protocol):
    """Records one run in a ledger. Its methods run on the event loop, and none blocks it for long."""

    async def ask(self, agent: int, number: int, key: str, ordinal: int, *, fresh: bool) -> Answer | Busy | None:
        """Return a stored answer, `Busy`, or `None` once the request's start is stored; else raise `LedgerError`."""
        ...

    def is_held(self, key: str, ordinal: int) -> bool:
        """Return whether another run is buying this answer."""
        ...

    def keep(self, agent: int, number: int, answer: Answer, at_s: float) -> None:
        """Take a complete answer, which the next write stores. Idempotent."""
        ...

    async def on_disk(self, agent: int, number: int) -> None:
        """Store an answer; return when it would survive a power failure. Waiters share a transaction and `fsync`."""
        ...

    def begin_call(self, agent: int, number: int, key: CallKey, *, fresh: bool) -> CallEnded | Doubt | Busy | None:
        """Return a call's known end, `Doubt`, `Busy`, or `None` once its start is stored; else raise `LedgerError`.

        A run that continues this one reuses the result; later runs reuse only pure calls.
        """
        ...

    def made_by(self, key: CallKey) -> int | None:
        """Return the number of the complete run with a call that would be repeated, if any."""
        ...

    def end_late(self, key: CallKey, end: CallEnded) -> None:
        """Store the end of an aborted call that went on in its thread. Thread-safe."""
        ...

    def saved(self, place: str) -> str | None:
        """Return the fingerprint of the answer last written to a file, if known."""
        ...

    def keep_saved(self, place: str, sha256: str) -> None: ...

    def done_call(self, key: CallKey) -> Done | None: ...

    def write(self) -> None: ...

    def close(self) -> None: ...


class Ledger(Protocol):
    """A store of answers and runs; showing one of its `notes` to the user removes it."""

    @property
    def notes(self) -> list[str]: ...
    @property
    def batches(self) -> BatchBook: ...
    @property
    def edits(self) -> EditRows: ...

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key."""
        ...

    def begin(self, record: RunRecord, prices: Prices | None = None) -> Journal:
        """Record a run that is about to begin; prices give the savings of reused answers."""
        ...
