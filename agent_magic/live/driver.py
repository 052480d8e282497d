"""The engine on an event loop: an action becomes a task, and its result is reported back with the time.

One task per request under way, one timer for the engine's alarm, and one owner of them all (`Tasks`). The driver
decides nothing. A complete answer is in the ledger before the engine sees it: see `buying`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from datetime import UTC, datetime
from functools import partial
from secrets import randbits
from typing import TYPE_CHECKING, Any

from agent_magic.declare.user_code import reason_of
from agent_magic.declare.validation import names_of
from agent_magic.engine.calls import Verdict
from agent_magic.engine.contract import UNSENT, Abort, Ask, Begin, Count, Done, Send, WakeAt
from agent_magic.engine.expected import expected_work_s
from agent_magic.engine.policy import LIVE_SHARE
from agent_magic.engine.requests import PlanRequests, timeouts_of
from agent_magic.engine.run import CUT, Engine
from agent_magic.errors import PlanError
from agent_magic.live.ahead import count
from agent_magic.live.answer_cache import AnswerCache
from agent_magic.live.batching import batcher_of
from agent_magic.live.buying import LOOK_S, Buyer
from agent_magic.live.calling import Caller
from agent_magic.live.monitor import AlertMonitor, HealthMonitor, tell
from agent_magic.live.people import ask, question_of
from agent_magic.live.tasks import MOMENT_S, Tasks, forget, in_a_moment
from agent_magic.providers.base import Stream, facts_of
from agent_magic.record.events import TICKS_PER_S
from agent_magic.record.prices import Prices
from agent_magic.record.results import RunRecord, conversation_of
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.admission.pool import Pool
    from agent_magic.engine.alerts import Alerts
    from agent_magic.engine.calls import Call, Result
    from agent_magic.engine.contract import Action
    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Policy
    from agent_magic.live.answer_cache import Earlier
    from agent_magic.live.batching import Batcher, Waiting
    from agent_magic.live.monitor import Sample
    from agent_magic.live.people import Asker
    from agent_magic.live.sharing import Sharing
    from agent_magic.providers.base import Provider
    from agent_magic.providers.recorded import Match
    from agent_magic.record.answer import Answer, Status
    from agent_magic.record.history import History
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request


LOG = logging.getLogger("agent_magic")
BLOCKED_S = 1.0
"""An alarm this late means that another cell's code blocked the loop."""
GRACE_S = 0.25
"""Seconds then given to events that arrived meanwhile, before deadlines are checked."""
LACKING = frozenset({"queued", "running", "failed"})
"""States of a step that could use an answer."""


