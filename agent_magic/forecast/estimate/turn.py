"""The engine on virtual time, with the agents of a plan that has not run yet."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.admission.breaker import MINUTE_S
from agent_magic.engine.admission.key import Key
from agent_magic.engine.admission.prefix import Prefixes
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.run import Engine
from agent_magic.forecast.forecast import groups_of
from agent_magic.forecast.provider import Provider
from agent_magic.forecast.service import ModelledRequests, ModelledService
from agent_magic.forecast.terms import facts_of
from agent_magic.forecast.virtual import VirtualDriver
from agent_magic.forecast.work import SAME, Try, Work
from agent_magic.measure.metrics import Summary, summarize
from agent_magic.record.answer import CHARS_PER_TOKEN, NOT_BILLED, Price, Usage
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Ceiling, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.agents import Guess
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Ceilings

PLENTY = 1e9
"""The limit of requests a class is taken to have of whose limits nothing is known, until its first reply says so."""
HELD_POOL = ""
"""Of agents whose answers are there: they ask nobody, so no limit counts them."""


class Turn(NamedTuple):
    """What came of one turn of the engine.

    Attributes:
        record: The run as it would be.
        totals: Its numbers.
        costs: Per agent, dollars; `None` where the price is unknown.
        order: The agents' numbers in the order they started.
        timeouts_s: Per agent, the deadline it has in a run; the turn keeps none.
    """

    record: RunRecord
    totals: Summary
    costs: tuple[float | None, ...]
    order: tuple[int, ...]
    timeouts_s: tuple[float, ...]

    @property
    def wall_s(self) -> float:
        """First ready to last finished."""
        return self.totals.wall_s or 0.0


class _Pricing:
    """Prices tokens; none cost nothing."""

    recorded = False

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    def of(self, model: str, usage: Usage | None) -> Price:
        used = usage is None or usage.output_tokens or usage.total_input_tokens
        return self._prices.of(model, usage) if used else NOT_BILLED


def turn(
    plan: Plan,
    requests: Sequence[Request],
    guesses: Sequence[Guess],
    policy: Policy,
    end: int,
    terms: Terms,
    prices: Prices,
    work_s: Sequence[float] | None = None,
) -> Turn:
    """Turn a plan once.

    Args:
        plan: The plan.
        requests: Per agent, what it asks.
        guesses: Per agent, what it may use and take.
        policy: How to run.
        end: 0 takes the low end of everything, 1 what is likely, 2 the high end.
        terms: The rate limits that are known, what a pacer has learned, whether the key is untried.
        prices: What tokens cost.
        work_s: Per agent, the seconds of work that the run will expect of it; `None` where it expects nothing.
    """
    classes = [facts_of(terms, request.model).limit_class for request in requests]
    works = [_work(plan.agents[n].name, requests[n], classes[n], guess, end) for n, guess in enumerate(guesses)]
    contexts = [None if guess.held else agent.prefix for agent, guess in zip(plan.agents, guesses, strict=True)]
    groups, lives = groups_of(works, contexts, policy, plan.dag, work_s, terms)
    limits = terms.before | _plenty(works, terms)
    pacer, price = _pacer(terms) if limits else None, _Pricing(prices)
    record = RunRecord(plan, datetime.now(UTC), [request.model for request in requests])
    held = frozenset(number for number, guess in enumerate(guesses) if guess.held)
    engine = Engine(
        record,
        policy,
        ModelledRequests(works, requests, classes, None if groups is None else Prefixes(groups, lives), None, held),
        timeouts_s=[math.inf] * len(works),
        price=price.of,
        pacer=pacer,
        key=Key() if terms.key_untried else None,
        work_s=[guess.seconds.likely for guess in guesses],
        seed=0,
    )
    provider, entries = Provider(limits, lives=lives), groups or [None] * len(works)
    service = ModelledService(works, provider, entries, price, max_attempts=policy.max_attempts)
    VirtualDriver(engine, service).run()
    started = [attempt.agent for attempt in record.attempts]
    return Turn(
        record,
        summarize(record),
        tuple(result.cost_usd for result in record.results),
        tuple(dict.fromkeys(plan.index[name] for name in started)),
        tuple(agent.timeout_s or policy.timeout_s for agent in plan.agents),
    )


def _pacer(terms: Terms) -> Pacer:
    """Return a pacer that knows what was known."""
    pacer = Pacer(seed=0)
    pacer.recall(terms.before, terms.learned)
    return pacer


def _work(name: str, request: Request, limit_class: str, guess: Guess, end: int) -> Work:
    takes_s = guess.seconds[end]
    by = takes_s / guess.seconds.likely if guess.seconds.likely else 1.0
    given = round(guess.input[end])
    only = Try(0.0, min(guess.first_s * by, takes_s), takes_s, None, given, round(guess.output[end]))
    prefix = 0 if guess.held or request.context is None else min(len(request.context) // CHARS_PER_TOKEN, given)
    pool = HELD_POOL if guess.held else limit_class
    size = guess.aside[1]
    return Work(
        name,
        request.model,
        pool,
        (only,),
        guess.cap,
        given,
        size,
        prefix,
        prefix,
        len((request.context or "").encode(errors="replace")),
        warm=False,
        time=SAME,
        output=SAME,
    )


def _plenty(works: Sequence[Work], terms: Terms) -> Ceilings:
    """Return limits that hold nobody for classes whose first reply will tell them: those the session has not asked."""
    if not terms.key_untried and not terms.before:
        return {}
    heard = {name for name, learned in terms.learned.items() if learned.answers}
    new = {work.pool for work in works} - {HELD_POOL} - set(terms.before) - heard
    return {name: {"requests": Ceiling(PLENTY, PLENTY)} for name in new}


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and len(known) == len(costs) else None


def notes_of(policy: Policy, guesses: Sequence[Guess], turns: Sequence[Turn], *, limited: bool) -> tuple[str, ...]:
    """Say what else has to be known of an estimate: its turns are those at the low, the likely and the high end."""
    notes: list[str] = []
    if not limited:
        notes.append("rate limits unknown, ignored")
    if any(turn.totals.rate_limited for turn in turns):
        notes.append(f"{turns[1].totals.rate_limited} requests are likely to be refused for their rate")
    late = sum(one.seconds.high > late_s for one, late_s in zip(guesses, turns[2].timeouts_s, strict=True))
    if late:
        notes.append(f"at its high end {late} agents would pass their timeout: the estimate lets them finish")
    if policy.deadline_s is not None and turns[2].wall_s > policy.deadline_s:
        notes.append(f"at its high end the run passes its deadline of {policy.deadline_s:g} s")
    if policy.max_usd_per_min is not None:
        notes.append(_burn_note(policy.max_usd_per_min, _sum(turns[1].costs)))
    return tuple(notes)


def _burn_note(most_usd: float, likely_usd: float | None) -> str:
    """Say how far dollars a minute hold the run up, which no turn keeps: those of the first minute go at once."""
    told = f"${most_usd:g} a minute (max_usd_per_min) is not counted in the seconds"
    waits_s = 0.0 if likely_usd is None else (likely_usd / most_usd - 1) * MINUTE_S
    return told if waits_s <= 0 else f"{told}: by that alone the expected ${likely_usd:.4g} takes over {waits_s:,.0f} s"
