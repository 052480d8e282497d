"""The provider's model in forecasts: rate limits, headers about them, and the prompt cache.

Source: the vendor's pages on rate limits (token buckets with continuous refill; a refused request uses nothing; cache
reads do not count as input; output counts as it is produced) and on prompt caching (an entry can be read once the
response that wrote it has begun; its life counts from the start of a request and is renewed by each read).
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.admission.prefix import LIFE_S
from agent_magic.engine.pacing.limits import KINDS, NO_READINGS, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.record.request import Ttl
    from agent_magic.record.terms import Ceiling, Ceilings


class Input(NamedTuple):
    """Billed input of a request, in tokens; `written_1h` is a part of `written`."""

    uncached: int
    read: int = 0
    written: int = 0
    written_1h: int = 0


class Refusal(NamedTuple):
    """A 429: its header in whole seconds, and the exceeded limit."""

    retry_after_s: float
    limit: str


class Outage(NamedTuple):
    """An outage of an endpoint; aborted requests are billed up to it, or to their end with `bills_all`."""

    from_s: float = math.inf
    until_s: float = math.inf
    bills_all: bool = False

    def holds(self, now: float) -> bool:
        return self.from_s <= now < self.until_s

    def cut_s(self, began_s: float) -> float:
        return self.from_s if began_s < self.from_s else math.inf


class Provider:
    """Admits requests, bills their input, and reports limits."""

    def __init__(
        self,
        ceilings: Ceilings,
        warm: Iterable[str] = (),
        lives: Mapping[str, Ttl] | None = None,
        outage: Outage = Outage(),  # noqa: B008 - it cannot be changed
        *,
        refusal_s: float = 0.0,
        caches: bool = True,
    ) -> None:
        self.refusal_s, self.outage, self._caches = refusal_s, outage, caches
        self._pools = {name: _Pool(limits) for name, limits in ceilings.items() if limits}
        self._lives = lives or {}
        self._usable_s = dict.fromkeys(warm, 0.0)
        self._until_s = {entry: self._life_s(entry) for entry in self._usable_s}

    def limits(self, pool: str) -> bool:
        return pool in self._pools

    def take(
        self,
        pool: str,
        tokens: int,
        now: float,
        entry: str | None = None,
        prefix: int = 0,
        read: int = 0,
        written: int = 0,
    ) -> Input | Refusal:
        read, written = (min(read, tokens), min(written, tokens - read)) if self._caches else (0, 0)
        billed = Input(tokens - read - written, read, written)
        prefix = min(prefix, billed.uncached + billed.written)
        if entry is not None:
            uncached = max(0, billed.uncached - prefix)
            if self._usable_s.get(entry, math.inf) <= now < self._until_s[entry]:
                billed = Input(uncached, read + prefix, tokens - read - prefix - uncached)
            else:
                long = self._lives.get(entry) == "1h"
                billed = Input(uncached, read, tokens - read - uncached, written_1h=prefix if long else 0)
        limited = self._pools.get(pool)
        if limited is not None and (refusal := limited.take(billed.uncached + billed.written, now)):
            return refusal
        if entry is not None and billed.read:
            self._until_s[entry] = now + self._life_s(entry)
        return billed

    def began(self, pool: str, answer: tuple[float, float, int], entry: str | None, sent_s: float) -> None:
        limited = self._pools.get(pool)
        if limited is not None:
            limited.produce(*answer)
        if entry is not None:
            self._usable_s[entry] = min(self._usable_s.get(entry, math.inf), answer[0])
            self._until_s[entry] = max(self._until_s.get(entry, 0.0), sent_s + self._life_s(entry))

    def _life_s(self, entry: str) -> float:
        return LIFE_S[self._lives.get(entry, "5m")]

    def readings(self, pool: str, now: float) -> Readings:
        limited = self._pools.get(pool)
        return NO_READINGS if limited is None else limited.readings(now)


class _Bucket:
    __slots__ = ("at_s", "capacity", "level", "limit", "rate")

    def __init__(self, ceiling: Ceiling) -> None:
        self.limit, self.rate = float(int(ceiling.per_minute)), ceiling.per_minute / 60
        self.capacity = self.level = max(1.0, ceiling.capacity)
        self.at_s = 0.0

    def level_at(self, now: float) -> float:
        return min(self.capacity, self.level + max(0.0, now - self.at_s) * self.rate)

    def take(self, amount: float, now: float) -> None:
        self.level = self.level_at(now) - amount
        self.at_s = max(self.at_s, now)

    def wait_s(self, amount: float, now: float) -> float:
        """Return the wait of an amount; one above the capacity passes when it is full, and owes the rest."""
        return (min(amount, self.capacity) - self.level_at(now)) / self.rate


class _Output:
    """The bucket of output tokens: answers are taken from it evenly from first token to last."""

    # Inflow into a full bucket is lost, so it advances from one change of the pace to the next.

    __slots__ = ("_ends", "_pace", "bucket")

    def __init__(self, bucket: _Bucket) -> None:
        self.bucket = bucket
        self._pace = 0.0
        self._ends: list[tuple[float, float]] = []

    def produce(self, begins_s: float, ends_s: float, tokens: int) -> None:
        self.turn(begins_s)
        if ends_s <= begins_s:
            self.bucket.level -= tokens
            return
        pace = tokens / (ends_s - begins_s)
        self._pace += pace
        heappush(self._ends, (ends_s, pace))

    def turn(self, now: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            ends_s, pace = heappop(ends)
            self._flow(ends_s)
            self._pace = self._pace - pace if ends else 0.0
        self._flow(now)

    def _flow(self, now: float) -> None:
        bucket = self.bucket
        if now > bucket.at_s:
            bucket.level = min(bucket.capacity, bucket.level + (now - bucket.at_s) * (bucket.rate - self._pace))
            bucket.at_s = now


class _Pool:
    def __init__(self, limits: Mapping[str, Ceiling]) -> None:
        self._buckets: dict[Dimension, _Bucket] = {name: _Bucket(limits[name]) for name in KINDS if name in limits}
        self._taken = [
            (name, KINDS[name].per_request, KINDS[name].per_input_token, each) for name, each in self._buckets.items()
        ]
        made = self._buckets.get("output")
        self._output = None if made is None else _Output(made)

    def take(self, limited: int, now: float) -> Refusal | None:
        if self._output is not None:
            self._output.turn(now)
        wait_s, limit = 0.0, ""
        for name, per_request, per_token, bucket in self._taken:
            need = 1.0 if name == "output" else per_request + per_token * limited  # while any is left
            if (each_s := bucket.wait_s(need, now)) > wait_s:
                wait_s, limit = each_s, name
        if wait_s > 0:
            return Refusal(max(1.0, math.ceil(wait_s)), limit)
        for name, per_request, per_token, bucket in self._taken:
            if name != "output":  # it is taken as it is produced
                bucket.take(per_request + per_token * limited, now)
        return None

    def produce(self, begins_s: float, ends_s: float, tokens: int) -> None:
        if self._output is not None:
            self._output.produce(begins_s, ends_s, tokens)

    def readings(self, now: float) -> Readings:
        """Return the announced state, as coarse as headers are."""
        if self._output is not None:
            self._output.turn(now)
        found: dict[Dimension, Reading] = {}
        for name, bucket in self._buckets.items():
            if not bucket.limit:
                continue  # less than one a minute is announced as 0, which says nothing
            level, rounded = max(0.0, bucket.level_at(now)), KINDS[name].rounded
            left = int(level) if rounded == 1 else round(level / rounded) * rounded
            found[name] = Reading(bucket.limit, min(float(left), bucket.limit))
        return found
