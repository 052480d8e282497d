"""Requests sent by batch: gathered, sent together, found again, and returned as if answered one by one.

```
send(request) ─ gather ─┬─ is in a batch that the ledger knows ──────────────┐
                        └─ plan (on disk) ─ create ─ its id (on disk) ─ watch ┴─ ended ─ answers, each to its sender
```

# Laws

1. **Ledger first.** A batch is written to disk before it is created, and its id immediately afterwards. After a kill in
   between, a batch of that size on the provider's list may be ours; its results prove it by our names.
2. **No request is sent twice.** A request with a name in an open batch waits for that batch, in any kernel. Before it
   is sent after all, its sender looks into the ledger again: another kernel may have bought the answer meanwhile.
3. **Every answer is kept, even without a waiter.** A batch is over in the ledger when its answers are stored.
4. **The interface to the engine is one request.** Expiry or failure ends an attempt; retries belong to the engine.

A stop leaves the batch at the provider: cancelling still bills the requests already answered, and users stop a run to
get the kernel back in the evening.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.units import plural
from agent_magic.errors import (
    CallError,
    LedgerError,
    NotInBatch,
    Overloaded,
    PlanError,
    RateLimited,
    Rejected,
    Unreadable,
    did_you_mean,
)
from agent_magic.live.buying import PASSED_ON
from agent_magic.providers.base import BatchItem, no_batches
from agent_magic.record.ledger.batches import CREATION_S, name_of
from agent_magic.record.ledger.lease import SKEW_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence

    from agent_magic.providers.base import Batches, BatchState, Provider, Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.ledger.batches import BatchBook, KeptBatch
    from agent_magic.record.request import Request

    Beside = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

GATHER_S = 0.3
"""Seconds without a new request after which the batch is sent."""
FIRST_LOOK_S, LAST_LOOK_S = 30.0, 300.0
"""First and longest polling interval in seconds, if the provider gives none."""
CHECK_PAUSES_S = (1.0, 4.0)
LEAST_PAUSE_S = 1.0
"""Seconds between two attempts to cancel a batch."""
UNKNOWN_S = 3600.0
"""Seconds in which a batch unknown to the provider may be too new. Source: anthropic-sdk-python#1432."""
SETTLED_S = 60.0
"""A batch not on the provider's list for this many seconds, with its creation over, was never created."""
FINISH_S = 10.0
"""Seconds that a stop waits for the id of a batch under creation."""
READS = 5
"""How often results with missing lines are read."""
TOO_MANY, SERVER_ERROR = 429, 500


@dataclass(slots=True, eq=False)
class _Item:
    name: str
    request: Request
    fresh: bool
    reply: asyncio.Future[BatchItem | None]


@dataclass(slots=True, eq=False)
class _Watched:
    """A batch that this run waits for."""

    row: int
    id: str | None
    names: frozenset[str]
    planned_at: float
    found: bool
    guessed: bool = False  # by its size and time: its results prove it
    waiting: dict[str, _Item] = field(default_factory=dict[str, _Item])
    look_s: float | None = None
    given_up: bool = False  # cancelled by this run, to send the rest live
    others: set[str] = field(default_factory=set[str])  # batches that were mistaken for it
    failed: CallError | None = None  # its creation, which may have arrived
    never_created: bool = False
    why: str = ""  # the latest reading of its results failed


class Waiting(NamedTuple):
    """A batch that a run waits for, planned at this time since the epoch; `id` is `None` until known."""

    id: str | None
    requests: int
    planned_at: float


class _Over(NamedTuple):
    """A batch with delivered results; `took_s` is `None` after a cancel."""

    row: int
    planned_at: float
    answered: frozenset[str]
    took_s: float | None


class Collected(NamedTuple):
    """The result of checking a batch; `answers` is `None` if it has not ended or is no longer known."""

    id: str | None
    answers: int | None
    is_over: bool


