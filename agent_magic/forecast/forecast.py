"""Forecasts of a run under another policy: the live engine on virtual time.

No random numbers are drawn: the same question has the same answer, a run record with its basis in `forecast`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.dag import Dag, build_dag
from agent_magic.declare.flow import is_reserved
from agent_magic.declare.units import plural, seconds
from agent_magic.engine.admission.pool import Key
from agent_magic.engine.pacing.pacer import Endpoints, Pacer, Router, as_route
from agent_magic.engine.policy import batching_of
from agent_magic.engine.requests import timeouts_of
from agent_magic.forecast.estimate.agents import batch_span
from agent_magic.forecast.evidence import RANK, ceilings_for, facts_of, known_to, policy_of
from agent_magic.forecast.provider import Outage, open_s, server_words
from agent_magic.forecast.service import Pricing, play
from agent_magic.forecast.work import Evidence, Works
from agent_magic.measure.metrics import Summary, summarize
from agent_magic.measure.server import shortest_s
from agent_magic.measure.server_fit import OURS, limit_of_run
from agent_magic.providers.anthropic.models import takes_sampling
from agent_magic.providers.capabilities import OPTIONS, REFUSALS
from agent_magic.record.prices import Prices
from agent_magic.record.request import Request
from agent_magic.record.results import ForecastNote, Returned, RunRecord, sharers_of
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.declare.flow import Flow, Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.evidence import Basis
    from agent_magic.forecast.service import Played
    from agent_magic.forecast.work import End, Fits, Rewritten, Work
    from agent_magic.measure.server import At, Server
    from agent_magic.measure.server_fit import Fit
    from agent_magic.record.answer import Price
    from agent_magic.record.history import History
    from agent_magic.record.terms import Ceilings

UNSURE: Final = 0.3
"""If plausible models of a server differ by this share of the wall time, a forecast is assumed, not measured."""
UNSURE_WORDS: Final = "how the server shares its speed cannot be told from this load"
MEASURED_RANGE: Final = 0.05
"""Error of a forecast from measured durations; `benchmarks/forecast.py` finds less."""
SHARED_RANGE: Final = 0.1
"""The same for shared servers, beside the uncertainty of their model."""
REFUSED_RANGE: Final = 0.2
"""The same if 429s are forecast: milliseconds decide which request is refused, and retries are jittered. Refused runs
of one policy differ by up to 16 % among themselves (29 scenarios of `tests/forecast/standin.py`)."""
FIRST_REPLY: Final = frozenset({"key", "limits"})
"""Reasons to wait for a first reply, in the first run of a session that asks a model class."""
ENDS: Final[Mapping[End, int]] = {"low": 0, "likely": 1, "high": 2}


@dataclass(frozen=True, slots=True)
class Scenario:
    """The question of a forecast, by agent number; omitted values stay as recorded, and answers keep their length."""

    policy: Policy | None = None
    models: Mapping[int, str] = field(default_factory=dict[int, str], kw_only=True)
    efforts: Mapping[int, str | None] = field(default_factory=dict[int, "str | None"], kw_only=True)
    sent: Mapping[int, Mapping[str, Any]] = field(default_factory=dict[int, "Mapping[str, Any]"], kw_only=True)
    dropped: frozenset[int] = field(default=frozenset(), kw_only=True)
    # by model class, `*` for all others; an empty mapping for no limits
    limits: Mapping[str, Limits] | None = field(default=None, kw_only=True)
    prices: Prices | None = field(default=None, kw_only=True)
    # factor on an answer's duration
    faster: Mapping[int, float] = field(default_factory=dict[int, float], kw_only=True)
    max_tokens: Mapping[int, int] = field(default_factory=dict[int, int], kw_only=True)
    rewritten: Mapping[int, Rewritten] = field(default_factory=dict[int, "Rewritten"], kw_only=True)
    # removed edges, as (parent's number, child's number)
    cut: frozenset[tuple[int, int]] = field(default=frozenset(), kw_only=True)
    rounds: int | None = field(default=None, kw_only=True)
    most: int | None = field(default=None, kw_only=True)
    route: str = field(default="", kw_only=True)
    # by endpoint; the empty name is all of them
    outages: Mapping[str, Outage] = field(default_factory=dict[str, Outage], kw_only=True)
    # requests wait for rate limits; otherwise the provider refuses them
    paced: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A run's forecast; `most_seen` is the highest concurrency seen at a server, if the forecast exceeds it."""

    scenario: Scenario
    record: RunRecord | None
    totals: Summary
    note: ForecastNote
    most_seen: int | None = None

    @property
    def wall_s(self) -> float:
        return self.totals.wall_s or 0.0

    @property
    def cost_usd(self) -> float | None:
        return self.totals.cost_usd


