"""The requests of one run: each is made as a task, and settled with the conductor whatever comes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from agent_magic.engine.retry import failure_of
from agent_magic.errors import Capped, Late
from agent_magic.live.judging import judge, turns_out
from agent_magic.live.leftover import one_line, source_of, usage_of
from agent_magic.providers.base import Stream
from agent_magic.record.answer import NOTHING_USED, PAID_BEFORE, PAUSED, Price
from agent_magic.record.events import AttemptEnded, AttemptStarted, FirstToken
from agent_magic.record.ledger.base import Busy
from agent_magic.record.made import made

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.actions import Action, Launch
    from agent_magic.engine.conductor import Conductor
    from agent_magic.engine.policy import Policy
    from agent_magic.live.admission import Admission
    from agent_magic.live.known import Known
    from agent_magic.live.tasks import Tasks
    from agent_magic.providers.base import Provider
    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.ledger.base import Journal
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord

LOOK_S = 0.1
"""How often to look whether somebody else has bought an answer."""
FREE = Price(0.0, "not billed")


class Turning(Protocol):
    """Whoever turns the conductor."""

    record: RunRecord
    conductor: Conductor

    def now(self) -> float:
        """Seconds since the run began."""
        ...

    def apply(self, actions: Sequence[Action], now: float) -> None:
        """Do what the conductor said."""
        ...


class Attempts:
    """Makes the requests of one run, and settles them.

    Args:
        run: Who is told what came of them.
        plan: What runs.
        policy: How.
        client: Who answers.
        admission: Writes the requests, and knows what each may use.
        known: Answers that are there already; `None` has none.
        prices: What tokens cost.
        models: The model of each agent.
        timeouts_s: The seconds each agent has.
        tasks: Owns what is under way.

    Attributes:
        streams: The answers that are arriving, by agent.
        journal: Keeps what is bought; `None` keeps nothing.
    """

    def __init__(  # noqa: PLR0913 - what `Driver` was given
        self,
        run: Turning,
        plan: Plan,
        policy: Policy,
        client: Provider,
        *,
        admission: Admission,
        known: Known | None,
        prices: Prices,
        models: Sequence[str],
        timeouts_s: Sequence[float],
        tasks: Tasks,
    ) -> None:
        self._run, self._plan, self._policy, self._client = run, plan, policy, client
        self._admission, self._known, self._prices = admission, known, prices
        self._models, self._timeouts_s = models, timeouts_s
        self.streams: dict[int, Stream] = {}
        self.journal: Journal | None = None
        self._tasks = tasks
        self._why_cancelled: dict[int, str] = {}
        self._unsent: dict[int, int] = {}  # launches of which no request came, by agent
        self._turns: dict[int, list[str]] = {}  # the texts of the turns of an answer that was paused, by agent

    def cancel(self, agent: int, why: str) -> None:
        """Stop the request of an agent."""
        self._why_cancelled[agent] = why
        self._tasks.cancel(agent, self._never_ran)

    def settle_rest(self) -> None:
        """Settle what no task could report any more."""
        for agent in list(self._why_cancelled):
            self._never_ran(agent)

    def close(self) -> None:
        """Let go of the run, when it is over: it and all its answers would stay until the garbage collector comes."""
        del self._run
        self._admission.gate = None

    async def make(self, launch: Launch, granted_s: float) -> None:
        """Make one request, and turn whatever comes of it into a result."""
        agent, number = launch.agent, launch.number
        if self._unsent:
            number -= self._unsent.get(agent, 0)
        answer, error = None, None
        try:
            stream = self.streams[agent] = Stream(self, agent, number)
            try:
                try:
                    request = self._admission.request(agent)
                    begun = self._run.now(), agent, number, granted_s, launch.held_by, request
                    self._run.record.add(made(AttemptStarted, begun))
                    if self._known is None:
                        answer = await self._client.send(request, stream)
                    else:
                        answer = await self._answer(agent, number, request, stream, self._known)
                finally:
                    del self.streams[agent]
                    self._tasks.left(agent)
            except asyncio.CancelledError:
                self._cut(agent, number, stream)
                raise
            except Exception as failure:  # noqa: BLE001 - the one place where an agent's failure becomes a result
                error = failure
            self._settle(agent, number, stream, answer, error)
        except BaseException as bug:  # in place of `with`, which costs three times as much
            if not self._tasks.broke(bug):
                raise

    def replied(self, stream: Stream) -> None:
        """Take in that a reply has begun."""
        if self._admission.gate is not None and self.streams.get(stream.agent) is stream:
            now = self._run.now()
            self._admission.heard(stream.agent, stream, now)
            if actions := self._run.conductor.room_changed(now):
                self._run.apply(actions, now)

    def opened(self, stream: Stream) -> None:
        """Take in that an answer has begun."""
        if self._admission.began(stream.agent):
            now = self._run.now()
            self._run.apply(self._run.conductor.room_changed(now), now)

    def first_token(self, stream: Stream) -> None:
        """Take in that the first token of an answer came."""
        self._run.record.add(FirstToken(self._run.now(), stream.agent, stream.number))

    async def _answer(self, agent: int, number: int, request: Request, stream: Stream, known: Known) -> Answer:
        """Take the answer that is there, or buy it and store it. Nothing is awaited between those two."""
        journal, asked = self.journal, None if self.journal is None else known.key(agent, request)
        kept: Answer | Busy | None = known.taken_over(agent, request)
        if kept is not None:
            return kept
        if journal is None or asked is None:
            return await self._client.send(request, stream)
        fresh = known.is_fresh(agent)
        kept = journal.ask(agent, number, *asked, fresh=fresh)
        while isinstance(kept, Busy):
            await asyncio.sleep(LOOK_S)
            kept = journal.ask(agent, number, *asked, fresh=fresh)
        if kept is not None:
            return kept
        answer = stream.answer = await self._client.send(request, stream)
        journal.keep(agent, number, answer, self._run.now())
        await journal.on_disk(agent, number)  # a stop here finds the answer in the stream
        return answer

    def _settle(self, agent: int, number: int, stream: Stream, answer: Answer | None, error: Exception | None) -> None:
        """Record an attempt that came to an end by itself, and tell the conductor."""
        now = self._run.now()
        if self._why_cancelled:
            self._why_cancelled.pop(agent, None)
        if answer is not None and answer.stop_reason != "end_turn":
            if answer.stop_reason == PAUSED:
                self._pause(now, agent, number, stream, answer)
                return
            error = judge(answer, self._policy)
        self._add_end(now, agent, number, stream, answer, error)
        if error is not None:
            self._run.apply(self._run.conductor.failed(agent, failure_of(error, self._policy.max_attempts), now), now)
        elif answer is not None:
            self._take(agent, answer)
            self._run.apply(self._run.conductor.succeeded(agent, now), now)

    def _pause(self, now: float, agent: int, number: int, stream: Stream, answer: Answer) -> None:
        """Let an answer that was paused go on, or end with what there is of it."""
        turns = self._turns.setdefault(agent, [])
        why = turns_out(answer, len(turns) + 1, self._policy)
        if not why:
            self._add_end(now, agent, number, stream, answer, None)
            turns.append(answer.text)
            self._admission.goes_on(agent, answer.content)
            self._run.apply(self._run.conductor.goes_on(agent, now), now)
            return
        error = Capped(why) if self._policy.on_max_tokens == "fail" else None
        self._add_end(now, agent, number, stream, answer, error)
        if error is not None:
            self._run.apply(self._run.conductor.failed(agent, failure_of(error, self._policy.max_attempts), now), now)
        else:
            self._take(agent, answer)
            self._run.apply(self._run.conductor.capped(agent, f"Capped: {why}", now), now)

    def _take(self, agent: int, answer: Answer) -> None:
        """Keep the text of an answer, all turns of it, for those whose prompts take it."""
        text = answer.text
        if self._turns:
            text = "".join([*self._turns.get(agent, ()), text])
            self.forget(agent)
        self._admission.texts[self._plan.agents[agent].name] = text

    def forget(self, agent: int) -> None:
        """Take in that an agent begins anew."""
        self._turns.pop(agent, None)
        self._admission.goes_on(agent, None)

    def _cut(self, agent: int, number: int, stream: Stream) -> None:
        """Record an attempt that was cancelled, with what had arrived of it."""
        why = self._why_cancelled.pop(agent, None)
        if stream.answer is not None:  # complete already, and only its connection was still open: paid for, so kept
            if self.journal is not None:
                self.journal.keep(agent, number, stream.answer, self._run.now())
            self._settle(agent, number, stream, stream.answer, None)
        elif why in {"late", "over"}:
            deadline_s = self._timeouts_s[agent] if why == "late" else self._policy.deadline_s or 0.0
            self._settle(agent, number, stream, None, Late(deadline_s, of_run=why == "over", partial=stream.text))
        else:
            now = self._run.now()
            self._add_end(now, agent, number, stream, None, None)
            self._run.apply(self._run.conductor.cancelled(agent, now), now)

    def _never_ran(self, agent: int) -> None:
        """Settle an agent whose task was cancelled before its first step."""
        if self._why_cancelled.pop(agent, None) is not None:
            self._unsent[agent] = self._unsent.get(agent, 0) + 1
            now = self._run.now()
            self._admission.settle(agent, Stream(self, agent, 0), NOTHING_USED, FREE, None, now)
            self._run.apply(self._run.conductor.cancelled(agent, now), now)

    def _add_end(
        self, now: float, agent: int, number: int, stream: Stream, answer: Answer | None, error: Exception | None
    ) -> None:
        """Record how an attempt ended: answered, failed, or cancelled where there is neither answer nor error."""
        if answer is None and len(self._run.record.results[agent].attempts) < number:  # no prompt, so nothing was sent
            self._unsent[agent] = self._unsent.get(agent, 0) + 1
            self._admission.settle(agent, stream, NOTHING_USED, FREE, None, now)
            return
        usage = usage_of(stream, error) if answer is None else answer.usage
        price = self._price(agent, answer, usage)
        if self._admission.gate is not None:
            self._admission.settle(agent, stream, usage, price, error, now)
        why = one_line(error) if error is not None else "stopped" if answer is None else None
        kind = type(error).__name__ if error is not None else "cancelled" if answer is None else None
        partial, source = (stream.text, source_of(stream)) if answer is None else ("", answer.source)
        ended = now, agent, number, answer, why, kind, partial, usage, price, source, stream.status_code
        self._run.record.add(made(AttemptEnded, ended))
        if self.journal is not None and answer is None:
            self.journal.write()

    def _price(self, agent: int, answer: Answer | None, usage: Usage | None) -> Price:
        if answer is not None and self._known is not None and self._known.paid_before(agent, answer):
            return PAID_BEFORE
        return FREE if usage is NOTHING_USED else self._prices.of(self._models[agent], usage)
