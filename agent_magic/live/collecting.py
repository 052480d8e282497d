"""The batches that the ledger knows: their answers are collected, or they are cancelled, without a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors import PlanError, did_you_mean
from agent_magic.live.batching import Batcher, no_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.live.batching import Collected
    from agent_magic.providers.base import Provider
    from agent_magic.providers.batches import Batches
    from agent_magic.record.ledger.batches import BatchBook, KeptBatch


async def collect_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[Collected]:
    """Store the answers of batches that have ended, the oldest first, also where no run asks for them any more.

    Args:
        provider: Where they are.
        book: The batches of the ledger.
        ids: Their names; none means all that are open.

    Raises:
        CallError: The provider cannot be asked, or refused.
        PlanError: The provider has no batches, or one is not open.
    """
    batches, open_ = _open(provider, book)
    wanted = _named(ids, open_)
    batcher = Batcher(batches, book, provider.endpoint, lambda _: None, lambda: None)
    async with provider.open():
        await batcher.check()
        return [await batcher.take(one) for one in reversed(open_) if wanted is None or one.id in wanted]


def _open(provider: Provider, book: BatchBook) -> tuple[Batches, list[KeptBatch]]:
    if provider.batches is None:
        raise no_batches(provider.endpoint)
    return provider.batches, book.open(provider.endpoint)


def _named(ids: Iterable[str], open_: Sequence[KeptBatch]) -> list[str] | None:
    """Check names of batches; `None` where there are none."""
    known, wanted = [one.id for one in open_ if one.id is not None], list(ids)
    for one in wanted:
        if one not in known:
            raise PlanError(f"The ledger has no open batch {one!r}.{did_you_mean(one, known)}")
    return wanted or None


async def cancel_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[str]:
    """Cancel batches. What was answered by then is billed, and can be collected. Returns those cancelled.

    Args:
        provider: Where they are.
        book: The batches of the ledger.
        ids: Their names; none means all that are open.

    Raises:
        CallError: The provider refused.
        PlanError: The provider has no batches, or one is not open.
    """
    batches, open_ = _open(provider, book)
    wanted = _named(ids, open_) or [one.id for one in open_ if one.id is not None]
    async with provider.open():
        for one in wanted:
            await batches.cancel(one)
    return wanted