class Batcher:
    """Sends the requests of a run by batch; after `left_s` seconds it gives them up for live requests."""

    def __init__(
        self,
        batches: Batches,
        book: BatchBook,
        endpoint: str,
        begin: Beside,
        left_s: Callable[[], float | None],
    ) -> None:
        self._batches, self._book, self._endpoint = batches, book, endpoint
        self._begin, self._left_s = begin, left_s
        self._intake: list[_Item] = []
        self._arrivals = 0
        self._gathering = False
        self._watched: dict[int, _Watched] = {}
        self._over: dict[int, _Over] = {}

    async def check(self) -> None:
        """Look whether there are batches, again after a moment if the server is busy."""
        for pause_s in (*CHECK_PAUSES_S, None):
            try:
                await self._batches.recent(time.time() + SKEW_S)
            except Rejected as error:
                if error.status in {404, 405, 501}:
                    raise no_batches(self._endpoint) from None
                raise
            except (Overloaded, RateLimited):
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return

    async def send(self, key: str, ordinal: int, request: Request, stream: Stream, *, fresh: bool) -> Answer | None:
        """Return the answer of a request, from the next batch or an earlier one; `None` to ask the ledger again."""
        item = _Item(name_of(key, ordinal), request, fresh, asyncio.get_running_loop().create_future())
        self._intake.append(item)
        self._arrivals += 1
        if not self._gathering:
            self._gathering = True
            self._begin(self._gather)
        reply = await item.reply
        if reply is None:
            return None
        if reply.answer is not None:
            stream.replied(200, simulated=reply.answer.source == "simulated")
            return reply.answer
        if reply.status is not None:
            stream.replied(reply.status, simulated=reply.simulated)
        raise reply.error or NotInBatch("The batch ended without an answer to this request.")

    def waiting(self) -> list[Waiting]:
        return [Waiting(one.id, len(one.waiting), one.planned_at) for one in self._watched.values()]

    def close(self) -> None:
        """Record which batches are over, once the run has stored their answers."""
        for one in self._over.values():
            if self._book.has_all(one.answered, one.planned_at):
                self._book.over(one.row, took_s=one.took_s)
        if self._watched:
            self._book.note(_goes_on(self._watched.values()))

    # sending

    async def _gather(self) -> None:
        seen = 0
        while seen != self._arrivals:
            seen = self._arrivals
            await asyncio.sleep(GATHER_S)
        self._gathering = False
        items, self._intake = self._intake, []
        await self._place([one for one in items if not one.reply.done()])

    async def _place(self, items: Sequence[_Item]) -> None:
        try:
            kept = [one for one in self._book.open(self._endpoint) if one.row not in self._over]
            rest: list[_Item] = []
            for item in items:
                there = None if item.fresh else next((one for one in kept if item.name in one.names), None)
                if there is None:
                    rest.append(item)
                else:
                    self._watch(there, item)
            for part in _parts(rest, self._batches):
                await self._create(part)
        except Exception as error:  # noqa: BLE001 - of the ledger or a request's body: each attempt ends with it
            _fail(items, error)

    def _watch(self, kept: KeptBatch, item: _Item) -> None:
        if kept.row not in self._watched:
            self._follow(_Watched(kept.row, kept.id, kept.names, kept.planned_at, found=True))
        self._watched[kept.row].waiting[item.name] = item

    def _follow(self, batch: _Watched) -> None:
        self._watched[batch.row] = batch
        self._begin(lambda: self._see_through(batch))

    async def _create(self, items: Sequence[_Item]) -> None:
        by_name = {one.name: one for one in items}
        batch = _Watched(0, None, frozenset(by_name), time.time(), found=False, waiting=by_name)
        batch.row = self._book.plan(self._endpoint, list(by_name))
        self._watched[batch.row] = batch  # an agent that is tried again meanwhile waits for it too
        creating = asyncio.ensure_future(self._batches.create({name: one.request for name, one in by_name.items()}))
        try:
            state = await asyncio.shield(creating)
            self._book.sent(batch.row, state.id)
        except asyncio.CancelledError:
            await self._finish(creating, batch)
            raise
        except CallError as error:
            if not _may_have_arrived(error):
                self._watched.pop(batch.row, None)
                self._book.over(batch.row, "refused")
                status = TOO_MANY if isinstance(error, RateLimited) else getattr(error, "status", None)
                for one in batch.waiting.values():  # the status says that nothing is billed
                    if not one.reply.done():
                        one.reply.set_result(BatchItem(one.name, error=error, status=status))
                return
            batch.failed = error
        except Exception as error:
            self._watched.pop(batch.row, None)
            _fail(batch.waiting.values(), error)
            raise
        else:
            batch.id, batch.look_s = state.id, state.ask_again_s
        self._follow(batch)

    async def _finish(self, creating: asyncio.Future[BatchState], batch: _Watched) -> None:
        await asyncio.wait([creating], timeout=FINISH_S)
        if creating.done() and not creating.cancelled() and creating.exception() is None:
            batch.id = creating.result().id
            self._book.sent(batch.row, batch.id)
        else:
            creating.cancel()

    # waiting

    async def _see_through(self, batch: _Watched) -> None:
        try:
            if await self._take_in(batch, self._until_ended):
                return
            self._book.over(batch.row, "refused")
            self._watched.pop(batch.row, None)
            if batch.never_created and batch.failed is not None:  # the retry policy decides
                raise _uncreated(batch.failed)
            _look_again(batch.waiting.values())
        except (CallError, LedgerError) as error:  # what the ledger cannot take stays in the batch for the next run
            self._watched.pop(batch.row, None)
            if isinstance(error, Rejected) and error.status is None and batch.id is not None:
                # Nothing was sent now, but the batch was: it is billed, and stays open for the next look.
                error = NotInBatch(f"The batch {batch.id} cannot be read: {error}", again=False, billed=True)
            _fail(batch.waiting.values(), error)

    async def _take_in(self, batch: _Watched, ended: Callable[[_Watched], Awaitable[BatchState | None]]) -> bool:
        while batch.id is not None or await self._find(batch):
            state = await ended(batch)
            if state is None:
                return True
            found = await self._read(batch)
            if not batch.guessed or not found or found.keys() & batch.names:
                if found and batch.guessed:  # only now: another batch of this size may be looking for it too
                    self._book.sent(batch.row, batch.id or "")
                await self._collect(batch, state, found)
                return True
            batch.others.add(batch.id or "")
            batch.id = None
        return False

    async def take(self, kept: KeptBatch) -> Collected:
        batch = _Watched(kept.row, kept.id, kept.names, kept.planned_at, found=True)
        if kept.may_be_under_creation:
            return Collected(None, None, is_over=False)
        try:
            if not await self._take_in(batch, self._if_ended):
                self._book.over(kept.row, "refused")
                return Collected(None, 0, is_over=True)
        except NotInBatch:  # lost: the provider does not know it any more
            return Collected(batch.id, None, is_over=True)
        over = self._over.get(kept.row)
        self.close()
        return Collected(batch.id, None if over is None else len(over.answered), is_over=over is not None)

    async def _if_ended(self, batch: _Watched) -> BatchState | None:
        """Return the state of an ended batch; raise `NotInBatch` if the provider no longer knows it."""
        state = await self._batches.state(batch.id or "")
        if state is None:
            self._check_age(batch)
        return None if state is None or state.ended_at is None else state

    async def _find(self, batch: _Watched) -> bool:
        began_at, wait_s = time.time(), 1.0
        while True:
            kept = next((one for one in self._book.open(self._endpoint) if one.row == batch.row), None)
            if kept is None:  # another kernel has seen its end
                return False
            if kept.id is not None and kept.id not in batch.others:  # another kernel has created or found it
                batch.id, batch.found, batch.guessed = kept.id, True, False
                return True
            created_at = batch.planned_at + CREATION_S
            created_at = created_at if kept.may_be_under_creation else min(created_at, began_at)
            settled = time.time() - created_at > SETTLED_S
            try:
                recent = await self._batches.recent(batch.planned_at - SKEW_S)
            except CallError as error:
                _raise_refusal(error)
            else:
                if (fit := self._fitting(batch, recent)) is not None:
                    batch.id, batch.found, batch.guessed = fit.id, True, True
                    return True
                if settled:
                    batch.never_created = True
                    return False
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, FIRST_LOOK_S)

    def _fitting(self, batch: _Watched, recent: Iterable[BatchState]) -> BatchState | None:
        """Return the recent batch that fits best, ended ones first."""
        others = self._book.known() | batch.others
        fits = [one for one in recent if one.requests == len(batch.names) and one.id not in others]
        fits = [one for one in fits if abs(one.created_at - batch.planned_at) < SKEW_S]
        return min(fits, key=lambda one: (one.ended_at is None, abs(one.created_at - batch.planned_at)), default=None)

    async def _until_ended(self, batch: _Watched) -> BatchState:
        wait_s, unknown_s = FIRST_LOOK_S, 1.0
        if not batch.found:
            await self._pause(batch, batch.look_s or wait_s)
        while True:
            pause_s = wait_s = min(wait_s * 2, LAST_LOOK_S)
            try:
                state = await self._batches.state(batch.id or "")
            except CallError as error:
                _raise_refusal(error)
            else:
                if state is not None and state.ended_at is not None:
                    return state
                if state is None:
                    self._check_age(batch)
                    pause_s = unknown_s = min(unknown_s * 2, LAST_LOOK_S)
                    pause_s = min(batch.look_s or pause_s, pause_s)
                elif state.ask_again_s is not None:
                    batch.look_s = pause_s = state.ask_again_s
                await self._maybe_give_up(batch)
            await self._pause(batch, pause_s)

    def _check_age(self, batch: _Watched) -> None:
        if time.time() - batch.planned_at > UNKNOWN_S:
            self._book.over(batch.row, "lost")
            raise NotInBatch(
                f"The provider no longer knows the batch {batch.id}, which may have been billed. The next run "
                "sends its requests again.",
                again=False,
                billed=True,
            )

    async def _maybe_give_up(self, batch: _Watched) -> None:
        left_s = self._left_s()
        if left_s is not None and left_s <= 0 and not batch.given_up:
            try:
                await self._batches.cancel(batch.id or "")
            except CallError:  # such as of a batch that has just ended: until it is cancelled its answers are bought
                return
            batch.given_up = True
            batch.look_s = 1.0

    async def _pause(self, batch: _Watched, pause_s: float) -> None:
        left_s = None if batch.given_up else self._left_s()
        await asyncio.sleep(pause_s if left_s is None else min(pause_s, max(left_s, LEAST_PAUSE_S)))

    async def _read(self, batch: _Watched) -> dict[str, BatchItem]:
        found: dict[str, BatchItem] = {}
        for number in range(READS):
            if number:
                await asyncio.sleep(min(2.0**number, batch.look_s or LAST_LOOK_S))
            try:
                async for one in self._batches.items(batch.id or ""):
                    if one.answer is not None or one.id not in found:  # an answer is billed, whatever else is said
                        found[one.id] = one
            except CallError as error:
                _raise_refusal(error)
                batch.why = str(error).rstrip(".")
            if found.keys() >= batch.names or (found and not found.keys() & batch.names):  # all of it, or another's
                break
        return found

    async def _collect(self, batch: _Watched, state: BatchState, found: dict[str, BatchItem]) -> None:
        answered = frozenset(name for name, one in found.items() if one.answer is not None and name in batch.names)
        awaited = {name for name, item in batch.waiting.items() if not item.reply.done()}  # others were skipped
        nobodys = [(name, one.answer) for name, one in found.items() if name in answered - awaited]
        self._watched.pop(batch.row, None)
        again: list[_Item] = []
        for name, item in batch.waiting.items():
            one = found.get(name)
            if one is None or item.reply.done():
                continue
            if batch.found and one.answer is None and one.error is None:  # not of this run, and not billed
                again.append(item)
            elif one.answer is None and one.error is None:
                item.reply.set_exception(_unanswered(batch, cancelled=one.cancelled))
            else:
                item.reply.set_result(one)
        lost = [item for item in batch.waiting.values() if item.name not in found]
        why = f"The results of the batch {batch.id} lack this request"
        if not found and batch.why:
            why = f"The results of the batch {batch.id} cannot be read: {batch.why}"
        why = f"{why}. The next run reads them again."
        _fail(lost, NotInBatch(why, again=False, billed=True))
        _look_again(again)
        self._book.keep(((name, answer) for name, answer in nobodys if answer is not None), batch.planned_at)
        if not lost and found.keys() >= batch.names:  # else the next to look reads them again
            took_s = None if state.cancelling or state.ended_at is None else state.ended_at - state.created_at
            took_s = None if took_s is None or math.isnan(took_s) else took_s
            self._over[batch.row] = _Over(batch.row, batch.planned_at, answered, took_s)


