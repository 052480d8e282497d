"""One request of a run: its stored answer, or a new one, stored at once, with its usage as far as that is known.

Without a final count the engine keeps its reservation against the budget, since all of it may be billed, and shows an
estimate from what arrived.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.content import tokens_of
from agent_magic.engine.contract import Outcome
from agent_magic.engine.requests import OVERHEAD_TOKENS
from agent_magic.engine.retry import failure_of
from agent_magic.errors import LedgerError, NotConnected, NotInBatch, Rejected, Unreachable
from agent_magic.providers.capabilities import check_request
from agent_magic.record.answer import (
    CHARS_PER_TOKEN,
    NOTHING_USED,
    PAID_BEFORE,
    SOURCES,
    Usage,
    estimated_tokens,
    utf8_length,
)
from agent_magic.record.events import new_tuple
from agent_magic.record.ledger.base import Busy
from agent_magic.record.prices import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agent_magic.declare.content import TokenRule
    from agent_magic.engine.run import Engine
    from agent_magic.live.answer_cache import AnswerCache
    from agent_magic.live.batching import Batcher
    from agent_magic.providers.base import Provider, Stream
    from agent_magic.record.answer import Answer, Source
    from agent_magic.record.ledger.base import Journal
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request


HTTP_ERROR = 400
PASSED_ON = frozenset({408, 499, 502, 504, 520, 524, 598, 599})
"""Statuses of a gateway that passed the request on and got no answer in time; 503 and 521 to 523 did not."""
MOST_INPUT_TOKENS = 10_000_000
"""A larger input is not credible: ten times the longest context."""
LONGEST_TOKEN = 64
"""Bytes: fewer tokens than an answer's bytes divided by this are not credible. Rows of blanks have the most."""


def settled(answer: Answer, request: Request, stream: Stream, rule: TokenRule | None, most_searches: int) -> Answer:
    # A server may count nothing although it wrote something, or more than was requested. Such a count is not final.
    usage, text = answer.usage, answer.text
    made, taken = usage.output_tokens, usage.total_input_tokens
    if made is None and taken is None:
        return answer
    if usage.searches > most_searches:
        answer = replace(answer, usage=(usage := replace(usage, searches=most_searches)))
    streamed = stream.produced_bytes
    least = max(utf8_length(text), streamed) // LONGEST_TOKEN + (1 if text or answer.content else 0)
    fits = made is not None and least <= made <= request.most_output_tokens
    if fits and not usage.estimated and taken is not None and 0 < taken <= MOST_INPUT_TOKENS:
        return answer
    if not fits:
        usage = replace(usage, output_tokens=None)
    arrived = estimated_tokens(streamed or utf8_length(text if answer.content is None else answer.content))
    return replace(answer, usage=_estimate(usage, request, arrived, rule))


def partial_usage(stream: Stream, error: Exception | None, request: Request, rule: TokenRule | None) -> Usage | None:
    """Return the usage of an attempt without a complete response: zero, an estimate, or None if unknown.

    If a connection broke before the answer began, or a gateway lost it, the model may have worked: it is unknown if
    that is billed.
    """
    if stream.status_code is not None and stream.status_code >= HTTP_ERROR:
        return None if stream.status_code in PASSED_ON else NOTHING_USED
    so_far = stream.usage_so_far
    if so_far is not None:
        return _estimate(so_far, request, stream.produced_tokens, rule)
    return NOTHING_USED if stream.usage is None and _is_free(error) else None


def _is_free(error: Exception | None) -> bool:
    """Return whether nothing can be billed: nothing was sent, or the batch did not process it."""
    if isinstance(error, NotInBatch):
        return not error.billed
    if isinstance(error, Rejected):
        return error.status is None
    return isinstance(error, NotConnected | LedgerError) or (isinstance(error, Unreachable) and not error.sent)


def _estimate(usage: Usage, request: Request, arrived: int, rule: TokenRule | None) -> Usage:
    made = min(max(usage.output_tokens or 0, arrived), request.most_output_tokens)
    if 0 < (usage.total_input_tokens or 0) <= MOST_INPUT_TOKENS:
        return replace(usage, output_tokens=made, estimated=True)
    size = sum(map(len, request.texts())) // CHARS_PER_TOKEN + OVERHEAD_TOKENS
    size += tokens_of(request.files, rule)[0] if request.files else 0
    return Usage(size, output_tokens=made, searches=usage.searches, estimated=True)


def source_of(stream: Stream) -> Source | None:
    if stream.simulated:
        return "simulated"
    return None if stream.status_code is None else "live"


LOOK_S = 0.1


