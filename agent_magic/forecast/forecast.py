"""What a run would have taken and cost under another policy: the conductor of the live run, on virtual time.

Nothing is sent and nothing is drawn by lot that was not drawn before: the same question has the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent_magic.declare.dag import Dag, build_dag
from agent_magic.engine.lifetime import with_lives
from agent_magic.engine.pacing.limits import class_of
from agent_magic.engine.prefix import Prefixes
from agent_magic.forecast.changes import BATCH_S, Pricing, batched, paced, scaled
from agent_magic.forecast.provider import Provider
from agent_magic.forecast.room import gate_of, groups_of
from agent_magic.forecast.sum import Totals, add_up, first_wait_s
from agent_magic.forecast.terms import ceilings_for, policy_of
from agent_magic.forecast.work import SAME, Evidence, Works
from agent_magic.forecast.world import World
from agent_magic.record.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.room import Gate
    from agent_magic.forecast.changes import End
    from agent_magic.forecast.pace import Basis
    from agent_magic.forecast.world import Bar
    from agent_magic.record.history import History
    from agent_magic.record.request import Ttl
    from agent_magic.record.results import RunRecord
    from agent_magic.record.terms import Ceilings

MEASURED_RANGE: Final = 0.05
"""How far a forecast from measured durations may be off: what `benchmarks/forecast.py` finds is less."""
REFUSED_RANGE: Final = 0.2
"""The same where 429s are forecast: who is refused is a matter of milliseconds, and when he comes back is drawn by lot.
Runs of one policy that were refused differ by up to 16 % among themselves (29 scenarios on the virtual clock of
`tests/forecast/standin.py`, delays of up to 6 ms drawn by lot)."""
BATCH_MOST_S: Final = 86400.0
"""Source: the same page: a batch expires after 24 hours."""
BATCH_PRICE: Final = 0.5
"""Source: the same page: half price on everything."""
ANY: Final = "*"
"""Stands for every model class that has no limits of its own."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked of a forecast. What is left out stays as it was recorded.

    Attributes:
        policy: How to run; `None` is the recorded policy.
        models: Per agent's number, its model.
        efforts: Per agent's number, its effort.
        dropped: The numbers of agents left out.
        limits: Rate limits by model class, `*` for all others; an empty mapping is no limits at all.
        batch: Whether everything goes through the Batch API, a batch per layer of what is ready.
        prices: What tokens cost.
        faster: Per agent's number, the factor by which its answers take longer; below 1 they are faster.
        cut: Edges left out, as (parent's number, child's number): that child no longer waits for that parent.
    """

    policy: Policy | None = None
    models: Mapping[int, str] = field(default_factory=dict[int, str], kw_only=True)
    efforts: Mapping[int, str | None] = field(default_factory=dict[int, "str | None"], kw_only=True)
    dropped: frozenset[int] = field(default=frozenset(), kw_only=True)
    limits: Mapping[str, Limits] | None = field(default=None, kw_only=True)
    batch: bool = field(default=False, kw_only=True)
    prices: Prices | None = field(default=None, kw_only=True)
    faster: Mapping[int, float] = field(default_factory=dict[int, float], kw_only=True)
    cut: frozenset[tuple[int, int]] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run would have taken and cost. All in seconds, tokens and USD; `None` is unknown.

    Attributes:
        scenario: What was asked, its policy filled in.
        bars: One per attempt, in the order they were sent.
        status: Per agent, its last status.
        totals: The sums of the bars.
        basis: The weakest thing it stands on: `measured`, `ledger` (earlier answers) or `assumed`.
        assumed: What it stands on, in words.
        simulated: Whether the recorded answers were made up by the stand-in API.
        wall_range_s: The low and the high end of the wall time.
        cost_range_usd: The low and the high end of the cost.
    """

    scenario: Scenario
    bars: tuple[Bar, ...]
    status: Mapping[str, str]
    totals: Totals
    basis: Basis
    assumed: str
    simulated: bool
    wall_range_s: tuple[float, float]
    cost_range_usd: tuple[float, float] | None

    def __repr__(self) -> str:
        low, high = self.wall_range_s
        parts = [f"{self.wall_s:.1f} s ({low:.1f} to {high:.1f})"]
        parts += [] if self.cost_usd is None else [f"${self.cost_usd:.4f}"]
        parts += [] if self.totals.mean_concurrency is None else [f"{self.totals.mean_concurrency:.3g} at once"]
        parts += [f"limited by {self.totals.limited_by}"] if self.totals.limited_by else []
        parts += [f"{self.totals.n_429} refused"] if self.totals.n_429 else []
        parts += [f"basis {self.basis}", *(["simulated"] if self.simulated else [])]
        return f"Forecast: {', '.join(parts)}{'. ' if self.assumed else ''}{self.assumed}"

    @property
    def wall_s(self) -> float:
        """First ready to last finished."""
        return self.totals.wall_s

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts."""
        return self.totals.cost_usd


Range = tuple[float, float]


def forecast(
    record: RunRecord,
    policy: Policy | None = None,
    *,
    history: History | None = None,
    scenario: Scenario | None = None,
    ranges: bool = True,
) -> Forecast:
    """Forecast a recorded run under another policy.

    Args:
        record: The run, finished or cut.
        policy: How to run; `None` is as it was recorded.
        history: Earlier answers: how fast other models are, how long an agent's answers.
        scenario: What else changes.
        ranges: Whether to say the low and the high end too. Without, they are the likely values.
    """
    asked = scenario or Scenario()
    if policy is not None:
        asked = replace(asked, policy=policy)
    return Forecaster(record, history).forecast(asked, ranges=ranges)


class Forecaster:
    """Answers many what-ifs of one record: what does not change between them is read once.

    Args:
        record: The run.
        history: Earlier answers.
        prices: What tokens cost, unless a scenario says otherwise.
    """

    def __init__(self, record: RunRecord, history: History | None = None, prices: Prices | None = None) -> None:
        self.record, self.evidence = record, Evidence(record, history)
        self.policy, self._policy_words = policy_of(record)
        self._prices = prices or Prices()
        self._costs: dict[tuple[object, ...], float | None] = {}
        self._known: dict[tuple[object, ...], tuple[int, Forecast]] = {}
        self._dags: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], Dag] = {}
        plan = record.plan
        self._contexts = [agent.context for agent in plan.agents]

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast:
        """Answer one what-if."""
        policy = scenario.policy or self.policy
        scenario = replace(scenario, policy=policy)
        key = (*_apart_from_concurrency(scenario, policy), policy == self.policy, ranges)
        peak, known = self._known.get(key, (0, None))
        if known is not None and policy.concurrency > peak:
            return replace(known, scenario=scenario)
        words = list(self._policy_words) if policy == self.policy else []
        ceilings, limit_words = ceilings_for(self.record, scenario.limits, self._pools(scenario))
        limited = frozenset(ceilings) if scenario.limits != {} else self._pools(scenario)  # no limits refuse nobody
        works = self.evidence.works(scenario.models, scenario.efforts, scenario.dropped, limited)
        if scenario.faster:
            works = works._replace(agents=paced(works.agents, scenario.faster))
        basis = works.basis
        if scenario.batch:
            words.append("batches: half price, an hour for each layer (at most a day), no cache hits")
            basis = "assumed"
        else:
            words += limit_words
        words += works.words
        if not scenario.batch and policy.cache != "off" and self._context_estimated(scenario):
            words.append("the shared context's tokens are its share of the prompt by characters")
        setting = _Setting(scenario, policy, ceilings, works)
        world, totals = self._play(setting, "likely")
        if later_s := first_wait_s(world.bars):
            words.append(f"waits for the first reply; a later run of a session may be up to {later_s:.1f} s faster")
        wall, cost = (totals.wall_s, totals.wall_s), _point(totals.cost_usd)
        peak = 0 if scenario.batch or policy.schedule == "sequential" else world.peak  # those ask for no slots
        if ranges:
            wall, cost, ends_peak = self._ranges(setting, totals, later_s)
            peak = max(peak, ends_peak)
        found = Forecast(
            scenario,
            tuple(sorted(world.bars, key=lambda bar: bar.started_s)),
            dict(zip((work.name for work in works.agents if work is not None), world.status, strict=True)),
            totals,
            basis,
            "; ".join(dict.fromkeys(words)),
            self.evidence.simulated,
            wall,
            cost,
        )
        if peak < policy.concurrency:  # nobody ever waited for a slot, so with more of them nothing changes
            self._known[key] = peak, found
        return found

    def _ranges(self, setting: _Setting, likely: Totals, later_s: float) -> tuple[Range, Range | None, int]:
        """Return the low and the high end of wall time and cost, and the most that was under way at once in them."""
        wall, cost, peak = likely.wall_s, likely.cost_usd, 0
        if setting.scenario.batch:
            live, sums = self._play(replace(setting, scenario=replace(setting.scenario, batch=False)), "likely")
            peak = live.peak
            wall_range = (min(sums.wall_s, wall), wall * BATCH_MOST_S / BATCH_S)
        else:
            off = REFUSED_RANGE if likely.n_429 else MEASURED_RANGE
            wall_range = (max(0.0, wall - later_s) * (1 - off), wall * (1 + off))
        if all(work is None or (work.time == SAME and work.output == SAME) for work in setting.works.agents):
            return wall_range, _point(cost), peak
        (fast, low), (slow, high) = self._play(setting, "low"), self._play(setting, "high")
        if not setting.scenario.batch:
            peak = max(fast.peak, slow.peak)
        if not setting.scenario.batch:
            wall_range = (min(low.wall_s, wall_range[0]), max(high.wall_s, wall_range[1]))
        if cost is None or low.cost_usd is None or high.cost_usd is None:
            return wall_range, None, peak
        return wall_range, (min(low.cost_usd, cost), max(high.cost_usd, cost)), peak

    def _play(self, setting: _Setting, end: End) -> tuple[World, Totals]:
        """Turn the conductor through one scenario."""
        scenario, policy = setting.scenario, setting.policy
        kept = [agent for agent, work in enumerate(setting.works.agents) if work is not None]
        works = [scaled(work, end) for work in setting.works.agents if work is not None]
        dag = self._dag(scenario.dropped, scenario.cut)
        agents = self.record.plan.agents
        timeouts_s = [agents[agent].timeout_s or policy.timeout_s for agent in kept]
        price = self._pricing(scenario)
        recorded = self.record.terms.work_s if self.record.terms is not None else None
        expected = None if recorded is None else [recorded[agent] for agent in kept]
        gate: Gate | None = None
        entries: Sequence[str | None] = [None] * len(works)
        lives: Mapping[str, Ttl] = {}
        warm: list[str] = []
        if scenario.batch:
            works = [batched(work) for work in works]
            timeouts_s = [math.inf] * len(works)
            policy = replace(policy, concurrency=len(works) or 1, schedule="ready", deadline_s=None)
        else:
            groups = groups_of(works, [self._contexts[agent] for agent in kept], policy)
            if groups is not None:
                groups, lives = with_lives(groups, dag, policy, expected)
            entries = groups or entries
            warm = [name for name, work in zip(entries, works, strict=True) if name is not None and work.warm]
            gate = gate_of(
                self.record,
                policy,
                works,
                prefixes=None if groups is None else Prefixes(groups, lives),
                price=price,
                timeouts_s=timeouts_s,
                limited=bool(setting.ceilings),
                knows=scenario.limits is None,
            )
        world = World(
            dag,
            works,
            policy,
            timeouts_s,
            gate=gate,
            provider=Provider(setting.ceilings, warm, lives, refusal_s=self.evidence.refusal_s),
            entries=entries,
            price=price,
            work_s=expected,
        ).run()
        return world, add_up(dag, works, world)

    def _pricing(self, scenario: Scenario) -> Pricing:
        prices, factor = scenario.prices or self._prices, BATCH_PRICE if scenario.batch else 1.0
        return Pricing(prices, factor, self._costs, recorded=scenario.prices is None and not scenario.batch)

    def _dag(self, dropped: frozenset[int], cut: frozenset[tuple[int, int]]) -> Dag:
        """Return the graph without the dropped agents, renumbered, and without the edges that are cut."""
        dag = self.record.plan.dag
        if not dropped and not cut:
            return dag
        found = self._dags.get((dropped, cut))
        if found is None:
            kept = [agent for agent in range(len(dag.parents)) if agent not in dropped]
            number = {agent: place for place, agent in enumerate(kept)}
            left = [[one for one in dag.parents[agent] if one in number and (one, agent) not in cut] for agent in kept]
            parents = [[number[one] for one in before] for before in left]
            found = self._dags[dropped, cut] = build_dag(parents) or dag
        return found

    def _pools(self, scenario: Scenario) -> frozenset[str]:
        seen = enumerate(self.evidence.seen)
        return frozenset(class_of(scenario.models.get(agent, one.model)) for agent, one in seen)

    def _context_estimated(self, scenario: Scenario) -> bool:
        found = [one for agent, one in enumerate(self.evidence.seen) if agent not in scenario.dropped]
        return any(one.context is not None and not one.prefix_counted for one in found)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A scenario with all that follows from it."""

    scenario: Scenario
    policy: Policy
    ceilings: Ceilings
    works: Works


def _apart_from_concurrency(scenario: Scenario, policy: Policy) -> tuple[object, ...]:
    """Return what tells a scenario from others but how many may run at once."""
    return (
        replace(policy, concurrency=1),
        tuple(scenario.models.items()),
        tuple(scenario.efforts.items()),
        scenario.dropped,
        None if scenario.limits is None else tuple(scenario.limits.items()),
        scenario.batch,
        id(scenario.prices),
        tuple(scenario.faster.items()),
        scenario.cut,
    )


def _point(value: float | None) -> Range | None:
    return None if value is None else (value, value)
