"""The estimate of a plan before it runs, with the basis of every number.

The live engine runs on virtual time three times, with every agent at its low, likely and high end. All agents at one
end are rarer than one, so the range of the total is wide.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent_magic.declare.flow import is_reserved
from agent_magic.declare.units import dollars, seconds
from agent_magic.engine.admission.breaker import MINUTE_S
from agent_magic.engine.policy import as_policy, batching_of
from agent_magic.engine.requests import timeouts_of
from agent_magic.forecast.estimate.agents import NOTHING, Guess, Span, batch_span, passes_on
from agent_magic.forecast.estimate.drawing import HIGH_END, Drawing, weakest
from agent_magic.forecast.estimate.value import Estimate, Expected, Pilot, with_pilot
from agent_magic.forecast.evidence import facts_of
from agent_magic.forecast.forecast import Forecaster
from agent_magic.forecast.provider import NOTHING_KNOWN, Asked, KnownServers, server_words
from agent_magic.measure.metrics import Summary, summarize
from agent_magic.measure.path import find_path
from agent_magic.measure.server import Needs
from agent_magic.record.answer import Usage
from agent_magic.record.history import History, kin_of, of_plan
from agent_magic.record.prices import SEARCH_USD, Prices, of_batch
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.declare.flow import Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.drawing import NextModel
    from agent_magic.forecast.estimate.value import Reach
    from agent_magic.forecast.service import Played
    from agent_magic.record.answer import Answer
    from agent_magic.record.prices import ModelPrice
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Ceilings

MOST_NAMED = 4
NEARLY = 1.05


def estimate(  # noqa: PLR0913 - the bases of an estimate, each with its name
    plan: Plan,
    requests: Sequence[Request],
    held: Sequence[Answer | None],
    policy: Policy | None = None,
    *,
    history: History | None = None,
    budget_usd: float | None = None,
    prices: Mapping[str, ModelPrice] | Prices | None = None,
    counted: Sequence[int | None] | None = None,
    ceilings: Ceilings | Terms | None = None,
    simulated: bool = False,
    pilot: RunRecord | None = None,
    batch_times_s: Sequence[float] = (),
    by_server: bool = True,
) -> Estimate:
    """Estimate a plan before it runs; nothing is sent, and the policy's budget does not limit it.

    `ceilings` are known rate limits, or all the terms of the run. `by_server=False` is faster and ignores load.
    """
    policy, tried = as_policy(policy), None if pilot is None else Pilot.of(pilot)
    book, piloted = prices if isinstance(prices, Prices) else Prices(prices), tried.agents if tried else ()
    earlier = History() if history is None else history
    terms = ceilings if isinstance(ceilings, Terms) else Terms({}, bool(ceilings), ceilings or {}, {})
    simulated = simulated or bool(tried and tried.simulated) or earlier.is_of_simulator
    servers = (
        KnownServers.of(earlier, pilot, lambda one: facts_of(terms, one).limit_class) if by_server else NOTHING_KNOWN
    )
    known = with_pilot([row for row in (*earlier, *earlier.shared) if row.simulated == simulated], pilot)
    rows = History(servers.rows(known), time_factor=earlier.time_factor, origin=earlier.origin)
    unneeded, words = _needed(plan, rows, held)
    drawing = Drawing(
        plan, requests, held, policy, counted=counted, rows=rows, pilot=piloted, terms=terms, prices=book,
        batch_s=batch_span(batch_times_s)[0], expects=history, origin=earlier.origin, servers=servers,
        unneeded=unneeded,
    )  # fmt: skip
    drawn = drawing.draw()
    ends, played = drawn.ends, drawn.played
    words += server_words(servers.fits, played.most)
    batching = batching_of(plan, policy)
    by_batch = () if batching is None else batching.ahead(plan.dag.layer)
    seconds, basis = batch_span(batch_times_s)
    guesses = [
        one._replace(seconds=seconds, words=(*one.words, f"by batch at half the price, {basis}"), by_batch=True)
        if number in by_batch and not one.held and not one.is_task
        else one
        for number, one in enumerate(drawn.guesses)
    ]
    totals, own_s = [summarize(one) for one in ends], timeouts_of(plan, policy)
    timeouts_s = [math.inf if one.by_batch else timeout_s for one, timeout_s in zip(guesses, own_s, strict=True)]
    expected = tuple(_expect(plan, one, requests, guesses, drawn.cascades, ends, book) for one in range(len(plan)))
    expected = tuple(_with_sharers(expected, drawing.same))
    wall_s = _span([one.wall_s or 0.0 for one in totals])
    is_beyond = any(played.most.get(at, 0) > one.most for at, one in servers.fits.items())
    less_s, more_s = _open_s(plan, policy, servers, guesses, ends[1], played)
    found = Estimate(
        plan.name,
        expected,
        cost=_sum([one.cost for one in expected]),
        most_usd=_total([one.most_usd for one in expected]),
        wall_s=Span(wall_s.low * (1 - less_s / (wall_s.likely or 1.0)), wall_s.likely, wall_s.high + more_s),
        critical_path=find_path(ends[1], totals[1].wall_s or 0.0),
        basis="assumed" if is_beyond else weakest(expected),
        order=tuple(plan.index[name] for name in ends[1].facts.agents),
        notes=(*words, *_notes_of(plan, policy, guesses, totals, timeouts_s, limited=bool(terms.before))),
        simulated=simulated and bool(rows),
        pilot=tried,
        likely=ends[1],
        drawing=drawing,
        repeat=partial(Forecaster, ends[1], earlier.without_answers(), prices=book, batch_times_s=batch_times_s),
        batch_times_s=batch_times_s,
    )
    budget_usd = policy.budget_usd if budget_usd is None else budget_usd
    reaches = None if budget_usd is None else found.reach(budget_usd)
    return replace(found, reaches=reaches, limited_by=_limited_by(found, reaches, policy, totals[1], timeouts_s))


def _open_s(
    plan: Plan, policy: Policy, servers: KnownServers, guesses: Sequence[Guess], likely: RunRecord, played: Played
) -> tuple[float, float]:
    if not servers.fits:
        return 0.0, 0.0
    asked = [
        None
        if guess.held or guess.is_task or guess.by_batch or result.is_left_out
        else Asked(
            facts_of(likely.terms, result.model).limit_class,
            Needs(min(guess.first_s, guess.seconds.likely), max(0.0, guess.seconds.likely - guess.first_s)),
        )
        for guess, result in zip(guesses, likely.results, strict=True)
    ]
    concurrency = 1 if policy.schedule == "sequential" else policy.concurrency
    return servers.open_s(asked, plan.dag.parents, concurrency, played.most)


def _expect(
    plan: Plan,
    agent: int,
    requests: Sequence[Request],
    guesses: Sequence[Guess],
    cascades: Mapping[int, Sequence[NextModel]],
    ends: Sequence[RunRecord],
    prices: Prices,
) -> Expected:
    request, guess, later = requests[agent], guesses[agent], cascades.get(agent, ())

    def price(given: int, produced: int, model: str = request.model, searches: int = 0) -> float | None:
        if guess.held or guess.is_task:
            return 0.0
        used = Usage(given, output_tokens=produced, searches=searches)
        found = prices.of(model, used)
        return (of_batch(found, used) if guess.by_batch else found).cost_usd

    costs = [0.0 if guess.is_task else _cost_in(one, agent) for one in ends]
    known = [cost for cost in costs if cost is not None]
    cost = _span(known) if len(known) == len(ends) else None
    in_full = price(round(guess.input.high), round(guess.output.high), searches=round(guess.searches.high))
    may_lose = any(plan.agents[child].race for child in plan.dag.children[agent])
    if cost is not None and in_full is not None and may_lose:  # a race, at its last word
        cost = cost._replace(high=max(cost.high, in_full))
    every = [(guess, request.model), *((one.guess, one.request.model) for one in later)]
    most = _total([price(one.most_input, one.most_output, model) for one, model in every])
    searches_usd = 0.0 if guess.held else SEARCH_USD * plan.agents[agent].tools.most_searches  # of one request
    most = None if most is None else most + searches_usd * max(1, guess.most_output // max(1, guess.cap))
    if most is not None and cost is not None:
        most = max(most, cost.high)  # writing to the cache costs more than plain input
    seconds, done = guess.seconds, [one.results[agent] for one in ends]
    if later:
        seconds = _span([own if one.is_left_out else one.work_s for own, one in zip(seconds, done, strict=True)])
    sure = ends[HIGH_END].same
    likely_shares = sure is None or sure[agent] is None  # who is sure to share has the tokens of its answer
    there = [bool(one.attempts or not one.is_left_out) and not (likely_shares and one.is_shared) for one in done]
    part = plan.agents[agent].part
    aside = [price(one, guess.cap) for one in guess.aside]
    likely, sure = (None if one is None else one + searches_usd for one in aside)
    return Expected(
        plan.agents[agent].name,
        plan.dag.layer[agent],
        "" if guess.is_task else request.model,
        guess.held,
        _where(there, guess.input),
        _where(there, guess.output),
        seconds,
        cost,
        most,
        (likely, sure),
        guess.input_basis,
        guess.output_basis,
        guess.seconds_basis,
        "; ".join(guess.words),
        "" if part is None else part.group,
        part is not None and part.is_counted,
        part.asked if part is not None and part.shares else "",
    )


def _with_sharers(expected: Sequence[Expected], same: Sequence[int | None]) -> Iterator[Expected]:
    costs: dict[int, list[Span | None]] = {}
    for one, first in zip(expected, same, strict=True):
        if first is not None:
            costs.setdefault(first, []).append(one.cost)
    for number, (one, first) in enumerate(zip(expected, same, strict=True)):
        if first is None or len(costs[first]) == 1:
            yield one
        elif first == number:  # the first of them to start may differ at each end
            yield replace(one, cost=_sum(costs[first]))
        else:
            words = f"the answer of {expected[first].agent}, which asks the same"
            yield replace(
                one, cost=NOTHING, most_usd=0.0, aside_usd=(0.0, 0.0), stands_on=words,
                shares=expected[first].agent,
            )  # fmt: skip


def _where(there: Sequence[bool], tokens: Span) -> Span:
    return Span(*(one if is_there else 0.0 for is_there, one in zip(there, tokens, strict=True)))


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


def _limited_by(
    found: Estimate, reaches: Reach | None, policy: Policy, likely: Summary, timeouts_s: Sequence[float]
) -> str:
    if reaches is not None and reaches.likely < len(found.expected):
        return "budget"
    if policy.deadline_s is not None and found.wall_s.likely > policy.deadline_s:
        return "deadline"
    if any(one.seconds.likely > late_s for one, late_s in zip(found.expected, timeouts_s, strict=True)):
        return "timeout"
    path, waited = found.critical_path, likely.limited_by
    if waited in {"", "dependencies", "longest", "key", "limits"}:  # until the first reply of the first run
        near = found.wall_s.likely <= path.length_s * NEARLY
        if len(path) > 1:
            return "dependencies" if near or waited else "none known"
        return "longest" if near else "none known"
    return waited


def _cost_in(record: RunRecord, agent: int) -> float | None:
    one = record.results[agent]
    return 0.0 if one.is_left_out and not one.attempts else one.cost_usd


def _work_notes(plan: Plan) -> Iterator[str]:
    for name, members in plan.groups.items():
        part = plan.agents[next(iter(members.values()))].part
        if part is not None and part.asked:
            asked = len({one.part.asked for one in map(plan.agents.__getitem__, members.values()) if one.part})
            yield f"{name}: {len(members):,} items in {asked:,} {'request' if asked == 1 else 'requests'}"
    if tasks := sum(one.is_task and one.expect is None and not passes_on(one) for one in plan.agents):
        yield f"{tasks} {'task' if tasks == 1 else 'tasks'} counted as no time and no text: nobody knows yet"
    if calling := [one.name for one in plan.agents if one.tools]:
        yield f"without the seconds of tools: {', '.join(calling[:MOST_NAMED])}"
    if any(one.race for one in plan.agents):
        yield "a race is won by the agents that are likely to be first; the high end pays for all of them"
    if any(one.cascade for one in plan.agents):
        yield "cascades escalate as often as before, or always if none ran; at the low end never, at the high always"


def _needed(
    plan: Plan, earlier: History, held: Sequence[Answer | None]
) -> tuple[tuple[Mapping[int, Left], ...], list[str]]:
    if plan.flow is None:
        return ({}, {}, {}), []
    answers = [row for row in of_plan(plan, (*earlier, *earlier.shared)) if not row.calls]
    rounds = {kin_of(row.agent): row.rounds for row in sorted(answers, key=lambda row: row.rounds) if row.rounds}
    found, known = plan.flow.likely(Counter(row.agent for row in answers), rounds)
    left = {step: why for step, why in found.items() if held[step] is None}
    hedges = [step for step, one in enumerate(plan.agents) if one.hedges is not None]
    places = [step for step, one in enumerate(plan.agents) if is_reserved(one) and one.hedges is None]
    asked = sum(one.when is not None for one in plan.agents)
    words = [f"{len(places):,} reserved places"] if places else []
    words += ["1 condition" if asked == 1 else f"{asked:,} conditions"] if asked else []
    overdue = [f"the low end asks nobody twice, the high end may ask {len(hedges):,} twice"] if hedges else []
    if not words:
        return (plan.flow.least(), left, {}), overdue
    told, low = " and ".join(words), "the low end has one round, one item, none true"
    if not known:
        twice = {step: left[step] for step in hedges}
        return (plan.flow.least(), twice, {}), [f"as if all were needed, of {told}; {low}", *overdue]
    need = f"{len(set(places) - left.keys()):,} likely to be needed, by earlier runs"
    return (plan.flow.least(), left, {}), [f"{told}: {need}; {low}, the high end all", *overdue]


def _notes_of(
    plan: Plan,
    policy: Policy,
    guesses: Sequence[Guess],
    totals: Sequence[Summary],
    timeouts_s: Sequence[float],
    *,
    limited: bool,
) -> Iterator[str]:
    yield from _work_notes(plan)
    for agent, guess in zip(plan.agents, guesses, strict=True):
        if guess.held and (again := [tool.name for tool in agent.tools.functions if not tool.pure]):
            names = ", ".join(again)
            yield f"{agent.name} is reused, but its calls of {names} are made again, once its run is complete"
    _, likely, high = totals
    if not limited:
        yield "rate limits unknown, ignored"
    if any(one.rate_limited for one in totals):
        yield f"{likely.rate_limited} requests are likely to be refused for their rate"
    late = sum(one.seconds.high > late_s for one, late_s in zip(guesses, timeouts_s, strict=True))
    if late:
        yield f"at its high end {late} agents would pass their timeout: the estimate lets them finish"
    if policy.deadline_s is not None and (high.wall_s or 0.0) > policy.deadline_s:
        yield f"at its high end the run passes its deadline of {seconds(policy.deadline_s)}"
    if policy.max_usd_per_min is not None:
        yield _burn_note(policy.max_usd_per_min, likely.cost_usd)


def _burn_note(most_usd: float, likely_usd: float | None) -> str:
    told = f"{dollars(most_usd)} a minute (max_usd_per_min) is not counted in the seconds"
    waits_s = 0.0 if likely_usd is None else (likely_usd / most_usd - 1) * MINUTE_S
    if waits_s <= 0:
        return told
    return f"{told}: by that alone the expected {dollars(likely_usd)} takes over {seconds(waits_s)}"
