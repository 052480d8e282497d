"""One request of a run: the answer that is there already, or one that is bought, and stored at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agent_magic.engine.contract import Outcome
from agent_magic.engine.retry import failure_of
from agent_magic.live.partial import partial_usage, source_of
from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.ledger.base import Busy
from agent_magic.record.made import made
from agent_magic.record.prices import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agent_magic.engine.run import Engine
    from agent_magic.live.answer_cache import AnswerCache
    from agent_magic.live.batching import Batcher
    from agent_magic.providers.base import Provider, Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Journal
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request

LOOK_S = 0.1
"""How often to look whether another run has bought an answer."""


class Buyer:
    """Gets the answers of a run.

    Args:
        engine: Has the run's record, and knows what goes by batch.
        provider: Who answers.
        prices: What tokens cost.
        max_attempts: How often the run asks.
        cache: What there is already; `None` where there is nothing.
        batcher: Sends requests by batch; `None` where none go so.

    Attributes:
        journal: Where the ledger keeps the run; `None` without a ledger, and before it begins.
        batcher: What was given.
    """

    def __init__(
        self,
        engine: Engine,
        provider: Provider,
        prices: Prices,
        max_attempts: int,
        *,
        cache: AnswerCache | None,
        batcher: Batcher | None,
    ) -> None:
        self._engine, self._record, self._provider, self._prices = engine, engine.record, provider, prices
        self._max_attempts, self._cache = max_attempts, cache
        self._late: dict[int, tuple[Request, Answer, str]] = {}
        self.journal: Journal | None = None
        self.batcher = batcher

    async def check(self) -> None:
        """Raise where requests should go by batch and cannot, before anything is sent."""
        if self.batcher is not None:
            await self.batcher.check()

    def answer(
        self, step: int, request: Request, stream: Stream, now: Callable[[], float]
    ) -> Coroutine[Any, Any, Answer]:
        """Take the answer that is there, or buy it and store it. Nothing is awaited between those two.

        Args:
            step: Whose it is.
            request: What to ask.
            stream: Takes what arrives.
            now: The seconds since the run began. It is not kept: who has them would never be freed.
        """
        if self._cache is None:
            return self._bought(step, request, stream) if self._late else self._provider.send(request, stream)
        return self._kept(self._cache, step, request, stream, now)

    async def _kept(
        self, cache: AnswerCache, step: int, request: Request, stream: Stream, now: Callable[[], float]
    ) -> Answer:
        """Take the answer that the cache has, or buy it and store it."""
        journal, number = self.journal, len(self._record.results[step].attempts)
        kept: Answer | Busy | None = cache.taken_over(step, request)
        if kept is not None:
            return kept
        if journal is None:
            return await self._bought(step, request, stream)
        key, ordinal = cache.key(step, request)
        fresh = cache.is_fresh(step) or self._begins_anew(step, request)
        kept = journal.ask(step, number, key, ordinal, fresh=fresh)
        while isinstance(kept, Busy):
            await asyncio.sleep(LOOK_S)
            kept = journal.ask(step, number, key, ordinal, fresh=fresh)
        if kept is not None:
            return kept
        if self.batcher is not None and step in self._engine.batched:
            answer = stream.answer = await self.batcher.send(key, ordinal, request, stream, fresh=fresh)
        else:
            answer = stream.answer = await self._bought(step, request, stream)
        self.keep(step, answer, now())
        await journal.on_disk(step, number)  # a stop here finds the answer in the stream
        return answer

    async def _bought(self, step: int, request: Request, stream: Stream) -> Answer:
        """Buy an answer, unless that of an attempt before has come after all."""
        if step in self._late:
            asked, answer, stream.worker = self._late.pop(step)
            if asked == request:
                return answer
        return await self._provider.send(request, stream)

    def take_late(self, step: int, request: Request, answer: Answer, worker: str) -> None:
        """Take an answer for the next attempt of a step, which asks for the same."""
        self._late[step] = request, answer, worker

    def _begins_anew(self, step: int, request: Request) -> bool:
        """Tell whether the user had a step tried again whose answer did not fit: the same answer would not either."""
        earlier = self._record.results[step].attempts[:-1]
        return not request.messages and any(one.kind == "InvalidAnswer" for one in earlier)

    def keep(self, step: int, answer: Answer, now_s: float) -> None:
        """Store an answer."""
        if self.journal is not None:
            self.journal.keep(step, len(self._record.results[step].attempts), answer, now_s)

    def write(self) -> None:
        """Store what has happened beside the answers."""
        if self.journal is not None:
            self.journal.write()

    def close(self) -> None:
        """Store that the run is over."""
        if self.journal is not None:
            self.journal.close()
        if self.batcher is not None:
            self.batcher.close()

    def outcome(self, step: int, stream: Stream, answer: Answer | None, error: Exception | None) -> Outcome:
        """Return what came of a request, as the engine is told of it."""
        if answer is None:
            failure = None if error is None else failure_of(error, self._max_attempts)
            usage, source = partial_usage(stream, error), source_of(stream)
            return Outcome(
                None, failure, stream.status_code, usage, source, stream.text, stream.readings, worker=stream.worker
            )
        price, asked = None, self._record.results[step].attempts[-1].begun.request.model
        if self._cache is not None and self._cache.paid_before(step, answer):
            price = PAID_BEFORE
        elif answer.model != asked:
            price = self._prices.of_answer(asked, answer.model, answer.usage)
            price = of_batch(price, answer.usage) if answer.batch else price
        told = answer, None, stream.status_code, answer.usage, answer.source, "", stream.readings, price, stream.worker
        return made(Outcome, told)
