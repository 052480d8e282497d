"""Answers that need not be bought again: the user's own, those of an earlier run, and those in the ledger.

A task keeps its result while its code and arguments are the same, by fingerprint or as objects.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, Any

from agent_magic.declare.signature import source_sha
from agent_magic.declare.task import Task
from agent_magic.engine.calls import Result
from agent_magic.errors import InvalidAnswer
from agent_magic.record.answer import CUT, ESCALATED, NOT_REUSED, add_usage
from agent_magic.record.request import same_of
from agent_magic.record.results import sharers_of
from agent_magic.record.task_inputs import differing, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.engine.policy import Equal
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request, Same
    from agent_magic.record.results import AgentResult, RunRecord


UNFIT = frozenset({"InvalidAnswer", "UnexpectedToolUse"})
"""Failures caused by an answer that arrived."""


class Earlier:
    """The answers of a run that may be reused, not another server's, nor refusals.

    `again` names agents to rerun, with dependencies and dependents; None: all without success.
    """

    def __init__(self, record: RunRecord, endpoint: str, *, plan: Plan, again: Iterable[str] | None = None) -> None:
        numbers = None if again is None else plan.numbers(again)
        self.again = frozenset(plan.agents[number].name for number in numbers or ())
        known = [(one, number) for number, one in enumerate(record.results) if one.name in plan.index]
        self.unfit = frozenset(
            one.name for one, n in known if _is_unfit(one, record.plan.agents[n], plan.agents[plan.index[one.name]])
        )
        self._record, self.uid = record, record.uid
        self.edits = record.edits if record.origin == endpoint else {}
        self._answers: dict[tuple[str, str], tuple[Request, Answer]] = {}  # by agent and model
        answered = set[str]()
        for row, leader in zip(record.results, sharers_of(record), strict=True) if record.origin == endpoint else ():
            # of identical rows only one asks: the others share its failure without an attempt of their own
            result = row if row.attempts or leader is None else record.results[leader]
            for one in result.attempts:  # unsure answers of a cascade, with any outcome of the dearer model
                if one.kind == ESCALATED and one.answer is not None and not one.request.goes_on:
                    self._answers[row.name, one.model] = same_request(one.request), _kept(one.answer)
            answer = result.answer
            if answer is None or answer.stop_reason in NOT_REUSED:
                continue
            if result.status == "succeeded" or answer.stop_reason in CUT:  # cut then is cut now, for nothing
                last = result.attempts[-1].request
                turns = [one.usage for one in result.attempts if one.answer is not None and one.usage is not None]
                whole = answer if len(turns) == 1 else replace(answer, usage=add_usage(turns))
                if between := last.messages[last.opening :]:  # so that a conversation that continues it has all
                    whole = replace(whole, turns=between)
                self._answers[row.name, last.model] = same_request(last), _kept(whole)
                answered.add(row.name)

        self.left_out: tuple[str, ...] = ()
        if numbers is not None:
            around = {*numbers, *plan.dag.ancestors(numbers), *plan.dag.descendants(numbers)}
            others = [one.name for number, one in enumerate(plan.agents) if number not in around]
            done = {one.name for one in record.results if one.is_task and one.status == "succeeded"}
            self.left_out = tuple(name for name in others if name not in answered and name not in done)

    def find(self, agent: str, request: Request) -> Answer | None:
        if agent in self.again or (agent, request.model) not in self._answers:
            return None
        asked, answer = self._answers[agent, request.model]
        return answer if same_request(request) == asked else None

    def done(self, record: RunRecord, step: int, takes: Mapping[str, str]) -> Result | None:
        task, then = record.plan.agents[step], self._record
        if not isinstance(task, Task) or task.name in self.again or task.name not in then.plan.index:
            return None
        number = then.plan.index[task.name]
        result = then.results[number]
        if result.status != "succeeded" or not result.has_value or not _is_same_code(task, then.plan.agents[number]):
            return None
        end = result.calls[-1].ended
        if end is None or not (task.is_recorded or self._takes_the_same(record, step, takes, read(end.takes))):
            return None
        return Result(
            "succeeded", end.result, source="ledger", value=result.returned, packed=end.value, prints=end.prints
        )

    def returned(self, plan: Plan, number: int) -> tuple[Any] | None:
        # Inputs from other steps are assumed unchanged.
        task, then = plan.agents[number], self._record.plan
        if not isinstance(task, Task) or task.name in self.again or task.name not in then.index:
            return None
        before = self._record.results[then.index[task.name]]
        asked = task.part is not None and bool(task.part.asked)
        if not asked and task.part is not None and task.part.has_item:
            return None
        same = asked or _is_same_code(task, then.agents[then.index[task.name]])
        same = same and all(plan.values.get(name) is then.values.get(name) for name in task.parameters)
        return (before.meaning,) if same and before.status == "succeeded" and before.has_value else None

    def _takes_the_same(
        self, record: RunRecord, step: int, takes: Mapping[str, str], before: Mapping[str, str]
    ) -> bool:
        then = self._record
        number = then.plan.index[record.plan.agents[step].name]
        names = record.plan.takes(step)
        if {*names} != {*then.plan.takes(number)} or differing(before, takes):
            return False
        unknown = [name for name in names if not (takes[name] and before.get(name))]
        return all(_are_same(_given(record, name, step), _given(then, name, number)) for name in unknown)


def _is_unfit(result: AgentResult, before: Step, now: Step) -> bool:
    # If its check or condition itself failed (`its check raised ...`), that needs fixing, and the answer may be
    # right.
    check = "" if before.check is None else before.check.name
    own = "InvalidAnswer: its ", *(f"InvalidAnswer: {check} {what} " for what in ("raised", "returned", "was"))
    if result.kind not in UNFIT or (result.error or "").startswith(own):
        return False
    checks = [None if one.check is None else source_sha(one.check.call) for one in (before, now)]
    return before.schema == now.schema and checks[0] == checks[1]


def _is_same_code(task: Task, before: Step) -> bool:
    if not isinstance(before, Task) or task.source_sha != before.source_sha:
        return False
    return bool(task.source_sha) or task.function is before.function


def _are_same(now: list[object], before: list[object]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _given(record: RunRecord, name: str, step: int) -> list[object]:
    plan = record.plan
    found = plan.source_of(step, name)
    if found is None:
        part = plan.agents[step].part
        return [part.values[name] if part is not None and name in part.values else plan.values[name]]
    every = [record[one] for one in ((found,) if isinstance(found, str) else found)]
    return [one.value if one.has_value else one for one in every]  # a lost value equals nothing else


def same_request(request: Request) -> Request:
    return request._replace(
        cached=False,
        timeout_s=0.0,
        ttl="5m",
        messages=request.messages[: request.opening],
        tool_choice="",
        cached_turns=False,
    )


def _kept(answer: Answer) -> Answer:
    return replace(answer, source="ledger") if answer.source in {"live", "shared"} else answer


class AnswerCache:
    """Finds stored answers; with `record`, answers that this run found invalid are bought again."""

    def __init__(
        self,
        plan: Plan,
        endpoint: str,
        ledger: Ledger | None,
        earlier: Earlier | None,
        *,
        fresh: bool,
        identical: Equal = "once",
        record: RunRecord | None = None,
    ) -> None:
        self._plan, self._endpoint, self._ledger, self._earlier = plan, endpoint, ledger, earlier
        self._fresh, self._once, self._record = fresh, identical == "once", record
        self._ordinals: dict[str, int] = {}
        self._shared: dict[Same, int] = {}
        self._passed_over: dict[str, int] = {}
        self._hedged = {one.hedges for one in plan.agents if one.hedges is not None}
        self._keys: dict[tuple[Any, ...], tuple[str, int]] = {}
        self._taken: dict[int, dict[str, Answer | None]] = {}
        self._kept_edits: Mapping[tuple[str, str], Answer] = {} if ledger is None else ledger.edits.read()
        self._edits = {**({} if earlier is None else earlier.edits), **self._kept_edits}
        self._edited = {agent for agent, _ in self._edits} - (frozenset() if earlier is None else earlier.again)

    def taken_over(self, agent: int, request: Request) -> Answer | None:
        if request.goes_on or (self._earlier is None and not self._edited):
            return None
        taken = self._taken.setdefault(agent, {})  # by the model that is asked
        if request.model not in taken:
            taken[request.model] = self._own(agent, request)
        return taken[request.model]

    def _own(self, agent: int, request: Request) -> Answer | None:
        name = self._plan.agents[agent].name
        if name in self._edited and (edit := self._edits.get((name, self.key(agent, request)[0]))) is not None:
            return edit
        return None if self._earlier is None else self._earlier.find(name, request)

    def adopt(self, agent: int, request: Request, answer: Answer) -> None:
        place = self._plan.agents[agent].name, self.key(agent, request)[0]
        if self._ledger is not None and self._kept_edits.get(place) is answer:  # not one of an earlier run in memory
            self._ledger.edits.adopt(*place, answer)

    def is_there(self, agent: int, request: Request) -> bool:
        return self.find(agent, request) is not None

    def find(self, agent: int, request: Request) -> Answer | None:
        taken = self.taken_over(agent, request)
        if taken is not None or self._ledger is None or self.buys_anew(agent, request):
            return taken
        return self._ledger.find(*self.key(agent, request))

    def is_fresh(self, agent: int) -> bool:
        if self._fresh or self._earlier is None:
            return self._fresh
        name = self._plan.agents[agent].name
        return name in self._earlier.again or name in self._earlier.unfit

    def buys_anew(self, agent: int, request: Request) -> bool:
        if self.is_fresh(agent):
            return True
        earlier = () if self._record is None or request.goes_on else self._record.results[agent].attempts
        return any(one.kind == InvalidAnswer.__name__ for one in earlier)

    def paid_before(self, agent: int, answer: Answer) -> bool:
        return answer.source == "ledger" or any(one is answer for one in self._taken.get(agent, {}).values())

    def key(self, agent: int, request: Request) -> tuple[str, int]:
        """Return the request's fingerprint, and its number among identical ones of this run."""
        place = agent, request.model, request.effort, request.tool_choice, request.messages  # varies in a run
        known = self._keys.get(place)
        if known is None:
            key = request.key(self._endpoint)
            known = self._keys[place] = key, self._ordinal_of(agent, request, key)
        return known

    def _ordinal_of(self, agent: int, request: Request, key: str) -> int:
        """Number a request among identical ones; those that share an answer have one number."""
        same = same_of(self._plan, agent, request) if self._once and not request.goes_on else None
        if same is None:
            return self._ordinal(agent, key)
        if same not in self._shared:
            self._shared[same] = self._ordinal(agent, key)
        return self._shared[same]

    def _ordinal(self, agent: int, key: str) -> int:
        # Of the two requests of a hedge the ledger has one answer, the first to come. It serves the first to
        # ask again.
        if key in self._passed_over:
            return self._passed_over.pop(key)
        ordinal = self._ordinals.get(key, 0)
        self._ordinals[key] = ordinal + 1
        if self._ledger is None or self._plan.names[agent] not in self._hedged or self.is_fresh(agent):
            return ordinal
        if self._ledger.find(key, ordinal) is not None or self._ledger.find(key, ordinal + 1) is None:
            return ordinal
        self._passed_over[key] = ordinal
        self._ordinals[key] = ordinal + 2
        return ordinal + 1
