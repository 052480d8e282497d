"""The responses of each route, and how they are sent on their schedule, over HTTP or in process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agent_magic.simulator import completions
from agent_magic.simulator.api import ApiError, Json, invalid
from agent_magic.simulator.batches import MOST_BYTES, page_of
from agent_magic.simulator.batches import PATH as BATCHES
from agent_magic.simulator.models import MODELS, describe
from agent_magic.simulator.response import Ending, encode, whole
from agent_magic.simulator.service import MESSAGES, Entry, Exchange, Service

PAGE = 20
"""Default rows of a page."""
LINES_TYPE = "application/x-jsonl"
MODEL_LISTS = ("/v1/models", "/v1/models/{id}")
RESULTS = f"{BATCHES}/{{id}}/results"
MAX_BODY = 32 * 1024 * 1024
HTTP_MESSAGES = {
    404: "Not found.",
    405: "Method not allowed.",
    413: f"The request is larger than {MAX_BODY} bytes.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its body, the id in its path, its query fields."""

    body: bytes = b""
    id: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])


Answer: TypeAlias = Callable[[Service, Asked, Entry, float], Exchange]


def _page(asked: Asked) -> tuple[int, str | None]:
    limit = asked.query.get("limit", "")
    return (int(limit) if limit.isdigit() else PAGE), asked.query.get("after_id")


def _model(_service: Service, asked: Asked, _entry: Entry, _now_s: float) -> Exchange:
    model = MODELS.get(asked.id)
    if model is None:
        raise ApiError(404, f"model: {asked.id}")
    return _found(describe(model))


ROUTES: Mapping[tuple[str, str], Answer] = {
    ("POST", MESSAGES): lambda service, asked, entry, now_s: service.exchange(asked.body, entry, now_s),
    ("POST", f"{MESSAGES}/count_tokens"): lambda service, asked, entry, _: service.count_tokens(asked.body, entry),
    ("POST", completions.PATH): lambda service, asked, entry, now_s: completions.exchange(
        service, asked.body, entry, now_s
    ),
    ("POST", BATCHES): lambda service, asked, _, now_s: _looked_at(*service.batches.create(asked.body, now_s)),
    ("GET", BATCHES): lambda service, asked, _, now_s: _found(service.batches.list(*_page(asked), now_s)),
    ("GET", f"{BATCHES}/{{id}}"): lambda service, asked, _, now_s: _looked_at(*service.batches.look(asked.id, now_s)),
    ("POST", f"{BATCHES}/{{id}}/cancel"): lambda service, asked, _, now_s: _found(
        service.batches.cancel(asked.id, now_s)
    ),
    ("DELETE", f"{BATCHES}/{{id}}"): lambda service, asked, _, now_s: _found(service.batches.delete(asked.id, now_s)),
    ("GET", RESULTS): lambda service, asked, _, now_s: Exchange(
        whole(200, b"".join(service.batches.results(asked.id, now_s)), content_type=LINES_TYPE)
    ),
    ("GET", MODEL_LISTS[0]): lambda _service, asked, _entry, _now_s: _found(
        page_of([describe(one) for one in MODELS.values()], *_page(asked))
    ),
    ("GET", MODEL_LISTS[1]): _model,
}
"""By method and path."""


def decide(
    service: Service, method: str, path: str, asked: Asked, headers: Mapping[str, str], entry: Entry, now_s: float
) -> Exchange:
    try:
        if len(asked.body) > (MOST_BYTES if (method, path) == ("POST", BATCHES) else MAX_BODY):
            raise ApiError(413, HTTP_MESSAGES[413])  # noqa: TRY301 - answered like the others
        if path in MODEL_LISTS and "anthropic-version" not in headers and "x-api-key" not in headers:
            return completions.models(asked.id)  # asked by a client of the other API
        if path != completions.PATH:  # a self-hosted server asks for no key
            check_credentials(headers)
        return ROUTES[method, path](service, asked, entry, now_s)
    except ApiError as error:
        return service.error(error, entry)


