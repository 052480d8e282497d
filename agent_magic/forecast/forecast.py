"""What a run would have taken and cost under another policy: the engine of the live run, on virtual time.

Nothing is sent, and no chance is drawn that was not drawn before: the same question has the same answer. What comes of
it is a run record like any other, which says in its `forecast` what it stands on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.dag import Dag, build_dag
from agent_magic.declare.units import seconds
from agent_magic.engine.admission.key import Key
from agent_magic.engine.batching import batching_of
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.pacing.routing import Endpoints, Router, as_route
from agent_magic.engine.requests import timeouts_of
from agent_magic.forecast.deciding import Decided, decide
from agent_magic.forecast.estimate.agents import batch_span
from agent_magic.forecast.pace import RANK
from agent_magic.forecast.provider import Outage
from agent_magic.forecast.service import Pricing, play
from agent_magic.forecast.terms import ceilings_for, facts_of, known_to, policy_of
from agent_magic.forecast.work import Evidence
from agent_magic.measure.metrics import Summary, summarize
from agent_magic.record.prices import Prices
from agent_magic.record.request import Request
from agent_magic.record.results import ForecastNote, RunRecord
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.flow import Left
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.pace import Basis
    from agent_magic.forecast.work import End, Rewritten, Work, Works
    from agent_magic.record.answer import Price
    from agent_magic.record.history import History
    from agent_magic.record.terms import Ceilings

MEASURED_RANGE: Final = 0.05
"""How far a forecast from measured durations may be off: what `benchmarks/forecast.py` finds is less."""
REFUSED_RANGE: Final = 0.2
"""The same where 429s are forecast: who is refused is a matter of milliseconds, and when he comes back is drawn by lot.
Runs of one policy that were refused differ by up to 16 % among themselves (29 scenarios on the virtual clock of
`tests/forecast/standin.py`, delays of up to 6 ms drawn by lot)."""
FIRST_REPLY: Final = frozenset({"key", "limits"})
"""What holds requests until a first reply, in the first run of a session that asks a model class."""
ENDS: Final[Mapping[End, int]] = {"low": 0, "likely": 1, "high": 2}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked of a forecast. What is left out stays as it was recorded.

    Attributes:
        policy: How to run; `None` is the recorded policy.
        models: Per agent's number, its model.
        efforts: Per agent's number, its effort.
        dropped: The numbers of agents left out.
        limits: Rate limits by model class, `*` for all others; an empty mapping is no limits at all.
        prices: What tokens cost.
        faster: Per agent's number, the factor by which its answers take longer; below 1 they are faster.
        max_tokens: Per agent's number, its `max_tokens`; the answer is as long as it was.
        rewritten: Per agent's number, how its prompt is written otherwise; the answer is as long as it was.
        cut: Edges left out, as (parent's number, child's number): that child no longer waits for that parent.
        rounds: The most rounds of each loop; `None` is as recorded.
        most: The most items of each map over an answer; `None` is as recorded.
        route: How requests are given to several endpoints; empty is as recorded.
        outages: When endpoints cannot be reached, by name; all of them where the name is empty.
        paced: Whether requests wait for rate limits; without, the provider refuses them.
    """

    policy: Policy | None = None
    models: Mapping[int, str] = field(default_factory=dict[int, str], kw_only=True)
    efforts: Mapping[int, str | None] = field(default_factory=dict[int, "str | None"], kw_only=True)
    dropped: frozenset[int] = field(default=frozenset(), kw_only=True)
    limits: Mapping[str, Limits] | None = field(default=None, kw_only=True)
    prices: Prices | None = field(default=None, kw_only=True)
    faster: Mapping[int, float] = field(default_factory=dict[int, float], kw_only=True)
    max_tokens: Mapping[int, int] = field(default_factory=dict[int, int], kw_only=True)
    rewritten: Mapping[int, Rewritten] = field(default_factory=dict[int, "Rewritten"], kw_only=True)
    cut: frozenset[tuple[int, int]] = field(default=frozenset(), kw_only=True)
    rounds: int | None = field(default=None, kw_only=True)
    most: int | None = field(default=None, kw_only=True)
    route: str = field(default="", kw_only=True)
    outages: Mapping[str, Outage] = field(default_factory=dict[str, Outage], kw_only=True)
    paced: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run would have taken and cost. All in seconds, tokens and USD; `None` is unknown.

    Attributes:
        scenario: What was asked, its policy filled in.
        record: The run as it would have been; `None` where only its numbers were kept.
        totals: Its numbers.
        note: What it stands on.
    """

    scenario: Scenario
    record: RunRecord | None
    totals: Summary
    note: ForecastNote

    @property
    def wall_s(self) -> float:
        """First ready to last finished."""
        return self.totals.wall_s or 0.0

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts."""
        return self.totals.cost_usd