def _goes_on(batches: Collection[_Watched]) -> str:
    count = sum(len(one.names) for one in batches)
    requests = plural(count, "request")
    what = f"A batch of {requests} goes" if len(batches) == 1 else f"{len(batches)} batches of {requests} go"
    which = ", ".join(one.id or "not named yet" for one in batches)
    is_fresh = any(item.fresh for one in batches for item in one.waiting.values())
    collects = (  # a run takes the answers that these were to replace, and asks for nothing
        "%agents batches collect gets the answers once they are there"
        if is_fresh
        else "Run again with --batch to collect the answers"
    )
    return (
        f"{what} on at the provider and will be billed ({which}). {collects}, at no further cost; %agents batches "
        "cancel cancels what is not answered yet."
    )


def _unanswered(batch: _Watched, *, cancelled: bool) -> NotInBatch:
    if not cancelled:
        return NotInBatch(f"The batch {batch.id} expired before this request. It is not billed.")
    if batch.given_up:
        return NotInBatch(f"The batch {batch.id} took too long for the deadline, and was cancelled.")
    return NotInBatch(f"The batch {batch.id} was cancelled before this request. It is not billed.", again=False)


def _uncreated(error: CallError) -> CallError:
    if isinstance(error, Unreadable):  # the reply is not the API's: it may have been a batch
        return error
    return NotInBatch(f"The batch was not created: {error}")