def check_credentials(headers: Mapping[str, str]) -> None:
    """Refuse a request without credentials; any will do."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if not (headers.get("x-api-key") or (scheme.lower() == "bearer" and key.strip())):
        raise ApiError(401, "x-api-key header is required")
    if not headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")


def _found(body: Json) -> Exchange:
    return Exchange(whole(200, encode(body)))


def _looked_at(body: Json, again_s: float | None) -> Exchange:
    found = _found(body)
    wait = () if again_s is None else (("retry-after-ms", str(round(1000 * again_s))),)
    return replace(found, response=replace(found.response, headers=wait))


FLUSH_S = 0.03
FLUSH_PER_STREAM_S = 0.000_2
TOKEN_PART = 1e-3
"""Within this fraction a token counts as written."""


class Sending:
    """A response that is being sent."""

    def __init__(self, service: Service, exchange: Exchange, entry: Entry) -> None:
        self._cache, self._journal = service.cache, service.journal
        self._exchange, self._entry = exchange, entry
        self._start_s = time.monotonic()
        self._station, self._has_slot, self._from = exchange.station, False, -1.0
        self._clock = exchange.station if exchange.station and exchange.station.capacity.is_paced else None

    async def first(self) -> None:
        """Wait until the response begins; forever if the fault is a hang."""
        planned = self._exchange.response
        if self._station is not None:
            await self._station.enter()
            self._has_slot, self._start_s = True, time.monotonic()
        if planned.ending is Ending.HANG:
            await forever()
        await _sleep_until(self._start_s + planned.frames[0].at_s)
        if self._clock is not None:
            self._from = self._clock.begin()
            self._from += self._clock.capacity.read(self._entry.input_tokens)
            await self._clock.until(self._from + (planned.frames[0].tokens if len(planned.frames) == 1 else 0))

    def close(self) -> None:
        if self._station is not None and self._has_slot:
            self._has_slot = False
            if self._from >= 0:
                self._station.end()
            self._station.leave()

    def began(self) -> None:
        now_s = time.monotonic()
        self._entry.first_byte_s = self._journal.at(now_s)
        if self._exchange.lookup:
            self._cache.begin(self._exchange.lookup, now_s)

    async def parts(self) -> AsyncGenerator[tuple[bytes, bool]]:
        """Yield parts when due, each with whether it is the last."""
        # Frames due together are one part. A stream is written at most every 30 ms, less often when many are
        # open: 1,000 streams are 5,000 writes a second, not 50,000.
        frames, place = self._exchange.response.frames, 0
        while place < len(frames):
            due, first = time.monotonic() - self._start_s, place
            made = math.inf if self._clock is None else self._clock.now() - self._from
            while place < len(frames) and frames[place].at_s <= due and frames[place].tokens <= made + TOKEN_PART:
                place += 1
            if place > first:
                self._sent(frames[place - 1].tokens)
                yield b"".join([frame.data for frame in frames[first:place]]), place == len(frames)
            if place < len(frames):
                gap_s = max(FLUSH_S, self._journal.in_flight * FLUSH_PER_STREAM_S)
                await _sleep_until(max(self._start_s + frames[place].at_s, time.monotonic() + gap_s))
                if self._clock is not None:
                    await self._clock.until(self._from + frames[place].tokens)

    def finished(self) -> None:
        self._entry.finished_s = self._journal.at(time.monotonic())

    def _sent(self, tokens: int) -> None:
        """Record the output so far and count it against the limit."""
        if self._exchange.pool:
            self._exchange.pool.output_tokens.take(tokens - self._entry.output_tokens, time.monotonic())
        self._entry.output_tokens = tokens


async def forever() -> None:
    """Wait until the client disconnects."""
    await asyncio.get_running_loop().create_future()


async def _sleep_until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)
