"""The live driver: turns the conductor on the event loop. One task per request, and one owner of them all."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from datetime import UTC, datetime
from random import getrandbits
from typing import TYPE_CHECKING

from agent_magic.engine.actions import Action, Backoff, Cancel, Finished, Launch, Reopened, Skipped, WakeAt
from agent_magic.engine.asking import model_of
from agent_magic.engine.conductor import Conductor
from agent_magic.engine.expected import expected_work_s
from agent_magic.live.admission import Admission
from agent_magic.live.attempts import Attempts
from agent_magic.live.counting import Counting
from agent_magic.live.known import Known
from agent_magic.live.pulse import Pulse
from agent_magic.live.tasks import Tasks
from agent_magic.record.events import (
    TICKS_PER_S,
    AgentEnded,
    AgentReady,
    AgentReopened,
    BackoffStarted,
    RunEnded,
    on_grid,
)
from agent_magic.record.prices import Prices
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.pool import Pool
    from agent_magic.live.earlier import Earlier
    from agent_magic.providers.base import Provider, Stream
    from agent_magic.record.history import History
    from agent_magic.record.ledger.base import Ledger

LOG = logging.getLogger("agent_magic")
HELD_UP_S = 1.0
"""An alarm so late means that the event loop stood still: user code of another cell held it."""
GRACE_S = 0.25
"""Then so long goes to what had arrived meanwhile, before deadlines are looked at."""


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
        pool: The slots that all runs of a session share; `None` leaves the run its own.
        history: What earlier answers took: agents with more work before the end of the plan go first.
        clock: Monotonic seconds.

    Attributes:
        record: What has happened so far. Complete when `drive` has returned or raised.
        loop: The event loop it runs on; `None` before `drive`.
        prices: What tokens cost.
        conductor: Decides.
    """

    def __init__(  # noqa: PLR0913 - the options of `Plan.run`
        self,
        plan: Plan,
        policy: Policy,
        client: Provider,
        *,
        ledger: Ledger | None = None,
        earlier: Earlier | None = None,
        fresh: bool = False,
        prices: Prices | None = None,
        pacer: Pacer | None = None,
        pool: Pool | None = None,
        history: History | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        seed = getrandbits(32) if policy.seed is None else policy.seed  # kept: a forecast draws the same jitter
        self.plan, self.policy, self._client = plan, policy, client
        self._ledger, self._pacer, self._pool, self._clock = ledger, pacer, pool, clock
        self.prices = prices or Prices()
        knows = ledger is not None or earlier is not None
        known = Known(plan, client.endpoint, ledger, earlier, fresh=fresh) if knows else None
        models = self._models = [model_of(agent) for agent in plan.agents]
        timeouts_s = [agent.timeout_s or policy.timeout_s for agent in plan.agents]
        self.record = RunRecord(plan, began_at=datetime.now(UTC), models=models, origin=client.endpoint)
        work_s = None if history is None else expected_work_s(plan.agents, models, history)
        admission = Admission(
            plan,
            policy,
            models=models,
            timeouts_s=timeouts_s,
            prices=self.prices,
            pacer=pacer,
            known=known,
            key=client.credentials,
            work_s=work_s,
        )
        gate = self._gate = admission.gate
        self._offer: Callable[[], None] | None = None
        self.record.terms = self._terms(seed, work_s)
        self.conductor = Conductor(plan.dag, policy, timeouts_s=timeouts_s, work_s=work_s, room=gate, seed=seed)
        self._over = asyncio.Event()
        self._tasks = Tasks(self._over.set)
        self._attempts = Attempts(
            self,
            plan,
            policy,
            client,
            admission=admission,
            known=known,
            prices=self.prices,
            models=models,
            timeouts_s=timeouts_s,
            tasks=self._tasks,
        )
        if gate is not None:
            gate.count = Counting(self, client, admission, self._tasks).ask
        self._alarm: asyncio.TimerHandle | None = None
        self._pulse = Pulse(admission.gate)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._began = clock()

    def _terms(self, seed: int, work_s: Sequence[float] | None) -> Terms:
        """Say under which terms the run begins."""
        pacer, kept = self._pacer, self.policy.to_dict() | {"seed": seed}
        key = self._client.credentials
        untried = key is not None and not key.accepted
        before, learned = (pacer.ceilings(), pacer.learned(self._clock())) if pacer else ({}, {})
        expected = tuple(work_s) if work_s else None
        return Terms(kept, pacer is not None, before, {}, expected, key_untried=untried, learned=learned)

    @property
    def streams(self) -> dict[int, Stream]:
        """The answers that are arriving, by agent."""
        return self._attempts.streams

    def held_by(self, agent: int) -> str:
        """Say what holds an agent that is ready; see `agent_magic.engine.conductor`."""
        return self.conductor.held_by(agent)

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
            self.prices.find(model)  # reads the price lists before the clock starts
        async with self._client.open():
            self.loop = self._loop = asyncio.get_running_loop()
            if self.record.ended_s is not None:  # stopped before it began
                return
            if self._ledger is not None:
                self._attempts.journal = self._ledger.begin(self.record)
            if not self.record.events:
                self._began = self._clock()
            if self._gate is not None:
                self._gate.began_s = self._began
                if self._pool is not None:
                    own = 1 if self.policy.schedule == "sequential" else self.policy.concurrency
                    self._gate.seat = self._pool.join(own, self._slot_free)
                    self._offer = self._gate.seat.offer
            try:
                await self._until_over()
            finally:
                self._close()

    @property
    def paused(self) -> bool:
        """Whether no agent is let go until `resume`."""
        return self.conductor.paused

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop these agents, or the run. Call this and its kin on the loop; from elsewhere use `Controls`."""
        self._control(self.conductor.cancel, names)

    def retry(self, names: Iterable[str] | None = None) -> None:
        """Run these agents again that did not succeed, or all of them, with what was skipped because of them."""
        self._control(self.conductor.retry, names)

    def skip(self, names: Iterable[str]) -> None:
        """Leave these agents out, and what waits for them."""
        self._control(self.conductor.skip, names)

    def pause(self) -> None:
        """Let nobody go until `resume`. What is under way goes on."""
        self._control(self.conductor.pause)
        if self._gate is not None:
            self._gate.forgo()

    def resume(self) -> None:
        """Let agents go again."""
        self._control(self.conductor.resume)

    def _control(self, say: Callable[..., list[Action]], names: Iterable[str] | None = None) -> None:
        """Tell the conductor what somebody wants of a run that is not over."""
        agents = None if names is None else self.plan.numbers(names)
        if self.record.ended_s is None:
            now = self.now()
            self.apply(say(now) if agents is None else say(now, agents), now)

    def _slot_free(self) -> bool:
        """Take in that there is a slot of the session. Tell whether it was asked for; on another loop it will be."""
        if asyncio.get_running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self._slot_free)
            return False
        with self._tasks:
            if self.record.ended_s is None:
                now = self.now()
                self.apply(self.conductor.room_changed(now), now)
        return True

    async def _until_over(self) -> None:
        try:
            now = self.now()
            self.apply(self.conductor.start(now), now)
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
        """Settle what no task could report any more, and end the record."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._attempts.settle_rest()
        if self._gate is not None:
            self._gate.leave()
            self._gate.count = None
        if self.record.ended_s is None:
            self.record.add(RunEnded(self.now(), cut=True))
        if self._pacer is not None and self.record.terms is not None:
            self.record.terms = self.record.terms._replace(after=self._pacer.ceilings())
        if self._attempts.journal is not None:
            self._attempts.journal.close()
        self._pulse.keep(self.now())
        self._attempts.close()

    def apply(self, actions: Sequence[Action], now: float) -> None:
        """Do what the conductor said, and record it. What is common is told apart in the cheapest way."""
        for action in actions:
            if type(action) is Launch:
                self._tasks.begin(action.agent, self._attempts.make(action, now))
            elif type(action) is AgentReady or type(action) is AgentEnded:
                self.record.add(action)
            else:
                self._do(action, now)
        if self._offer is not None:
            self._offer()

    def _do(self, action: Action, now: float) -> None:
        """Do what is not common."""
        match action:
            case WakeAt():
                self._set_alarm(action.at_s)
            case Finished():
                self.record.add(RunEnded(now, cut=action.cut))
                self._over.set()
            case Skipped():
                cause = self.record.results[action.cause].name
                self.record.add(AgentEnded(now, action.agent, "skipped", f"{cause!r} did not succeed"))
            case Backoff():
                self.record.add(BackoffStarted(now, action.agent, on_grid(action.until_s), action.why))
            case Reopened():
                self._attempts.forget(action.agent)
                self.record.add(AgentReopened(now, action.agent))
            case Cancel():
                self._attempts.cancel(action.agent, action.why)
            case _:
                raise TypeError(action)

    def _set_alarm(self, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        on_time_s = math.ceil(at_s * TICKS_PER_S) / TICKS_PER_S  # `now` is on the grid: woken before, it is too early
        self._alarm = self._loop.call_later(max(0.0, on_time_s - self.now()), self._wake, on_time_s)

    def _wake(self, due_s: float) -> None:
        with self._tasks:
            now = self.now()
            if now - due_s < HELD_UP_S:
                self.apply(self.conductor.wake(now), now)
            else:  # the loop stood still: what arrived meanwhile is read before anybody is late
                LOG.warning("The event loop stood still for %.1f s: another cell, or code beside the run.", now - due_s)
                self._alarm = self._loop.call_later(GRACE_S, self._wake, math.inf)
