"""What a plan may cost and take before it has run. Every number is an estimate and says on what it stands.

The engine of the live run is turned on virtual time three times, with every agent at its low, likely and high end.
That all agents come out low, or all high, is rarer than that one does: the range of the whole is a wide one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_magic.declare.flow import is_reserved
from agent_magic.declare.race import is_in_race
from agent_magic.declare.units import dollars, seconds
from agent_magic.engine.admission.breaker import MINUTE_S
from agent_magic.engine.admission.key import Key
from agent_magic.engine.admission.prefix import context_tokens
from agent_magic.engine.batching import batching_of
from agent_magic.engine.expected import expected_work_s
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.policy import as_policy
from agent_magic.engine.requests import timeouts_of
from agent_magic.forecast.estimate.agents import NOTHING, Guess, Span, batch_span, guess_all
from agent_magic.forecast.estimate.cascades import ESCALATION, cascades_of
from agent_magic.forecast.estimate.value import Estimate, Expected
from agent_magic.forecast.forecast import Forecaster
from agent_magic.forecast.pace import RANK
from agent_magic.forecast.pilot import Pilot, with_pilot
from agent_magic.forecast.service import Pricing, play
from agent_magic.forecast.terms import facts_of
from agent_magic.forecast.work import SAME, Try, Work
from agent_magic.measure.metrics import Summary, summarize
from agent_magic.measure.path import find_path
from agent_magic.record.answer import Usage
from agent_magic.record.history import History, kin_of
from agent_magic.record.prices import SEARCH_USD, Prices, of_batch
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Ceiling, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.attaching import Parts
    from agent_magic.declare.content import TokenRule
    from agent_magic.declare.flow import Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.cascades import NextModel
    from agent_magic.forecast.estimate.value import Reach
    from agent_magic.forecast.pace import Basis
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import Past
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Ceilings

MOST_NAMED = 4
NEARLY = 1.05
"""A run that takes no more than this times its longest chain is bound by it."""
PLENTY = 1e9
"""The limit of requests a class is taken to have of whose limits nothing is known, until its first reply says so."""
HIGH_END = 2
HELD_POOL = ""
"""Of agents whose answers are there: they ask nobody, so no limit counts them."""


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
    batch_times_s: Sequence[float] = (),
) -> Estimate:
    """Estimate a plan before it runs. Nothing is sent.

    Args:
        plan: The plan.
        requests: Per agent, what it will ask, answers that are not there left empty.
        held: Per agent, its answer if the ledger has it.
        policy: How it will run. Its budget does not cut the estimate: `reaches` says how far that goes.
        history: Earlier answers: the percentiles of five like it, the median of fewer, or the model's pace.
        budget_usd: A budget to ask about; the policy's by default.
        prices: What tokens cost.
        counted: Per agent, the API's count of its request, or `None`.
        ceilings: The rate limits that are known, such as `Pacer.ceilings()`; or all the terms of the run.
        simulated: Use simulated answers only.
        pilot: A run of a few of the agents, such as `await plan.pilot(3)`: the rest is estimated by their answers.
        batch_times_s: How long earlier batches took. Of fewer than five, an hour is assumed, and a day at most.
    """
    policy, tried = as_policy(policy), None if pilot is None else Pilot.of(pilot)
    book, piloted = prices if isinstance(prices, Prices) else Prices(prices), tried.agents if tried else ()
    simulated = simulated or bool(tried and tried.simulated)
    rows = _earlier(History() if history is None else history, pilot, simulated=simulated)
    terms = ceilings if isinstance(ceilings, Terms) else Terms({}, bool(ceilings), ceilings or {}, {})
    unneeded, words = _needed(plan, rows, held)
    guess = partial(guess_all, plan, requests, held, counted, rows, piloted, terms=terms, max_turns=policy.max_turns)
    cascades = cascades_of(plan, requests, held, counted, rows, piloted, terms=terms)
    given: Any = {"terms": terms, "price": Pricing(book), "batch_s": batch_span(batch_times_s)[0], "history": history}
    guesses, ends, reserved = _ends(guess, partial(_play, plan, requests, cascades, policy, **given), unneeded)
    guesses = _with_batches(plan, policy, guesses, batch_times_s)
    totals, timeouts_s = [summarize(one) for one in ends], _timeouts_s(plan, policy, guesses)
    expected = tuple(_expect(plan, one, requests, guesses, cascades, ends, book) for one in range(len(plan)))
    found = Estimate(
        plan.name,
        expected,
        cost=_sum([one.cost for one in expected]),
        most_usd=_total([one.most_usd for one in expected]),
        wall_s=_span([one.wall_s or 0.0 for one in totals]),
        critical_path=find_path(ends[1], totals[1].wall_s or 0.0),
        basis=_weakest(expected),
        order=tuple(dict.fromkeys(plan.index[attempt.agent] for attempt in ends[1].attempts)),
        notes=(*words, *_notes_of(plan, policy, guesses, totals, timeouts_s, limited=bool(terms.before))),
        simulated=simulated and bool(rows),
        pilot=tried,
        likely=ends[1],
        forecaster=partial(Forecaster, record=reserved, prices=book, batch_times_s=batch_times_s),
    )
    return _within(found, policy, budget_usd, totals[1], timeouts_s)


def _within(
    found: Estimate, policy: Policy, budget_usd: float | None, likely: Summary, timeouts_s: Sequence[float]
) -> Estimate:
    """Return the estimate with how far a budget reaches, the policy's by default, and what holds the run up."""
    reaches = _reach(found, policy.budget_usd if budget_usd is None else budget_usd)
    return replace(found, reaches=reaches, limited_by=_limited_by(found, reaches, policy, likely, timeouts_s))


