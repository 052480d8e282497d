"""What a plan may cost and take before it has run. Every number is an estimate and says on what it stands.

The conductor of the live run is turned on virtual time three times, with every agent at its low, likely and high end.
That all agents come out low, or all high, is rarer than that one does: the range of the whole is a wide one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.measure.estimate_agents import NOTHING, Guess, Span, guess_all
from agent_magic.measure.estimate_turn import notes_of, turn
from agent_magic.measure.forecast_pace import RANK
from agent_magic.measure.path import Chains, CriticalPath
from agent_magic.measure.pilot import Pilot, with_pilot
from agent_magic.measure.table import make_frame
from agent_magic.record.answer import Usage
from agent_magic.record.prices import Prices
from agent_magic.record.terms import Terms
from agent_magic.schedule.expected import expected_work_s
from agent_magic.schedule.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.plan import Plan
    from agent_magic.measure.estimate_agents import InputBasis
    from agent_magic.measure.estimate_turn import Turn
    from agent_magic.measure.forecast_pace import Basis
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import History
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord
    from agent_magic.record.terms import Ceilings

EXPECTED: Mapping[str, str] = {
    "agent": "string",
    "layer": "Int64",
    "model": "string",
    "held": "bool",
    "input_tokens": "Int64",
    "output_low": "Int64",
    "output_tokens": "Int64",
    "output_high": "Int64",
    "low_s": "float64",
    "likely_s": "float64",
    "high_s": "float64",
    "low_usd": "float64",
    "likely_usd": "float64",
    "high_usd": "float64",
    "most_usd": "float64",
    "on_critical_path": "bool",
    "input_basis": "string",
    "output_basis": "string",
    "seconds_basis": "string",
    "stands_on": "string",
}

NEARLY = 1.05
"""A run that takes no more than this times its longest chain is bound by it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one agent may use and take. Dollars are `None` where the price is unknown.

    Attributes:
        held: Whether its answer is in the ledger: nothing is sent, nothing is paid.
        input: Its whole input in tokens, its parents' answers as long as theirs are expected.
        output: Its answer in tokens.
        seconds: From its request to the end of its answer.
        cost: Dollars.
        most_usd: Dollars if it and its parents use their `max_tokens` to the full.
        aside_usd: Dollars that a run with a budget sets aside for it before it is sent, likely and at most.
        basis: What its input stands on: `counted` by the API, `estimated`, or held in the `ledger`.
        output_basis: What the length of its answer stands on: `ledger` (its earlier answers) or `assumed`.
        seconds_basis: What its seconds stand on.
        stands_on: That in words.
    """

    agent: str
    layer: int
    model: str
    held: bool
    input: Span
    output: Span
    seconds: Span
    cost: Span | None
    most_usd: float | None
    aside_usd: tuple[float | None, float | None]
    basis: InputBasis
    output_basis: Basis
    seconds_basis: Basis
    stands_on: str

    @property
    def input_tokens(self) -> int:
        """Its whole input, likely."""
        return round(self.input.likely)

    @property
    def output_tokens(self) -> int:
        """Its answer, likely."""
        return round(self.output.likely)

    @property
    def cost_usd(self) -> float | None:
        """Dollars, likely."""
        return None if self.cost is None else self.cost.likely


class Reach(NamedTuple):
    """How many agents, in the order they start, a budget reaches.

    Attributes:
        budget_usd: The budget.
        likely: If answers are as long as expected.
        surely: If every answer fills its `max_tokens`.
    """

    budget_usd: float
    likely: int
    surely: int


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """What a plan may cost and take. All in seconds, tokens and USD.

    Attributes:
        plan: The plan's name.
        expected: Per agent, in plan order, what it may use.
        cost: Dollars of all; `None` where a price is unknown.
        most_usd: Dollars if every answer fills its `max_tokens`.
        wall_s: First ready to last finished, failures and retries left out.
        critical_path: The longest chain of likely seconds.
        binds: What holds the run up or cuts it: `budget`, `deadline`, `timeout`, `requests`, `input`, `output`, `slot`,
            `barrier`, `leader`, `dependencies`, or `none known`.
        basis: The weakest thing a number stands on: `ledger` (earlier answers) or `assumed`.
        order: The agents' numbers in the order they start.
        reaches: How far the budget reaches; `None` without one.
        notes: What else has to be known.
        simulated: Whether earlier answers that the stand-in API made up are what it stands on.
        pilot: Which agents were run to find out; `None` without a pilot.
    """

    plan: str
    expected: tuple[Expected, ...]
    cost: Span | None = field(kw_only=True)
    most_usd: float | None = field(kw_only=True)
    wall_s: Span = field(kw_only=True)
    critical_path: CriticalPath = field(kw_only=True)
    binds: str = field(kw_only=True)
    basis: Basis = field(kw_only=True)
    order: tuple[int, ...] = field(kw_only=True)
    reaches: Reach | None = field(kw_only=True)
    notes: tuple[str, ...] = field(kw_only=True)
    simulated: bool = field(kw_only=True)
    pilot: Pilot | None = field(default=None, kw_only=True)

    @property
    def agents(self) -> pd.DataFrame:
        """One row per agent, in plan order. Columns are `EXPECTED`."""
        path = set(self.critical_path.agents)
        return make_frame([_row(one, on_path=one.agent in path) for one in self.expected], EXPECTED)

    @property
    def held(self) -> int:
        """How many answers are in the ledger."""
        return sum(one.held for one in self.expected)

    @property
    def stands_on(self) -> str:
        """How many agents' numbers stand on what."""
        parts = [
            f"{what} {', '.join(f'{number} {basis}' for basis, number in Counter(found).items())}"
            for what, found in (
                ("inputs", [one.basis for one in self.expected if not one.held]),
                ("lengths", [one.output_basis for one in self.expected if not one.held]),
                ("seconds", [one.seconds_basis for one in self.expected if not one.held]),
            )
            if found
        ]
        return "; ".join(parts) or "every answer is in the ledger"

    def reach(self, budget_usd: float) -> Reach:
        """Say how many agents a budget reaches: in the order they start, up to the first that it may not be sent."""
        return Reach(budget_usd, self._reached(budget_usd, surely=False), self._reached(budget_usd, surely=True))

    def _reached(self, budget_usd: float, *, surely: bool) -> int:
        spent = 0.0
        for number, agent in enumerate(self.order):
            one = self.expected[agent]
            aside, cost = one.aside_usd[surely], one.most_usd if surely else one.cost_usd
            if aside is None or cost is None or spent + aside > budget_usd:
                return number
            spent += cost
        return len(self.order)

    def __repr__(self) -> str:
        made_up = ", by answers that were made up" if self.simulated else ""
        held = f", {self.held} answered by the ledger at $0" if self.held else ""
        noun = "agent" if len(self.expected) == 1 else "agents"
        lines = [f"Estimate of {self.plan!r}: {len(self.expected)} {noun}{held}{made_up}"]
        if self.cost is None:
            lines.append("dollars: unknown, a model has no known price")
        else:
            lines.append("dollars: {:.4f} low, {:.4f} likely, {:.4f} high".format(*self.cost))
            if self.most_usd is not None:
                lines[-1] += f"; {self.most_usd:.4f} if every answer fills its max_tokens"
        lines.append("seconds: {:.1f} low, {:.1f} likely, {:.1f} high".format(*self.wall_s))
        lines.append(f"{self.critical_path!r}" if self.critical_path.agents else "critical path: nothing to do")
        lines.append(f"binds: {self.binds}")
        if self.pilot is not None:
            lines.append(f"pilot: {', '.join(self.pilot.agents)} were run; the rest is estimated by that")
        if self.reaches is not None:
            found, of = self.reaches, len(self.expected)
            lines.append(
                f"${found.budget_usd:g} reaches {found.likely} of {of} agents, {found.surely} if every answer is full"
            )
        return "\n".join([*lines, f"stands on: {self.stands_on}", *(f"note: {note}" for note in self.notes)])


