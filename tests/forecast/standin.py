"""The stand-in API on virtual time: its own decisions, limits and cache, without a connection in between."""

# Tests take for granted what they have just made.
# pyright: reportOptionalMemberAccess=false
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from agent_magic.engine import Key, Pacer
from agent_magic.errors import Overloaded, RateLimited, Rejected
from agent_magic.live import Driver
from agent_magic.providers import EVERYTHING, Provider, limit_class, min_cacheable_tokens, read_headers
from agent_magic.providers.anthropic.client import body
from agent_magic.providers.anthropic.errors import empty_limit
from agent_magic.record import Answer, Usage
from agent_magic.simulator.api import ApiError
from agent_magic.simulator.limits import Allowance
from agent_magic.simulator.models import MODELS, parse_latency
from agent_magic.simulator.service import MESSAGES, Service, Settings
from tests.live.virtual import run_virtually

DAY = datetime(2026, 11, 22, 12, 0, 0, 0, tzinfo=UTC)
REFUSAL_S = 0.01
"""How long a 429 takes over a connection on one machine."""
TOO_MANY, OVERLOADED = 429, 500
LATER_S = 3.0


class StandIn(Provider):
    """A client that asks the stand-in's decisions directly.

    Args:
        latency: As `agent-magic simulate --latency` has it.
        seed: Changes every text and duration.
        **limits: See `Allowance`.
    """

    capabilities = EVERYTHING
    endpoint = "virtual"

    def __init__(self, *, latency="x0.5", seed=0, **limits):
        self.credentials = Key()
        self._settings = Settings(seed, parse_latency(latency), Allowance(**limits))
        self._service, self._began_s = None, 0.0

    @asynccontextmanager
    async def open(self):
        """Begin with full buckets and an empty cache."""
        self._began_s = self._now()
        self._service = self._service or Service(self._settings, self._began_s)
        yield

    def limit_class(self, model):
        """Share limits as the vendor's models do."""
        return limit_class(model)

    def min_cacheable_tokens(self, model):
        """Cache as the vendor does."""
        return min_cacheable_tokens(model)

    async def count_tokens(self, request):
        """Count as the stand-in does."""
        asked = body(request)
        del asked["max_tokens"]
        entry = self._service.journal.open(MESSAGES, self._now())
        self._service.count_tokens(json.dumps(asked).encode(), entry)
        return entry.input_tokens

    async def send(self, request, stream):
        """Answer one request, its frames at their times."""
        service, now = self._service, self._now()
        entry = service.journal.open(MESSAGES, now)
        try:
            made = service.exchange(json.dumps({**body(request), "stream": True}).encode(), entry, now)
        except ApiError as problem:
            headers = self._headers(entry, now)
            await asyncio.sleep(max(problem.after_s, REFUSAL_S))
            self._fail(problem, {**headers, "date": self._date()}, stream)
        headers, frames, lookup = self._headers(entry, now), made.response.frames, made.lookup
        await asyncio.sleep(frames[0].at_s)
        service.cache.begin(lookup, self._now())
        stream.replied(200, read_headers({**headers, "date": self._date()}), simulated=True)
        billed, sent = lookup.usage, 0
        given = Usage(
            billed.uncached,
            cache_read_tokens=billed.read,
            cache_write_tokens=billed.written,
            output_tokens=1,
            cache_write_1h_tokens=billed.written_1h,
        )
        stream.usage = given
        stream.opened()
        for frame in frames:
            await asyncio.sleep(max(0.0, now + frame.at_s - self._now()))
            if made.pool:
                made.pool.output_tokens.take(frame.tokens - sent, self._now())
            sent = frame.tokens
            for text in _texts(frame.data):
                stream.add(text)
        used = Usage(
            billed.uncached,
            cache_read_tokens=billed.read,
            cache_write_tokens=billed.written,
            output_tokens=sent,
            cache_write_1h_tokens=billed.written_1h,
        )
        return Answer(
            stream.text, "end_turn", usage=used, model=request.model, source="simulated", request_id=entry.request_id
        )

    def _fail(self, problem, headers, stream):
        stream.replied(problem.status, read_headers(headers))
        if problem.status == TOO_MANY:
            raise RateLimited("too many", retry_after_s=problem.retry_after_s, limit=empty_limit(headers))
        if problem.status >= OVERLOADED:
            raise Overloaded("busy", status=problem.status, retry_after_s=problem.retry_after_s)
        raise Rejected("no", status=problem.status)

    def _headers(self, entry, now):
        pool = self._service._quota.pool(MODELS[entry.model].pool, now)
        return {} if pool is None else pool.headers(now, DAY + timedelta(seconds=now - self._began_s))

    def _date(self):
        return format_datetime(DAY + timedelta(seconds=self._now() - self._began_s), usegmt=True)

    def _now(self):
        return asyncio.get_running_loop().time()


def _texts(data):
    """The pieces of text in some events."""
    for line in data.decode().splitlines():
        if line.startswith("data: "):
            event = json.loads(line[len("data: ") :])
            if event["type"] == "content_block_delta":
                yield event["delta"]["text"]


def run_on(client, plan, policy, before=None):
    """Run a plan on virtual time; return its record.

    Args:
        client: Who answers.
        plan: The plan.
        policy: How.
        before: A plan that is run first by the same pacer, seconds earlier; `None` runs none.
    """

    async def work(loop):
        pacer = Pacer(seed=policy.seed)
        if before is not None:
            await Driver(before, policy, client, clock=loop.time, pacer=pacer).drive()
            await asyncio.sleep(LATER_S)
        driver = Driver(plan, policy, client, clock=loop.time, pacer=pacer)
        await driver.drive()
        return driver.record

    return run_virtually(work)
