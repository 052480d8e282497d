"""Imagined runs of a plan, drawn from earlier answers and assumptions, for what-ifs before a run.

They have the form of recorded runs, so that runs and plans share an engine.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_magic.declare.each import group_of
from agent_magic.declare.step import cascade_of
from agent_magic.declare.units import plural
from agent_magic.engine.admission.pool import Key
from agent_magic.engine.admission.prefix import context_tokens
from agent_magic.engine.expected import expected_work_s
from agent_magic.engine.identical import sharers_ahead
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.retry import Failure
from agent_magic.forecast.estimate.agents import Guess, Span, guess_all
from agent_magic.forecast.evidence import RANK, facts_of, tokens_factor
from agent_magic.forecast.service import Pricing, play
from agent_magic.forecast.work import SAME, Try, Work
from agent_magic.record.answer import ESCALATED
from agent_magic.record.history import of_plan
from agent_magic.record.request import rows_of
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Ceiling

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from agent_magic.declare.content import TokenRule
    from agent_magic.declare.context import Parts
    from agent_magic.declare.flow import Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.agents import Guess, InputBasis
    from agent_magic.forecast.evidence import Basis
    from agent_magic.forecast.provider import KnownServers
    from agent_magic.forecast.service import Played
    from agent_magic.measure.server import At, Server
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import History
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Ceilings, Terms

ESCALATION = Failure(ESCALATED, kind=ESCALATED)
PLENTY = 1e9
"""Limit of requests of a class with unknown limits, until its first reply."""
HIGH_END = 2
HELD_POOL = ""
"""Class of agents with available answers, which make no requests."""


class Change(NamedTuple):
    """Changes of a plan that affect requests and answers; `beyond` has left-out rounds and places with reasons."""

    models: Mapping[int, str] = {}
    efforts: Mapping[int, str | None] = {}
    without: frozenset[int] = frozenset()
    beyond: Mapping[int, Left] = {}


UNCHANGED = Change()


class Drawn(NamedTuple):
    """Imagined runs of a plan; `ends` are those at the low, likely and high end."""

    requests: Sequence[Request]
    guesses: list[Guess]
    cascades: Mapping[int, Sequence[NextModel]]
    ends: tuple[RunRecord, RunRecord, RunRecord]
    works: Sequence[Sequence[Work]]
    played: Played


class _Asked(NamedTuple):
    requests: Sequence[Request]
    guesses: Sequence[Guess]
    cascades: Mapping[int, Sequence[NextModel]]


@dataclass(frozen=True)
class Drawing:
    """The inputs of imagined runs."""

    plan: Plan
    requests: Sequence[Request]
    held: Sequence[Answer | None]  # answer per agent in the ledger
    policy: Policy
    counted: Sequence[int | None] | None = field(kw_only=True)
    rows: History = field(kw_only=True)  # earlier answers, with their seconds alone
    pilot: Collection[str] = field(kw_only=True)
    terms: Terms = field(kw_only=True)
    prices: Prices = field(kw_only=True)
    batch_s: Span = field(kw_only=True)
    # earlier answers from which the run itself will expect work, if it does
    expects: History | None = field(kw_only=True)
    origin: str = field(kw_only=True)
    servers: KnownServers = field(kw_only=True)
    unneeded: Sequence[Mapping[int, Left]] = field(kw_only=True)  # steps left out at the low, likely and high end

    @cached_property
    def same(self) -> list[int | None]:
        return sharers_ahead(self.plan, self.requests, self.held, identical=self.policy.identical)

    def draw(self) -> Drawn:
        """Draw the expected run, with concurrent requests and the ledger's answers."""
        return self._draw(UNCHANGED, self.held, self.servers.models, is_first=False)

    def alone(self, change: Change) -> Drawn:
        """Draw runs for what-ifs: every agent is asked, its request as if alone on its server."""
        return self._draw(change, [None] * len(self.plan), {}, is_first=True)

    def still_held(self, changed: Collection[int]) -> frozenset[int]:
        # An agent's request also changes if it reads a changed agent's answer.
        plan, other = self.plan, set(changed)
        for step in plan.dag.order:
            if other.intersection(map(plan.index.__getitem__, plan.inputs[step])):
                other.add(step)
        return frozenset(step for step, answer in enumerate(self.held) if answer is not None and step not in other)

    def _draw(
        self, change: Change, held: Sequence[Answer | None], servers: Mapping[At, Server], *, is_first: bool
    ) -> Drawn:
        plan, counted = self.plan, self.counted
        requests = [
            one._replace(model=change.models.get(step, one.model), effort=change.efforts.get(step, one.effort))
            for step, one in enumerate(self.requests)
        ]
        if counted is not None:
            counted = [*map(_as_of, counted, self.requests, requests)]
        left = [{**one, **change.beyond} for one in self.unneeded]
        unread = [{*one, *change.without} for one in left]
        guesses = guess_all(
            plan, requests, held, counted, self.rows, self.pilot,
            terms=self.terms, max_turns=self.policy.max_turns, left=unread, there=self.held,
        )  # fmt: skip
        answered = _answered(plan, self.rows, change.models)
        cascades = self._cascades(requests, held, counted, answered)
        for step, seen in answered.items():
            if not guesses[step].held:
                guesses[step] = _escalating_as(guesses[step], plan.agents[step].cascade[0], seen)
        sure = sharers_ahead(plan, requests, held, identical=self.policy.identical)
        likely = sure if self.policy.identical == "each" else _shared_before(plan, self.rows, sure, left[1])
        asked = _Asked(requests, guesses, cascades)
        given: Any = {"price": Pricing(self.prices), "servers": servers, "is_first": is_first}
        plays = [
            self._play(asked, end, sure if end == HIGH_END else likely, left[end], **given)
            for end in range(len(left))  # at the high end only those share an answer that are sure to
        ]
        low, middle, high = (record for record, _, _ in plays)
        return Drawn(requests, guesses, cascades, (low, middle, high), [works for _, works, _ in plays], plays[1][2])

    def _cascades(
        self,
        requests: Sequence[Request],
        held: Sequence[Answer | None],
        counted: Sequence[int | None] | None,
        answered: Mapping[int, Counter[str]],
    ) -> dict[int, list[NextModel]]:
        """Return the further models of each agent that has a cascade, in order.

        As many members of a group escalate as in earlier runs of this cascade; without any, all do.
        """
        plan, found = self.plan, {agent: list[NextModel]() for agent in answered}
        for rung in range(1, max((len(plan.agents[one].cascade) for one in found), default=1)):
            asked = [
                request._replace(model=plan.agents[n].cascade[rung]) if rung < len(plan.agents[n].cascade) else request
                for n, request in enumerate(requests)
            ]
            sizes = None if counted is None else [*map(_as_of, counted, requests, asked)]
            guesses = guess_all(plan, asked, held, sizes, self.rows, self.pilot, terms=self.terms, there=self.held)
            for agent, steps in found.items():
                cascade, first = plan.agents[agent].cascade, answered[agent][plan.agents[agent].cascade[0]]
                if rung < len(cascade):
                    share = min(1.0, answered[agent][cascade[rung]] / first) if first else 1.0
                    steps.append(NextModel(asked[agent], guesses[agent], _is_likely(plan, agent, share)))
        return found

    def _play(
        self,
        asked: _Asked,
        end: int,
        same: Sequence[int | None],
        left: Mapping[int, Left],
        *,
        price: Pricing,
        servers: Mapping[At, Server],
        is_first: bool,
    ) -> tuple[RunRecord, list[Work], Played]:
        """Run the plan on virtual time at one end (0 low, 1 likely, 2 high), without caps."""
        requests, guesses, cascades = asked
        plan, terms = self.plan, self.terms
        policy = replace(
            self.policy, budget_usd=None, budget_tokens=None, max_usd_per_min=None, deadline_s=None, seed=0
        )
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
        models, history = [request.model for request in requests], self.expects
        expected_s = None if history is None else expected_work_s(plan.agents, models, history)
        for one, first in enumerate(same):
            works[one] = works[one] if first is None else works[first]._replace(name=works[one].name)
        record = RunRecord(plan, datetime.now(UTC), models, origin=self.origin)
        work_s = tuple(guess.seconds.likely for guess in guesses)
        told = {"after": limits, "paced": bool(limits), "work_s": work_s} if is_first else {"after": terms.before}
        untried = terms.key_untried and is_first
        record.terms = terms._replace(policy=policy.to_dict(), key_untried=untried, **told)
        played = play(
            record,
            terms._replace(after=limits, work_s=work_s),
            policy,
            works,
            requests,
            price=price,
            timeouts_s=[math.inf] * len(works),
            cached_by=expected_s,
            pacer=_pacer(terms) if limits else None,
            key=Key() if terms.key_untried else None,
            held=frozenset(number for number, guess in enumerate(guesses) if guess.held),
            same=same,
            left=left,
            batch_s=self.batch_s[end],
            servers=servers,
        )
        record.server_limit = len(record.events), played.limited_by
        return record, works, played