def estimate(  # noqa: PLR0913 - what a plan can be estimated by, each with its name
    plan: Plan,
    requests: Sequence[Request],
    held: Sequence[Answer | None],
    policy: Policy | None = None,
    *,
    history: History | None = None,
    budget_usd: float | None = None,
    prices: Mapping[str, TokenPrice] | Prices | None = None,
    counted: Sequence[int | None] | None = None,
    ceilings: Ceilings | Terms | None = None,
    simulated: bool = False,
    pilot: RunRecord | None = None,
) -> Estimate:
    """Estimate a plan before it runs. Nothing is sent.

    Args:
        plan: The plan.
        requests: Per agent, what it will ask, answers that are not there left empty.
        held: Per agent, its answer if the ledger has it.
        policy: How it will run. Its budget does not cut the estimate: `reaches` says how far that goes.
        history: Earlier answers. From five of the same agent, model and effort on, their 10th, 50th and 90th
            percentile; of fewer the median, half to twice; of none the model's pace and a stated length.
        budget_usd: A budget to ask about; the policy's by default.
        prices: What tokens cost.
        counted: Per agent, the API's count of its request, or `None`.
        ceilings: The rate limits that are known, such as `Pacer.ceilings()`; or all the terms of the run.
        simulated: Stand on answers that the stand-in API made up, and no others.
        pilot: A run of a few of the agents, such as `await plan.pilot(3)`: the rest is estimated by their answers.
    """
    policy = policy or Policy()
    book = prices if isinstance(prices, Prices) else Prices(prices)
    tried = None if pilot is None else Pilot.of(pilot)
    simulated = simulated or (tried is not None and tried.simulated)
    rows = with_pilot([row for row in history or () if row.simulated == simulated], pilot)
    guesses = guess_all(plan, requests, held, counted or [None] * len(plan), rows, tried.agents if tried else ())
    free = replace(policy, budget_usd=None, budget_tokens=None, max_usd_per_min=None, deadline_s=None, seed=0)
    models = [request.model for request in requests]
    work_s = None if history is None else expected_work_s(plan.agents, models, history)
    terms = ceilings if isinstance(ceilings, Terms) else Terms({}, bool(ceilings), ceilings or {}, {})
    turns = [turn(plan, requests, guesses, free, end, terms, book, work_s) for end in range(3)]
    expected = _expect_all(plan, requests, guesses, turns, book)
    found = Estimate(
        plan.name,
        expected,
        cost=_sum([one.cost for one in expected]),
        most_usd=_total([one.most_usd for one in expected]),
        wall_s=_span([one.totals.wall_s for one in turns]),
        critical_path=_path(plan, guesses, turns[1]),
        binds="none known",
        basis=_weakest(expected),
        order=turns[1].order,
        reaches=None,
        notes=notes_of(policy, guesses, turns, limited=bool(terms.before)),
        simulated=simulated and bool(rows),
        pilot=tried,
    )
    return _with_budget(found, policy.budget_usd if budget_usd is None else budget_usd, policy, guesses, turns[1])