Range = tuple[float, float]


class Answering(Protocol):
    """A source of what-ifs: a `Forecaster` of a run, or an `Ahead` of a plan that has not run."""

    @property
    def subject(self) -> str: ...

    @property
    def record(self) -> RunRecord: ...

    @property
    def totals(self) -> Summary: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def prices(self) -> Prices: ...

    @property
    def route(self) -> str: ...

    @property
    def endpoints(self) -> tuple[str, ...]: ...

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast: ...


class Imagined(NamedTuple):
    """The known parts of an imagined run: work alone on its server, available answers, the low and high end.

    `ends` is `None` for a run that is an end itself.
    """

    works: Sequence[Work]
    servers: Mapping[At, Fit]
    held: frozenset[int]
    ends: tuple[Forecaster, Forecaster] | None = None

    def without(self, dropped: frozenset[int], base: tuple[Basis, str] | None) -> Works:
        basis: Basis = "assumed" if base is None else base[0]
        left = [None if step in dropped else work for step, work in enumerate(self.works)]
        there = [work and work.there if step in self.held else work for step, work in enumerate(left)]
        return Works(tuple(there), basis, ())


class Forecaster:
    """Answers many what-ifs of one record, and reads their common part once; `fits` caches server models for others."""

    subject = "the run"

    def __init__(
        self,
        record: RunRecord,
        history: History | None = None,
        prices: Prices | None = None,
        batch_times_s: Sequence[float] = (),
        base: tuple[Basis, str] | None = None,
        fits: Fits | None = None,
        imagined: Imagined | None = None,
    ) -> None:
        note, self._imagined = record.forecast, imagined
        self._base = base or (None if note is None else (cast("Basis", note.basis), note.assumed))
        self.record, self.evidence = (
            record,
            Evidence(record, history, fits, None if imagined is None else imagined.servers),
        )
        self.policy, self._policy_words = policy_of(record)
        self.prices = prices or Prices()
        self._batch_s, self._batch_words = batch_span(batch_times_s)
        self._costs: dict[tuple[object, ...], Price] = {}
        self._known: dict[tuple[object, ...], tuple[int, Forecast]] = {}
        self._decisions: dict[tuple[int | None, int | None], Decided] = {}
        self._walls_s: dict[tuple[object, ...], float] = {}
        self._dags: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], Dag] = {}
        self._same = sharers_of(record)
        self._requests = [_request_of(record, agent) for agent in range(len(record.plan))]

    @property
    def totals(self) -> Summary:
        return summarize(self.record)

    @property
    def route(self) -> str:
        terms = self.record.terms
        return terms.route if terms is not None and terms.endpoints else ""

    @property
    def endpoints(self) -> tuple[str, ...]:
        return () if self.record.terms is None else tuple(self.record.terms.endpoints)

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast:
        """Answer one what-if; without `ranges` the low and high ends equal the likely values."""
        policy = scenario.policy or self.policy
        scenario = replace(scenario, policy=policy)
        key = (*_apart_from_concurrency(scenario, policy), policy == self.policy, ranges)
        peak, known = self._known.get(key, (0, None))
        if known is not None and policy.concurrency > peak:
            return replace(known, scenario=scenario)
        setting, words, basis = self._setting(scenario, policy)
        played, record = self._play(setting, "likely")
        totals = summarize(record)
        servers: Mapping[At, Fit] = self.evidence.servers if setting.changed else {}
        loads = [servers[at].most for at, count in played.most.items() if at in servers and count > servers[at].most]
        if loads:
            basis = "assumed"
        if setting.changed:
            words += server_words(servers, played.most)
        if later_s := first_wait_s(record):
            words.append(f"waits for the first reply; a later run of a session may be up to {seconds(later_s)} faster")
        limit = played.limited_by if setting.changed else limit_of_run(self.record)
        limit = limit if totals.limited_by in OURS else ""
        totals = replace(totals, limited_by=limit or totals.limited_by)
        wall_s = totals.wall_s or 0.0
        wall, cost = (wall_s, wall_s), _point(totals.cost_usd)
        peak = 0 if policy.schedule == "sequential" else played.peak  # those ask for no slots
        if ranges:
            wall, cost, ends_peak = self._ranges(setting, totals, later_s)
            peak = max(peak, ends_peak)
            if setting.changed:
                less_s, more_s = self._open_s(setting, played)
                if max(less_s, more_s) > UNSURE * wall_s:
                    basis = "assumed"
                    words += [UNSURE_WORDS] * (not loads)
                wall = max(0.0, wall[0] - less_s), wall[1] + more_s
        simulated = self.evidence.simulated
        note = ForecastNote(
            basis, "; ".join(filter(None, dict.fromkeys(words))), wall, cost, simulated=simulated, limited_by=limit
        )
        record.label_forecast(note)
        found = Forecast(scenario, record, totals, note, min(loads, default=None))
        by_slots = policy.schedule != "groups" and not policy.degrade  # these count them, used or not
        if by_slots and peak < policy.concurrency:  # no step ever waited for a slot, so more of them change nothing
            self._known[key] = peak, found
        return found

    def _setting(self, scenario: Scenario, policy: Policy) -> tuple[_Setting, list[str], Basis]:
        words = list(self._policy_words)
        ceilings, limit_words = ceilings_for(self.record, scenario.limits, self._pools(scenario))
        limited = frozenset(ceilings) if scenario.limits != {} else self._pools(scenario)  # no limits refuse nothing
        without, decided = scenario.dropped | frozenset(self._beyond(scenario)), self._decided(scenario)
        batching = batching_of(self.record.plan, policy)
        ahead = () if batching is None else batching.ahead(self.record.plan.dag.layer)
        by_batch = frozenset(ahead).difference(without, decided.left)
        changes = scenario.models, scenario.efforts, without, limited
        changed = self._is_changed(scenario, policy)
        shared, caught = changed and self.evidence.is_shared, self.evidence.caught
        works = (
            self.evidence.works(*changes, by_batch, frozenset(decided.left), alone=shared or (changed and caught > 0))
            if self._imagined is None
            else self._imagined.without(without, self._base)
        )
        works = self._changed(works, scenario)
        basis = "assumed" if decided.assumed else works.basis
        if self._base is not None:  # a forecast of a forecast has the same basis
            basis, words = max(basis, self._base[0], key=RANK.__getitem__), [self._base[1], *words]
        words += decided.words
        unknown = any(_has_no_time(works.agents[one]) for one in by_batch)
        live = len(by_batch) < sum(work is not None and not work.is_task for work in works.agents)
        if unknown:
            words.append(f"by batch at half the price, {self._batch_words}; no cache hits")
            basis = "assumed"
        words += [*(limit_words if live else ()), *works.words]
        if changed and caught:
            words.append(f"the kernel stood still: {plural(caught, 'answer')} under way then forecast by length")
        if scenario.sent:
            names = dict.fromkeys(name for options in scenario.sent.values() for name in options)
            words.append(f"{', '.join(names)}: answers assumed as long as recorded")
            basis = "assumed"
        words += [f"a run would refuse it: {model} {REFUSALS['sampling'].words}" for model in self._refusing(scenario)]
        if scenario.outages:
            words.append("in an outage what is under way breaks off, and a new request fails at once")
        if live and policy.cache != "off" and self._context_estimated(scenario):
            words.append("the shared context's tokens are its share of the prompt by characters")
        servers: Mapping[At, Fit] = self.evidence.servers if shared else {}
        likely = {at: one.likely for at, one in servers.items()}
        return _Setting(scenario, policy, ceilings, works, unknown, likely, changed), words, basis

    def _refusing(self, scenario: Scenario) -> list[str]:
        """Return the models of a changed scenario that take no sampling options."""
        agents = self.record.plan.agents if scenario.sent or scenario.models else ()
        asked = {
            scenario.models.get(number, self.evidence.seen[number].model)
            for number, step in enumerate(agents)
            for one in OPTIONS["sampling"]
            if scenario.sent.get(number, {}).get(one, getattr(step, one, None)) is not None
        }
        return sorted(one for one in asked if one and not takes_sampling(one))

    def _is_changed(self, scenario: Scenario, policy: Policy) -> bool:
        if self.evidence.is_forecast:
            return True
        as_recorded = Scenario(policy, prices=scenario.prices, paced=scenario.paced)
        return policy != self.policy or scenario != as_recorded

    def _changed(self, works: Works, scenario: Scenario) -> Works:
        agents = list(works.agents)
        for one, factor in scenario.faster.items():
            agents[one] = (work := agents[one]) and work.paced(factor)
        for one, most in scenario.max_tokens.items():
            agents[one] = (work := agents[one]) and work._replace(max_tokens=most)
        for one, change in scenario.rewritten.items():
            per_character = self.evidence.seen[one].per_character
            agents[one] = (work := agents[one]) and work.rewritten(change, per_character)
        return works._replace(agents=tuple(agents))

    def _open_s(self, setting: _Setting, played: Played) -> tuple[float, float]:
        concurrency = 1 if setting.policy.schedule == "sequential" else setting.policy.concurrency
        parents = self._dag(setting.scenario.dropped, setting.scenario.cut).parents

        def wall_s(at: At, model: Server, of: Server) -> float:
            return self._alone_wall_s(at, model, parents, concurrency, of)

        return open_s(self.evidence.servers, played.most, wall_s)

    def _alone_wall_s(
        self, at: At, model: Server, parents: Sequence[Sequence[int]], concurrency: int, of: Server
    ) -> float:
        key = at, model, id(parents), concurrency, of
        found = self._walls_s.get(key)
        if found is None:
            needs = self.evidence.needs_of(at, of)
            found = self._walls_s[key] = shortest_s(needs, parents, concurrency, model)
        return found

    def _ranges(self, setting: _Setting, likely: Summary, later_s: float) -> tuple[Range, Range | None, int]:
        wall, cost, peak = likely.wall_s or 0.0, likely.cost_usd, 0
        if self._imagined is not None:
            return self._between(self._imagined, setting, likely)
        modelled = setting.servers or (setting.changed and self.evidence.caught)
        off = REFUSED_RANGE if likely.rate_limited else SHARED_RANGE if modelled else MEASURED_RANGE
        wall_range = (max(0.0, wall - later_s) * (1 - off), wall * (1 + off))
        sure = all(work is None or work.is_sure for work in setting.works.agents) and not setting.scenario.outages
        if sure and not setting.batch_unknown:
            return wall_range, _point(cost), peak
        (fast, low_run), (slow, high_run) = self._play(setting, "low"), self._play(setting, "high")
        low, high, peak = summarize(low_run), summarize(high_run), max(fast.peak, slow.peak)
        ends = (low.wall_s or 0.0, high.wall_s or 0.0) if setting.batch_unknown else wall_range
        wall_range = (min(low.wall_s or 0.0, ends[0]), max(high.wall_s or 0.0, ends[1]))
        if cost is None or low.cost_usd is None or high.cost_usd is None:
            return wall_range, None, peak
        return wall_range, (min(low.cost_usd, cost), max(high.cost_usd, cost)), peak

    def _between(self, imagined: Imagined, setting: _Setting, likely: Summary) -> tuple[Range, Range | None, int]:
        """Return the ends of an imagined run, which are runs too; see `_ranges`."""
        wall, cost, asked = likely.wall_s or 0.0, likely.cost_usd, (setting.scenario, setting.policy)
        ends = imagined.ends or (self, self)
        (fast, low_run), (slow, high_run) = (
            one.played(*asked, end) for one, end in zip(ends, ("low", "high"), strict=True)
        )
        low, high = summarize(low_run), summarize(high_run)
        walls = min(low.wall_s or 0.0, wall), max(high.wall_s or 0.0, wall)
        peak = max(fast.peak, slow.peak)
        if cost is None or low.cost_usd is None or high.cost_usd is None:
            return walls, None, peak
        return walls, (min(low.cost_usd, cost), max(high.cost_usd, cost)), peak

    def played(self, scenario: Scenario, policy: Policy, end: End) -> tuple[Played, RunRecord]:
        return self._play(self._setting(scenario, policy)[0], end)

    def _play(self, setting: _Setting, end: End) -> tuple[Played, RunRecord]:
        scenario, policy = setting.scenario, setting.policy
        works = [None if work is None else work.scaled(end) for work in setting.works.agents]
        held = frozenset[int]() if self._imagined is None else self._imagined.held
        plan, recorded = self.record.plan, self.record.terms
        timeouts_s = timeouts_of(plan, policy) if self._imagined is None else [math.inf] * len(plan)  # as estimates do
        expected = None if recorded is None else recorded.work_s
        requests = self._asked(works, scenario.efforts)
        record = RunRecord(
            plan,
            self.record.began_at,
            [one.model for one in requests],
            origin=self.record.origin,
            dag=self._dag(scenario.dropped, scenario.cut),
        )
        facts = {one.model: facts_of(recorded, one.model) for one in requests}
        terms = Terms(policy.to_dict(), False, {}, setting.ceilings, expected, models=facts)  # noqa: FBT003
        pacer, key = self._shared(scenario, policy, limited=bool(setting.ceilings))
        if recorded is not None and isinstance(pacer, Router):
            terms = terms._replace(route=scenario.route or recorded.route, endpoints=recorded.endpoints)
        record.terms = terms
        played = play(
            record,
            terms,
            policy,
            works,
            requests,
            price=Pricing(scenario.prices or self.prices, self._costs, recorded=scenario.prices is None),
            timeouts_s=timeouts_s,
            cached_by=expected,
            pacer=pacer,
            key=key,
            held=held,
            same=self._same,
            refusal_s=self.evidence.refusal_s,
            left=self._left(scenario),
            batch_s=self._batch_s[ENDS[end]],
            outages={name: one._replace(bills_all=end == "high") for name, one in scenario.outages.items()},
            servers=setting.servers,
            as_it_was=not setting.changed,
        )
        return played, record

    def _shared(self, scenario: Scenario, policy: Policy, *, limited: bool) -> tuple[Pacer | None, Key | None]:
        terms = self.record.terms
        key = Key() if terms is not None and terms.key_untried else None
        if not scenario.paced or not (limited or (terms is not None and terms.paced)):
            return None, key
        if terms is not None and terms.endpoints and scenario.limits is None:
            weights = {name: one.weight for name, one in terms.endpoints.items()}
            router = Router(Endpoints(weights, as_route(scenario.route or terms.route)), seed=policy.seed)
            router.recall_endpoints(terms.endpoints)
            return router, key
        pacer = Pacer(seed=policy.seed)
        if scenario.limits is None:
            known_to(pacer, self.record)
        return pacer, key

    def _beyond(self, scenario: Scenario) -> Mapping[int, Left]:
        flow = self.record.plan.flow
        return {} if flow is None else flow.at_most(scenario.rounds, scenario.most)

    def _decided(self, scenario: Scenario) -> Decided:
        key = scenario.rounds, scenario.most
        if key not in self._decisions:
            self._decisions[key] = decide(self.record, self._beyond(scenario))
        return self._decisions[key]

    def _left(self, scenario: Scenario) -> dict[int, Left]:
        return {step: why for step, why in self._decided(scenario).left.items() if step not in scenario.dropped}

    def _asked(self, works: Sequence[Work | None], efforts: Mapping[int, str | None]) -> list[Request]:
        found: list[Request] = []
        for agent, (work, base) in enumerate(zip(works, self._requests, strict=True)):
            model = self.evidence.seen[agent].model if work is None else work.model
            asked = base if base.model == model else base._replace(model=model)
            found.append(asked._replace(effort=efforts[agent]) if agent in efforts else asked)
        return found

    def _dag(self, dropped: frozenset[int], cut: frozenset[tuple[int, int]]) -> Dag:
        dag = self.record.plan.dag
        if not dropped and not cut:
            return dag
        found = self._dags.get((dropped, cut))
        if found is None:
            left = [
                [one for one in parents if one not in dropped and agent not in dropped and (one, agent) not in cut]
                for agent, parents in enumerate(dag.parents)
            ]
            found = self._dags[dropped, cut] = build_dag(left).with_priority(dag.priority)
        return found

    def _pools(self, scenario: Scenario) -> frozenset[str]:
        seen = enumerate(self.evidence.seen)
        models = {scenario.models.get(agent, one.model) for agent, one in seen if not one.is_task}
        return frozenset(facts_of(self.record.terms, model).limit_class for model in models)

    def _context_estimated(self, scenario: Scenario) -> bool:
        found = [one for agent, one in enumerate(self.evidence.seen) if agent not in scenario.dropped]
        return any(one.context is not None and not one.prefix_counted for one in found)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A scenario and all that follows from it; `batch_unknown` if no time of a batch in it was recorded."""

    scenario: Scenario
    policy: Policy
    ceilings: Ceilings
    works: Works
    batch_unknown: bool
    servers: Mapping[At, Server]
    changed: bool


def _apart_from_concurrency(scenario: Scenario, policy: Policy) -> tuple[object, ...]:
    return (
        replace(policy, concurrency=1),
        tuple(scenario.models.items()),
        tuple(scenario.efforts.items()),
        str(scenario.sent),
        scenario.dropped,
        None if scenario.limits is None else tuple(scenario.limits.items()),
        id(scenario.prices),
        tuple(scenario.faster.items()),
        tuple(scenario.max_tokens.items()),
        tuple(scenario.rewritten.items()),
        scenario.cut,
        scenario.paced,
        scenario.rounds,
        scenario.most,
        scenario.route,
        tuple(scenario.outages.items()),
    )


def _has_no_time(work: Work | None) -> bool:
    return work is not None and not work.is_task and any(one.batch_s is None for one in work.tries)


def _point(value: float | None) -> Range | None:
    return None if value is None else (value, value)


def first_wait_s(record: RunRecord) -> float:
    waits: dict[str, float] = {}
    for result in record.results:
        free_s = result.ready_s or 0.0
        for one in result.attempts:
            if one.held_by in FIRST_REPLY:
                pool = facts_of(record.terms, one.model).limit_class
                waited_s = one.granted_s - free_s - one.backoff_s
                waits[pool] = max(waits.get(pool, 0.0), waited_s)
            free_s = one.granted_s if one.ended_s is None else one.ended_s
    return sum(waits.values())


def _request_of(record: RunRecord, agent: int) -> Request:
    attempts = record.results[agent].attempts
    if attempts:  # the last one may forbid calls, and those before it did not
        return attempts[-1].request._replace(tool_choice="")
    declared = record.plan.agents[agent]
    return Request(record.results[agent].model, "", declared.max_tokens or DEFAULT_MAX_TOKENS, declared.system_text)


# Decisions of a run with fewer rounds or items: its conditions, evaluated on the remaining values.
#
# A forecast repeats the decisions of the recorded run. If a loop ends sooner, or a map has fewer items, conditions that
# use them change: `when="not critic"` is decided by the critic of the last remaining round, whose value is in the
# record. Unknown conditions, such as those on a step that never ran, are assumed to hold, so that the forecast is too
# high rather than too low.


class Decided(NamedTuple):
    """Steps left out of a forecast, with reasons, including the scenario's."""

    left: Mapping[int, Left]
    words: tuple[str, ...] = ()
    assumed: bool = False