class Grounded(Protocol):
    """A value with the basis of its numbers."""

    @property
    def output_basis(self) -> Basis: ...

    @property
    def seconds_basis(self) -> Basis: ...


def weakest(every: Iterable[Grounded]) -> Basis:
    found: Basis = "measured"
    for one in every:
        found = max(found, one.output_basis, one.seconds_basis, key=RANK.__getitem__)
    return found


def grounds(every: Iterable[tuple[InputBasis, Basis, Basis]], tasks: int) -> str:
    columns = zip(("inputs", "lengths", "seconds"), zip(*every, strict=True), strict=False)
    parts = [f"{what} {', '.join(f'{many} {basis}' for basis, many in Counter(one).items())}" for what, one in columns]
    parts += [f"{plural(tasks, 'task')} assumed"] if tasks else []
    return "; ".join(parts) or "every answer is in the ledger"


def _pacer(terms: Terms) -> Pacer:
    pacer = Pacer(seed=0)
    pacer.recall(terms.before, terms.learned)
    return pacer


def _shared(context: str | Parts | None, rule: TokenRule | None, guess: Guess, end: int) -> dict[str, int]:
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
    only = Try(
        0.0, min(guess.first_s * by, takes_s), takes_s, None, given, round(guess.output[end]), searches=searches,
        read=round(guess.read[end]), written=round(guess.written[end]),
    )  # fmt: skip
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
    if not terms.key_untried and not terms.before:
        return {}
    heard = {name for name, learned in terms.learned.items() if learned.answers}
    new = {work.pool for work in works} - {HELD_POOL} - set(terms.before) - heard
    return {name: {"requests": Ceiling(PLENTY, PLENTY)} for name in new}


