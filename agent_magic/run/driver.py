"""The live driver: turns the conductor on the event loop. One task per request, one task group that owns them all."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from random import getrandbits
from typing import TYPE_CHECKING

from agent_magic.errors import Late
from agent_magic.record.answer import NOTHING_USED, PAID_BEFORE, Price
from agent_magic.record.events import (
    TICKS_PER_S,
    AgentEnded,
    AgentReady,
    AgentReopened,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    FirstToken,
    RunEnded,
    on_grid,
)
from agent_magic.record.ledger import Busy
from agent_magic.record.prices import Prices
from agent_magic.record.request import Request
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Terms
from agent_magic.run.admission import Admission
from agent_magic.run.asking import model_of
from agent_magic.run.client import Stream
from agent_magic.run.judging import judge
from agent_magic.run.known import Known
from agent_magic.run.leftover import one_line, source_of, usage_of
from agent_magic.run.pulse import Pulse
from agent_magic.schedule.actions import Action, Backoff, Cancel, Ended, Finished, Launch, Ready, Reopened, WakeAt
from agent_magic.schedule.conductor import Conductor
from agent_magic.schedule.expected import expected_work_s
from agent_magic.schedule.retry import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.history import History
    from agent_magic.record.ledger import Journal, Ledger
    from agent_magic.record.request import Request
    from agent_magic.run.client import Client
    from agent_magic.run.earlier import Earlier
    from agent_magic.schedule.health import Health
    from agent_magic.schedule.pacer import Pacer
    from agent_magic.schedule.policy import Policy

LOOK_S = 0.1
"""How often to look whether somebody else has bought an answer."""
FREE = Price(0.0, "not billed")


class Driver:
    """Runs a plan once.

    Args:
        plan: What to run.
        policy: How.
        client: Who answers.
        ledger: Answers bought before, served again at no cost; `None` buys everything.
        earlier: The answers of an earlier run, taken over where an agent asks the same; `None` takes none.
        fresh: Buy again what the ledger has.
        prices: What tokens cost.
        pacer: Keeps the provider's rate limits, for every run that shares it; `None` keeps none.
        history: What earlier answers took: agents with more work before the end of the plan go first.
        clock: Monotonic seconds.

    Attributes:
        record: What has happened so far. Complete when `drive` has returned or raised.
        streams: The answers that are arriving, by agent.
        loop: The event loop it runs on; `None` before `drive`.
        prices: What tokens cost.
    """

    def __init__(  # noqa: PLR0913 - the options of `Plan.run`
        self,
        plan: Plan,
        policy: Policy,
        client: Client,
        *,
        ledger: Ledger | None = None,
        earlier: Earlier | None = None,
        fresh: bool = False,
        prices: Prices | None = None,
        pacer: Pacer | None = None,
        history: History | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if policy.seed is None:  # kept with the record, so that a forecast draws the same jitter
            policy = replace(policy, seed=getrandbits(32))
        self.plan, self.policy, self._client = plan, policy, client
        self._ledger, self.prices, self._clock = ledger, prices or Prices(), clock
        self._known: Known | None = None
        if ledger is not None or earlier is not None:
            self._known = Known(plan, client.endpoint, ledger, earlier, fresh=fresh)
        self._models = [model_of(agent) for agent in plan.agents]
        self._timeouts_s = [agent.timeout_s or policy.timeout_s for agent in plan.agents]
        self.record = RunRecord(plan, began_at=datetime.now(UTC), models=self._models, origin=client.endpoint)
        self.streams: dict[int, Stream] = {}
        self._texts: dict[str, str] = {}
        self._pacer = pacer
        key = getattr(client, "key", None)
        self._admission = Admission(
            plan, policy, self._texts, prices=self.prices, pacer=pacer, known=self._known, key=key
        )
        gate = self._admission.gate
        work_s = None if history is None else expected_work_s(plan.agents, self._models, history)
        before = pacer.ceilings() if pacer else {}
        self.record.terms = Terms(asdict(policy), pacer is not None, before, {}, tuple(work_s) if work_s else None)
        self._conductor = Conductor(plan.dag, policy, timeouts_s=self._timeouts_s, work_s=work_s, room=gate)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._journal: Journal | None = None
        self._why_cancelled: dict[int, str] = {}
        self._unsent: dict[int, int] = {}  # launches of which no request came, by agent
        self._alarm: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._pulse = Pulse(gate)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._began = clock()

    def held_by(self, agent: int) -> str:
        """Say what holds an agent that is ready; see `agent_magic.schedule.conductor`."""
        return self._conductor.held_by(agent)

    def health(self) -> Health:
        """Say how the run fares with the provider; of a run that is over, how it fared at its end."""
        return self._pulse.feel(self.record, self.now())

    def now(self) -> float:
        """Seconds since the run began, on the grid of `agent_magic.record.events`."""
        return round((self._clock() - self._began) * TICKS_PER_S) / TICKS_PER_S

    async def drive(self) -> None:
        """Run to the end.

        Raises:
            NotConnected: There is no key; nothing was sent.
            asyncio.CancelledError: The task was cancelled. Every request has been stopped, and `record` is complete.
        """
        self.plan.check_prompts()
        for model in set(self._models):
            self.prices.of(model, NOTHING_USED)  # reads the price lists before the clock starts
        async with self._client.open():
            self.loop = self._loop = asyncio.get_running_loop()
            if self.record.ended_s is not None:  # stopped before it began
                return
            if self._ledger is not None:
                self._journal = self._ledger.begin(self.record)
            if not self.record.events:
                self._began = self._clock()
            if self._admission.gate is not None:
                self._admission.gate.began_s = self._began
            try:
                async with asyncio.TaskGroup() as self._group:
                    await self._until_over()
            finally:
                self._close()

    @property
    def paused(self) -> bool:
        """Whether no agent is let go until `resume`."""
        return self._conductor.paused

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop these agents, or the run. Call this and its kin on the loop; from elsewhere use `Controls`."""
        self._control(self._conductor.cancel, names)

    def retry(self, names: Iterable[str] | None = None) -> None:
        """Run these agents again that did not succeed, or all of them, with what was skipped because of them."""
        self._control(self._conductor.retry, names)

    def skip(self, names: Iterable[str]) -> None:
        """Leave these agents out, and what waits for them."""
        self._control(self._conductor.skip, names)

    def pause(self) -> None:
        """Let nobody go until `resume`. What is under way goes on."""
        self._control(self._conductor.pause)

    def resume(self) -> None:
        """Let agents go again."""
        self._control(self._conductor.resume)

    def _control(self, say: Callable[..., list[Action]], names: Iterable[str] | None = None) -> None:
        """Tell the conductor what somebody wants of a run that is not over."""
        agents = None if names is None else [self.plan.number(name) for name in names]
        if self.record.ended_s is None:
            now = self.now()
            self._apply(say(now) if agents is None else say(now, agents), now)

    async def _until_over(self) -> None:
        try:
            now = self.now()
            self._apply(self._conductor.start(now), now)
            await self._over.wait()
        except asyncio.CancelledError:
            self.stop()
            raise

    def _close(self) -> None:
        """Settle what no task could report any more, and end the record."""
        if self._alarm is not None:
            self._alarm.cancel()
        for agent in list(self._why_cancelled):
            self._never_ran(agent)
        if self.record.ended_s is None:
            self.record.add(RunEnded(self.now(), cut=True))
        if self._journal is not None:
            self._journal.close()
        if self._pacer is not None and self.record.terms is not None:
            self.record.terms = self.record.terms._replace(after=self._pacer.ceilings())
        self.health()  # kept as it is now: what was used of the limits fades

    def _apply(self, actions: Sequence[Action], now: float) -> None:
        """Do what the conductor said, and record it. The patterns name no fields: those would double their cost."""
        for action in actions:
            match action:
                case Ready():
                    self.record.add(AgentReady(now, action.agent))
                case Launch():
                    self._tasks[action.agent] = self._group.create_task(self._attempt(action, now))
                case Ended():
                    self.record.add(AgentEnded(now, action.agent, action.status, self._why(action)))
                case Backoff():
                    self.record.add(BackoffStarted(now, action.agent, on_grid(action.until_s), action.why))
                case Reopened():
                    self.record.add(AgentReopened(now, action.agent))
                case Cancel():
                    self._cancel(action.agent, action.why)
                case WakeAt():
                    self._set_alarm(action.at_s)
                case Finished():
                    self.record.add(RunEnded(now, cut=action.cut))
                    self._over.set()

    def _why(self, ended: Ended) -> str | None:
        if ended.cause is None:
            return ended.error
        return f"{self.record.results[ended.cause].name!r} did not succeed"

    def _set_alarm(self, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        on_time_s = math.ceil(at_s * TICKS_PER_S) / TICKS_PER_S  # `now` is on the grid: woken before, it is too early
        self._alarm = self._loop.call_later(max(0.0, on_time_s - self.now()), self._wake)

    def _wake(self) -> None:
        now = self.now()
        self._apply(self._conductor.wake(now), now)

    def _cancel(self, agent: int, why: str) -> None:
        self._why_cancelled[agent] = why
        task = self._tasks[agent]
        task.add_done_callback(lambda _: self._never_ran(agent) if self._tasks.get(agent) is task else None)
        task.cancel()

    async def _attempt(self, launch: Launch, granted_s: float) -> None:
        """Make one request, and turn whatever comes of it into a result."""
        agent, number = launch.agent, launch.number
        if self._unsent:
            number -= self._unsent.get(agent, 0)
        stream = self.streams[agent] = Stream(self, agent, number)
        answer, error = None, None
        try:
            try:
                request = self._admission.request(agent)
                self.record.add(AttemptStarted(self.now(), agent, number, granted_s, launch.held_by, request))
                if self._known is None:
                    answer = await self._client.call(request, stream)
                else:
                    answer = await self._answer(agent, number, request, stream, self._known)
            finally:
                del self.streams[agent], self._tasks[agent]
        except asyncio.CancelledError:
            self._cut(agent, number, stream)
            raise
        except Exception as failure:  # noqa: BLE001 - the one place where an agent's failure becomes a result
            error = failure
        self._settle(agent, number, stream, answer, error)

    def replied(self, stream: Stream) -> None:
        """Take in that a reply has begun."""
        if self._admission.gate is not None and self.streams.get(stream.agent) is stream:
            now = self.now()
            self._admission.heard(stream.agent, stream, now)
            if actions := self._conductor.room_changed(now):
                self._apply(actions, now)

    def opened(self, stream: Stream) -> None:
        """Take in that an answer has begun."""
        if self._admission.began(stream.agent):
            now = self.now()
            self._apply(self._conductor.room_changed(now), now)

    def first_token(self, stream: Stream) -> None:
        """Take in that the first token of an answer came."""
        self.record.add(FirstToken(self.now(), stream.agent, stream.number))

    async def _answer(self, agent: int, number: int, request: Request, stream: Stream, known: Known) -> Answer:
        """Take the answer that is there, or buy it and store it. Nothing is awaited between those two."""
        journal, asked = self._journal, None if self._journal is None else known.key(agent, request)
        kept: Answer | Busy | None = known.taken_over(agent, request)
        if kept is not None:
            return kept
        if journal is None or asked is None:
            return await self._client.call(request, stream)
        fresh = known.is_fresh(agent)
        kept = journal.ask(agent, number, *asked, fresh=fresh)
        while isinstance(kept, Busy):
            await asyncio.sleep(LOOK_S)
            kept = journal.ask(agent, number, *asked, fresh=fresh)
        if kept is not None:
            return kept
        answer = stream.answer = await self._client.call(request, stream)
        journal.keep(agent, number, answer, self.now())
        await journal.on_disk()  # a stop here finds the answer in the stream
        return answer

    def _settle(self, agent: int, number: int, stream: Stream, answer: Answer | None, error: Exception | None) -> None:
        """Record an attempt that came to an end by itself, and tell the conductor."""
        now = self.now()
        if self._why_cancelled:
            self._why_cancelled.pop(agent, None)
        if answer is not None and answer.stop_reason != "end_turn":
            error = judge(answer, self.policy)
        self._add_end(now, agent, number, stream, answer, error)
        if error is not None:
            self._apply(self._conductor.failed(agent, failure_of(error, self.policy.max_attempts), now), now)
        elif answer is not None:
            self._texts[self.plan.agents[agent].name] = answer.text
            self._apply(self._conductor.succeeded(agent, now), now)

    def _cut(self, agent: int, number: int, stream: Stream) -> None:
        """Record an attempt that was cancelled, with what had arrived of it."""
        why = self._why_cancelled.pop(agent, None)
        if stream.answer is not None:  # complete already, and only its connection was still open: paid for, so kept
            if self._journal is not None:
                self._journal.keep(agent, number, stream.answer, self.now())
            self._settle(agent, number, stream, stream.answer, None)
        elif why in {"late", "over"}:
            deadline_s = self._timeouts_s[agent] if why == "late" else self.policy.deadline_s or 0.0
            self._settle(agent, number, stream, None, Late(deadline_s, of_run=why == "over", partial=stream.text))
        else:
            now = self.now()
            self._add_end(now, agent, number, stream, None, None)
            self._apply(self._conductor.cancelled(agent, now), now)

    def _never_ran(self, agent: int) -> None:
        """Settle an agent whose task was cancelled before its first step."""
        if self._why_cancelled.pop(agent, None) is not None:
            self._unsent[agent] = self._unsent.get(agent, 0) + 1
            now = self.now()
            self._apply(self._conductor.cancelled(agent, now), now)

    def _add_end(
        self, now: float, agent: int, number: int, stream: Stream, answer: Answer | None, error: Exception | None
    ) -> None:
        """Record how an attempt ended: answered, failed, or cancelled where there is neither answer nor error."""
        if len(self.record.results[agent].attempts) < number:  # its prompt could not be written: nothing was sent
            self._unsent[agent] = self._unsent.get(agent, 0) + 1
            self._admission.settle(agent, stream, NOTHING_USED, FREE, None, now)
            return
        good = answer is not None and error is None
        usage = answer.usage if answer else usage_of(stream, error)
        price = self._price(agent, answer, usage)
        if self._admission.gate is not None:
            self._admission.settle(agent, stream, usage, price, error, now)
        self.record.add(
            AttemptEnded(  # by position: names would double its cost
                now,
                agent,
                number,
                answer,
                None if good else one_line(error) if error else "stopped",
                None if good else type(error).__name__ if error else "cancelled",
                "" if answer else stream.text,
                usage,
                price,
                answer.source if answer else source_of(stream),
                stream.status_code,
            )
        )
        if self._journal is not None and answer is None:
            self._journal.write()

    def _price(self, agent: int, answer: Answer | None, usage: Usage | None) -> Price:
        if answer is not None and self._known is not None and self._known.paid_before(agent, answer):
            return PAID_BEFORE
        return FREE if usage is NOTHING_USED else self.prices.of(self._models[agent], usage)
