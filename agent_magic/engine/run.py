"""The life of a run, without clock, tasks or network; the package's docstring lists the states and laws."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent_magic.declare.flow import SKIPPED
from agent_magic.declare.race import NO_ANSWER
from agent_magic.engine.admission.breaker import Breakers, Fault
from agent_magic.engine.admission.budget import Budget
from agent_magic.engine.admission.gate import TOO_MANY_REQUESTS, Gate
from agent_magic.engine.calls import Call, Calls, Resources, Result, Wanted
from agent_magic.engine.candidates import candidates_of
from agent_magic.engine.conductor import Conductor
from agent_magic.engine.contract import (
    NO_STEPS,
    UNSENT,
    Abort,
    Action,
    Ask,
    Backoff,
    Begin,
    Count,
    Decision,
    Done,
    Reopened,
    Send,
    Skipped,
    Take,
    WakeAt,
)
from agent_magic.engine.expected import Pressure, kinds_of
from agent_magic.engine.identical import Identical
from agent_magic.engine.retry import Failure, failure_of, judge
from agent_magic.errors import Escalated, InvalidAnswer, Late
from agent_magic.record.answer import NOT_BILLED, NOTHING_USED, PAID_BEFORE, PAUSED, SHARED, TOOL_USE, TURNS, Usage
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AgentReopened,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
    FirstToken,
    RunEnded,
    new_tuple,
)
from agent_magic.record.facts import APPROVAL, SAVE
from agent_magic.record.prices import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.admission.breaker import Blame
    from agent_magic.engine.admission.pool import Key, Pool
    from agent_magic.engine.calls import Verdict
    from agent_magic.engine.contract import Outcome, Requests
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Policy
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer, Price, Status
    from agent_magic.record.facts import Attempt
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord

ASK_AGAIN = "This answer cannot be used. Answer the same again, whole and corrected, in the same form."
SPEAK = "Give your answer now."
CANCELLED = "cancelled"
HTTP_ERROR = 400
CUT = Result("cancelled", error="stopped; it may have finished", kind="Stopped")
"""The result of a call without an awaited end."""
LATE, OVER = "late", "over"
"""Reasons to abort a request: the step's deadline, or the run's."""


class Engine:
    """Runs one plan: decides the next actions, and records events. `done` are steps that ended before the run."""

    def __init__(  # noqa: PLR0913 - all that a run stands on
        self,
        record: RunRecord,
        policy: Policy,
        requests: Requests,
        *,
        timeouts_s: Sequence[float],
        price: Callable[[str, Usage | None], Price],
        dag: Dag | None = None,
        pacer: Pacer | None = None,
        slots: Pool | None = None,
        key: Key | None = None,
        work_s: Sequence[float] | None = None,
        seed: int | None = None,
        done: Mapping[int, Status] | None = None,
    ) -> None:
        self.record, self._policy, self._requests = record, policy, requests
        self._timeouts_s, self._slots = timeouts_s, slots
        capped = policy.budget_usd is not None or policy.budget_tokens is not None
        self.budget = Budget(policy.budget_usd, policy.budget_tokens) if capped else None
        self._counts = capped or policy.max_usd_per_min is not None
        self._pressure: Pressure | None = None
        if policy.degrade and policy.deadline_s is not None:
            self._pressure = Pressure(
                record.plan, dag or record.plan.dag, policy.deadline_s, policy.concurrency, work_s
            )
        untried = None if key is None or key.accepted else key
        limited = self._counts or not (untried is pacer is slots is requests.prefixes is self._pressure is None)
        self.admission = self._gate(requests, timeouts_s, pacer, untried) if limited else None
        resources = Resources()
        self.calls = Calls(resources)
        once = policy.identical == "once" and bool(record.plan.groups)
        self._identical = Identical(requests.identity, record) if once else None
        self._shares, self._is_sharing = deque[Take](), False
        kinds = kinds_of(record.plan)
        candidates = candidates_of(record.plan, requests, kinds)
        self.conductor = Conductor(
            dag or record.plan.dag,
            policy,
            timeouts_s=timeouts_s,
            work_s=work_s,
            kinds=kinds,
            room=self.admission,
            seed=seed,
            done=done,
            tasks=requests.tasks.keys(),
            holds=requests.holds,
            resources=resources,
            flow=requests.flow,
            left=record.left_out if done else None,
            batching=requests.batching,
            identical=self._identical,
            candidates=candidates,
            fall_back=partial(_fall_back, requests, self.admission),  # not of self: what holds itself is freed late
        )
        overdue = None if candidates is None else candidates.overdue
        learning = (self._pressure, self.conductor, overdue)
        learners = [one.learn for one in learning if one is not None and one.learn is not None]
        self._settlement = Settlement(record, requests, self.admission, price, learners)
        self.batched: AbstractSet[int] = NO_STEPS if requests.batching is None else requests.batching.now
        self.aborting: dict[int, str] = {}
        self._recorded = dict(done or {})
        self._tasks, self._asked_of, self._saved = requests.tasks, requests.asked_of, requests.saved
        self._ending: dict[int, Result] = {}  # why an agent cannot go on after its calls
        self._saving: set[int] = set()  # steps with an answer being written to its file
        self._to_agree: dict[int, Answer] = {}  # answers that a person is to agree to
        self._turns: dict[int, list[str]] = {}  # the texts of the turns of an answer that goes on
        self._checked = dict(requests.checked)
        self._asked_again: set[int] = set()  # steps with an answer that did not fit

    def _gate(self, requests: Requests, timeouts_s: Sequence[float], pacer: Pacer | None, key: Key | None) -> Gate:
        return Gate(
            requests.limit_classes,
            requests.need,
            pacer=pacer,
            budget=self.budget,
            prefixes=requests.prefixes,
            breakers=Breakers(self._policy.breaker_share, self._policy.max_usd_per_min),
            key=key,
            patience_s=timeouts_s,
            count=requests.count if self._counts else None,
            close=requests.close,
            batched=NO_STEPS if requests.batching is None else requests.batching.now,
            apart=requests.falls_back,
            ease=requests.ease if self._policy.degrade else None,
            pressure=self._pressure,
        )

    # called by the driver

    def start(self, now: float, *, began_s: float = 0.0, wake: Callable[[], bool] | None = None) -> list[Action]:
        """Start the run at `began_s` on the session's clock; for `wake` see `Pool.join`."""
        if self._identical is not None and self._recorded:
            self._identical.recorded(self._recorded)
        if self.admission is not None:
            most = 1 if self._policy.schedule == "sequential" else self._policy.concurrency
            seat = None if self._slots is None or wake is None else self._slots.join(most, wake)
            self.admission.begin(began_s, seat)
        return self._take(self.conductor.start(now), now)

    def settle_recorded(self, now: float) -> list[Action]:
        """Skip descendants of recorded failures before the run starts."""
        return self._take(self.conductor.settle_done(now), now)

    def leave_out(self, step: int, why: str) -> None:
        self.conductor.count_done(step)
        self.record.add(AgentEnded(0.0, step, "skipped", why, SKIPPED))

    def write(self, step: int) -> Request:
        return self._requests.write(step)

    def waits_elsewhere(self, step: int, now: float) -> None:
        """Record that an admitted step waits for another run that is buying the same answer."""
        self._settlement.granted[step] = now, "ledger"

    def send(self, step: int, now: float, request: Request | None = None) -> Request:
        request, gate = request or self._requests.write(step), self.admission
        granted_s, held_by = self._settlement.granted.pop(step)
        number = len(self.record.results[step].attempts) + 1
        endpoint = "" if gate is None else gate.endpoint(step)
        self.record.add(new_tuple(AttemptStarted, (now, step, number, granted_s, held_by, request, endpoint)))
        return request

    def endpoint(self, step: int) -> str:
        return "" if self.admission is None else self.admission.endpoint(step)

    def replied(self, step: int, status: int, readings: Readings | None, now: float) -> list[Action]:
        if self.admission is None or status == TOO_MANY_REQUESTS:
            return []  # a refusal's readings come again when its request ends
        self.admission.replied(step, status, readings, now)
        if status >= HTTP_ERROR:
            return []  # until its end is recorded, no error starts a step
        return self._take(self.conductor.room_changed(now), now)

    def began(self, step: int, now: float) -> list[Action]:
        """Record the start of the answer: now its prompt cache entry can be read."""
        if self.admission is None or self._requests.prefixes is None:
            return []
        self.admission.began(step)
        return self._take(self.conductor.room_changed(now), now)

    def first_token(self, step: int, now: float) -> None:
        self.record.add(FirstToken(now, step, self.record.results[step].attempts[-1].number))

    def ended(self, step: int, outcome: Outcome, now: float) -> list[Action]:
        why = self.aborting.pop(step, None) if self.aborting else None
        answer, failure = outcome.answer, outcome.failure
        if failure is not None:
            self._settlement.settle(step, outcome, failure, now)
            return self._take(self.conductor.failed(step, failure, now), now)
        if answer is None:
            return self._aborted(step, outcome, why, now)
        if why is not None and answer.stop_reason == TOOL_USE:  # its request is dropped
            self._settlement.settle(step, outcome, None, now)
            self.aborting[step] = why
            return self._call_aborted(step, now)
        if answer.stop_reason != "end_turn" or step in self._checked or step in self._turns:
            return self._judged(step, outcome, answer, now)
        self._settlement.settle(step, outcome, None, now)
        return self._succeeded(step, answer, now) if not self._asked_of else self._passed_on(step, answer, now)

    def call_ended(self, call: Call, result: Result, now: float) -> list[Action]:
        self.calls.ended(call)
        self._call_over(call, result, now)
        actions = self._after_call(call.step, result, now)
        return [*actions, *self._begin_calls(now), *self.room_changed(now)]  # its resources are free

    def decided(self, call: Call, verdict: Verdict, now: float) -> list[Action]:
        """Record a person's decision about a question of `Ask`; those on closed questions are ignored."""
        step = call.step
        if step in self._to_agree and not call.wanted.tool:
            return self._agreed(step, verdict, now)
        wanted = call.wanted if verdict.text is None else call.wanted._replace(arguments=verdict.text)
        if verdict.approved:
            return self._begin_calls(now) if self.calls.agree(call, wanted) is not None else []
        if not self.calls.take_out(call):
            return []
        why = verdict.why or "a person denied it"
        result = Result("denied", f"This call was not made: {why}.", f"Denied: {why}", "Denied")
        self._started(call, "person", now)
        self._call_over(call, result, now)
        return [*self._after_call(step, result, now), *self._begin_calls(now)]

    def counted(self, step: int, tokens: int | None, now: float) -> list[Action]:
        self._requests.counted(step, tokens)
        return self._take(self.conductor.room_changed(now), now) if self.record.ended_s is None else []

    def wake(self, now: float) -> list[Action]:
        return self._take(self.conductor.wake(now), now)

    def room_changed(self, now: float) -> list[Action]:
        return self._take(self.conductor.room_changed(now), now) if self.record.ended_s is None else []

    def close(self, now: float) -> None:
        for step in list(self.aborting):
            for call in self.calls.running(step):
                self.call_ended(call, CUT, now)
            if step in self.aborting:
                self.ended(step, UNSENT, now)
        if self.admission is not None:
            self.admission.leave()
        if self.record.ended_s is None:
            self._end(now, cut=True)

    def _end(self, now: float, *, cut: bool) -> None:
        if self.budget is not None:
            self.record.committed_usd = self.budget.spent_usd
        self.record.add(RunEnded(now, cut=cut))

    # called by the user

    def stop(self, now: float, steps: Iterable[int] | None = None) -> list[Action]:
        return self._take(self.conductor.cancel(now, steps), now) if self.record.ended_s is None else []

    def skip(self, now: float, steps: Iterable[int], why: str = "") -> list[Action]:
        return self._take(self.conductor.skip(now, steps, why), now) if self.record.ended_s is None else []

    def retry(self, now: float, steps: Iterable[int] | None = None) -> list[Action]:
        """Run failed steps again, these or all, with the steps skipped because of them."""
        return self._take(self.conductor.retry(now, steps), now) if self.record.ended_s is None else []

    def pause(self, now: float) -> list[Action]:
        if self.record.ended_s is not None:
            return []
        actions = self._take(self.conductor.pause(now), now)
        if self.admission is not None:
            self.admission.forgo()
        return actions

    def resume(self, now: float) -> list[Action]:
        return self._take(self.conductor.resume(now), now) if self.record.ended_s is None else []

    def held_by(self, step: int) -> str:
        if step in self._to_agree:
            return "person"
        granted = self._settlement.granted.get(step)
        if granted is not None and granted[1] == "ledger":
            return "ledger"
        return self.calls.held_by(step) or self.conductor.held_by(step)

    # what follows from it

    def _take(self, decisions: Sequence[Decision], now: float) -> list[Action]:
        record = self.record
        out: list[Action] = []
        for one in decisions:
            if type(one) is Send:  # common cases are told apart in the cheapest way
                if one.step in self._tasks:
                    first = len(self.record.results[one.step].calls) + 1
                    self.calls.want(one.step, 0, first, [self._tasks[one.step]], one.held_by)
                    out.extend(self._begin_calls(now))
                    continue
                self._settlement.granted[one.step] = now, one.held_by
                out.append(one)
            elif type(one) is AgentReady or type(one) is AgentEnded:
                record.add(one)
                if self._turns:  # a step that runs again begins a new conversation
                    self._forget_turns(one.agent)
            else:
                self._do(one, now, out)
        if self._shares and not self._is_sharing:
            self._is_sharing = True
            while self._shares:
                out.extend(self._share(self._shares.popleft(), now))
            self._is_sharing = False
        if self._counts:
            out.extend(Count(step, request) for step, request in self._requests.to_count())
        return out

    def _share(self, take: Take, now: float) -> list[Action]:
        """Share an answer with a waiting step."""
        step, leader, result = take.step, self.record.results[take.leader], self.record.results[take.step]
        found = leader.answer
        if found is None or result.finished_s is not None:  # it was stopped meanwhile
            return []
        answer = replace(found, source="shared", usage=NOTHING_USED, content=None, batch="")
        number, request = len(result.attempts) + 1, self._requests.write(step)
        self.record.add(new_tuple(AttemptStarted, (now, step, number, now, take.held_by, request, "")))
        ended = (now, step, number, answer, None, None, "", NOTHING_USED, SHARED, "shared", None, "")
        self.record.add(new_tuple(AttemptEnded, ended))
        if leader.status == "capped" and step not in self._asked_of:
            self._requests.answered(step, answer.text)
            return self._take(self.conductor.capped(step, leader.error or "", now), now)
        return self._passed_on(step, answer, now)

    def offer(self) -> None:
        if self._slots is not None and self.admission is not None:
            self.admission.offer()

    def _do(self, decision: Decision, now: float, out: list[Action]) -> None:
        match decision:
            case WakeAt():
                out.append(decision)
            case Abort(step, why):
                self.aborting[step] = why
                self.calls.drop(step)
                out.append(decision)
                if not self.calls.has(step) and not self._settlement.is_sent(step):
                    out.extend(self._call_aborted(step, now))  # it waits for a person, or what others hold
            case Done(cut):
                self._end(now, cut=cut)
                out.append(decision)
            case Skipped(step, cause):
                self.record.add(skipped(self.record, step, cause, now))
            case Take():
                self._shares.append(decision)
            case Backoff(step, until_s, why):
                self.record.add(BackoffStarted(now, step, until_s, why))
            case Reopened(step):
                self.record.add(AgentReopened(now, step))
            case _:
                raise TypeError(decision)

    def _judged(self, step: int, outcome: Outcome, answer: Answer, now: float) -> list[Action]:
        turns, result = self._turns.get(step, ()), self.record.results[step]
        is_last = bool(result.attempts[-1].request.tool_choice)
        if not is_last and (wanted := self._requests.calls(step, answer)):
            self._settlement.settle(step, outcome, None, now)
            self._keep_turn(step, answer)
            self.calls.want(step, result.attempts[-1].number, len(result.calls) + 1, wanted)
            asked = [Ask(call) for call in self.calls.questions((step,))]
            return [*asked, *self._begin_calls(now), *self._take(self.conductor.step_out(step, now), now)]
        verdict = judge(answer, len(turns) + 1, self._policy, self._requests.max_turns(step), is_last=is_last)
        passed_on = verdict.failure is None and not verdict.continues
        if passed_on and step in self._checked:
            whole = replace(answer, text=self._text_so_far(step, answer))
            if (fault := self._requests.fault(step, whole)) is not None:
                return self._ask_again(step, outcome, fault, now)
        self._settlement.settle(step, outcome, verdict.failure, now)
        if verdict.failure is not None:
            return self._take(self.conductor.failed(step, verdict.failure, now), now)
        if verdict.continues:
            self._keep_turn(step, answer)
            self._requests.continue_turn(step, answer)
            return self._take(self.conductor.continue_turn(step, now), now)
        if verdict.capped and step not in self._asked_of:
            self._requests.answered(step, self._whole_text(step, answer))
            return self._take(self.conductor.capped(step, verdict.capped, now), now)
        may_speak = bool(result.calls) and step not in self._asked_again
        if may_speak and len(turns) + 1 < self._requests.max_turns(step) and self._requests.is_silent(answer):
            self._asked_again.add(step)
            self._turns[step] = [*turns, ""]
            self._requests.continue_turn(step, answer, SPEAK)
            return self._take(self.conductor.continue_turn(step, now), now)
        return self._passed_on(step, answer, now)

    def _keep_turn(self, step: int, answer: Answer) -> None:
        before = self._turns.get(step, ())
        if step not in self._checked:
            self._requests.answered(step, "".join([*before, answer.text]))
        said = answer.text if answer.stop_reason == PAUSED else ""  # text beside a call is no part of it
        self._turns[step] = [*before, said]

    def _ask_again(self, step: int, outcome: Outcome, fault: CallError, now: float) -> list[Action]:
        """Record an invalid answer, and ask once more with the error."""
        failure = failure_of(fault, 1)
        self._settlement.settle(step, outcome, failure, now)
        if isinstance(fault, Escalated):
            self._forget_turns(step)
            self._requests.escalate(step)
            _moved(self.admission, step)
            return self._take(self.conductor.ask_another(step, now), now)
        turns = self._turns[step] = [""] * (len(self._turns.get(step, ())) + 1)
        mendable = isinstance(fault, InvalidAnswer) and fault.mendable
        mendable = mendable and outcome.answer is not None and outcome.answer.stop_reason not in TURNS
        again = fault.again if isinstance(fault, InvalidAnswer) else ""
        last = (step in self._asked_again and not again) or len(turns) >= self._requests.max_turns(step)
        if not mendable or last:
            return self._take(self.conductor.failed(step, failure, now), now)
        self._asked_again.add(step)
        said = again or f"{ASK_AGAIN} What is wrong: {fault}"
        self._requests.continue_turn(step, outcome.answer, said)
        return self._take(self.conductor.continue_turn(step, now), now)

    # calls of functions, and what people say of them

    def _begin_calls(self, now: float) -> list[Action]:
        out: list[Action] = []
        while (found := self.calls.next()) is not None:
            self._started(*found, now)
            out.append(Begin(found[0]))
        return out

    def _started(self, call: Call, held_by: str, now: float) -> None:
        one = call.wanted
        began = now, call.step, call.number, call.turn, one.id, one.tool, one.arguments, held_by, one.code
        self.record.add(new_tuple(CallStarted, began))

    def _call_over(self, call: Call, result: Result, now: float) -> None:
        ended = (*result[:5], result.packed, result.prints, result.trace, result.blocks, result.takes, *result[-3:])
        self.record.add(new_tuple(CallEnded, (now, call.step, call.number, *ended)))
        if call.step in self._tasks and result.status == "succeeded":
            self.record.results[call.step].keep(result.value)
        if call.step not in self._saving:
            self._requests.called(call, result)

    def _after_call(self, step: int, result: Result, now: float) -> list[Action]:
        if result.ends:
            self._ending[step] = result
        if self.calls.has(step):
            return []
        ended = self._ending.pop(step, None)
        saved = step in self._saving
        self._saving.discard(step)
        if step in self.aborting:
            return self._call_aborted(step, now)
        if ended is not None:
            failure = Failure(ended.error or "", kind=ended.kind or "")
            return self._take(self.conductor.failed(step, failure, now), now)
        if step not in self._tasks and not saved:
            return self._take(self.conductor.continue_turn(step, now), now)
        if result.status == "succeeded":
            return self._take(self.conductor.succeeded(step, now), now)
        failure = Failure(result.error or result.status, result.attempts, kind=result.kind or "")
        return self._take(self.conductor.failed(step, failure, now), now)

    def _call_aborted(self, step: int, now: float) -> list[Action]:
        why = self.aborting.pop(step)
        self._to_agree.pop(step, None)
        if why in {LATE, OVER}:
            return self._take(self.conductor.failed(step, self._late(step, why), now), now)
        return self._take(self.conductor.cancelled(step, now), now)

    def _passed_on(self, step: int, answer: Answer, now: float) -> list[Action]:
        if step not in self._asked_of:
            return self._succeeded(step, answer, now)
        result = self.record.results[step]
        answer = self._to_agree[step] = replace(answer, text=self._whole_text(step, answer))
        shown = Wanted("", "", answer.text)
        asked = Ask(Call(step, 0, result.attempts[-1].number, shown))
        return [asked, *self._take(self.conductor.step_out(step, now), now)]

    def _agreed(self, step: int, verdict: Verdict, now: float) -> list[Action]:
        answer = self._to_agree.pop(step)
        turn = self.record.results[step].attempts[-1].number
        number = len(self.record.results[step].calls) + 1
        self.record.add(CallStarted(now, step, number, turn, "", APPROVAL, "", "person"))
        status = "succeeded" if verdict.approved else "denied"
        why = None if verdict.approved else f"Denied: {verdict.why or 'a person denied it'}"
        kind = None if verdict.approved else "Denied"
        self.record.add(CallEnded(now, step, number, status, verdict.text or "", why, kind, "live"))
        if not verdict.approved:
            return self._take(self.conductor.failed(step, Failure(why or "", kind="Denied"), now), now)
        return self._succeeded(step, answer if verdict.text is None else replace(answer, text=verdict.text), now)

    def _succeeded(self, step: int, answer: Answer, now: float) -> list[Action]:
        self._requests.answered(step, self._whole_text(step, answer) if self._turns else answer.text)
        if step not in self._saved:
            return self._take(self.conductor.succeeded(step, now), now)
        self._saving.add(step)
        calls, turn = self.record.results[step].calls, self.record.results[step].attempts[-1].number
        self.calls.want(step, turn, len(calls) + 1, [Wanted("", SAVE, "")])
        return [*self._begin_calls(now), *self._take(self.conductor.step_out(step, now), now)]

    def _text_so_far(self, step: int, answer: Answer) -> str:
        before = () if self._checked.get(step) else self._turns.get(step, ())
        return "".join([*before, answer.text])

    def _whole_text(self, step: int, answer: Answer) -> str:
        text = self._text_so_far(step, answer)
        self._forget_turns(step)
        return text

    def _forget_turns(self, step: int) -> None:
        self._asked_again.discard(step)
        if self._turns.pop(step, None) is not None:
            self._requests.continue_turn(step, None)

    def _aborted(self, step: int, outcome: Outcome, why: str | None, now: float) -> list[Action]:
        if self._settlement.is_sent(step) and why in {LATE, OVER}:
            failure = self._late(step, why)
            self._settlement.settle(step, outcome, failure, now)
            return self._take(self.conductor.failed(step, failure, now), now)
        self._settlement.settle(step, outcome, None, now)
        return self._take(self.conductor.cancelled(step, now), now)

    def _late(self, step: int, why: str | None) -> Failure:
        deadline_s = self._timeouts_s[step] if why == LATE else self._policy.deadline_s or 0.0
        return failure_of(Late(deadline_s, of_run=why == OVER, of_task=step in self._requests.tasks), 1)