def _reach(found: Estimate, budget_usd: float | None) -> Reach | None:
    return None if budget_usd is None else found.reach(budget_usd)


def _timeouts_s(plan: Plan, policy: Policy, guesses: Sequence[Guess]) -> list[float]:
    """Return per agent, the seconds to its deadline. One that goes by batch has none."""
    own_s = zip(guesses, timeouts_of(plan, policy), strict=True)
    return [math.inf if guess.by_batch else timeout_s for guess, timeout_s in own_s]


def _with_batches(plan: Plan, policy: Policy, guesses: Sequence[Guess], times_s: Sequence[float]) -> list[Guess]:
    """Return what is expected of each agent, those that go by batch with the seconds of batches."""
    batching = batching_of(plan, policy)
    by_batch = () if batching is None else batching.ahead(plan.dag.layer)
    seconds, basis = batch_span(times_s)
    return [
        one._replace(seconds=seconds, words=(*one.words, f"by batch at half the price, {basis}"), by_batch=True)
        if number in by_batch and not one.held and not one.is_task
        else one
        for number, one in enumerate(guesses)
    ]


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

    known = [0.0] * len(ends) if guess.is_task else []
    known += [cost for one in ends if (cost := _cost_in(one, agent)) is not None]
    cost = _span(known) if len(known) == len(ends) else None
    in_full = price(round(guess.input.high), round(guess.output.high), searches=round(guess.searches.high))
    if cost is not None and in_full is not None and is_in_race(plan, agent):  # it may lose at its last word
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
    there = [bool(one.attempts or not one.is_left_out) for one in done]
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
    )


def _where(there: Sequence[bool], tokens: Span) -> Span:
    """Return the tokens of an agent, none at an end at which it is not needed, as its dollars are."""
    return Span(*(one if is_there else 0.0 for is_there, one in zip(there, tokens, strict=True)))


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
    if waited in {"", "dependencies", "key", "limits"}:  # until the first reply of the first run
        near = len(path) > 1 and found.wall_s.likely <= path.length_s * NEARLY
        return "dependencies" if near or (waited and len(path) > 1) else "none known"
    return waited


