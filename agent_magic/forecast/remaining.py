"""The remaining time of a run, as an interval; without evidence none, since an unfounded number would be believed."""

from __future__ import annotations

import math
from math import sqrt
from statistics import fmean, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.expected import Factors, kinds_of
from agent_magic.forecast.evidence import UNSURE
from agent_magic.forecast.provider import NOTHING_KNOWN, KnownServers
from agent_magic.measure.server import Needs, shortest_s
from agent_magic.measure.server_fit import FEWEST, at_of
from agent_magic.record.history import MEASURED, Exchange, seen_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.step import Step
    from agent_magic.measure.server import At
    from agent_magic.measure.server_fit import Steps
    from agent_magic.record.history import History, Past, SeenRun
    from agent_magic.record.results import AgentResult, RunRecord

LEAST_ROWS = 3
"""With fewer answers of an agent, the answers of its model count too."""
MOST_ROWS = 50
MOST_FITTED = 512
"""With more answers, servers are not fitted again, since a fit takes time during the run."""
MOST_SERVED = 300
"""With more steps left, only a server's most likely model is used: the others cost time during the run."""

Span = tuple[float, float]


class Usual(NamedTuple):
    """Usual seconds of an answer: lower quartile, mean, upper quartile."""

    low: float
    mean: float
    high: float


def remaining(
    record: RunRecord, now_s: float, history: History, concurrency: int, most_s: float = math.inf
) -> Span | None:
    """Estimate the fewest and most remaining seconds of a run; `None` if it is over, or if an agent is unknown.

    The rest takes at least its longest path, and at least its work divided by the concurrency; the upper end adds both,
    which no order of starts exceeds. Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.

    Over many answers fast ones compensate slow ones: their work is the sum of means, plus or minus the root of the
    summed squares of half the quartile ranges; sums of quartiles differed by a factor of three for 300 labels. Refits
    of servers stop after `most_s`, and the next call resumes them.
    """
    if record.ended_s is not None:
        return None
    servers = _servers(record, now_s, history, most_s)
    own, known, declared = _own_seconds(record, servers), dict[tuple[str, str], Usual | None](), _declared(record)
    left: dict[int, Usual] = {}
    for agent, result in enumerate(record.results):
        if result.finished_s is not None:
            continue
        group = _group(record, agent)
        key = (group or (result.name if len(history) or agent in declared else ""), result.model)
        if key not in known:
            earlier = _Earlier(history, servers, record.simulated)
            known[key] = _usual(record.plan.agents[agent], result, earlier, own, group, declared.get(agent))
        usual = known[key]
        if usual is None:
            return None
        left[agent] = _left(result, usual, _gone_s(record, result, servers, now_s))
    most = max(1, min(concurrency, len(record.results)))
    every = [left.get(agent, Usual(0.0, 0.0, 0.0)) for agent in range(len(record.results))]
    path_low = max(record.plan.dag.remaining([one.low for one in every]), default=0.0)
    path_high = max(record.plan.dag.remaining([one.high for one in every]), default=0.0)
    work = sum(one.mean for one in left.values())
    spread = sqrt(sum(((one.high - one.low) / 2) ** 2 for one in left.values()))
    if servers.models and work:
        low, high = _served_s(record, left, servers, concurrency)
        return max(path_low, low * (1 - spread / work)), max(path_high, high * (1 + spread / work))
    seen = max((one.most for one in servers.fits.values()), default=most)  # more at once may gain nothing
    return max(path_low, (work - spread) / most), path_high + max(0.0, work + spread - path_high) / min(most, seen)


def _group(record: RunRecord, agent: int) -> str:
    part = record.plan.agents[agent].part
    return "" if part is None else part.group


class _Refits:
    def __init__(self, known: KnownServers) -> None:
        self.known = known
        self.stands_on: tuple[object, ...] = ()
        self._steps: Steps[KnownServers] | None = None

    def begin(self, steps: Steps[KnownServers], stands_on: tuple[object, ...]) -> None:
        self._steps, self.stands_on = steps, stands_on

    def go_on(self, most_s: float) -> bool:
        until_s = perf_counter() + most_s
        while self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as end:
                self.known, self._steps = end.value, None
            if perf_counter() >= until_s:
                break
        return self._steps is None


def _servers(record: RunRecord, now_s: float, history: History, most_s: float) -> KnownServers:
    # They are refitted whenever the number of ended requests has doubled.
    runs = history.runs_at(record.origin)
    earlier = tuple(one.uid for one in runs)
    refits = history.found.get((remaining, record.uid))
    if not isinstance(refits, _Refits):
        estimated = history.found.get((KnownServers, *earlier))
        refits = _Refits(estimated if isinstance(estimated, KnownServers) else NOTHING_KNOWN)
        history.found[remaining, record.uid] = refits
    ended = sum(one.finished_s is not None for one in record.results)
    doubled = min(ended, MOST_FITTED).bit_length() if ended >= FEWEST else 0
    if refits.go_on(most_s) and refits.stands_on != (doubled, *earlier):
        now = [_seen_so_far(record, now_s)] if doubled else []
        steps = KnownServers.fitting([*runs, *now], lambda model: at_of(record, "", model)[1])
        refits.begin(steps, (doubled, *earlier))
        refits.go_on(most_s)
    return refits.known


def _seen_so_far(record: RunRecord, now_s: float) -> SeenRun:
    now = seen_run(record)
    exchanges = dict(now.exchanges)
    for attempt in record.facts.running:
        at = attempt.endpoint, attempt.model
        under_way = Exchange(attempt.started_s, attempt.first_token_s, now_s, whole=False)
        exchanges[at] = [*exchanges.get(at, ()), under_way]
    return now._replace(exchanges=exchanges)


