"""The provider's model in forecasts: rate limits, headers about them, the prompt cache, and servers that share speed.

Source: the vendor's pages on rate limits (token buckets with continuous refill; a refused request uses nothing; cache
reads do not count as input; output counts as it is produced) and on prompt caching (an entry can be read once the
response that wrote it has begun; its life counts from the start of a request and is renewed by each read).

Servers are known from earlier runs. Their answers give the needs of agents alone on their server; on virtual time the
model serves them together.
"""

from __future__ import annotations

import math
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.engine.admission.prefix import LIFE_S
from agent_magic.engine.pacing.limits import KINDS, NO_READINGS, Reading
from agent_magic.measure.server import NO_NEEDS, Needs, shortest_s, words_of
from agent_magic.measure.server_fit import Observed, all_at_once, fitting
from agent_magic.record.history import seen_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.measure.server import At, Server
    from agent_magic.measure.server_fit import Fit, Steps
    from agent_magic.record.history import History, Past, SeenRun
    from agent_magic.record.request import Ttl
    from agent_magic.record.results import RunRecord
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


CROWDED: Final = 1.15
"""Factor on the high end beyond the load seen: overloaded servers slow down. Source: `benchmarks.forecast drawn`."""


def open_s(
    servers: Mapping[At, Fit], most: Mapping[At, int], wall_s: Callable[[At, Server, Server], float]
) -> tuple[float, float]:
    low = high = 0.0
    for at, known in servers.items():
        if at not in most:  # all goes by batch, or to another server
            continue
        likely_s = wall_s(at, known.likely, known.likely)
        for model in known.open[1:]:
            more_s = wall_s(at, model, model) - likely_s
            low, high = max(low, -more_s), max(high, more_s)
        if most[at] > known.most:  # it may be that it does no more at once than it was seen to do
            for model in known.open:
                capped = model._replace(slots=min(model.slots, max(1, known.most)))
                high = max(high, wall_s(at, capped, model) * CROWDED - likely_s)
    return low, high


def server_words(servers: Mapping[At, Fit], most: Mapping[At, int]) -> list[str]:
    known = {at: one for at, one in servers.items() if at in most}
    found = list(dict.fromkeys(words_of(one.likely) for one in known.values() if not one.likely.is_constant))
    for at, one in known.items():
        if most[at] > one.most:
            kept = "its speed" if one.likely.is_constant else "sharing it so"
            found.append(f"more than {one.most} at once was never seen: forecast as if the server kept {kept}")
    return found


class Asked(NamedTuple):
    """An agent's request: its model class, and the seconds it needs alone."""

    pool: str
    needs: Needs


class KnownServers:
    """Observations of the servers at an origin; made by `fitting`."""

    def __init__(self, runs: Sequence[SeenRun], class_of: Callable[[str], str]) -> None:
        self._seen: dict[At, list[tuple[str, Observed]]] = {}
        for run in reversed(runs):  # newer runs count more
            for at, exchanges in run.at(lambda endpoint, model: (endpoint, class_of(model))).items():
                self._seen.setdefault(at, []).append((run.uid, Observed(exchanges)))
        self._runs = {run.uid for run in runs}
        self.fits: dict[At, Fit] = {}
        self._class_of = class_of

    @classmethod
    def fitting(cls, runs: Sequence[SeenRun], class_of: Callable[[str], str]) -> Steps[KnownServers]:
        known = cls(runs, class_of)
        for at, some in known._seen.items():
            found = yield from fitting([one for _, one in some])
            if found.pace is not None:
                known.fits[at] = found
        return known

    @classmethod
    def of(cls, history: History, pilot: RunRecord | None, class_of: Callable[[str], str]) -> KnownServers:
        runs = history.runs_at(history.origin)
        if pilot is not None and pilot.uid not in {one.uid for one in runs}:
            runs = [*runs, seen_run(pilot)]
        key = (cls, *(one.uid for one in runs))
        found = history.found.get(key)
        if not isinstance(found, KnownServers):
            found = history.found[key] = all_at_once(cls.fitting(runs, class_of))
        return found

    @cached_property
    def models(self) -> Mapping[At, Server]:
        """Model of each server; empty if load changes nothing at any of them."""
        shared = any(not one.likely.is_constant for one in self.fits.values())
        return {at: one.likely for at, one in self.fits.items()} if shared else {}

    def rows(self, earlier: Iterable[Past]) -> list[Past]:
        # If load matters and was unknown for an answer, its length counts and its seconds do not.
        shared = {pool for (_, pool), one in self.models.items() if not one.is_constant}
        found: list[Past] = []
        for row in earlier:
            needs = self._alone.get((row.run, row.ended_s, row.output_tokens))
            if needs is not None:
                first_s = None if row.ttft_s is None else needs.before_s
                found.append(row._replace(ttft_s=first_s, api_s=needs.before_s + needs.after_s, elsewhere=False))
            elif row.run in self._runs and row.elsewhere:
                found.append(row._replace(elsewhere=False))
            else:
                found.append(row._replace(elsewhere=True) if self._class_of(row.model) in shared else row)
        return found

    @cached_property
    def _alone(self) -> Mapping[tuple[str, float, int | None], Needs]:
        found: dict[tuple[str, float, int | None], Needs] = {}
        for at, model in self.models.items():
            for uid, run in self._seen[at] if not model.is_constant else ():
                for one, needs in zip(run.exchanges, run.needs(model), strict=True):
                    found[uid, one.ended_s, one.output_tokens] = needs
        return found

    def alone(self, run: str, ended_s: float, output_tokens: int | None) -> Needs | None:
        return self._alone.get((run, ended_s, output_tokens))

    def stretch(self, at: At, model: Server) -> tuple[float, float]:
        """Return a model's needs relative to the likely ones, before and after the first token."""
        sums: list[tuple[float, float]] = []
        for each in (model, self.fits[at].likely):
            needs = [one for _, run in self._seen[at] for one in run.needs(each)]
            sums.append((sum(one.before_s for one in needs), sum(one.after_s for one in needs)))
        (before, after), (usual_before, usual_after) = sums
        return (before / usual_before if usual_before else 1.0), (after / usual_after if usual_after else 1.0)

    def needs(self, at: At, model: Server) -> tuple[float, float]:
        needs = [one for _, run in self._seen[at] for one in run.needs(self.fits[at].likely)]
        before_s, after_s = sum(one.before_s for one in needs), sum(one.after_s for one in needs)
        before, after = self.stretch(at, model)
        total_s = (before_s + after_s) or 1.0
        return before * before_s / total_s, after * after_s / total_s

    def plausible(self, at: At, most: int) -> list[tuple[Server, Server]]:
        known = self.fits[at]
        found = [(one, one) for one in known.open]
        if most > known.most:  # it may be that it does no more at once than it was seen to do
            found += [(one._replace(slots=min(one.slots, max(1, known.most))), one) for one in known.open]
        return found

    def open_s(
        self,
        asked: Sequence[Asked | None],
        parents: Sequence[Sequence[int]],
        concurrency: int,
        most: Mapping[At, int],
    ) -> tuple[float, float]:
        def wall_s(at: At, model: Server, of: Server) -> float:
            before, after = self.stretch(at, of)
            needs = [
                Needs(one.needs.before_s * before, one.needs.after_s * after)
                if one is not None and one.pool == at[1]
                else NO_NEEDS
                for one in asked
            ]
            return shortest_s(needs, parents, concurrency, model)

        return open_s(self.fits, most, wall_s)


NOTHING_KNOWN = KnownServers((), str)