def _play(  # noqa: PLR0913 - all that an end of an estimate stands on
    plan: Plan,
    requests: Sequence[Request],
    cascades: Mapping[int, Sequence[NextModel]],
    policy: Policy,
    guesses: Sequence[Guess],
    *,
    end: int,
    terms: Terms,
    price: Pricing,
    history: History | None,
    batch_s: Span,
    left: Mapping[int, Left],
) -> RunRecord:
    """Run a plan on virtual time, without caps and deadlines.

    Args:
        plan: The plan.
        requests: Per agent, what it asks.
        cascades: The further models of agents that have some.
        policy: How to run.
        guesses: Per agent, what it may use and take.
        end: 0 takes the low end of everything, 1 what is likely, 2 the high end.
        terms: The rate limits that are known, what a pacer has learned, whether the key is untried.
        price: What tokens cost.
        history: The earlier answers by which the run will expect work of agents; `None` where it expects nothing.
        batch_s: The seconds of a batch.
        left: The steps that are left out.
    """
    policy = replace(policy, budget_usd=None, budget_tokens=None, max_usd_per_min=None, deadline_s=None, seed=0)
    facts = [facts_of(terms, request.model) for request in requests]
    works = [
        _work(plan.agents[n].name, requests[n], facts[n].limit_class, guess, end)._replace(
            **_shared(requests[n].context or plan.context_of(n), facts[n].token_rule, guess, end)
        )
        for n, guess in enumerate(guesses)
    ]
    for agent, later in cascades.items():
        works[agent] = _escalating(works[agent], later, end, terms)
    limits = terms.before | _plenty(works, terms)
    work_s = None if history is None else expected_work_s(plan.agents, [one.model for one in requests], history)
    record = RunRecord(plan, datetime.now(UTC), [request.model for request in requests])
    # What a what-if of this run starts from: the limits that are known, and no wait for a first reply to tell them.
    record.terms = terms._replace(policy=policy.to_dict(), after=terms.before, key_untried=False)
    play(
        record,
        terms._replace(after=limits, work_s=tuple(guess.seconds.likely for guess in guesses)),
        policy,
        works,
        requests,
        price=price,
        timeouts_s=[math.inf] * len(works),
        cached_by=work_s,
        pacer=_pacer(terms) if limits else None,
        key=Key() if terms.key_untried else None,
        held=frozenset(number for number, guess in enumerate(guesses) if guess.held),
        left=left,
        batch_s=batch_s[end],
    )
    return record


def _pacer(terms: Terms) -> Pacer:
    """Return a pacer that knows what was known."""
    pacer = Pacer(seed=0)
    pacer.recall(terms.before, terms.learned)
    return pacer


def _shared(context: str | Parts | None, rule: TokenRule | None, guess: Guess, end: int) -> dict[str, int]:
    """Return what of an agent's input others send too."""
    estimated, most = context_tokens(context, rule)
    prefix = 0 if guess.held else min(estimated, round(guess.input[end]))
    return {"prefix": prefix, "shared": prefix, "context_size": most}


def _work(name: str, request: Request, limit_class: str, guess: Guess, end: int) -> Work:
    takes_s = guess.seconds[end]
    by = takes_s / guess.seconds.likely if guess.seconds.likely else 1.0
    given = round(guess.input[end])
    if guess.is_task:
        request = request._replace(model="")
    searches = round(guess.searches[end])
    only = Try(0.0, min(guess.first_s * by, takes_s), takes_s, None, given, round(guess.output[end]), searches=searches)
    pool = HELD_POOL if guess.held or guess.is_task else limit_class
    size = guess.aside[1]
    return Work(
        name,
        request.model,
        pool,
        (only,),
        guess.cap,
        given,
        size,
        prefix=0,
        shared=0,
        context_size=0,
        warm=False,
        time=SAME,
        output=SAME,
        is_task=guess.is_task,
    )


def _escalating(work: Work, later: Sequence[NextModel], end: int, terms: Terms) -> Work:
    """Return the work of an agent with that of the further models that it asks at an end."""
    asked = [one for one in later if not one.guess.held and (end == HIGH_END or (end and one.likely))]
    if not asked:
        return work
    own = work.tries[0]._replace(model=work.model, pool=work.pool)
    classes = [facts_of(terms, one.request.model).limit_class for one in asked]
    more = [
        _work("", one.request, pool, one.guess, end).tries[0]._replace(model=one.request.model, pool=pool)
        for one, pool in zip(asked, classes, strict=True)
    ]
    tries = [own, *more]
    return work._replace(tries=(*(one._replace(failure=ESCALATION) for one in tries[:-1]), tries[-1]))


