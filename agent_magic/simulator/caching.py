"""Prompt caching: tokens of a prompt read from the cache, written to it, or uncached.

An entry is usable once the response to the request that wrote it has begun, and lives from that request or its last
read. Prefixes below the model's minimum are silently not cached. A mark looks back over 20 blocks for an entry. Source:
the vendor's page on prompt caching.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_magic.simulator.request import TTL_S, Request

LOOKBACK = 20
SWEEP_ABOVE = 4096


@dataclass(frozen=True, slots=True)
class InputUsage:
    """Billed input tokens; the four numbers add up to the prompt."""

    uncached: int
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        """`cache_creation_input_tokens` of the API."""
        return self.written_5m + self.written_1h

    @property
    def limited(self) -> int:
        """What counts against the input limit: all except cache reads."""
        return self.uncached + self.written


@dataclass(frozen=True, slots=True)
class Lookup:
    """The cache use of one request, and the entries written once its response begins."""

    usage: InputUsage
    digest: bytes
    writes: tuple[tuple[bytes, float], ...] = ()


class PromptCache:
    """The entries of one organisation, by a digest of model and prefix."""

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
            for place in range(mark, max(-1, mark - LOOKBACK), -1):
                if self._expires_at_s.get(digests[place], -1.0) > now_s:
                    return place
        return None

    def _renew(self, digest: bytes, expires_at_s: float) -> None:
        self._expires_at_s[digest] = max(expires_at_s, self._expires_at_s.get(digest, 0.0))
