"""Decides responses from request bodies, with limits, cache and script, and keeps a journal. It has no I/O."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from agent_magic.simulator.answer import compose
from agent_magic.simulator.api import ApiError, Json, invalid
from agent_magic.simulator.batches import Batches, Pace
from agent_magic.simulator.directives import DirectiveError, Overrides, Rule, find_directives
from agent_magic.simulator.limits import START_TIER_ALLOWANCE, Allowance, Capacity, Pool, Quota, Station
from agent_magic.simulator.models import MODELS, REAL, Latency
from agent_magic.simulator.request import TTL_S, Request, parse
from agent_magic.simulator.response import (
    Case,
    InputUsage,
    Response,
    Result,
    encode,
    message,
    respond,
    whole,
    with_fault,
)

KEPT = 100_000
PREVIEW = 80


@dataclass(slots=True)
class Entry:
    """One request. Times are seconds since the journal began; `None` if it did not happen.

    Attributes:
        route: The path, without the token.
        overlap: Requests in flight on arrival, including itself.
        prompt: The first 80 characters of the last user message.
        aborted_s: When the client disconnected early.
    """

    number: int
    route: str
    started_s: float
    overlap: int
    request_id: str
    model: str | None = None
    stream: bool = False
    prompt: str = ""
    prompt_hash: str = ""
    status: int | None = None
    error: str | None = None
    fault: str | None = None
    first_byte_s: float | None = None
    finished_s: float | None = None
    aborted_s: float | None = None
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0

    def asked(self, model: str, prompt: str, *, stream: bool) -> None:
        """Record the start of the prompt and 16 hexadecimal digits of its SHA-256."""
        self.model, self.stream = model, stream
        self.prompt = prompt[:PREVIEW]
        self.prompt_hash = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def billed(self, uncached: int, written: int, read: int) -> None:
        self.input_tokens, self.cache_write_tokens, self.cache_read_tokens = uncached, written, read


class Journal:
    """The last 100,000 requests. Times are arguments."""

    def __init__(self, now_s: float) -> None:
        self.in_flight = 0
        self._began_s = now_s
        self._peak = 0
        self._count = 0
        self._entries: deque[Entry] = deque(maxlen=KEPT)

    def open(self, route: str, now_s: float) -> Entry:
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        self._count += 1
        entry = Entry(self._count, route, self.at(now_s), self.in_flight, f"req_sim_{self._count:010d}")
        self._entries.append(entry)
        return entry

    def close(self, entry: Entry, now_s: float) -> None:
        """Close a request, which is aborted unless it has finished."""
        self.in_flight -= 1
        if entry.finished_s is None:
            entry.aborted_s = self.at(now_s)

    def at(self, now_s: float) -> float:
        return round(now_s - self._began_s, 6)

    def report(self) -> Json:
        entries = [asdict(entry) for entry in self._entries]
        return {
            "requests": entries,
            "in_flight": self.in_flight,
            "peak_overlap": self._peak,
            "finished": sum(entry["finished_s"] is not None for entry in entries),
            "aborted": sum(entry["aborted_s"] is not None for entry in entries),
        }

    def reset(self, now_s: float) -> None:
        """Reset the books; requests in flight stay counted."""
        self._began_s = now_s
        self._peak = self.in_flight
        self._entries.clear()


LOOKBACK = 20
"""Blocks before a mark in which an entry is looked for."""
SWEEP_ABOVE = 4096


@dataclass(frozen=True, slots=True)
class Lookup:
    """The cache use of one request, and the entries written once its response begins."""

    usage: InputUsage
    digest: bytes
    writes: tuple[tuple[bytes, float], ...] = ()


class PromptCache:
    """The entries of one organisation, by a digest of model and prefix.

    An entry is usable once the response to the request that wrote it has begun, and lives from that request or its last
    read. Prefixes below the model's minimum are silently not cached. Source: the vendor's page on prompt caching.
    """

    def __init__(self) -> None:
        self._expires_at_s: dict[bytes, float] = {}

    def look_up(self, request: Request, now_s: float) -> Lookup:
        """Look up an arriving request and renew the entry it reads."""
        prefixes = list(request.prefixes())
        marks = [place for place, (segment, _, _) in enumerate(prefixes) if segment.ttl_s is not None]
        hit = self._longest_hit([digest for _, _, digest in prefixes], marks, now_s)
        read = prefixes[hit][1] if hit is not None else 0
        done, written = read, dict.fromkeys(TTL_S.values(), 0)
        writes: list[tuple[bytes, float]] = []
        for place in marks:
            segment, tokens, digest = prefixes[place]
            if tokens <= done or tokens < request.model.cache_min or segment.ttl_s is None:
                continue
            written[segment.ttl_s] += tokens - done
            writes.append((digest, now_s + segment.ttl_s))
            done = tokens
        if hit is not None:
            self._renew(prefixes[hit][2], now_s + (prefixes[hit][0].ttl_s or TTL_S["5m"]))
        uncached = request.input_tokens - done
        usage = InputUsage(uncached, read, written[TTL_S["5m"]], written[TTL_S["1h"]])
        return Lookup(usage, prefixes[-1][2], tuple(writes))

    def begin(self, lookup: Lookup, now_s: float) -> None:
        """Make a request's entries usable when its response begins."""
        for digest, expires_at_s in lookup.writes:
            self._renew(digest, expires_at_s)
        if len(self._expires_at_s) > SWEEP_ABOVE:
            self._expires_at_s = {key: at_s for key, at_s in self._expires_at_s.items() if at_s > now_s}

    def reset(self) -> None:
        self._expires_at_s.clear()

    def _longest_hit(self, digests: list[bytes], marks: list[int], now_s: float) -> int | None:
        for mark in reversed(marks):
            for index in range(mark, max(-1, mark - LOOKBACK), -1):
                if self._expires_at_s.get(digests[index], -1.0) > now_s:
                    return index
        return None

    def _renew(self, digest: bytes, expires_at_s: float) -> None:
        self._expires_at_s[digest] = max(expires_at_s, self._expires_at_s.get(digest, 0.0))