def _look_again(items: Iterable[_Item]) -> None:
    for one in items:
        if not one.reply.done():
            one.reply.set_result(None)


def _fail(items: Iterable[_Item], error: Exception) -> None:
    for one in items:
        if not one.reply.done():
            one.reply.set_exception(error)


def _raise_refusal(error: CallError) -> None:
    """Raise an error that waiting cannot fix."""
    if isinstance(error, Rejected) and error.status != 404:
        raise error


def _may_have_arrived(error: CallError) -> bool:
    if isinstance(error, Rejected | RateLimited):
        return False
    if isinstance(error, Overloaded):
        return error.status in PASSED_ON or error.status == SERVER_ERROR
    return getattr(error, "sent", True)


def _parts(items: Sequence[_Item], batches: Batches) -> Iterator[list[_Item]]:
    """Split requests into as few batches as possible, equal names apart."""
    part: dict[str, _Item] = {}
    size = 0
    for item in items:
        length = sum(len(text.encode(errors="replace")) for text in item.request.texts())
        full = len(part) >= batches.most_requests or size + length > batches.most_bytes
        if part and (full or item.name in part):
            yield list(part.values())
            part, size = {}, 0
        part[item.name] = item
        size += length
    if part:
        yield list(part.values())


def batcher_of(
    provider: Provider,
    ledger: Ledger | None,
    begin: Beside,
    left_s: Callable[[], float | None],
) -> Batcher:
    if provider.batches is None:
        raise no_batches(provider.endpoint)
    if ledger is None:
        raise PlanError(
            "A batch needs a ledger, or its answers would be lost with this kernel. Give ledger=am.Ledger('FILE'); in "
            "a notebook: %config AgentMagics.ledger = 'FILE'."
        )
    return Batcher(provider.batches, ledger.batches, provider.endpoint, begin, left_s)