class Driver:
    """Runs a plan once; `record` is complete when `drive` has returned or raised.

    An agent's answer of an `earlier` run is reused if its request is the same; of a cassette (`recorded`), only the
    rest is bought.
    """

    def __init__(  # noqa: PLR0913 - the options of `Plan.run`
        self,
        plan: Plan,
        policy: Policy,
        provider: Provider,
        *,
        ledger: Ledger | None = None,
        earlier: Earlier | None = None,
        recorded: Match | None = None,
        fresh: bool = False,
        prices: Prices | None = None,
        pacer: Pacer | None = None,
        sharing: Sharing | None = None,
        pool: Pool | None = None,
        history: History | None = None,
        frame_of: Callable[[RunRecord, str], Any] | None = None,
        alerts: Alerts | None = None,
        asker: Asker | None = None,
        say: Callable[[str], object] = LOG.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        seed = randbits(32) if policy.seed is None else policy.seed  # kept: a forecast draws the same jitter
        self.plan, self.policy, self._provider, self._asker = plan, policy, provider, asker
        self._ledger, self._pacer, self._sharing, self._pool, self._clock = ledger, pacer, sharing, pool, clock
        self.prices, cheaper = prices or Prices(), provider.choices[:1] if "model" in (policy.degrade or "") else ()
        self._asked = plan.asked.union(cheaper)
        if recorded is None:
            self.record, self._after_s = RunRecord(plan, datetime.now(UTC), plan.models, origin=provider.endpoint), 0.0
        else:
            self.record, self._after_s = recorded.found(), recorded.ended_s
        cache: AnswerCache | None = None
        if ledger is not None or earlier is not None:
            more: Any = {"fresh": fresh, "identical": policy.identical, "record": self.record}
            cache = AnswerCache(plan, provider.endpoint, ledger, earlier, **more)
        self.record.resumes = "" if earlier is None else earlier.uid
        work_s = None if history is None else expected_work_s(plan.agents, plan.models, history)
        self.record.terms = self._terms(seed, work_s)
        more = {"bought": cache, "work_s": work_s, "texts": recorded and recorded.texts, "cheaper": cheaper}
        results = self.record.results
        done: dict[int, Status] | None = None
        if recorded is not None:
            done = {number: one.status for number, one in enumerate(results) if one.finished_s is not None}

        def said(step: int) -> Request | None:  # no method: the driver would hold itself through its requests
            return conversation_of(results[step])

        more["said"] = said
        requests = PlanRequests(plan, policy, plan.models, self.record.terms.models, self.prices, **more)
        self.engine = Engine(
            self.record,
            policy,
            requests,
            timeouts_s=timeouts_of(plan, policy),
            price=self.prices.of,
            pacer=pacer,
            slots=pool,
            key=provider.credentials,
            work_s=work_s,
            seed=seed,
            done=done,
        )
        self.streams: dict[int, Stream] = {}
        more = {"fresh": fresh, "earlier": earlier, "frame_of": frame_of, "asker": asker, "say": say}
        self._caller = Caller(self.record, policy, provider, cache=cache, **more)
        self._over, self._checked = asyncio.Event(), False
        self._tasks = Tasks(self._over.set)
        self.samples: list[Sample] = []
        batcher = None if requests.batching is None else self._make_batcher()
        self._buyer = Buyer(self.engine, provider, self.prices, policy.max_attempts, cache=cache, batcher=batcher)
        self._alarm: asyncio.TimerHandle | None = None
        self._monitor, self.alerts = HealthMonitor(self.engine.admission), AlertMonitor(self.record, alerts)
        self._tells, self._told, self._began, self._due_s = LOG.isEnabledFor(logging.DEBUG), 0, clock(), math.inf
        self.loop: asyncio.AbstractEventLoop | None = None

    def _terms(self, seed: int, work_s: Sequence[float] | None) -> Terms:
        pacer, kept, key = self._pacer, self.policy.to_dict(), self._provider.credentials
        kept["seed"] = seed
        before, learned = (pacer.ceilings(), pacer.learned(self._clock())) if pacer else ({}, {})
        untried = key is not None and not key.accepted
        expected = tuple(work_s) if work_s else None
        known = facts_of(self._provider, self._asked)
        terms = Terms(kept, pacer is not None, before, {}, expected, untried, learned, known)
        return terms if pacer is None else pacer.route(terms, self._clock())

    def held_by(self, agent: int) -> str:
        return self.engine.held_by(agent)

    @property
    def asked(self) -> int:
        results = self.record.results
        return sum(results[one].is_waiting and self.held_by(one) == "person" for one in self.plan.special)

    @property
    def batched(self) -> AbstractSet[int]:
        return self.engine.batched

    def batches_waiting(self) -> list[Waiting]:
        return [] if self._buyer.batcher is None else self._buyer.batcher.waiting()

    def health(self) -> Health:
        return self._monitor.snapshot(self.record, self.now())

    def now(self) -> float:
        return self._after_s + round((self._clock() - self._began) * TICKS_PER_S) / TICKS_PER_S

    def buys(self) -> bool:
        """Return whether anything is to be bought; if only failures are missing, end the run."""
        self.do(self.engine.settle_recorded(self._after_s))
        return self.record.ended_s is None

    async def check(self) -> None:
        """Check before anything is sent that the run can begin."""
        if self._checked:
            return
        try:
            await self._buyer.check()
        except asyncio.CancelledError:
            self.stop()
            raise
        self._checked = True

    async def drive(self) -> RunRecord:
        """Run to the end and return the complete record; cancelling stops all requests first."""
        for model in self._asked:
            self.prices.find(model)  # reads the price lists before the clock starts
        async with self._provider.open():
            self.loop = asyncio.get_running_loop()
            await self.check()
            if self.record.ended_s is not None:  # stopped before it began
                return self.record
            if self._ledger is not None:
                self._buyer.journal = self._caller.journal = self._ledger.begin(self.record, self.prices)
            if len(self.record.events) == 0 or self._after_s:
                self._began = self._clock()
            try:
                await (self._until_over() if self._sharing is None else self._divided(self._sharing))
            finally:
                self._close()
        return self.record

    async def _divided(self, sharing: Sharing) -> None:
        classes = {self._provider.limit_class(model) for model in filter(None, self.plan.models)}
        async with sharing.taking_part(classes, self._slot_free):
            await self._until_over()

    async def _until_over(self) -> None:
        try:
            self.do(self.engine.start(self.now(), began_s=self._began - self._after_s, wake=self._slot_free))
            await self._over.wait()
            if self._tasks.broken:
                with self._tasks:
                    self.stop()
        except asyncio.CancelledError:
            self.stop()
            raise
        finally:
            await self._tasks.finish()

    def _close(self) -> None:
        if self.loop is not None:
            forget(self.loop, self._arm)
        if self._alarm is not None:
            self._alarm.cancel()
        self.engine.close(self.now())
        if self._pacer is not None and self.record.terms is not None:
            terms = self.record.terms._replace(after=self._pacer.ceilings())
            self.record.terms = self._pacer.route(terms, self._clock())
        self._buyer.close()
        self._monitor.close(self.now())

    # called by the user, on the loop; from elsewhere use `Controls`

    @property
    def paused(self) -> bool:
        return self.engine.conductor.paused

    def stop(self, names: Iterable[str] | None = None) -> None:
        self.do(self.engine.stop(self.now(), self._numbers(names)))

    def retry(self, names: Iterable[str] | None = None) -> None:
        self.do(self.engine.retry(self.now(), self._numbers(names)))

    def skip(self, names: Iterable[str], why: str = "") -> None:
        self.do(self.engine.skip(self.now(), self.plan.numbers(names), why))

    def pause(self) -> None:
        self.do(self.engine.pause(self.now()))

    def resume(self) -> None:
        self.do(self.engine.resume(self.now()))

    def _numbers(self, names: Iterable[str] | None) -> list[int] | None:
        return None if names is None else self.plan.numbers(names)

    # actions of the engine

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if type(action) is Send:
                self._tasks.begin(action.step, self._request(action.step), self.plan.agents[action.step].name)
                continue
            self._do(action)
        if self._pool is not None:
            self.engine.offer()
        if self._tells:
            self._told = tell(self.record, self._told)
        if self.alerts.rules and self.record.ended_s is None:
            wanted = self.alerts.check()
            if wanted == "pause" and not self.paused:
                self.alerts.paused_by = [*self.alerts.open]  # a new list each time tells the notebook of a new pause
                self.pause()
            elif wanted == "stop":
                self.stop()

    def _do(self, action: Action) -> None:
        match action:
            case Begin(call):
                over, cut = partial(self._call_over, call), partial(self._call_over, call, CUT)
                self._tasks.own((call.step, call.number), partial(self._caller.call, call), over, cut)
            case WakeAt(at_s):
                self._set_alarm(at_s)
            case Abort(step):
                self._tasks.cancel(step, partial(self._never_ran, step))
                self._tasks.drop(step)
                for call in self.engine.calls.running(step):
                    self._tasks.cancel((step, call.number), partial(self._call_over, call, CUT))
            case Ask(call):
                self._tasks.own((call.step, -call.number), partial(self._ask, call), partial(self._decided, call))
            case Count(step, request):
                self._tasks.own(~step, partial(count, request, self._provider), partial(self._counted, step))
            case Done():
                self._over.set()
            case _:
                raise TypeError(action)

    def _slot_free(self) -> bool:
        if asyncio.get_running_loop() is not self.loop:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._slot_free)
            return False
        with self._tasks:
            self.do(self.engine.room_changed(self.now()))
        return True

    def _set_alarm(self, at_s: float) -> None:
        if self.loop is None:
            return
        self._due_s = math.ceil(at_s * TICKS_PER_S) / TICKS_PER_S  # `now` is on the grid: woken before, it is too early
        if self._due_s - self.now() > MOMENT_S:  # most runs of which this is so are over by then
            in_a_moment(self.loop, self._arm)
        else:
            self._arm()

    def _arm(self) -> None:
        if self.loop is not None and self._due_s < math.inf:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self.loop.call_later(max(0.0, self._due_s - self.now()), self._wake, self._due_s)

    def _wake(self, due_s: float) -> None:
        with self._tasks:
            now, self._due_s = self.now(), math.inf
            if now - due_s < BLOCKED_S or self.loop is None:
                self.do(self.engine.wake(now))
            else:  # the loop was blocked: arrivals are read before any step counts as late
                LOG.warning(
                    "The event loop was blocked for %.1f s by another cell, or code beside the run.", now - due_s
                )
                self._alarm = self.loop.call_later(GRACE_S, self._wake, math.inf)

    # one request, as a task

    async def _request(self, step: int) -> None:
        answer, error = None, None
        try:
            stream = self.streams[step] = Stream(self, step, taker=self)
            if self.engine.admission is not None:
                stream.endpoint = self.engine.endpoint(step)
            try:
                try:
                    request = self.engine.write(step)
                    while self._buyer.is_elsewhere(step, request):
                        self.engine.waits_elsewhere(step, self.now())
                        await asyncio.sleep(LOOK_S)
                        self.engine.waits_elsewhere(step, self.now())
                    request = self.engine.send(step, self.now(), request)
                    answer = await self._buyer.answer(step, request, stream, self.now)
                finally:
                    del self.streams[step]
                    self._tasks.left(step)
            except asyncio.CancelledError:
                if stream.answer is not None:  # complete, and only its connection was open: paid for, so kept
                    answer = self._buyer.keep(step, stream, stream.answer, self.now())
                self._report(step, stream, answer, None)
                raise
            except Exception as failure:  # noqa: BLE001 - the only place where an agent's failure becomes a result
                error = failure
            self._report(step, stream, answer, error)
        except BaseException as bug:  # in place of `with`, which costs three times as much
            if not self._tasks.broke(bug):
                raise

    def _report(self, step: int, stream: Stream, answer: Answer | None, error: Exception | None) -> None:
        self.do(self.engine.ended(step, self._buyer.outcome(step, stream, answer, error), self.now()))
        if answer is None:
            self._buyer.write()

    def _never_ran(self, step: int) -> None:
        self.do(self.engine.ended(step, UNSENT, self.now()))

    def _make_batcher(self) -> Batcher:
        if self.policy.schedule == "sequential":
            raise PlanError("batch does not go with schedule='sequential': one agent at a time is a batch for each.")
        return batcher_of(self._provider, self._ledger, self._tasks.beside, self._batch_time_s)

    def _batch_time_s(self) -> float | None:
        most_s = self.policy.deadline_s if self.policy.batch_fallback == "live" else None
        return None if most_s is None else most_s * (1 - LIVE_SHARE) - self.now()

    def _call_over(self, call: Call, result: Result) -> None:
        self.do(self.engine.call_ended(call, result, self.now()))
        self._buyer.write()

    async def _ask(self, call: Call) -> Verdict:
        try:
            if (verdict := self._caller.agreed(call)) is None:
                verdict = await ask(self._asker, self.plan, question_of(self.record, call, self.policy.ask_s))
        except Exception as error:  # noqa: BLE001 - the user's code may show the question
            return Verdict(approved=False, why=f"asking failed: {reason_of(error)}")
        return verdict

    def _decided(self, call: Call, verdict: Verdict) -> None:
        self.do(self.engine.decided(call, verdict, self.now()))

    def _counted(self, step: int, found: tuple[int | None, object]) -> None:
        self.do(self.engine.counted(step, found[0], self.now()))

    # events of a stream

    def replied(self, stream: Stream) -> None:
        if self.engine.admission is not None and self.streams.get(stream.agent) is stream:
            status, readings = stream.status_code or 0, stream.readings
            self.do(self.engine.replied(stream.agent, status, readings, self.now()))

    def opened(self, stream: Stream) -> None:
        self.do(self.engine.began(stream.agent, self.now()))

    def first_token(self, stream: Stream) -> None:
        self.engine.first_token(stream.agent, self.now())

    # an answer that comes when its attempt has failed, because its worker was given up

    def awaits(self, stream: Stream, request: Request) -> bool:
        result = self.record.results[stream.agent]
        last = result.attempts[-1]
        return (
            self.record.ended_s is None
            and result.status in LACKING
            and last.status != "succeeded"
            and last.request == request
        )

    def take_late(self, stream: Stream, request: Request, answer: Answer) -> None:
        """Take a late answer, since it is paid for: for the current attempt or another."""
        with self._tasks:
            step, current = stream.agent, self.streams.get(stream.agent)
            if not self.awaits(stream, request):
                return
            if current is None:
                self._buyer.take_late(step, request, answer, stream.worker)
                self.do(self.engine.retry(self.now(), [step]))  # if it has failed for good
            elif current.answer is None:
                current.answer, current.worker = answer, stream.worker
                self._tasks.cancel(step, partial(self._never_ran, step))


