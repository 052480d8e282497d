"""Server models from earlier runs, for plans that have not run.

Earlier answers give the needs of agents alone on their server; on virtual time the model serves them together.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.measure.server import NO_NEEDS, Needs, shortest_s, words_of
from agent_magic.measure.server_fit import Observed, all_at_once, fitting
from agent_magic.record.history import seen_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.measure.server import At, Server
    from agent_magic.measure.server_fit import Fit, Steps
    from agent_magic.record.history import Exchange, History, Past, SeenRun
    from agent_magic.record.results import RunRecord

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
            by_class: dict[At, list[Exchange]] = {}
            for (endpoint, model), exchanges in run.exchanges.items():
                by_class.setdefault((endpoint, class_of(model)), []).extend(exchanges)
            for at, exchanges in by_class.items():
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

    def is_beyond(self, most: Mapping[At, int]) -> bool:
        return any(most.get(at, 0) > one.most for at, one in self.fits.items())

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