Range = tuple[float, float]


class Forecaster:
    """Answers many what-ifs of one record: what does not change between them is read once.

    Args:
        record: The run.
        history: Earlier answers.
        prices: What tokens cost, unless a scenario says otherwise.
        batch_times_s: How long earlier batches took; see `agent_magic.forecast.estimate.agents`.
        base: What the record stands on, and that in words, where it is no run; by default what its own note says.
    """

    def __init__(
        self,
        record: RunRecord,
        history: History | None = None,
        prices: Prices | None = None,
        batch_times_s: Sequence[float] = (),
        base: tuple[Basis, str] | None = None,
    ) -> None:
        note = record.forecast
        self._base = base or (None if note is None else (cast("Basis", note.basis), note.assumed))
        self.record, self.evidence = record, Evidence(record, history)
        self.policy, self._policy_words = policy_of(record)
        self.prices = prices or Prices()
        self._batch_s, self._batch_words = batch_span(batch_times_s)
        self._costs: dict[tuple[object, ...], Price] = {}
        self._known: dict[tuple[object, ...], tuple[int, Forecast]] = {}
        self._decisions: dict[tuple[int | None, int | None], Decided] = {}
        self._dags: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], Dag] = {}
        self._requests = [_request_of(record, agent) for agent in range(len(record.plan))]

    @property
    def route(self) -> str:
        """How the run gave requests to its endpoints; empty where there was one."""
        terms = self.record.terms
        return terms.route if terms is not None and terms.endpoints else ""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of the run; none where there was one, without a name."""
        return () if self.record.terms is None else tuple(self.record.terms.endpoints)

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast:
        """Answer one what-if.

        Args:
            scenario: What changes.
            ranges: Whether to say the low and the high end too. Without, they are the likely values.
        """
        policy = scenario.policy or self.policy
        scenario = replace(scenario, policy=policy)
        key = (*_apart_from_concurrency(scenario, policy), policy == self.policy, ranges)
        peak, known = self._known.get(key, (0, None))
        if known is not None and policy.concurrency > peak:
            return replace(known, scenario=scenario)
        setting, words, basis = self._setting(scenario, policy)
        most_at_once, record = self._play(setting, "likely")
        totals = summarize(record)
        if later_s := first_wait_s(record):
            words.append(f"waits for the first reply; a later run of a session may be up to {seconds(later_s)} faster")
        wall_s = totals.wall_s or 0.0
        wall, cost = (wall_s, wall_s), _point(totals.cost_usd)
        peak = 0 if policy.schedule == "sequential" else most_at_once  # those ask for no slots
        if ranges:
            wall, cost, ends_peak = self._ranges(setting, totals, later_s)
            peak = max(peak, ends_peak)
        simulated = self.evidence.simulated
        note = ForecastNote(basis, "; ".join(filter(None, dict.fromkeys(words))), wall, cost, simulated=simulated)
        record.label_forecast(note)
        found = Forecast(scenario, record, totals, note)
        if peak < policy.concurrency:  # nobody ever waited for a slot, so with more of them nothing changes
            self._known[key] = peak, found
        return found

    def _setting(self, scenario: Scenario, policy: Policy) -> tuple[_Setting, list[str], Basis]:
        """Return all that follows from a scenario, what was assumed for it, and the weakest thing that stands on."""
        words = list(self._policy_words)
        ceilings, limit_words = ceilings_for(self.record, scenario.limits, self._pools(scenario))
        limited = frozenset(ceilings) if scenario.limits != {} else self._pools(scenario)  # no limits refuse nobody
        without, decided = scenario.dropped | frozenset(self._beyond(scenario)), self._decided(scenario)
        by_batch = self._by_batch(policy).difference(without, decided.left)
        changes = scenario.models, scenario.efforts, without, limited
        works = self.evidence.works(*changes, by_batch, frozenset(decided.left))
        works = self._changed(works, scenario)
        basis = "assumed" if decided.assumed else works.basis
        if self._base is not None:  # what is forecast from a forecast stands on no more than that does
            basis, words = max(basis, self._base[0], key=RANK.__getitem__), [self._base[1], *words]
        words += decided.words
        unknown = any(_has_no_time(works.agents[one]) for one in by_batch)
        live = len(by_batch) < sum(work is not None and not work.is_task for work in works.agents)
        if unknown:
            words.append(f"by batch at half the price, {self._batch_words}; no cache hits")
            basis = "assumed"
        words += [*(limit_words if live else ()), *works.words]
        if scenario.outages:
            words.append("in an outage what is under way breaks off, and a new request fails at once")
        if live and policy.cache != "off" and self._context_estimated(scenario):
            words.append("the shared context's tokens are its share of the prompt by characters")
        return _Setting(scenario, policy, ceilings, works, unknown), words, basis

    def _changed(self, works: Works, scenario: Scenario) -> Works:
        """Return the work of agents that answer faster, or are asked otherwise for the same answer."""
        agents = list(works.agents)
        for one, factor in scenario.faster.items():
            agents[one] = (work := agents[one]) and work.paced(factor)
        for one, most in scenario.max_tokens.items():
            agents[one] = (work := agents[one]) and work._replace(max_tokens=most)
        for one, change in scenario.rewritten.items():
            per_character = self.evidence.seen[one].per_character
            agents[one] = (work := agents[one]) and work.rewritten(change, per_character)
        return works._replace(agents=tuple(agents))

    def _by_batch(self, policy: Policy) -> frozenset[int]:
        """Return the agents that are expected to go by batch.

        Raises:
            PlanError: The policy and the plan do not go together.
        """
        batching = batching_of(self.record.plan, policy)
        return frozenset(() if batching is None else batching.ahead(self.record.plan.dag.layer))

    def _ranges(self, setting: _Setting, likely: Summary, later_s: float) -> tuple[Range, Range | None, int]:
        """Return the low and the high end of wall time and cost, and the most that was under way at once in them."""
        wall, cost, peak = likely.wall_s or 0.0, likely.cost_usd, 0
        off = REFUSED_RANGE if likely.rate_limited else MEASURED_RANGE
        wall_range = (max(0.0, wall - later_s) * (1 - off), wall * (1 + off))
        sure = all(work is None or work.is_sure for work in setting.works.agents) and not setting.scenario.outages
        if sure and not setting.batch_unknown:
            return wall_range, _point(cost), peak
        (fast, low_run), (slow, high_run) = self._play(setting, "low"), self._play(setting, "high")
        low, high, peak = summarize(low_run), summarize(high_run), max(fast, slow)
        ends = (low.wall_s or 0.0, high.wall_s or 0.0) if setting.batch_unknown else wall_range
        wall_range = (min(low.wall_s or 0.0, ends[0]), max(high.wall_s or 0.0, ends[1]))
        if cost is None or low.cost_usd is None or high.cost_usd is None:
            return wall_range, None, peak
        return wall_range, (min(low.cost_usd, cost), max(high.cost_usd, cost)), peak

    def _play(self, setting: _Setting, end: End) -> tuple[int, RunRecord]:
        """Turn the engine through one scenario. Returns the most that was under way at once, and the run."""
        scenario, policy = setting.scenario, setting.policy
        works = [None if work is None else work.scaled(end) for work in setting.works.agents]
        plan, recorded = self.record.plan, self.record.terms
        timeouts_s = timeouts_of(plan, policy)
        expected = None if recorded is None else recorded.work_s
        requests = self._asked(works)
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
        peak = play(
            record,
            terms,
            policy,
            works,
            requests,
            price=self._pricing(scenario),
            timeouts_s=timeouts_s,
            cached_by=expected,
            pacer=pacer,
            key=key,
            refusal_s=self.evidence.refusal_s,
            left=self._left(scenario),
            batch_s=self._batch_s[ENDS[end]],
            outages={name: one._replace(bills_all=end == "high") for name, one in scenario.outages.items()},
        )
        return peak, record

    def _shared(self, scenario: Scenario, policy: Policy, *, limited: bool) -> tuple[Pacer | None, Key | None]:
        """Return the pacer and the key of the session, as far as the run was paced, and its key untried."""
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
        """Return the rounds and places that a scenario leaves out."""
        flow = self.record.plan.flow
        return {} if flow is None else flow.at_most(scenario.rounds, scenario.most)

    def _decided(self, scenario: Scenario) -> Decided:
        """Return what the conditions leave out: what they did when it was recorded, and what the scenario says."""
        key = scenario.rounds, scenario.most
        if key not in self._decisions:
            self._decisions[key] = decide(self.record, self._beyond(scenario))
        return self._decisions[key]

    def _left(self, scenario: Scenario) -> dict[int, Left]:
        """Return what is left out by a decision, in place of being dropped."""
        return {step: why for step, why in self._decided(scenario).left.items() if step not in scenario.dropped}

    def _asked(self, works: Sequence[Work | None]) -> list[Request]:
        """Return what each agent asks: as it was recorded, with the scenario's model."""
        found: list[Request] = []
        for agent, (work, base) in enumerate(zip(works, self._requests, strict=True)):
            model = self.evidence.seen[agent].model if work is None else work.model
            found.append(base if base.model == model else base._replace(model=model))
        return found

    def _pricing(self, scenario: Scenario) -> Pricing:
        return Pricing(scenario.prices or self.prices, self._costs, recorded=scenario.prices is None)

    def _dag(self, dropped: frozenset[int], cut: frozenset[tuple[int, int]]) -> Dag:
        """Return the graph without the edges of dropped agents, and without those that are cut."""
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
    """A scenario with all that follows from it; `batch_unknown`: whether nothing was recorded of a batch in it."""

    scenario: Scenario
    policy: Policy
    ceilings: Ceilings
    works: Works
    batch_unknown: bool


def _apart_from_concurrency(scenario: Scenario, policy: Policy) -> tuple[object, ...]:
    """Return what tells a scenario from others but how many may run at once."""
    return (
        replace(policy, concurrency=1),
        tuple(scenario.models.items()),
        tuple(scenario.efforts.items()),
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
    """Tell whether an agent that goes by batch was recorded live, so that its batch may take any time."""
    return work is not None and not work.is_task and any(one.batch_s is None for one in work.tries)


def _point(value: float | None) -> Range | None:
    return None if value is None else (value, value)


def first_wait_s(record: RunRecord) -> float:
    """Return the most seconds by which a later run of a session may be faster, which waits for no first reply."""
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
    """Return what an agent asked last; where it never did, what is known of that before."""
    attempts = record.results[agent].attempts
    if attempts:
        return attempts[-1].request
    declared = record.plan.agents[agent]
    return Request(record.results[agent].model, "", declared.max_tokens or DEFAULT_MAX_TOKENS, declared.system_text)