class _Without(Mapping[str, Any]):
    def __init__(self, record: RunRecord, without: Mapping[int, Left]) -> None:
        self._all, self._without = Returned(record), {record.plan.names[one] for one in without}

    def __getitem__(self, name: str) -> Any:
        if name in self._without:
            raise KeyError(name)
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name not in self._without and name in self._all

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def decide(record: RunRecord, beyond: Mapping[int, Left]) -> Decided:
    flow, before = record.plan.flow, record.decisions
    cut = {step for step in beyond if not record.results[step].is_left_out}
    if flow is None or not cut:
        return Decided({**beyond, **before})
    return _Deciding(record, flow, beyond, cut).all()


class _Deciding:
    def __init__(self, record: RunRecord, flow: Flow, beyond: Mapping[int, Left], cut: set[int]) -> None:
        self._plan: Plan = record.plan
        self._flow, self._beyond, self._before = flow, beyond, record.decisions
        self._known = not record.redacted  # without texts, conditions cannot be decided
        self._answers = _Without(record, beyond)
        self._changed, self._new, self._after = set(cut), set[int](), set[int]()
        self._left: dict[int, Left] = {}
        self._words: dict[str, None] = {}
        self._assumed = False

    def all(self) -> Decided:
        for step in self._plan.dag.order:
            why = self._beyond[step] if step in self._beyond else self._one(step)
            if why is not None:
                self._left[step] = why
        return Decided(self._left, tuple(self._words), self._assumed)

    def _one(self, step: int) -> Left | None:
        agent, before, parents = self._plan.agents[step], self._before.get(step), set(self._plan.dag.parents[step])
        if parents & (self._after | self._changed):
            self._after.add(step)
        own = agent.when is not None or is_reserved(agent)
        if own and parents & (self._after - self._new):
            self._say("conditions, items and rounds behind what is cut as recorded, which may be decided otherwise")
        if step not in self._flow.decides or not parents & self._changed or agent.hedges is not None:
            return before
        now, decided = self._flow.follows(step, self._left), True
        if now is None:
            unknown = own and (not self._known or parents & self._new)
            now = None if unknown else self._flow.choose(step, self._answers, self._left)
            undecided = now is not None and now.status == "failed" and (before is None or before.status != "failed")
            if unknown or undecided:
                now, decided = None, False
        if (now is None) != (before is None):
            self._changed.add(step)
            self._tell(step, now, decided=decided)
        return now

    def _tell(self, step: int, now: Left | None, *, decided: bool) -> None:
        agent = self._plan.agents[step]
        name = agent.name if agent.part is None else agent.part.group
        if now is not None:
            self._words[f"{name}: left out then ({now.why})"] = None
            return
        self._new.add(step)
        if decided:
            self._words[f"{name}: runs then" + (f" ({agent.when} holds)" if agent.when else "")] = None
        else:
            self._say(f"{name}: assumed to run, since its condition is unknown then")

    def _say(self, words: str) -> None:
        self._words[words] = None
        self._assumed = True
