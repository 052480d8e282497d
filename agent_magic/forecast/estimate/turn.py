"""The conductor of the live run on virtual time, with the agents of a plan that has not run yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.breaker import MINUTE_S
from agent_magic.engine.budget import Worst
from agent_magic.engine.key import Key
from agent_magic.engine.lifetime import with_lives
from agent_magic.engine.pacing.limits import class_of
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.prefix import Prefixes, paying_groups
from agent_magic.engine.room import Gate, Need
from agent_magic.forecast.provider import Provider
from agent_magic.forecast.sum import Totals, add_up
from agent_magic.forecast.terms import announced_to
from agent_magic.forecast.work import SAME, Try, Work
from agent_magic.forecast.world import World
from agent_magic.record.answer import CHARS_PER_TOKEN, Usage
from agent_magic.record.terms import Ceiling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.agents import Guess
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request, Ttl
    from agent_magic.record.terms import Ceilings, Terms

PRIMED_S = 120.0
"""How long before the run the pacer is taken to have learned the limits it knows."""
PLENTY = 1e9
"""The limit of requests a class is taken to have of whose limits nothing is known, until its first reply says so."""
HELD_POOL = ""
"""Of agents whose answers are there: they ask nobody, so no limit counts them."""


class Turn(NamedTuple):
    """What came of one turn.

    Attributes:
        totals: Its sums.
        costs: Per agent, dollars; `None` where the price is unknown.
        order: The agents' numbers in the order they started.
        timeouts_s: Per agent, the deadline it has in a run; the turn keeps none.
    """

    totals: Totals
    costs: tuple[float | None, ...]
    order: tuple[int, ...]
    timeouts_s: tuple[float, ...]


class _Pricing:
    """Prices tokens; none cost nothing."""

    recorded = False

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    def __call__(self, model: str, usage: Usage) -> float | None:
        return self._prices.of(model, usage).cost_usd if usage.output_tokens or usage.total_input_tokens else 0.0


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
    works = [_work(plan.agents[n].name, requests[n], guess, end) for n, guess in enumerate(guesses)]
    lives: Mapping[str, Ttl] = {}
    groups = _groups(plan, requests, works, policy)
    if groups is not None:
        groups, lives = with_lives(groups, plan.dag, policy, work_s)
    expected_s = [guess.seconds.likely for guess in guesses]
    world = World(
        plan.dag,
        works,
        policy,
        [math.inf] * len(works),
        gate=_gate(works, None if groups is None else Prefixes(groups, lives), terms, guesses),
        provider=Provider(terms.before | _plenty(works, terms), lives=lives),
        entries=groups or [None] * len(works),
        price=_Pricing(prices),
        work_s=expected_s,
    ).run()
    costs: dict[str, list[float | None]] = {work.name: [] for work in works}
    for bar in world.bars:
        costs[bar.agent].append(bar.cost_usd)
    started = sorted(world.bars, key=lambda bar: bar.started_s)
    order = dict.fromkeys(plan.index[bar.agent] for bar in started)
    timeouts_s = tuple(agent.timeout_s or policy.timeout_s for agent in plan.agents)
    return Turn(
        add_up(plan.dag, works, world), tuple(_sum(costs[work.name]) for work in works), tuple(order), timeouts_s
    )


def _work(name: str, request: Request, guess: Guess, end: int) -> Work:
    takes_s = guess.seconds[end]
    by = takes_s / guess.seconds.likely if guess.seconds.likely else 1.0
    given = round(guess.input[end])
    only = Try(0.0, min(guess.first_s * by, takes_s), takes_s, None, given, round(guess.output[end]))
    prefix = 0 if guess.held or request.context is None else min(len(request.context) // CHARS_PER_TOKEN, given)
    pool = HELD_POOL if guess.held else class_of(request.model)
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


def _groups(plan: Plan, requests: Sequence[Request], works: Sequence[Work], policy: Policy) -> list[str | None] | None:
    """Name the shared context each agent asks to be cached; `None` where none is."""
    contexts = [
        agent.context if work.pool != HELD_POOL else None for agent, work in zip(plan.agents, works, strict=True)
    ]
    if policy.cache == "off" or not any(contexts):
        return None
    tokens = {name: work.prefix for name, work in zip(contexts, works, strict=True) if name is not None}
    return paying_groups([one.model for one in requests], contexts, tokens, always=policy.cache == "on")


def _plenty(works: Sequence[Work], terms: Terms) -> Ceilings:
    """Return limits that hold nobody for classes whose first reply will tell them: those the session has not asked."""
    if not terms.key_untried and not terms.before:
        return {}
    heard = {name for name, learned in terms.learned.items() if learned.answers}
    new = {work.pool for work in works} - {HELD_POOL} - set(terms.before) - heard
    return {name: {"requests": Ceiling(PLENTY, PLENTY)} for name in new}


def _gate(works: Sequence[Work], prefixes: Prefixes | None, terms: Terms, guesses: Sequence[Guess]) -> Gate | None:
    paced = bool(terms.before or _plenty(works, terms))
    if not paced and prefixes is None and not terms.key_untried:
        return None

    def need(agent: int) -> Need:
        work = works[agent]
        held = guesses[agent].held
        return Need(work.model, work.need, work.max_tokens, Worst(0.0, 0), free=held, shared_tokens=work.shared)

    pacer = Pacer(seed=0) if paced else None
    key = Key() if terms.key_untried else None
    gate = Gate([work.model for work in works], need, pacer=pacer, prefixes=prefixes, key=key)
    if pacer is not None:
        gate.began_s = PRIMED_S
        announced_to(pacer, terms.before)
        pacer.recall(terms.learned, PRIMED_S)
    return gate


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and len(known) == len(costs) else None


def notes_of(policy: Policy, guesses: Sequence[Guess], turns: Sequence[Turn], *, limited: bool) -> tuple[str, ...]:
    """Say what else has to be known of an estimate: its turns are those at the low, the likely and the high end."""
    notes: list[str] = []
    if not limited:
        notes.append("no rate limits are known: none are counted")
    if any(turn.totals.n_429 for turn in turns):
        notes.append(f"{turns[1].totals.n_429} requests are likely to be refused for their rate")
    late = sum(one.seconds.high > late_s for one, late_s in zip(guesses, turns[2].timeouts_s, strict=True))
    if late:
        notes.append(f"at its high end {late} agents would pass their timeout: the estimate lets them finish")
    if policy.deadline_s is not None and turns[2].totals.wall_s > policy.deadline_s:
        notes.append(f"at its high end the run passes its deadline of {policy.deadline_s:g} s")
    if policy.max_usd_per_min is not None:
        notes.append(_burn_note(policy.max_usd_per_min, _sum(turns[1].costs)))
    return tuple(notes)


def _burn_note(most_usd: float, likely_usd: float | None) -> str:
    """Say how far dollars a minute hold the run up, which no turn keeps: those of the first minute go at once."""
    told = f"${most_usd:g} a minute (max_usd_per_min) is not counted in the seconds"
    waits_s = 0.0 if likely_usd is None else (likely_usd / most_usd - 1) * MINUTE_S
    return told if waits_s <= 0 else f"{told}: by that alone the expected ${likely_usd:.4g} takes over {waits_s:,.0f} s"
