"""The provider as a forecast takes it to be: rate limits, the headers that announce them, and the prompt cache.

Source: the vendor's pages on rate limits (token buckets with continuous refill; a refused request uses nothing; cache
reads do not count as input; output counts as it is produced) and on prompt caching (an entry can be read once the
response that wrote it has begun; its life counts from the start of a request and each read starts it anew).
"""

from __future__ import annotations

import math
from email.utils import formatdate
from functools import lru_cache
from time import gmtime, strftime
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.schedule.limits import DIMENSIONS, HEADER_OF, PREFIX
from agent_magic.schedule.prefix import LIFE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.record.terms import Ceiling, Ceilings
    from agent_magic.schedule.limits import Dimension

EPOCH_S = 1_700_000_000
"""Any date will do: headers tell times only against each other."""


NAMES: Final = {
    name: tuple(f"{PREFIX}{HEADER_OF[name]}-{what}" for what in ("limit", "remaining", "reset")) for name in DIMENSIONS
}


class Input(NamedTuple):
    """How the input of a request is billed, in tokens."""

    uncached: int
    read: int = 0
    written: int = 0


class Refusal(NamedTuple):
    """A 429.

    Attributes:
        retry_after_s: As the header says it, in whole seconds.
        limit: What had no room.
    """

    retry_after_s: float
    limit: str


class Provider:
    """Admits requests, bills their input, and says in headers what is left.

    Args:
        ceilings: The limits by model class; a class that is not in it has none.
        warm: The cache entries that are there when the run begins.
    """

    def __init__(self, ceilings: Ceilings, warm: Iterable[str] = ()) -> None:
        self._pools = {name: _Pool(limits) for name, limits in ceilings.items() if limits}
        self._usable_s = dict.fromkeys(warm, 0.0)
        self._until_s = dict.fromkeys(self._usable_s, LIFE_S)

    def limits(self, pool: str) -> bool:
        """Tell whether a model class has limits."""
        return pool in self._pools

    def take(self, pool: str, tokens: int, now: float, entry: str | None = None, prefix: int = 0) -> Input | Refusal:
        """Let a request in and take its share, or refuse it.

        Args:
            pool: Its model's class.
            tokens: Its whole input.
            now: When it arrives.
            entry: The cache entry it asks for; `None` asks for none.
            prefix: The tokens of that.
        """
        billed = Input(tokens)
        if entry is not None:
            if self._usable_s.get(entry, math.inf) <= now < self._until_s[entry]:
                billed = Input(tokens - prefix, read=prefix)
            else:
                billed = Input(tokens - prefix, written=prefix)
        limited = self._pools.get(pool)
        if limited is not None and (refusal := limited.take(billed.uncached + billed.written, now)):
            return refusal
        if entry is not None and billed.read:
            self._until_s[entry] = now + LIFE_S
        return billed

    def began(self, pool: str, answer: tuple[float, float, int], entry: str | None, sent_s: float) -> None:
        """Take in that an answer begins.

        Args:
            pool: Its model's class.
            answer: When it begins, when it ends, and its tokens.
            entry: The cache entry it wrote; `None` where it wrote none.
            sent_s: When its request arrived.
        """
        limited = self._pools.get(pool)
        if limited is not None:
            limited.produce(answer)
        if entry is not None:
            self._usable_s[entry] = min(self._usable_s.get(entry, math.inf), answer[0])
            self._until_s[entry] = max(self._until_s.get(entry, 0.0), sent_s + LIFE_S)

    def headers(self, pool: str, now: float) -> Mapping[str, str]:
        """Return what a response announces now."""
        limited = self._pools.get(pool)
        return {} if limited is None else limited.headers(now)


class _Bucket:
    __slots__ = ("at_s", "capacity", "level", "limit", "rate")

    def __init__(self, ceiling: Ceiling) -> None:
        self.limit, self.rate = str(int(ceiling.per_minute)), ceiling.per_minute / 60
        self.capacity = self.level = max(1.0, ceiling.capacity)
        self.at_s = 0.0

    def level_at(self, now: float) -> float:
        return min(self.capacity, self.level + max(0.0, now - self.at_s) * self.rate)

    def take(self, amount: float, now: float) -> None:
        self.level = self.level_at(now) - amount
        self.at_s = max(self.at_s, now)

    def wait_s(self, amount: float, now: float) -> float:
        """Return how long an amount has to wait. More than the capacity passes when it is full, the rest is owed."""
        return (min(amount, self.capacity) - self.level_at(now)) / self.rate


class _Pool:
    def __init__(self, limits: Mapping[str, Ceiling]) -> None:
        self._buckets: list[tuple[Dimension, _Bucket]] = [
            (name, _Bucket(limits[name])) for name in DIMENSIONS if name in limits
        ]
        self._output = dict(self._buckets).get("output")
        self._arriving: list[tuple[float, float, int]] = []
        self._drained_s = 0.0

    def take(self, limited: int, now: float) -> Refusal | None:
        self._drain(now)
        needs: dict[Dimension, int] = {"requests": 1, "input": limited, "output": 1}
        wait_s, limit = max(((bucket.wait_s(needs[name], now), name) for name, bucket in self._buckets))
        if wait_s > 0:
            return Refusal(max(1.0, math.ceil(wait_s)), limit)
        for name, bucket in self._buckets:
            if name != "output":
                bucket.take(needs[name], now)
        return None

    def produce(self, answer: tuple[float, float, int]) -> None:
        if self._output is not None:
            self._drain(answer[0])
            self._arriving.append(answer)

    def _drain(self, now: float) -> None:
        """Count the output that was produced since it was counted last."""
        if self._output is None or not self._arriving:
            self._drained_s = now
            return
        before_s, made = self._drained_s, 0.0
        for begins_s, ends_s, tokens in self._arriving:
            start, end = max(before_s, begins_s), min(now, ends_s)
            if end >= ends_s and ends_s <= begins_s:
                made += tokens
            elif end > start:
                made += tokens * (end - start) / (ends_s - begins_s)
        self._arriving = [answer for answer in self._arriving if answer[1] > now]
        self._drained_s = now
        self._output.take(made, now)

    def headers(self, now: float) -> Mapping[str, str]:
        self._drain(now)
        found = {"date": _http_date(int(now))}
        for name, bucket in self._buckets:
            limit, remaining, reset = NAMES[name]
            level = max(0.0, bucket.level_at(now))
            found[limit] = bucket.limit
            found[remaining] = str(int(level) if name == "requests" else round(level / 1000) * 1000)
            found[reset] = _reset_date(math.ceil(now + (bucket.capacity - level) / bucket.rate))
        return found


@lru_cache(maxsize=4096)
def _http_date(second: int) -> str:
    return formatdate(EPOCH_S + second, usegmt=True)


@lru_cache(maxsize=4096)
def _reset_date(second: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(EPOCH_S + second))
