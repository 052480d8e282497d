"""Collects or cancels the batches in the ledger, without a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors import PlanError, did_you_mean
from agent_magic.live.batching import Batcher
from agent_magic.providers.batches import no_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.live.batching import Collected
    from agent_magic.providers.base import Provider
    from agent_magic.providers.batches import Batches
    from agent_magic.record.ledger.batches import BatchBook, KeptBatch


async def collect_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[Collected]:
    """Store the answers of ended batches, oldest first, even if no run asks for them.

    Args:
        provider: The provider.
        book: The batches of the ledger.
        ids: Their ids; empty: all that this notebook has sent.

    Raises:
        CallError: The provider cannot be asked, or refused.
        PlanError: The provider has no batches, or a batch is not open.
    """
    batches, open_, own = _open(provider, book)
    wanted = _named(ids, open_)
    chosen = own if wanted is None else [one for one in open_ if one.id in wanted]
    batcher = Batcher(batches, book, provider.endpoint, lambda _: None, lambda: None)
    async with provider.open():
        await batcher.check()
        return [await batcher.take(one) for one in reversed(chosen)]


def _open(provider: Provider, book: BatchBook) -> tuple[Batches, list[KeptBatch], list[KeptBatch]]:
    """Return the batch API, the open batches, and those of them sent by this notebook."""
    if provider.batches is None:
        raise no_batches(provider.endpoint)
    return provider.batches, book.open(provider.endpoint), book.own(provider.endpoint)


def _named(ids: Iterable[str], open_: Sequence[KeptBatch]) -> list[str] | None:
    """Check ids of batches; None: no ids given."""
    known, wanted = [one.id for one in open_ if one.id is not None], list(ids)
    for one in wanted:
        if one not in known:
            raise PlanError(f"The ledger has no open batch {one!r}.{did_you_mean(one, known)}")
    return wanted or None


async def cancel_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[str]:
    """Cancel batches and return the cancelled ids. What was answered is billed, and can be collected.

    Args:
        provider: The provider.
        book: The batches of the ledger.
        ids: Their ids; empty: all that this notebook has sent.

    Raises:
        CallError: The provider refused.
        PlanError: The provider has no batches, or a batch is not open.
    """
    batches, open_, own = _open(provider, book)
    wanted = _named(ids, open_) or [one.id for one in own if one.id is not None]
    async with provider.open():
        for one in wanted:
            await batches.cancel(one)
    return wanted
