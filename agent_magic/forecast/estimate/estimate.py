"""What a plan may cost and take before it has run. Every number is an estimate and says on what it stands.

The conductor of the live run is turned on virtual time three times, with every agent at its low, likely and high end.
That all agents come out low, or all high, is rarer than that one does: the range of the whole is a wide one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.engine.expected import expected_work_s
from agent_magic.engine.policy import as_policy
from agent_magic.forecast.estimate.agents import NOTHING, Guess, Span, guess_all
from agent_magic.forecast.estimate.turn import notes_of, turn
from agent_magic.forecast.estimate.value import Estimate, Expected
from agent_magic.forecast.pace import RANK
from agent_magic.forecast.pilot import Pilot, with_pilot
from agent_magic.measure.path import Chains, CriticalPath
from agent_magic.record.answer import Usage
from agent_magic.record.prices import Prices
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.turn import Turn
    from agent_magic.forecast.estimate.value import Reach
    from agent_magic.forecast.pace import Basis
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import History
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord
    from agent_magic.record.terms import Ceilings

NEARLY = 1.05
"""A run that takes no more than this times its longest chain is bound by it."""


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
        simulated: Use simulated answers only.
        pilot: A run of a few of the agents, such as `await plan.pilot(3)`: the rest is estimated by their answers.
    """
    policy = as_policy(policy)
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
        wall_s=_span([one.wall_s for one in turns]),
        critical_path=_path(plan, guesses, turns[1]),
        limited_by="none known",
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
    return replace(found, reaches=reaches, limited_by=_limited_by(found, reaches, policy, guesses, likely))


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


def _weakest(expected: Sequence[Expected]) -> Basis:
    if not expected:
        return "measured"
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
        wall_s=likely.wall_s,
    )


def _limited_by(found: Estimate, reaches: Reach | None, policy: Policy, guesses: Sequence[Guess], likely: Turn) -> str:
    if reaches is not None and reaches.likely < len(guesses):
        return "budget"
    if policy.deadline_s is not None and found.wall_s.likely > policy.deadline_s:
        return "deadline"
    if any(one.seconds.likely > late_s for one, late_s in zip(guesses, likely.timeouts_s, strict=True)):
        return "timeout"
    path, waited = found.critical_path, likely.totals.limited_by
    if waited in {"", "dependencies", "key", "limits"}:  # until the first reply of the first run
        near = len(path) > 1 and likely.wall_s <= path.length_s * NEARLY
        return "dependencies" if near or (waited and len(path) > 1) else "none known"
    return waited