def _shared_before(
    plan: Plan, earlier: History, same: Sequence[int | None], left: Mapping[int, Left]
) -> list[int | None]:
    """Return the first identical step per agent."""
    # Any step of their kind may be the first.
    found, bought = [*same], Counter(row.agent for row in of_plan(plan, earlier) if not row.calls)
    shared, firsts = Counter(row.agent for row in of_plan(plan, earlier.shared)), dict[str, int]()
    for step in plan.dag.order if shared else ():
        part, name = plan.agents[step].part, plan.names[step]
        if part is None or not part.source or found[step] is not None or step in left or not rows_of(plan, step):
            continue
        if shared[name] <= bought[name]:
            firsts.setdefault(part.group, step)
        elif part.group in firsts:
            found[step] = found[firsts[part.group]] = firsts[part.group]
    return found


@dataclass(frozen=True, slots=True)
class NextModel:
    """The next model of one agent: never asked at the low end, always at the high end, else if `likely`."""

    request: Request
    guess: Guess
    likely: bool


def _as_of(tokens: int | None, request: Request, other: Request) -> int | None:
    return None if tokens is None else round(tokens * tokens_factor(request.model, other.model))


def _answered(plan: Plan, history: History, changed: Container[int]) -> dict[int, Counter[str]]:
    """Return how often each model answered in earlier runs of a cascade."""
    found: dict[int, Counter[str]] = {}
    groups: dict[str, Counter[str]] = {}
    for number, step in enumerate(plan.agents):
        if not step.cascade or number in changed:
            continue
        rule, group = cascade_of(step), group_of(step)
        own = Counter(row.model for row in history.of_agent(step) if row.cascade == rule)
        if not own and group not in groups:
            groups[group] = Counter(row.model for row in history.of_kin(step) if row.cascade == rule)
        found[number] = own or groups[group]
    return found


def _escalating_as(guess: Guess, first: str, answered: Mapping[str, int]) -> Guess:
    if not answered.get(first):
        return guess._replace(output_basis="assumed", words=(*guess.words, "escalates: assumed always"))
    later = sum(answered.values()) - answered[first]
    return guess._replace(words=(*guess.words, f"escalates: as {later:,} of {answered[first]:,} earlier answers did"))


def _is_likely(plan: Plan, agent: int, share: float) -> bool:
    part = plan.agents[agent].part
    number = 0 if part is None else part.number
    return share > 0.5 if part is None else floor((number + 1) * share) > floor(number * share)