MESSAGES = "/v1/messages"
ORGANIZATION = "org_simulated"
SIMULATED = {"x-agent-magic-simulated": "1"}


@dataclass(frozen=True, slots=True)
class Settings:
    """`seed` changes all texts and durations, `slips` are rates by model family."""

    seed: int = 0
    latency: Latency = REAL
    allowance: Allowance = START_TIER_ALLOWANCE
    script: tuple[Rule, ...] = ()
    slips: Mapping[str, float] = field(default_factory=dict[str, float])
    batches: Pace = field(default_factory=Pace)
    capacity: Capacity = field(default_factory=Capacity)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A response, limits its output counts against, and shared capacity for writing."""

    response: Response
    lookup: Lookup | None = None
    pool: Pool | None = None
    station: Station | None = None


class Service:
    """Decides every response and holds all state. Times are arguments, in monotonic seconds."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        self.settings = settings
        self.journal = Journal(now_s)
        self._station = None if settings.capacity.is_unlimited else Station(settings.capacity)
        self.cache = PromptCache()
        self._quota = Quota(settings.allowance)
        self._numbers = count(1)
        self._used: Counter[tuple[str, ...]] = Counter()
        self.batches = Batches(settings.batches, settings.seed, self._answer_in_batch)

    def exchange(self, body: bytes, entry: Entry, now_s: float) -> Exchange:
        request = parse(body)
        entry.asked(request.model.id, request.prompt, stream=request.stream)
        overrides = self._overrides(request)
        entry.fault = overrides.fault
        _raise_scripted(overrides)
        lookup = self.cache.look_up(request, now_s)
        usage = lookup.usage
        pool = self._admit(request, usage.limited, now_s)
        entry.billed(usage.uncached, usage.written, usage.read)
        result = self._result(request, overrides, lookup)
        return Exchange(with_fault(Case(respond(result), result, overrides)), lookup, pool, self._station)

    def _answer_in_batch(self, body: bytes, now_s: float) -> Json:
        """Answer a request of a batch, without rate limits."""
        request = parse(body)
        overrides = self._overrides(request)
        _raise_scripted(overrides)
        return message(self._result(request, overrides, self.cache.look_up(request, now_s)))

    def count_tokens(self, body: bytes, entry: Entry) -> Exchange:
        request = parse(body, counting=True)
        entry.asked(request.model.id, request.prompt, stream=False)
        entry.input_tokens = request.input_tokens
        return Exchange(whole(200, encode({"input_tokens": request.input_tokens})))

    def headers(self, entry: Entry, now_s: float) -> dict[str, str]:
        found = {"request-id": entry.request_id, "anthropic-organization-id": ORGANIZATION, **SIMULATED}
        model = MODELS.get(entry.model or "") if entry.route == MESSAGES else None
        pool = self._quota.pool(model.pool, now_s) if model else None
        return {**found, **pool.headers(now_s, datetime.now(UTC))} if pool else found

    def error(self, error: ApiError, entry: Entry) -> Exchange:
        entry.error = error.kind
        response = whole(error.status, encode(error.body(entry.request_id, entry.route)), at_s=error.after_s)
        if error.retry_after_s is not None:
            response = replace(response, headers=(("retry-after", str(error.retry_after_s)),))
        return Exchange(response)

    def reset(self, now_s: float) -> None:
        self.journal.reset(now_s)
        self.cache.reset()
        self._quota.reset()
        self._used.clear()

    def _overrides(self, request: Request) -> Overrides:
        """The first matching rule, overridden by directives in the prompt."""
        values: dict[str, Any] = {}
        try:
            directives = find_directives(request.prompt)
        except DirectiveError as error:
            raise invalid(f"simulator: {error}") from None
        decided = False
        for index, rule in enumerate(self.settings.script):
            if not rule.pattern.search(request.prompt):
                continue
            decided = decided or "tool_use" in rule.values
            if rule.holds_in(request.turn) and self._count(rule.times, f"line {index}"):
                values.update(rule.values)
                break
        for each in directives:
            calls = "tool_use" in each.values
            decided = decided or calls
            allowed = each.holds_in(request.turn) and (not calls or (request.tools.may_call and not request.resumed))
            if allowed and self._count(each.times, request.model.id, request.prompt, each.key):
                values.update(each.values)
        return Overrides(**values, calls_given=decided)

    def _count(self, times: int | None, *key: str) -> bool:
        if times is None:
            return True
        self._used[key] += 1
        return self._used[key] <= times

    def _admit(self, request: Request, input_tokens: int, now_s: float) -> Pool | None:
        pool = self._quota.pool(request.model.pool, now_s)
        denial = pool.admit(input_tokens, now_s) if pool else None
        if denial:
            text = f"This request would exceed your rate limit of {denial.per_minute} {denial.limit}"
            raise ApiError(429, f"{text} for {request.model.name}.", retry_after_s=denial.retry_after_s)
        return pool

    def _result(self, request: Request, overrides: Overrides, lookup: Lookup) -> Result:
        # Text and timing have separate generators, so that a changed text does not change the timing.
        digest = lookup.digest.hex()
        content = f"{self.settings.seed}:{digest}"
        pace, text = Random(f"pace:{content}"), Random(f"text:{content}")
        draw = self.settings.latency.draw
        timing = draw(request.model.family, pace, ttft_s=overrides.ttft_s, pace=overrides.pace)
        if self._station is not None and self._station.capacity.is_paced:
            timing = replace(timing, per_token_s=0.0)
        number = f"{next(self._numbers):010d}"
        # A conversation may go on with another server of the same numbers, so the ids of calls have the digest too.
        answer = compose(request, overrides, text, f"sim_{digest[:8]}{number}", self.settings.slips)
        return Result(f"msg_sim_{number}", request, answer, lookup.usage, timing)


def _raise_scripted(overrides: Overrides) -> None:
    """Raise a scripted error, unless a fault responds instead."""
    if (overrides.status or 0) < 400 or overrides.fault is not None:
        return
    raise ApiError(
        overrides.status or 0,
        overrides.message or "A simulated error.",
        kind=overrides.error,
        code=overrides.error_code,
        retry_after_s=overrides.retry_after,
        after_s=overrides.ttft_s or 0.0,
    )