def _at(record: RunRecord, result: AgentResult, servers: KnownServers) -> At | None:
    if result.is_task or not servers.models:
        return None
    at = at_of(record, result.attempts[-1].endpoint if result.attempts else "", result.model)
    found = at if at in servers.models else next((one for one in servers.models if one[1] == at[1]), None)
    return None if found is None or servers.models[found].is_constant else found


def _served_s(record: RunRecord, left: Mapping[int, Usual], servers: KnownServers, concurrency: int) -> Span:
    running = [agent for agent in left if record.results[agent].status == "running"]
    place = {agent: number for number, agent in enumerate(dict.fromkeys([*running, *record.dag.order]))}
    agents = sorted(left, key=place.__getitem__)
    number = {agent: at for at, agent in enumerate(agents)}
    parents = [[number[one] for one in record.dag.parents[agent] if one in number] for agent in agents]
    ats = [_at(record, record.results[agent], servers) for agent in agents]
    low = high = 0.0
    for at in {one for one in ats if one is not None}:
        elsewhere = {one for one, other in enumerate(ats) if other != at}
        pairs = servers.plausible(at, concurrency)
        walls = list[float]()
        for model, of in pairs if len(agents) <= MOST_SERVED else pairs[:1]:
            before, after = servers.needs(at, of)
            needs = [
                Needs(0.0, left[agent].mean)
                if one in elsewhere
                else Needs(0.0 if agent in running else before * left[agent].mean, after * left[agent].mean)
                for one, agent in enumerate(agents)
            ]
            walls.append(shortest_s(needs, parents, concurrency, model, elsewhere))
        low, high = max(low, min(walls)), max(high, *walls)
    return low, high


def _gone_s(record: RunRecord, result: AgentResult, servers: KnownServers, now_s: float) -> float:
    if result.status != "running":
        return 0.0
    latest = (result.calls if result.is_task else result.attempts)[-1]
    at = _at(record, result, servers)
    if at is None:
        return now_s - latest.started_s
    first_s = result.attempts[-1].first_token_s
    model, running = servers.models[at], sum(one.status == "running" for one in record.results)
    return 0.0 if first_s is None else (now_s - first_s) * model.share(int(min(running, model.slots)))


def _own_seconds(record: RunRecord, servers: KnownServers) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for agent, result in enumerate(record.results):
        if result.attempts and result.status == "succeeded" and result.source in MEASURED:
            taken_s = result.attempts[-1].duration_s or 0.0
            if _at(record, result, servers) is not None:
                ended_s, usage = result.attempts[-1].ended_s, result.attempts[-1].usage
                alone = servers.alone(record.uid, ended_s or 0.0, (usage and usage.output_tokens) or 0)
                if alone is None:
                    continue
                taken_s = alone.before_s + alone.after_s
            for group in {_group(record, agent), ""}:
                found.setdefault((group, result.model), []).append(taken_s)
    return found


def _declared(record: RunRecord) -> dict[int, Usual]:
    expects = {number: one.expect for number, one in enumerate(record.plan.agents) if one.expect is not None}
    if not expects:
        return {}
    kinds, factors = kinds_of(record.plan), Factors()
    for number, expect in expects.items():
        result = record.results[number]
        took_s = result.tool_s if result.is_task else result.api_s
        is_measured = result.is_task or result.source in MEASURED
        if result.status == "succeeded" and is_measured and took_s > 0:
            factors.add(kinds[number], took_s, expect)
    likely = {number: expect * factors.of(kinds[number]) for number, expect in expects.items()}
    return {number: Usual(one * UNSURE[0], one, one * UNSURE[1]) for number, one in likely.items()}


def _usual(
    step: Step,
    result: AgentResult,
    earlier: _Earlier,
    own: Mapping[tuple[str, str], list[float]],
    group: str,
    declared: Usual | None,
) -> Usual | None:
    alike = own.get((group, result.model), []) if group else []
    if len(alike) >= LEAST_ROWS:
        return _spread(alike)
    of_agent = earlier.seconds(earlier.history.of_agent(step, result.model))
    if len(of_agent) >= LEAST_ROWS:
        return _spread(of_agent)
    if declared is not None:
        return declared
    of_model = earlier.seconds(earlier.history.of_model(result.model))
    if len(of_model) >= LEAST_ROWS:
        return _spread(of_model)
    both = [*of_model, *own.get(("", result.model), [])]
    return _spread(both) if len(both) >= LEAST_ROWS else None


class _Earlier(NamedTuple):
    history: History
    servers: KnownServers
    simulated: bool

    def seconds(self, rows: Sequence[Past]) -> list[float]:
        alone = self.servers.rows(rows[-MOST_ROWS:]) if self.servers.models else rows[-MOST_ROWS:]
        return [row.api_s for row in alone if row.simulated == self.simulated and not row.elsewhere]


def _spread(taken: Sequence[float]) -> Usual:
    lower, _, upper = quantiles(taken, n=4, method="inclusive")
    return Usual(lower, fmean(taken), upper)


def _left(result: AgentResult, usual: Usual, gone: float) -> Usual:
    """Return the rest of a running agent's duration: a late one has a tenth of its usual time left."""
    if result.status != "running":
        return usual
    low, mean, high = usual
    return Usual(max(low - gone, 0.0), max(mean - gone, mean / 10), max(high - gone, high / 10))
