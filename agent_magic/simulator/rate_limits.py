"""Rate limits by pool of models: token buckets, admission, headers.

A pool has three buckets: requests, uncached input tokens, output tokens. `max_tokens` is not reserved: a request is
admitted while any output is left. A rejected request takes nothing. Default limits are those of the published Start
tier, with buckets of one minute; an explicit limit has a bucket of one second. Source: the vendor's page on rate
limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

PREFIX = "anthropic-ratelimit"


class Bucket:
    """A token bucket: it holds up to `capacity`, refills at `per_minute / 60` per second, and may go into debt.

    An amount above the capacity passes when the bucket is full, and the rest is owed.
    """

    __slots__ = ("_at_s", "_level", "capacity", "per_minute")

    def __init__(self, per_minute: float, capacity: float, now_s: float = 0.0) -> None:
        self.per_minute = per_minute
        self.capacity = max(1.0, capacity)
        self._level = self.capacity
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        passed_s = max(0.0, now_s - self._at_s)
        return min(self.capacity, self._level + passed_s * self.per_minute / 60)

    def take(self, amount: float, now_s: float) -> None:
        self._level = self.level(now_s) - amount
        self._at_s = max(self._at_s, now_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return seconds until a request fits; above the capacity, until the bucket is full."""
        missing = min(amount, self.capacity) - self.level(now_s)
        return max(0.0, missing * 60 / self.per_minute)

    def full_in_s(self, now_s: float) -> float:
        return (self.capacity - self.level(now_s)) * 60 / self.per_minute


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit per minute, and its burst in seconds."""

    per_minute: float
    burst_s: float = 60.0

    def bucket(self, now_s: float) -> Bucket:
        return Bucket(self.per_minute, self.per_minute * self.burst_s / 60, now_s)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a pool."""

    requests: Limit
    input_tokens: Limit
    output_tokens: Limit


START_TIER = Limits(Limit(1_000), Limit(2_000_000), Limit(400_000))
START_TIER_FABLE = Limits(Limit(1_000), Limit(500_000), Limit(100_000))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Requested limits; `None`: the Start tier, with buckets of 60 s."""

    rpm: float | None = None
    itpm: float | None = None
    otpm: float | None = None
    burst_s: float = 1.0
    unlimited: bool = False

    def limits(self, pool: str) -> Limits:
        tier = START_TIER_FABLE if pool.startswith(("fable", "mythos")) else START_TIER

        def limit(given: float | None, usual: Limit) -> Limit:
            return usual if given is None else Limit(given, self.burst_s)

        return Limits(
            limit(self.rpm, tier.requests), limit(self.itpm, tier.input_tokens), limit(self.otpm, tier.output_tokens)
        )


START_TIER_ALLOWANCE = Allowance()


@dataclass(frozen=True, slots=True)
class Denial:
    """The exceeded limit, and the whole seconds until the request may pass."""

    limit: str
    per_minute: int
    retry_after_s: int


class Pool:
    """The buckets of one pool of models."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self.requests = limits.requests.bucket(now_s)
        self.input_tokens = limits.input_tokens.bucket(now_s)
        self.output_tokens = limits.output_tokens.bucket(now_s)

    def admit(self, input_tokens: int, now_s: float) -> Denial | None:
        """Return the limit with the longest wait, if any."""
        waits = (
            (self.requests.wait_s(1, now_s), "requests", self.requests),
            (self.input_tokens.wait_s(input_tokens, now_s), "input tokens", self.input_tokens),
            (self.output_tokens.wait_s(1, now_s), "output tokens", self.output_tokens),
        )
        wait_s, words, bucket = max(waits, key=lambda each: each[0])
        if wait_s > 0:
            return Denial(f"{words} per minute", int(bucket.per_minute), max(1, math.ceil(wait_s)))
        self.requests.take(1, now_s)
        self.input_tokens.take(input_tokens, now_s)
        return None

    def headers(self, now_s: float, now: datetime) -> dict[str, str]:
        """Return headers; `now` is the moment of `now_s` as a date, for `reset`."""
        rows = {
            "requests": (self.requests,),
            "tokens": (self.input_tokens, self.output_tokens),
            "input-tokens": (self.input_tokens,),
            "output-tokens": (self.output_tokens,),
        }
        found: dict[str, str] = {}
        for name, buckets in rows.items():
            left = sum(max(0.0, bucket.level(now_s)) for bucket in buckets)
            full_s = max(bucket.full_in_s(now_s) for bucket in buckets)
            found[f"{PREFIX}-{name}-limit"] = str(int(sum(bucket.per_minute for bucket in buckets)))
            found[f"{PREFIX}-{name}-remaining"] = str(int(left) if name == "requests" else round(left / 1000) * 1000)
            found[f"{PREFIX}-{name}-reset"] = _rfc3339(now.timestamp() + full_s)
        return found


def _rfc3339(at: float) -> str:
    """Round up, so that it is never too early."""
    return datetime.fromtimestamp(math.ceil(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Quota:
    """The pools of one organisation."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._pools: dict[str, Pool] = {}

    def pool(self, name: str, now_s: float) -> Pool | None:
        """Return `None` if unlimited."""
        if self._allowance.unlimited:
            return None
        if name not in self._pools:
            self._pools[name] = Pool(self._allowance.limits(name), now_s)
        return self._pools[name]

    def reset(self) -> None:
        self._pools.clear()