class Buyer:
    """Gets the answers of a run."""

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
        self._asking: set[int] = set()  # nothing of these is sent yet
        self.journal: Journal | None = None
        self.batcher = batcher

    async def check(self) -> None:
        if self.batcher is not None:
            await self.batcher.check()

    def answer(
        self, step: int, request: Request, stream: Stream, now: Callable[[], float]
    ) -> Coroutine[Any, Any, Answer]:
        # `now` is an argument: kept here, its owner would never be freed.
        if self._cache is None:
            return self._bought(step, request, stream)
        return self._kept(self._cache, step, request, stream, now)

    def is_elsewhere(self, step: int, request: Request) -> bool:
        """Return whether another run is buying this answer."""
        cache = self._cache
        if cache is None or self.journal is None or cache.buys_anew(step, request):
            return False
        return cache.taken_over(step, request) is None and self.journal.is_held(*cache.key(step, request))

    async def _kept(
        self, cache: AnswerCache, step: int, request: Request, stream: Stream, now: Callable[[], float]
    ) -> Answer:
        journal, number = self.journal, len(self._record.results[step].attempts)
        taken = cache.taken_over(step, request)
        if taken is not None:
            cache.adopt(step, request, taken)
            return taken
        if journal is None:
            return await self._bought(step, request, stream)
        key, ordinal = cache.key(step, request)
        fresh = cache.buys_anew(step, request)
        by_batch = step in self._engine.batched
        answer: Answer | None = None
        while answer is None:
            self._asking.add(step)
            kept = await journal.ask(step, number, key, ordinal, fresh=fresh)
            while isinstance(kept, Busy):
                await asyncio.sleep(LOOK_S)
                kept = await journal.ask(step, number, key, ordinal, fresh=fresh)
            self._asking.discard(step)
            if kept is not None:
                return kept
            if self.batcher is None or not by_batch:
                answer = await self._bought(step, request, stream)
            else:
                check_request(request, self._provider)
                answer = await self.batcher.send(key, ordinal, request, stream, fresh=fresh)
                answer = answer and self._settled(step, stream, answer)
        stream.answer = answer
        journal.keep(step, number, answer, now())
        await journal.on_disk(step, number)  # a stop here finds the answer in the stream
        return answer

    async def _bought(self, step: int, request: Request, stream: Stream) -> Answer:
        if step in self._late:
            asked, answer, stream.worker = self._late.pop(step)
            if asked == request:
                return self._settled(step, stream, answer)
        check_request(request, self._provider)
        return self._settled(step, stream, await self._provider.send(request, stream))

    def take_late(self, step: int, request: Request, answer: Answer, worker: str) -> None:
        """Keep a late answer for the next attempt with the same request."""
        self._late[step] = request, answer, worker

    def keep(self, step: int, stream: Stream, answer: Answer, now_s: float) -> Answer:
        answer = self._settled(step, stream, answer)
        if self.journal is not None:
            self.journal.keep(step, len(self._record.results[step].attempts), answer, now_s)
            self.journal.write()
        return answer

    def _settled(self, step: int, stream: Stream, answer: Answer) -> Answer:
        if answer.source not in SOURCES:  # a provider of the user's may say anything
            answer = replace(answer, source="live")
        request = self._record.results[step].attempts[-1].begun.request
        rule = self._provider.token_rule(request.model) if request.files else None
        most_searches = self._record.plan.agents[step].tools.most_searches if request.tools else 0
        return settled(answer, request, stream, rule, most_searches)

    def write(self) -> None:
        if self.journal is not None:
            self.journal.write()

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        if self.batcher is not None:
            self.batcher.close()

    def outcome(self, step: int, stream: Stream, answer: Answer | None, error: Exception | None) -> Outcome:
        attempts, price = self._record.results[step].attempts, None
        if answer is None:
            failure, usage = None if error is None else failure_of(error, self._max_attempts), NOTHING_USED
            if attempts and step not in self._asking:
                request = attempts[-1].request
                rule = self._provider.token_rule(request.model) if request.files else None
                usage = partial_usage(stream, error, request, rule)
                if stream.model not in {"", request.model}:
                    price = self._prices.of_answer(request.model, stream.model, usage)
            told = None, failure, stream.status_code, usage, source_of(stream), stream.text, stream.readings, price
            return Outcome(*told, worker=stream.worker)
        asked = attempts[-1].begun.request.model
        if self._cache is not None and self._cache.paid_before(step, answer):
            price = PAID_BEFORE
        elif answer.model != asked:
            price = self._prices.of_answer(asked, answer.model, answer.usage)
            price = of_batch(price, answer.usage) if answer.batch else price
        told = answer, None, stream.status_code, answer.usage, answer.source, "", stream.readings, price, stream.worker
        return new_tuple(Outcome, told)
