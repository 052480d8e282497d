"""The provider in a forecast: each agent's modelled work, behind modelled limits and cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.resources import held_beside
from agent_magic.engine.admission.budget import NOTHING, Worst, worst_case
from agent_magic.engine.admission.gate import TOO_MANY_REQUESTS
from agent_magic.engine.admission.prefix import Prefixes, paying_groups, prefix_of, with_lives
from agent_magic.engine.calls import Result, Wanted
from agent_magic.engine.contract import Need, Outcome, WithoutCalls
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.engine.policy import BATCH_S, batching_of
from agent_magic.engine.requests import LONGEST_TOKEN, OVERHEAD_TOKENS
from agent_magic.engine.retry import Failure, failure_of
from agent_magic.engine.run import Engine
from agent_magic.errors import Escalated, InvalidAnswer, Unreachable
from agent_magic.forecast.evidence import CONTINUES, facts_of
from agent_magic.forecast.provider import Input, Outage, Provider, Refusal
from agent_magic.forecast.virtual import Flight, Served, VirtualDriver
from agent_magic.forecast.work import OK
from agent_magic.measure.server import NEVER, At, Needs, Serving, limit_of
from agent_magic.record.answer import (
    CHARS_PER_TOKEN,
    ESCALATED,
    NOT_BILLED,
    NOTHING_USED,
    PAUSED,
    TOOL_USE,
    Answer,
    Price,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from agent_magic.declare.flow import Flow, Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.admission.pool import Key
    from agent_magic.engine.calls import Call
    from agent_magic.engine.contract import Choices
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Batching, Policy
    from agent_magic.errors import CallError
    from agent_magic.forecast.work import Try, Work
    from agent_magic.measure.server import Server
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request, Ttl
    from agent_magic.record.results import RunRecord
    from agent_magic.record.terms import Terms

CALLED: Final = Result("succeeded", source="forecast")
UNFIT: Final = frozenset({ESCALATED, InvalidAnswer.__name__})
"""Failures of answers that came, after which the step is asked again."""
LEFT_OUT: Final = "left out of this forecast"
NO_CONNECTION, BROKEN = "There is no connection.", "The connection broke."


class Played(NamedTuple):
    """Result of a run on virtual time, beside its record."""

    peak: int  # slots used at once, by requests or by tasks
    most: Mapping[At, int]  # the same by endpoint and model class
    limited_by: str = ""  # of the server, see `limit_of`


class Pricing:
    """Prices tokens, with a cache of sums."""

    def __init__(
        self,
        prices: Prices,
        costs: dict[tuple[object, ...], Price] | None = None,
        *,
        recorded: bool = False,
    ) -> None:
        self._prices, self.recorded = prices, recorded
        self._costs: dict[tuple[object, ...], Price] = {} if costs is None else costs

    def of(self, model: str, usage: Usage | None) -> Price:
        if usage is None:
            return self._prices.of(model, None)
        if usage.output_tokens == 0 == usage.total_input_tokens:
            return NOT_BILLED
        key = (
            id(self._prices),
            model,
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.cache_write_1h_tokens,
            usage.searches,
        )
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._prices.of(model, usage)
        return found


class RecordedChoices:
    """Leaves out the steps that a recorded run left out."""

    def __init__(self, flow: Flow, left: Mapping[int, Left], works: Sequence[Work | None]) -> None:
        self._flow, self._left = flow, left
        self.decides = flow.decides
        self.ahead_of = {step: only for step, only in flow.ahead_of.items() if works[step] is not None}

    @classmethod
    def of(cls, plan: Plan, left: Mapping[int, Left], works: Sequence[Work | None]) -> RecordedChoices | None:
        return None if plan.flow is None else cls(plan.flow, left, works)

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None:
        return self._flow.follows(step, left) or self._left.get(step)


class _Flight(Flight):
    __slots__ = ("at", "attempt", "billed", "by_batch", "lost", "provider", "readings", "refusal")

    def __init__(self, step: int, started_s: float, attempt: Try, *, by_batch: bool) -> None:
        first_s = None if attempt.first_s is None else started_s + attempt.first_s
        super().__init__(step, started_s, first_s, started_s + attempt.takes_s)
        self.attempt, self.by_batch = attempt, by_batch
        self.provider: Provider | None = None  # by batch there is none
        self.billed: Input | None = None
        self.refusal: Refusal | None = None
        self.readings: Readings = NO_READINGS
        self.lost: Unreachable | None = None
        self.at: At | None = None

    def lose(self, at_s: float, why: str, *, sent: bool) -> None:
        self.lost, self.until_s = Unreachable(why, sent=sent), at_s
        if self.server is None and self.first_s is not None and self.first_s >= at_s:
            self.first_s = None

    def serve(self, server: Served) -> None:
        """Serve the request beside others, which decide when it begins and ends."""
        before_s = self.attempt.first_s or 0.0
        self.server, self.needs = server, Needs(before_s, max(0.0, self.attempt.takes_s - before_s))
        self.first_s = None if self.first_s is None else NEVER
        self.until_s = NEVER

    def completed(self, now: float) -> None:
        self.until_s, self.lost = now, None

    def share(self, now: float) -> float:
        if self.server is not None:
            return 1.0 - self.server.left(self, now)
        if (ends_s := self.started_s + self.attempt.takes_s) == NEVER:
            return 1.0  # the received part is as recorded
        if self.first_s is None or ends_s <= self.first_s:
            return 0.0
        return min(1.0, max(0.0, (now - self.first_s) / (ends_s - self.first_s)))


class _ByBatch(NamedTuple):
    batching: Batching | None
    batch_s: float


class ModelledService:
    """Answers according to the works, within the limits of the modelled provider."""

    abort_s = 0.0

    def __init__(  # noqa: PLR0913 - all that an answer stands on
        self,
        scripts: Scripts,
        providers: Mapping[str, Provider],
        entries: Sequence[str | None],
        price: Pricing,
        max_attempts: int,
        by_batch: _ByBatch,
        endpoint: Callable[[int], str],
        servers: Mapping[At, Served] = MappingProxyType({}),
        *,
        as_it_was: bool = False,
    ) -> None:
        self._as_it_was = as_it_was
        self._servers, self._under_way, self.most = servers, Counter[At](), dict[At, int]()
        self._scripts, self._providers, self._entries, self._price = scripts, providers, entries, price
        self._endpoint, self._only = endpoint, next(iter(providers.values())) if len(providers) == 1 else None
        self._max_attempts, self._by_batch = max_attempts, by_batch

    def _entry(self, step: int) -> str | None:
        return None if self._scripts.has_moved(step) else self._entries[step]

    def delay_s(self, step: int) -> float:
        return self._scripts.next(step).local_s

    def count(self, request: Request) -> int | None:
        del request
        return None

    def send(self, step: int, request: Request, now: float) -> _Flight:
        del request
        scripts = self._scripts
        batching, batch_s = self._by_batch
        by_batch = batching is not None and step in batching.now
        scripts.leave_out(step, by_batch=by_batch)
        attempt = scripts.next(step)
        by_batch = by_batch and (attempt.input_tokens != 0 or attempt.turned_away)  # an available answer is not sent
        attempt = attempt.sent(batch_s if by_batch else None)
        flight = _Flight(step, now, attempt, by_batch=by_batch)
        if by_batch:  # no limit and no cache of ours
            if attempt.usage is None and attempt.input_tokens is not None:
                flight.billed = Input(attempt.input_tokens)
            return flight
        work, pool = scripts.work(step), scripts.pool(step)
        provider = flight.provider = self._only or self._providers[self._endpoint(step)]
        if attempt.input_tokens != 0 and provider.outage.holds(now):
            flight.lose(now, NO_CONNECTION, sent=False)
            return flight
        if attempt.input_tokens is not None and not attempt.turned_away:
            cached = attempt.read, attempt.written
            billed = provider.take(pool, attempt.input_tokens, now, self._entry(step), work.prefix, *cached)
            if isinstance(billed, Refusal):
                flight.refusal, flight.first_s, flight.until_s = billed, None, now + provider.refusal_s
            else:
                flight.billed = billed
        flight.readings = provider.readings(pool, now)
        if flight.refusal is None and attempt.is_worked_on:
            at = flight.at = "" if self._only else self._endpoint(step), pool
            count = self._under_way[at] = self._under_way[at] + 1
            if count > self.most.get(at, 0):
                self.most[at] = count
            if self._servers and (server := self._servers.get(at)) is not None:
                flight.serve(server)
        if (cut_s := provider.outage.cut_s(now)) < flight.until_s:
            flight.lose(cut_s, BROKEN, sent=True)
        return flight

    def _over(self, flight: _Flight) -> None:
        if flight.at is not None:
            self._under_way[flight.at] -= 1

    def begin(self, flight: _Flight, now: float) -> tuple[int, Readings]:
        self._opened(flight, now)
        return flight.attempt.status or OK, flight.readings

    def end(self, flight: _Flight, now: float) -> Outcome:
        attempt, step = flight.attempt, flight.step
        self._over(flight)
        if flight.lost is not None:
            return self._lost(flight, flight.lost, now)
        if flight.refusal is not None:
            return self._refused(flight, flight.refusal)
        self._scripts.done(step)
        failure = attempt.failure
        if not flight.begun and failure is None:  # it was not streamed: it begins and ends at once
            self._opened(flight, now)
        recorded = attempt.usage if self._as_it_was else None  # a cache may have lost what it is modelled to have
        usage = recorded or _usage_of(attempt, flight.billed)
        price = self._price_of(attempt, usage)
        served = attempt.input_tokens == 0 and failure is None  # the answer was available: nothing was sent
        answers = failure is None or failure is CONTINUES or failure.kind in UNFIT
        status = None if served else OK if answers else attempt.status
        readings = None if flight.begun and failure is None else flight.readings  # read when it began
        if answers:
            stop_reason = attempt.capped or "end_turn"
            if failure is CONTINUES:
                stop_reason = TOOL_USE if attempt.tools else PAUSED
            model = self._scripts.model(step)
            batch = "forecast" if flight.by_batch else ""
            answer = Answer("", stop_reason, usage=usage, model=model, source="forecast", content="[]", batch=batch)
            return Outcome(answer, None, status, usage, "forecast", "", readings, price)
        return Outcome(None, failure, status, usage, None, "", readings, price)

    def call(self, call: Call) -> tuple[float, Result]:
        step = call.step
        if not self._scripts.work(step).is_task:
            return self._scripts.last(step).tools_s, CALLED
        attempt = self._scripts.next(step)
        self._scripts.done(step)
        if attempt.failure is None:
            return attempt.takes_s, CALLED
        why, kind, most = attempt.failure.why, attempt.failure.kind, attempt.failure.attempts
        return attempt.takes_s, CALLED._replace(status="failed", error=why, kind=kind, attempts=most)

    def abort(self, flight: _Flight, now: float) -> Outcome:
        self._over(flight)
        if flight.attempt.cut_s == now - flight.started_s:  # as when it was recorded
            usage = flight.attempt.usage or Usage()
        else:
            usage = _usage_of(flight.attempt, flight.billed, share=flight.share(now))
        price = self._price_of(flight.attempt, usage)
        return Outcome(None, None, OK if flight.begun else None, usage, None, "", None, price)

    def _opened(self, flight: _Flight, now: float) -> None:
        written = flight.billed is not None and flight.billed.written > 0
        entry = self._entry(flight.step) if written else None
        made = flight.attempt.output_tokens or 0
        if flight.lost is not None:
            made = round(made * flight.share(flight.until_s))
        provider = flight.provider or self._only
        if provider is not None:
            until_s = flight.until_s if flight.server is None else flight.server.until_s(flight, now)
            provider.began(self._scripts.pool(flight.step), (now, until_s, made), entry, flight.started_s)

    def _lost(self, flight: _Flight, error: Unreachable, now: float) -> Outcome:
        failure = failure_of(error, self._max_attempts)
        if not error.sent:
            return Outcome(None, failure, None, NOTHING_USED, None, "", None, NOT_BILLED)
        share = 1.0 if flight.provider and flight.provider.outage.bills_all else flight.share(now)
        usage = replace(_usage_of(flight.attempt, flight.billed, share=share), estimated=True)
        return Outcome(None, failure, OK if flight.begun else None, usage, None, "", None, None)

    def _refused(self, flight: _Flight, refusal: Refusal) -> Outcome:
        failure = Failure(
            f"RateLimited: {refusal.limit} (429)",
            self._max_attempts,
            retry_after_s=refusal.retry_after_s,
            counts=self._max_attempts == 1,  # as in `failure_of`
            kind="RateLimited",
            limit=refusal.limit,
        )
        return Outcome(None, failure, TOO_MANY_REQUESTS, NOTHING_USED, None, "", flight.readings, NOT_BILLED)

    def _price_of(self, attempt: Try, usage: Usage) -> Price | None:
        return attempt.price if self._price.recorded and usage is attempt.usage else None


class ModelledRequests(WithoutCalls):
    """Writes and bounds the requests of a forecast; inputs are known, and prompts are as they were."""

    def __init__(  # noqa: PLR0913 - all that a request stands on
        self,
        works: Sequence[Work | None],
        scripts: Scripts,
        requests: Sequence[Request],
        limit_classes: Sequence[str],
        prefixes: Prefixes | None,
        price: Pricing | None,
        held: frozenset[int],
        same: Sequence[int | None],
        *,
        plan: Plan,
        left: Mapping[int, Left],
        batching: Batching | None,
        policy: Policy,
    ) -> None:
        self.flow: Choices | None = RecordedChoices.of(plan, left, works)
        self.batching, self.holds = batching, plan.holds
        self.falls_back = any(one.fallback for one in plan.agents)
        self._requests, self.prefixes, self._price, self._held = requests, prefixes, price, held
        self._same = same
        self._plan = plan
        self.models, self.limit_classes = [request.model for request in requests], list(limit_classes)
        self._scripts = scripts
        self._needs: dict[tuple[int, bool], Need] = {}
        self._to_count: list[int] = []
        self._counted: dict[int, int] = {}
        self._policy = policy
        self.checked = dict[int, bool]()
        for step, work in enumerate(works):
            if work is not None and work.tries[0].model:  # it asks several, or a cheaper one than it declares
                self._ask_now(step)
            if work is not None and any(one.failure is not None and one.failure.kind in UNFIT for one in work.tries):
                self.checked[step] = False
        self.tasks = {
            step: Wanted("", work.name, "") for step, work in enumerate(works) if work is not None and work.is_task
        }
        self._called: dict[int, int] = {}  # how many turns with calls each agent has had

    def write(self, step: int) -> Request:
        request = self._requests[step]
        if self._scripts.next(step).capped:
            request = request._replace(tool_choice="none")
        return request if request.model == self.models[step] else request._replace(model=self.models[step])

    def max_turns(self, step: int) -> int:
        return 1 if self._scripts.last(step).capped else super().max_turns(step)

    def identity(self, step: int) -> Hashable:
        if not self._same or self._same[step] is None or step in self._held:
            return None
        work, request = self._scripts.work(step), self._requests[step]
        return self._same[step], work.model, request.effort, work.max_tokens, work.need

    def _ask_now(self, step: int) -> None:
        self.models[step], self.limit_classes[step] = self._scripts.model(step), self._scripts.pool(step)
        self._forget(step)

    def fall_back(self, step: int) -> bool:
        if not self._scripts.may_move(step):
            return False
        self.escalate(step)
        return True

    def escalate(self, step: int) -> None:
        self._scripts.move(step)
        self._ask_now(step)

    def need(self, step: int) -> Need:
        found = self._needs.get((step, self._goes_by_batch(step)))
        if found is None:
            worst, least = NOTHING, None
            if self._price is not None:
                size = self._counted.get(step, self._size(step))
                worst = self._worst(step, self._price, size)
                least = None if step in self._counted else self._worst(step, self._price, size // LONGEST_TOKEN)
            found = self._needs[step, self._goes_by_batch(step)] = self._need(step, worst, least)
        return found

    def _size(self, step: int) -> int:
        return self._scripts.work(step).size + self._scripts.next(step).grown + OVERHEAD_TOKENS

    def _goes_by_batch(self, step: int) -> bool:
        return self.batching is not None and step in self.batching.now

    def count(self, step: int) -> bool:
        self._to_count.append(step)
        return True

    def to_count(self) -> Sequence[tuple[int, Request]]:
        found, self._to_count = self._to_count, []
        return [(step, self._requests[step]) for step in found]

    def counted(self, step: int, tokens: int | None) -> None:
        del tokens  # what its answer was billed is known
        likely = self._scripts.work(step).need + self._scripts.next(step).grown // CHARS_PER_TOKEN
        self._counted[step] = self._scripts.input_tokens(step) or min(likely, self._size(step))
        self._forget(step)

    def used(self, step: int, usage: Usage, model: str) -> None:
        del usage, model
        if self._price is not None:  # the next request may continue its conversation
            self._counted.pop(step, None)
            self._forget(step)

    def _forget(self, step: int) -> None:
        for by_batch in (False, True):
            self._needs.pop((step, by_batch), None)

    def fault(self, step: int, answer: Answer) -> CallError | None:
        del answer
        failure = self._scripts.last(step).failure
        if failure is None or failure.kind not in UNFIT:
            return None
        why = failure.why.removeprefix(f"{failure.kind}: ")
        if failure.kind == InvalidAnswer.__name__:
            return InvalidAnswer(why, mendable=failure.attempts > 1, again=why)
        return Escalated(why) if self._scripts.may_move(step) else None

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None: ...

    def answered(self, step: int, text: str) -> None: ...

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        if answer.stop_reason != TOOL_USE:
            return ()
        place = self._called.get(step, 0)
        self._called[step] = place + 1
        names = [one.tools for one in self._scripts.work(step).tries if one.tools][place]
        own, agent = self.holds.get(step, ()), self._plan.agents[step]
        used = [one for one in agent.tools.functions if one.name in names.split(", ")]
        holds = dict.fromkeys(held for one in used for held in held_beside(own, one.uses, one.writes))
        return [Wanted("", names, "", holds=tuple(holds))]

    def _need(self, step: int, worst: Worst, least: Worst | None) -> Need:
        work = self._scripts.work(step)
        shared = work.shared if self.prefixes is not None and self.prefixes.name(step) is not None else 0
        more: dict[str, Any] = {"free": step in self._held, "shared_tokens": shared, "least": least}
        return Need(self.models[step], work.need, work.max_tokens, worst, **more, keeps=self._keeps(step))

    def _keeps(self, step: int) -> bool:
        agent, policy = self._plan.agents[step], self._policy
        whole = agent.returns is not None or agent.check is not None or agent.ask
        return not whole and policy.on_max_tokens != "fail" and self._scripts.goes_on(step)

    def _worst(self, step: int, price: Pricing, size: int) -> Worst:
        work, by_batch = self._scripts.work(step), self._goes_by_batch(step)
        ttl = None if self.prefixes is None else self.prefixes.ttl(step)
        return worst_case(
            size,
            work.max_tokens,
            lambda usage: price.of(self.models[step], usage),
            shared=0 if ttl is None else work.context_size,
            ttl=ttl,
            caches=self._policy.cache != "off" and self._scripts.next(step).caches and not by_batch,
            searches=self._plan.agents[step].tools.most_searches,
            by_batch=by_batch,
        )


def _usage_of(attempt: Try, billed: Input | None, share: float = 1.0) -> Usage:
    """Return the tokens of an attempt, the recorded ones if it is billed in the same way."""
    if billed is None or attempt.output_tokens is None:
        return attempt.usage or Usage()
    made = round(attempt.output_tokens * share)
    known = attempt.usage
    if (
        known is not None
        and made == known.output_tokens
        and (known.input_tokens, known.cache_read_tokens or 0, known.cache_write_tokens or 0) == billed[:3]
        and known.cache_write_1h_tokens == billed.written_1h
    ):
        return known
    return Usage(
        billed.uncached,
        cache_read_tokens=billed.read,
        cache_write_tokens=billed.written,
        output_tokens=made,
        cache_write_1h_tokens=billed.written_1h,
        searches=attempt.searches or (known.searches if known else 0),
        estimated=share < 1.0,
    )


def play(  # noqa: PLR0913 - all that a run stands on
    record: RunRecord,
    terms: Terms,
    policy: Policy,
    works: Sequence[Work | None],
    requests: Sequence[Request],
    *,
    price: Pricing,
    timeouts_s: Sequence[float],
    cached_by: Sequence[float] | None,
    pacer: Pacer | None,
    key: Key | None,
    held: frozenset[int] = frozenset(),
    same: Sequence[int | None] = (),
    refusal_s: float = 0.0,
    left: Mapping[int, Left] = MappingProxyType({}),
    batch_s: float = BATCH_S,
    outages: Mapping[str, Outage] = MappingProxyType({}),
    servers: Mapping[At, Server] = MappingProxyType({}),
    as_it_was: bool = False,
) -> Played:
    """Run the engine on modelled work in virtual time.

    `works` are recorded times per agent, or with `servers` the needs of each request alone.
    """
    batching = batching_of(record.plan, policy)
    alone = held.union(() if batching is None else batching.steps)
    groups, lives = _groups_of(works, record, alone, policy, cached_by, terms)
    prefixes = None if groups is None else Prefixes(groups, lives)
    entries = [None] * len(works) if groups is None else list(map(partial(_kept, terms), groups, works))
    warm = [name for name, work in zip(entries, works, strict=True) if name and work is not None and work.warm]
    classes, scripts = [facts_of(terms, one.model).limit_class for one in requests], Scripts(works)
    counted = price if any((policy.budget_usd, policy.budget_tokens, policy.max_usd_per_min)) else None
    record.same = tuple(same) or None
    given = works, scripts, requests, classes, prefixes, counted, held, same
    asked = ModelledRequests(*given, plan=record.plan, left=left, batching=batching, policy=policy)
    shared: dict[str, Any] = {"dag": record.dag, "pacer": pacer, "key": key, "work_s": terms.work_s}
    engine = Engine(record, policy, asked, timeouts_s=timeouts_s, price=price.of, **shared)
    apart = {name: one.after for name, one in terms.endpoints.items()} or {"": terms.after}
    everywhere = outages.get("", Outage())
    known: dict[str, Any] = {"refusal_s": refusal_s, "caches": policy.cache != "off"}
    providers = {
        name: Provider(limits, warm, lives, outages.get(name, everywhere), **known) for name, limits in apart.items()
    }
    more = policy.max_attempts, _ByBatch(batching, batch_s), engine.endpoint
    at_work: dict[At, Served] = {at: Serving(one) for at, one in servers.items()}
    service = ModelledService(scripts, providers, entries, price, *more, at_work, as_it_was=as_it_was)
    driver = VirtualDriver(engine, service)
    for agent in (agent for agent, work in enumerate(works) if work is None and agent not in left):
        engine.leave_out(agent, LEFT_OUT)
    driver.run()
    return Played(driver.peak, service.most, limit_of(at_work.values()))


def _kept(terms: Terms, entry: str | None, work: Work | None) -> str | None:
    """Return the cache entry of an agent, unless its prefix is too short for one."""
    if entry is None or work is None:
        return None
    least = facts_of(terms, work.model).min_cacheable_tokens
    seen = any(one.usage and (one.usage.cache_read_tokens or one.usage.cache_write_tokens) for one in work.tries)
    return entry if seen or (least is not None and work.prefix >= least) else None


def _groups_of(
    works: Sequence[Work | None],
    record: RunRecord,
    alone: frozenset[int],
    policy: Policy,
    work_s: Sequence[float] | None,
    terms: Terms,
) -> tuple[list[str | None] | None, dict[str, Ttl]]:
    contexts = [None if one in alone else prefix_of(record.plan, one) for one in range(len(record.plan))]
    used = [
        None if work is None else work.shares if work.shares and one not in alone else name
        for one, (name, work) in enumerate(zip(contexts, works, strict=True))
    ]
    if policy.cache == "off" or not any(used):
        return None, {}
    tokens = {name: work.shared for name, work in zip(used, works, strict=True) if name and work is not None}
    models = ["" if work is None else work.model for work in works]
    facts = {model: facts_of(terms, model) for model in models}
    groups = paying_groups(models, used, tokens, facts, always=policy.cache == "on")
    return with_lives(groups, record.dag, policy, work_s)


class Scripts:
    """Future attempts of each agent in stages; each further model begins one."""

    # The modelled service and requests read the same scripts, so both know the model of an attempt.

    def __init__(self, works: Sequence[Work | None]) -> None:
        self._works = works
        self._stages = {
            step: [tuple(tries) for _, tries in groupby(work.tries, key=attrgetter("model"))]
            for step, work in enumerate(works)
            if work is not None and work.moves
        }
        self._stage = [0] * len(works)
        self._place = [0] * len(works)

    def work(self, step: int) -> Work:
        work = self._works[step]
        if work is None:
            raise RuntimeError(f"agent {step} was left out")
        return work

    def tries(self, step: int) -> tuple[Try, ...]:
        stages = self._stages.get(step)
        return self.work(step).tries if stages is None else stages[self._stage[step]]

    def next(self, step: int) -> Try:
        tries = self.tries(step)
        return tries[min(self._place[step], len(tries) - 1)]

    def input_tokens(self, step: int) -> int | None:
        """Return the input of the next request, of its first attempt that was billed."""
        left, grown = self.tries(step)[self._place[step] :], self.next(step).grown
        return next((one.input_tokens for one in left if one.input_tokens and one.grown == grown), None)

    def goes_on(self, step: int) -> bool:
        """Return whether the next request continues an answer."""
        return any(one.failure is CONTINUES for one in self.tries(step)[: self._place[step]])

    def leave_out(self, step: int, *, by_batch: bool) -> None:
        """Drop the attempts that this request cannot have."""
        left = len(self.tries(step)) - 1 - self._place[step]
        while left > 0 and not self.next(step).fits(by_batch=by_batch):
            self._place[step] += 1
            left -= 1

    def last(self, step: int) -> Try:
        return self.tries(step)[self._place[step] - 1]

    def done(self, step: int) -> None:
        self._place[step] += 1

    def model(self, step: int) -> str:
        return self.tries(step)[0].model or self.work(step).model

    def pool(self, step: int) -> str:
        return self.tries(step)[0].pool or self.work(step).pool

    def has_moved(self, step: int) -> bool:
        return self._stage[step] > 0

    def may_move(self, step: int) -> bool:
        return self._stage[step] + 1 < len(self._stages.get(step, ()))

    def move(self, step: int) -> None:
        self._stage[step], self._place[step] = self._stage[step] + 1, 0