def _fall_back(requests: Requests, admission: Gate | None, step: int) -> bool:
    if not requests.fall_back(step):
        return False
    if not requests.shares(step):
        _moved(admission, step)
    return True


def _moved(admission: Gate | None, step: int) -> None:
    if admission is not None:
        admission.moved(step)


FREE = frozenset({PAID_BEFORE, NOT_BILLED})
"""Price sources that cost nothing now."""


class Settlement:
    """Settles the requests of one run; `learners` are called with the seconds that an answer took."""

    def __init__(
        self,
        record: RunRecord,
        requests: Requests,
        gate: Gate | None,
        price: Callable[[str, Usage | None], Price],
        learners: Sequence[Callable[[int, float], None]] = (),
    ) -> None:
        self._learners = learners
        self._record, self._requests, self._gate, self._price = record, requests, gate, price
        self.granted: dict[int, tuple[float, str]] = {}

    def is_sent(self, step: int) -> bool:
        return step in self.granted or self.under_way(step) is not None

    def under_way(self, step: int) -> Attempt | None:
        attempts = self._record.results[step].attempts
        return attempts[-1] if attempts and attempts[-1].ended is None else None

    def settle(self, step: int, outcome: Outcome, failure: Failure | None, now: float) -> None:
        answer, usage = outcome.answer, outcome.usage
        attempts = self._record.results[step].attempts
        attempt = attempts[-1] if attempts else None
        if attempt is None or attempt.ended is not None:  # nothing was sent
            self.granted.pop(step, None)
            if self._gate is not None:
                self._gate.turned_back(step)
                self._give_back(step, NOTHING_USED, NOT_BILLED, None, now)
            return
        model = attempt.begun.request.model
        price = outcome.price or (NOT_BILLED if usage is NOTHING_USED else self._priced(step, model, usage))
        if self._gate is not None:
            if failure is not None and failure.kind == "RateLimited":
                self._gate.refused(step, failure.retry_after_s, failure.limit, outcome.readings, now)
            by = "" if answer is None else answer.model
            self._give_back(step, usage, price, _blame(outcome, failure), now, model=by)
            self._gate.ended(step, outcome.status, answered=failure is not None)  # lets other runs go, so it comes last
        why, kind = (None, None) if answer is not None else ("stopped", CANCELLED)
        if failure is not None:
            why, kind = failure.why, failure.kind
        ended = (
            now,
            step,
            attempt.begun.number,
            answer,
            why,
            kind,
            outcome.partial,
            usage,
            price,
            outcome.source,
            outcome.status,
            outcome.worker,
        )
        self._record.add(new_tuple(AttemptEnded, ended))
        if self._learners and failure is None and answer is not None:
            bought_before = outcome.source == "ledger" or price == PAID_BEFORE
            if not (bought_before or answer.batch):
                for learn in self._learners:
                    learn(step, now - attempt.begun.at_s)

    def _priced(self, step: int, model: str, usage: Usage | None) -> Price:
        price, batching = self._price(model, usage), self._requests.batching
        return of_batch(price, usage) if batching is not None and step in batching.now else price

    def _give_back(
        self, step: int, usage: Usage | None, price: Price, bad: Blame, now: float, *, model: str = ""
    ) -> None:
        """Replace the reserve by the use; without a final count the reserve stays."""
        known, is_final = usage or Usage(), price in FREE or (usage is not None and usage.is_final)
        self._requests.used(step, known, model)
        if self._gate is not None:
            self._gate.settle(step, known, price.cost_usd if is_final else None, bad, now, is_final=is_final)


def _blame(outcome: Outcome, failure: Failure | None) -> Blame:
    if failure is not None and failure.fault:
        return Fault(failure.why, reached=failure.reached)
    return None if outcome.status is None else False  # what refuses a request with a reason is alive


def skipped(record: RunRecord, step: int, cause: int, now: float) -> AgentEnded:
    """Return the end of a step skipped because of others: any failed parent, or all parents of a race."""
    if not record.plan.agents[step].race:
        return AgentEnded(now, step, "skipped", f"{record.results[cause].name!r} did not succeed", SKIPPED)
    others = [one for parent in record.plan.dag.parents[step] if (one := record.results[parent]).status != "unused"]
    if len(others) == 1:  # of a hedge that was not used
        return AgentEnded(now, step, others[0].status, others[0].error, others[0].kind)
    told = "; ".join(f"{one.name}: {one.error or one.status}" for one in others)
    return AgentEnded(now, step, "failed", f"nobody answered. {told}", NO_ANSWER)