class Controls:
    """Controls a run from any thread. A finished run is left unchanged.

    Args:
        driver: The driver. A run that has not begun can be controlled from the thread it will run on.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def paused(self) -> bool:
        """True if no agent starts until `resume`."""
        return self._driver.paused

    def stop(self, names: str | Iterable[str] | None = None) -> None:
        """Stop one or several agents, or the run.

        Args:
            names: The agents, or one; None: the run.

        Raises:
            UnknownAgent: An agent is not in the plan; nothing was stopped.
        """
        self._say(self._driver.stop, self._checked(names))

    def retry(self, names: str | Iterable[str] | None = None) -> None:
        """Rerun unsuccessful agents, with the agents skipped because of them.

        Args:
            names: The agents, or one; None: all that did not succeed.

        Raises:
            UnknownAgent: An agent is not in the plan.
        """
        self._say(self._driver.retry, self._checked(names))

    def skip(self, names: str | Iterable[str]) -> None:
        """Skip agents and their dependents.

        Args:
            names: The agents, or one.

        Raises:
            UnknownAgent: An agent is not in the plan.
        """
        self._say(self._driver.skip, self._checked(names_of(names)))

    def pause(self) -> None:
        """Start no more steps until `resume`. Steps under way continue, and are paid for."""
        self._say(self._driver.pause)

    def resume(self) -> None:
        """Let agents go again."""
        self._say(self._driver.resume)

    def _checked(self, names: str | Iterable[str] | None) -> list[str] | None:
        """Check the names here, so that the caller gets the error."""
        if names is None:
            return None
        known = names_of(names)
        self._driver.plan.numbers(known)
        return known

    def _say(self, what: Callable[..., None], *arguments: object) -> None:
        loop = self._driver.loop
        if loop is None or loop is _running_loop():
            what(*arguments)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(what, *arguments)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