def _plenty(works: Sequence[Work], terms: Terms) -> Ceilings:
    """Return limits that hold nobody for classes whose first reply will tell them: those the session has not asked."""
    if not terms.key_untried and not terms.before:
        return {}
    heard = {name for name, learned in terms.learned.items() if learned.answers}
    new = {work.pool for work in works} - {HELD_POOL} - set(terms.before) - heard
    return {name: {"requests": Ceiling(PLENTY, PLENTY)} for name in new}


def _cost_in(record: RunRecord, agent: int) -> float | None:
    """Return what an agent costs in a run; nothing where it is left out before it was asked."""
    one = record.results[agent]
    return 0.0 if one.is_left_out and not one.attempts else one.cost_usd


def _work_notes(plan: Plan) -> Iterator[str]:
    """Say what an estimate leaves out of tasks and of agents with tools."""
    for name, members in plan.groups.items():
        part = plan.agents[next(iter(members.values()))].part
        if part is not None and part.asked:
            asked = len({one.part.asked for one in map(plan.agents.__getitem__, members.values()) if one.part})
            yield f"{name}: {len(members):,} items in {asked:,} {'request' if asked == 1 else 'requests'}"
    if tasks := sum(one.is_task and one.returns is None and one.expect is None for one in plan.agents):
        yield f"{tasks} {'task' if tasks == 1 else 'tasks'} counted as no time and no text: nobody knows yet"
    if calling := [one.name for one in plan.agents if one.tools]:
        yield f"without the seconds of tools: {', '.join(calling[:MOST_NAMED])}"
    if any(one.race for one in plan.agents):
        yield "of a race those win that are likely to be first; the high end pays all of them in full"
    if any(one.cascade for one in plan.agents):
        yield "cascades escalate as often as earlier answers did, or always; at the low end never, at the high always"


def _earlier(history: History, pilot: RunRecord | None, *, simulated: bool) -> History:
    """Return the earlier answers that count, simulated or real, and those of a pilot."""
    rows = with_pilot([row for row in history if row.simulated == simulated], pilot)
    return History(rows, time_factor=history.time_factor)


def _ends(
    guess: Callable[..., list[Guess]], play_to: Callable[..., RunRecord], unneeded: Sequence[Mapping[int, Left]]
) -> tuple[list[Guess], list[RunRecord], RunRecord]:
    """Return what is expected, the low, the likely and the high end, and the likely one with every place needed."""
    guesses = guess(left=unneeded)
    ends = [play_to(guesses, end=end, left=left) for end, left in enumerate(unneeded)]
    return guesses, ends, play_to(guess(), end=1, left={}) if unneeded[1] else ends[1]


def _needed(
    plan: Plan, earlier: Iterable[Past], held: Sequence[Answer | None]
) -> tuple[tuple[Mapping[int, Left], ...], list[str]]:
    """Return what is left out at the low, the likely and the high end, and that in one line."""
    if plan.flow is None:
        return ({}, {}, {}), []
    answers = [row for row in earlier if not row.calls]
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
    """Yield what else has to be known of an estimate: its totals are those at the low, the likely and the high end."""
    yield from _work_notes(plan)
    for agent, guess in zip(plan.agents, guesses, strict=True):
        if guess.held and (again := [tool.name for tool in agent.tools.functions if not tool.pure]):
            names = ", ".join(again)
            yield f"{agent.name} is reused, but its calls of {names} are made again: only pure tools are kept"
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
    """Say how far dollars a minute hold the run up, which no estimate keeps: those of the first minute go at once."""
    told = f"{dollars(most_usd)} a minute (max_usd_per_min) is not counted in the seconds"
    waits_s = 0.0 if likely_usd is None else (likely_usd / most_usd - 1) * MINUTE_S
    if waits_s <= 0:
        return told
    return f"{told}: by that alone the expected {dollars(likely_usd)} takes over {seconds(waits_s)}"