def _with_budget(
    found: Estimate, budget_usd: float | None, policy: Policy, guesses: Sequence[Guess], likely: Turn
) -> Estimate:
    reaches = None if budget_usd is None else found.reach(budget_usd)
    return replace(found, reaches=reaches, binds=_binds(found, reaches, policy, guesses, likely))


def _expect_all(
    plan: Plan, requests: Sequence[Request], guesses: Sequence[Guess], turns: Sequence[Turn], prices: Prices
) -> tuple[Expected, ...]:
    return tuple(
        _expect(plan, agent, requests[agent].model, guess, [one.costs[agent] for one in turns], prices)
        for agent, guess in enumerate(guesses)
    )


def _expect(
    plan: Plan, agent: int, model: str, guess: Guess, costs: Sequence[float | None], prices: Prices
) -> Expected:
    def price(given: int, produced: int) -> float | None:
        return 0.0 if guess.held else prices.of(model, Usage(given, output_tokens=produced)).cost_usd

    known = [cost for cost in costs if cost is not None]
    cost = _span(known) if len(known) == len(costs) else None
    most = price(guess.most_input, guess.cap)
    if most is not None and cost is not None:
        most = max(most, cost.high)  # writing to the cache costs more than plain input
    sure, likely = price(guess.aside[1], guess.cap), price(guess.aside[0], guess.cap)
    return Expected(
        plan.agents[agent].name,
        plan.dag.layer[agent],
        model,
        guess.held,
        guess.input,
        guess.output,
        guess.seconds,
        cost,
        most,
        (likely, sure),
        guess.input_basis,
        guess.output_basis,
        guess.seconds_basis,
        "; ".join(guess.words),
    )


def _row(one: Expected, *, on_path: bool) -> dict[str, object]:
    cost = one.cost or (None, None, None)
    return {
        **{name: getattr(one, name, None) for name in EXPECTED},
        "output_low": round(one.output.low),
        "output_high": round(one.output.high),
        **dict(zip(("low_s", "likely_s", "high_s"), one.seconds, strict=True)),
        **dict(zip(("low_usd", "likely_usd", "high_usd"), cost, strict=True)),
        "on_critical_path": on_path,
        "input_basis": one.basis,
    }


def _weakest(expected: Sequence[Expected]) -> Basis:
    return max((basis for one in expected for basis in (one.output_basis, one.seconds_basis)), key=RANK.__getitem__)


def _span(ends: Sequence[float]) -> Span:
    """Return three ends in order: by an anomaly of scheduling shorter agents can make a longer run."""
    low, likely, high = ends
    return Span(min(low, likely), likely, max(high, likely))


def _sum(spans: Sequence[Span | None]) -> Span | None:
    known = [one for one in spans if one is not None]
    if len(known) < len(spans):
        return None
    return Span(*(math.fsum(one[end] for one in known) for end in range(3))) if known else NOTHING


def _total(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _path(plan: Plan, guesses: Sequence[Guess], likely: Turn) -> CriticalPath:
    work = [one.seconds.likely for one in guesses]
    agents, _ = plan.dag.longest_path(work)
    path = [agent for agent in agents if work[agent] > 0]
    chains = Chains.of(plan.dag, work)
    return CriticalPath(
        tuple(plan.agents[agent].name for agent in path),
        math.fsum(work[agent] for agent in path),
        work_s=tuple(work[agent] for agent in path),
        halving_saves_s=tuple(chains.saved_s(agent, work[agent] / 2) for agent in path),
        wall_s=likely.totals.wall_s,
    )


def _binds(found: Estimate, reaches: Reach | None, policy: Policy, guesses: Sequence[Guess], likely: Turn) -> str:
    if reaches is not None and reaches.likely < len(guesses):
        return "budget"
    if policy.deadline_s is not None and found.wall_s.likely > policy.deadline_s:
        return "deadline"
    if any(one.seconds.likely > late_s for one, late_s in zip(guesses, likely.timeouts_s, strict=True)):
        return "timeout"
    path, waited = found.critical_path, likely.totals.limited_by
    if waited in {"", "dependencies", "key"}:  # half a second of the first run
        near = len(path) > 1 and likely.totals.wall_s <= path.length_s * NEARLY
        return "dependencies" if near or (waited and len(path) > 1) else "none known"
    return waited