async def collect_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[Collected]:
    batches, open_, own = _open(provider, book)
    wanted = _named(ids, open_)
    chosen = own if wanted is None else [one for one in open_ if one.id in wanted]
    batcher = Batcher(batches, book, provider.endpoint, lambda _: None, lambda: None)
    async with provider.open():
        await batcher.check()
        return [await batcher.take(one) for one in reversed(chosen)]


def _open(provider: Provider, book: BatchBook) -> tuple[Batches, list[KeptBatch], list[KeptBatch]]:
    if provider.batches is None:
        raise no_batches(provider.endpoint)
    return provider.batches, book.open(provider.endpoint), book.own(provider.endpoint)


def _named(ids: Iterable[str], open_: Sequence[KeptBatch]) -> list[str] | None:
    known, wanted = [one.id for one in open_ if one.id is not None], list(ids)
    for one in wanted:
        if one not in known:
            raise PlanError(f"The ledger has no open batch {one!r}.{did_you_mean(one, known)}")
    return wanted or None


async def cancel_batches(provider: Provider, book: BatchBook, ids: Iterable[str]) -> list[str]:
    """Cancel batches (without `ids`: this notebook's) and return their ids."""
    batches, open_, own = _open(provider, book)
    wanted = _named(ids, open_) or [one.id for one in own if one.id is not None]
    async with provider.open():
        for one in wanted:
            await batches.cancel(one)
    return wanted
