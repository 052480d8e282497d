"""What a run needs of a ledger: the contract between the live driver and whatever keeps answers.

A *ledger* keeps answers and runs; a *journal* records one run in it. Each attempt goes this way:

```
planned -> started -> finished | failed | cancelled | unknown
```

`planned` is every agent of the run's plan without an attempt. `started` is stored before a request is sent, `finished`
before its answer is shown, priced or passed on. `unknown` is what was under way when its kernel was killed: it may have
been billed.

Answers are kept by the fingerprint of their request, which the endpoint is part of, in order for repeated identical
requests. Refusals are never served again, simulated answers only if the user asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent_magic.record.answer import PAUSED

if TYPE_CHECKING:
    from agent_magic.record.answer import Answer
    from agent_magic.record.events import CallEnded
    from agent_magic.record.ledger.batches import BatchBook
    from agent_magic.record.results import RunRecord

NOT_REUSED = frozenset({"refusal", PAUSED})
"""Stop reasons of answers that are bought again. One cut at `max_tokens` is served: it would be cut the same again."""

IN_DOUBT = "CallInDoubt"
"""The kind of failure of a call that may have happened and was not repeated."""


class Busy(NamedTuple):
    """The answer cannot be served or bought now. Ask again a little later.

    Attributes:
        by: Whoever is buying it, or has locked the ledger.
    """

    by: str


class Done(NamedTuple):
    """A call has a result that will be used.

    Attributes:
        arguments: What it was called with; `None` in older ledgers.
    """

    arguments: str | None


class Doubt(NamedTuple):
    """A call was begun, and its end is not known: its kernel was killed, or nobody waited for it.

    Attributes:
        began_at: When, in seconds since the epoch.
        arguments: What it was called with; `None` in older ledgers.
    """

    began_at: float
    arguments: str | None = None


class CallKey(NamedTuple):
    """What a call of a function is known by.

    Attributes:
        key: The fingerprint: of the response that asked for it and its id there; of a pure one, of what it computes.
        tool: The name of the function.
        pure: Whether its result may be served whenever the same is computed.
        repeats: Whether it may run again where nobody knows whether it has run.
        arguments: What it is called with, as JSON text. A person may have changed what the response asks for.
    """

    key: str
    tool: str
    pure: bool = False
    repeats: bool = False
    arguments: str = ""


class Journal(Protocol):
    """Records one run in a ledger. Every method is called on the event loop of the run, and none blocks it for long."""

    def ask(self, agent: int, number: int, key: str, ordinal: int, *, fresh: bool) -> Answer | Busy | None:
        """Look an answer up, or record that the agent's request is sent now.

        Args:
            agent: The agent's number.
            number: The number of its attempt, from 1.
            key: The fingerprint of the request.
            ordinal: How many equal requests of this run came before.
            fresh: Buy it even if it was bought before.

        Returns:
            The answer, marked as from the ledger; `Busy` if another run is buying it, or another process has the
            ledger locked; `None` to send the request, whose start is stored.

        Raises:
            LedgerError: The start cannot be stored, so nothing may be sent.
        """
        ...

    def keep(self, agent: int, number: int, answer: Answer, at_s: float) -> None:
        """Store a complete answer. Idempotent.

        It survives a kill of this process as soon as `on_disk` returns, a small one from here on unless the ledger is
        locked. Nobody sees the answer before that.
        """
        ...

    async def on_disk(self, agent: int, number: int) -> None:
        """Return when an answer would survive a power failure too. Those who wait share one `fsync`."""
        ...

    def begin_call(self, agent: int, number: int, key: CallKey, *, fresh: bool) -> CallEnded | Doubt | Busy | None:
        """Look a call of a function up, or record that it begins now.

        A call is begun here before it runs, and done once its end is written. The result of one that is done is used
        as long as its conversation goes on; when the agent has its answer, the next run calls again. That of a pure
        one is always used.

        Args:
            agent: The agent's number.
            number: The number of its call, from 1.
            key: What it is known by.
            fresh: Call it whatever the ledger has.

        Returns:
            Its end; `Doubt` where it may have run, and may not be repeated; `Busy` if another run is making it, or
            another process has the ledger locked; `None` to call it: that it begins is stored.

        Raises:
            LedgerError: That cannot be stored, so nothing may be called.
        """
        ...

    def end_late(self, key: CallKey, end: CallEnded) -> None:
        """Store how a call ended that was cut: its thread went on, and nobody need wonder any more. In any thread."""
        ...

    def saved(self, place: str) -> str | None:
        """Return the fingerprint of the answer that was written to a file last; `None` where nobody knows."""
        ...

    def keep_saved(self, place: str, sha256: str) -> None:
        """Store the fingerprint of the answer that was written to a file."""
        ...

    def done_call(self, key: CallKey) -> Done | None:
        """Return what is known of a call of a function whose result will be used; `None` where it has none."""
        ...

    def write(self) -> None:
        """Store what the run's record says by now."""
        ...

    def close(self) -> None:
        """Store the rest; the run is over."""
        ...


class Ledger(Protocol):
    """Where answers and runs are kept.

    Attributes:
        notes: What the user should know: a damaged file, a full disk. Whoever shows a note removes it.
        batches: Which requests are at the provider in batches.
    """

    @property
    def notes(self) -> list[str]: ...  # noqa: D102
    @property
    def batches(self) -> BatchBook: ...  # noqa: D102

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key, marked as from the ledger."""
        ...

    def begin(self, record: RunRecord) -> Journal:
        """Record a run that is about to begin."""
        ...


def is_reusable(answer: Answer, *, simulated: bool = False) -> bool:
    """Return whether an answer may be served again: bought (or simulated, if wanted), complete and no refusal.

    A paused answer is not complete, but what continues it is bought once only if the pause is served again.
    """
    bought = answer.source == "live" or (simulated and answer.source == "simulated")
    continues = answer.stop_reason == PAUSED and answer.content is not None
    return bought and (continues or answer.stop_reason not in NOT_REUSED)
