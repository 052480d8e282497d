"""A run's record: its events, and the results and attempts that follow from them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from agent_magic.declare.answers.schema import of_item, schema_of
from agent_magic.declare.each import ROUNDS, for_all
from agent_magic.declare.flow import CONDITION, Left
from agent_magic.declare.race import BEATEN, NO_ANSWER
from agent_magic.declare.subplan import last_in
from agent_magic.declare.units import seconds
from agent_magic.declare.values import same_name, unpack
from agent_magic.errors import AgentMagicError, NoValue, UnknownAgent
from agent_magic.record.answer import ESCALATED, PAUSED, WITH_ANSWER, Usage, add_usage, total_usd
from agent_magic.record.display import Shown, single_line
from agent_magic.record.facts import Attempt, Facts, ToolCall, own_text, stretches
from agent_magic.record.fold import FOLD
from agent_magic.record.request import answered, conversation_frame, exported, rows_of, same_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    import pandas as pd

    from agent_magic.declare.answers.returns import Returns
    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.record.answer import Answer, Citation, Source, Status
    from agent_magic.record.events import Event
    from agent_magic.record.facts import Stretch
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Terms


Kind = Literal["one agent", "one after another"]


class Base(NamedTuple):
    """A measured run of the same job, or the mean of those in `made` (seconds and dollars by `uid`)."""

    wall_s: float
    cost_usd: float | None
    tokens: int | None
    simulated: bool
    asked: str = ""
    made: Mapping[str, tuple[float, float | None]] = {}

    def repeated(self, before: Base | None) -> Base:
        """Average those that asked the same model with the same token cap."""
        if before is None or (before.asked, before.simulated) != (self.asked, self.simulated):
            return self
        made = {**before.made, **self.made}
        costs = [cost for _, cost in made.values() if cost is not None]
        mean = fmean(costs) if len(costs) == len(made) else None
        return self._replace(wall_s=fmean(wall_s for wall_s, _ in made.values()), cost_usd=mean, made=made)


REFUSED = frozenset({"refusal"})
NO_CALLS: Final[Sequence[ToolCall]] = ()


def _none_yet() -> list[Attempt]:
    return []  # `list["Attempt"]()` takes ten times as long


@dataclass(slots=True, repr=False)
class AgentResult(Shown):
    """The result of one agent. `run["name"]` is one of these.

    Attributes:
        layer: Depth in the graph, from 0.
        model: The requested model.
        returns: Type of its answer; `None` for text.
        is_task: True for a task: a Python function without requests.
        other_models: Other models it may ask.
        is_row: True for a task that takes its answer out of a request for several items.
        status: See `agent_magic.record.answer.Status`.
        ready_s: When its parents were done, if ever.
        finished_s: When it reached its final status, if it has.
        attempts: Its requests, in order.
        calls: Its function calls, in order: tools, or a task's own.
        error: The reason it did not succeed, in one line.
        kind: Class of that error, such as `RateLimited` or `BudgetExceeded`, if any.
        waits_until_s: End of its backoff, if it is waiting for a retry.
        waits_why: The failure before that backoff.
        last_backoff_s, last_queued_s: Seconds of backoff, and in the queue, without an attempt after them.
    """

    name: str
    layer: int
    model: str
    returns: Returns | None = None
    is_task: bool = False
    other_models: Sequence[str] = ()
    is_row: bool = False
    status: Status = field(default="pending", init=False)
    ready_s: float | None = field(default=None, init=False)
    finished_s: float | None = field(default=None, init=False)
    attempts: list[Attempt] = field(default_factory=_none_yet, init=False)
    calls: Sequence[ToolCall] = field(default=NO_CALLS, init=False)
    error: str | None = field(default=None, init=False)
    kind: str | None = field(default=None, init=False)
    waits_until_s: float | None = field(default=None, init=False)
    waits_why: str = field(default="", init=False)
    last_backoff_s: float = field(default=0.0, init=False)
    last_queued_s: float = field(default=0.0, init=False)
    _kept: tuple[Any, ...] = field(default=(), init=False)

    def __repr__(self) -> str:
        usage, calls = self.usage, len(self.calls)
        counts = [("input", usage.total_input_tokens), ("output", usage.output_tokens)]
        parts = [self.status, *(f"{number:,} {word} tokens" for word, number in counts if number is not None)]
        parts += [f"{calls:,} call{'s' * (calls > 1)}, {seconds(self.tool_s)}"] if calls else []
        parts += [f"${self.cost_usd:.6f}"] if self.cost_usd is not None else []
        parts += [single_line(self.error)] if self.error else []
        return f"AgentResult({self.name!r}: {', '.join(parts)})"

    @property
    def model_used(self) -> str | None:
        """The model that answered, if any; the requested name if the answer's is an alias of it."""
        last = self.attempts[-1] if self.attempts else None
        return last.model_used if last is not None and last.answer else None

    @property
    def moved_by(self) -> str:
        """Why the last model is another: `escalated`, `fell back`, `degraded` by the policy; empty if it is not."""
        if not self.attempts or self.attempts[-1].model == self.model:
            return ""
        first = self.attempts[0]
        is_eased = first.model != self.model and first.held_by in {"budget", "deadline"}
        if is_eased or self.attempts[-1].model not in self.other_models:
            return "degraded"
        return "escalated" if ESCALATED in self._facts.kinds else "fell back"

    @property
    def is_left_out(self) -> bool:
        """True if it was not needed: a false condition, an unused place, or a lost race. This is no failure."""
        return self.status == "unused" or (self.status == "skipped" and self.kind in {CONDITION, BEATEN})

    @property
    def answer(self) -> Answer | None:
        """The complete reply, if any. After a pause, the last turn with the text of all."""
        last = self.told[-1].answer if self.told else None
        return replace(last, text=self._earlier_turns + last.text) if last and self._earlier_turns else last

    @property
    def told(self) -> Sequence[Attempt]:
        """The attempts up to the one that told its answer: a cap may end it after a turn that failed."""
        found = self.attempts
        while self.status == "capped" and len(found) > 1 and found[-1].answer is None:
            found = found[:-1]
        return found

    @property
    def _earlier_turns(self) -> str:
        told = self.told
        before, texts = told[-1].request.goes_on, list[str]()
        typed = told[-1].request.schema
        by_item = bool(before and typed) and of_item(schema_of(typed)) is not None  # items are spread over turns
        if typed and not by_item:  # such an answer stands in one turn
            return ""
        for one in reversed(told[:-1] if before else []):
            if one.kind == "InvalidAnswer" and not by_item:  # earlier text was to be answered again, whole
                break
            if before and one.answer is not None and (by_item or one.answer.stop_reason == PAUSED):
                texts.insert(0, one.answer.text)
                before = one.request.goes_on
        return "".join(texts)

    @property
    def text(self) -> str:
        """The answer, or its received part. For a task, its result as text."""
        if own := own_text(self.calls, len(self.attempts)):
            return own
        if not self.attempts:
            return ""
        return self.answer.text if self.answer else self._earlier_turns + self.attempts[-1].partial

    @property
    def conversation(self) -> pd.DataFrame:
        """Its conversation up to its answer. One row per block: `turn`, `role`, `kind`, `text`."""
        return conversation_frame(conversation_of(self))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Its conversation as the API's `messages`, files by sha256; empty without an answer."""
        found = conversation_of(self)
        return [] if found is None else exported(found)

    @property
    def original(self) -> str | None:
        """The model's text, if the user has edited the answer."""
        answer = self.answer
        return answer.original if answer is not None and answer.edited else None

    @property
    def citations(self) -> list[Citation]:
        """The quoted places of documents: supported text, title, place and quote."""
        return list(self.answer.citations) if self.answer else []

    @property
    def value(self) -> Any:
        """The answer as the type that its agent returns, or as text; without the class, as plain data.

        Raises:
            NoValue: The agent did not succeed.
            InvalidAnswer: The class has changed since then, or the text was left out of a recording.
        """
        if self.status != "succeeded" and not self._kept:
            raise NoValue(self.name, (self.error or f"it is {self.status}").rstrip("."))
        if self.is_row and self.returns is not None:
            return self.returns.of_row(self.returned)
        if self.is_task:
            return self.returned
        return self.text if self.returns is None else self.returns.value(self.text)

    @property
    def meaning(self) -> Any:
        """The value in frames, grades and later prompts: of a typed answer by its schema, not its class."""
        if self.returns is None or self.status != "succeeded" or self.is_task > self.is_row:
            return self.value
        return self.returns.as_written(self.returned if self.is_row else self.text, is_row=self.is_row)

    def keep(self, value: object) -> None:
        self._kept = (value,)

    @property
    def has_value(self) -> bool:
        """True if the return value of a task is in memory, or was stored."""
        return bool(self._kept) or self._packed is not None

    @property
    def _packed(self) -> str | None:
        return self.calls[-1].ended.value if self.calls and self.calls[-1].ended else None

    @property
    def returned(self) -> Any:
        """A task's return value, from memory or deserialised; of a row the JSON of its answer."""
        if self._kept:
            return self._kept[0]
        if self._packed is None:
            raise NoValue(self.name, "its value was not kept: only plain data, frames, Series and arrays are")
        try:
            return unpack(self._packed)
        except ValueError as error:
            raise NoValue(self.name, f"what was kept of it cannot be read: {error}") from None

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped, as the API names it."""
        return self.answer.stop_reason if self.answer else None

    @property
    def source(self) -> Source | None:
        """Where the result came from, such as `live` or `ledger`, if there is one."""
        return next((one.source for one in reversed(self.calls if self.is_task else self.attempts) if one.source), None)

    @property
    def is_served(self) -> bool:
        """True if the answer or return value was available, so that it took no time."""
        return any(one.is_served for one in (self.calls if self.is_task else self.attempts)[-1:])

    @property
    def is_shared(self) -> bool:
        """True if it shares the answer of an identical step."""
        return bool(self.attempts) and self.attempts[-1].is_shared

    @property
    def _facts(self) -> Facts:
        return Facts(self.attempts)

    @property
    def usage(self) -> Usage:
        """Known tokens of all attempts; `None` fields if none is known."""
        known = self._facts.usages
        return known[0] if len(known) == 1 else add_usage(known)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts with a known price; `None` if an answer's price is unknown, or there is none."""
        costs = self._facts.costs_usd
        if costs and costs[-1] is None and self.attempts[-1].answer:
            return None
        return total_usd(costs)

    @property
    def context_tokens(self) -> int | None:
        """Input of its largest turn, if known."""
        totals = [one.total_input_tokens for one in self._facts.usages]
        return max((one for one in totals if one is not None), default=None)

    @property
    def turns(self) -> int:
        """The number of turns of its conversation: responses, retries left out."""
        return self._facts.turns

    @property
    def started_s(self) -> float | None:
        """When its first request was sent, or its function called."""
        return next((one.started_s for one in (self.calls if self.is_task else self.attempts)), None)

    @property
    def granted_s(self) -> float | None:
        """When it was first admitted; a task begins at once."""
        return self.started_s if self.is_task else self.attempts[0].granted_s if self.attempts else None

    @property
    def calls_under_way(self) -> list[ToolCall]:
        """The calls that run now."""
        return [one for one in self.calls if one.ended is None]

    @property
    def working_since_s(self) -> float | None:
        """Start of its request or call under way; `None` if nothing runs."""
        under_way = self.calls_under_way or self._facts.running
        return min((one.started_s for one in under_way), default=None)

    @property
    def is_waiting(self) -> bool:
        """True if it is ready and waits, before its start or between turns."""
        return self.status == "queued" or (self.status == "running" and self.working_since_s is None)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from request to first token, of the attempt that was answered."""
        return self.attempts[-1].ttft_s if self.attempts and self.answer else None

    @property
    def api_s(self) -> float:
        """Seconds its requests took."""
        return self._facts.api_s

    @property
    def tool_s(self) -> float:
        """Seconds in tools, or in a task, while no request was under way."""
        return self._away_s("tool")

    @property
    def artifacts(self) -> list[str]:
        """The files it reported as written, by their paths."""
        return list(dict.fromkeys(file.path for one in self.calls for file in one.artifacts))

    def call(self, number: int) -> ToolCall:
        last = self.calls[-1]
        return last if last.number == number else next(one for one in self.calls if one.number == number)

    def away(self) -> Iterator[Stretch]:
        for turn in dict.fromkeys(one.turn for one in self.calls) if not self.is_task else ():
            calls = [one for one in self.calls if one.turn == turn]
            yield from stretches(calls, calls[0].free_s)
        for one in self.calls if self.is_task else ():
            yield from stretches((one,), one.free_s + one.backoff_s)

    def _away_s(self, kind: str) -> float:
        if not self.calls:
            return 0.0
        return sum(one.end_s - one.start_s for one in self.away() if one.kind == kind and one.end_s is not None)

    @property
    def backoff_s(self) -> float:
        """Seconds it waited because attempts had failed."""
        calls_s = sum(one.backoff_s for one in self.calls)
        return self.last_backoff_s + self._facts.backoff_s + calls_s

    @property
    def total_s(self) -> float | None:
        """Seconds from ready to finished."""
        if self.ready_s is None or self.finished_s is None:
            return None
        return self.finished_s - self.ready_s

    @property
    def queued_s(self) -> float | None:
        """Seconds it was ready and waited for a slot, a limit, a barrier, a resource or a person."""
        if self.ready_s is None or self.finished_s is None:
            return None
        return self.last_queued_s + self._facts.queued_s + self._away_s("queued")

    @property
    def local_s(self) -> float | None:
        """Seconds of our own: writing prompts, checking answers, passing them on."""
        if self.total_s is None or self.queued_s is None:
            return None
        return self.work_s - self.api_s - self.tool_s

    @property
    def work_s(self) -> float:
        """Seconds of work: `api_s + tool_s + local_s`. 0 if it never ran."""
        if self.total_s is None or self.queued_s is None:
            return self.api_s + self.tool_s
        return self.total_s - self.queued_s - self.backoff_s

    def work_s_until(self, now_s: float) -> float:
        """Return the seconds of work up to a moment, running work included."""
        open_s = [one.start_s for one in self.away() if one.end_s is None] if self.calls else []
        open_s += [one.started_s for one in self._facts.running]
        return self.work_s + (0.0 if self.finished_s is not None else sum(max(0.0, now_s - one) for one in open_s))


class ForecastNote(NamedTuple):
    """Makes a run's record a forecast.

    Its `basis` is the weakest input: `measured`, `ledger` (earlier answers) or `assumed`.
    """

    basis: str
    assumed: str
    wall_range_s: tuple[float, float]
    cost_range_usd: tuple[float, float] | None
    simulated: bool
    limited_by: str = ""


class _Results(list[AgentResult]):
    """Places may stay unused, so each result is created on access."""

    def __init__(self, plan: Plan, models: Sequence[str]) -> None:
        super().__init__(cast("list[AgentResult]", [None] * len(plan)))
        self._plan, self._models = plan, models
        self._like = for_all(plan.firsts, plan.dag.alike)
        self._is_whole = False

    def _make(self, number: int) -> AgentResult:
        name, layer = self._plan.agents[number].name, self._plan.dag.layer[number]
        made = _result_of(self._like[number], name, layer, self._models[number])
        super().__setitem__(number, made)
        return made

    def _make_all(self) -> None:
        if not self._is_whole:
            for number, one in enumerate(super().__iter__()):
                if one is None:  # pyright: ignore[reportUnnecessaryComparison] - not made yet
                    self._make(number)
            self._is_whole = True

    def __getitem__(self, number: Any) -> Any:
        if not isinstance(number, int):
            self._make_all()
            return super().__getitem__(cast("slice", number))
        found: Any = super().__getitem__(number)
        return self._make(number) if found is None else found

    def __iter__(self) -> Iterator[AgentResult]:
        self._make_all()
        return super().__iter__()

    def __reversed__(self) -> Iterator[AgentResult]:
        self._make_all()
        return super().__reversed__()

    def __contains__(self, one: object) -> bool:
        self._make_all()
        return super().__contains__(one)

    def __reduce__(self) -> tuple[type[list[AgentResult]], tuple[list[AgentResult]]]:
        return list, (list(self),)

    def __reduce_ex__(self, _: object) -> tuple[type[list[AgentResult]], tuple[list[AgentResult]]]:
        return self.__reduce__()


def _result_of(step: Step, name: str, layer: int, model: str) -> AgentResult:
    return AgentResult(
        name, layer, model, step.returns, step.is_task, step.other_models, bool(step.part and step.part.asked)
    )


class RunRecord:
    """One execution of a plan, told by its events. Grows during the run.

    Attributes:
        resumes: `uid` of the run it continues; empty for none.
        keeper: Stores its baselines, if the run is kept.
        replayed: Original source of replayed attempts, by agent and number of the attempt.
        provenance: File it was replayed from or kept in: file, sha256, date, versions.
        edits: The user's later edits of its answers, for a run that continues it.
        redacted: True for a replay with texts removed or replaced at recording.
        dag: The dependencies; a forecast may omit edges of the plan.
        same: First identical step per step, if its requests do not tell, as in forecasts and replays without texts.
        sequential, server_limit: Caches, with the number of events they were computed from.
        committed_usd: What its budget counted at the end: spent, or possibly billed; `None` without a budget.
    """

    def __init__(
        self, plan: Plan, began_at: datetime, models: Iterable[str], *, origin: str = "", dag: Dag | None = None
    ) -> None:
        self.uid = os.urandom(16).hex()
        self.plan, self.dag = plan, dag or plan.dag
        self.forecast: ForecastNote | None = None
        self.same: tuple[int | None, ...] | None = None
        self.sequential: tuple[int, Any] | None = None
        self.server_limit: tuple[int, str] | None = None
        self.committed_usd: float | None = None
        self.began_at = began_at
        self.origin, self.home, self.resumes = origin, "", ""
        self.replays_simulation = False
        self.bases: dict[Kind, Base] = {}
        self.keeper: Callable[[Mapping[Kind, Base]], None] | None = None
        self.replayed: dict[tuple[int, int], Source | None] = {}
        self.provenance: dict[str, Any] = {}
        self.terms: Terms | None = None
        self.redacted = False
        self.edits: dict[tuple[str, str], Answer] = {}
        self.events: list[Event] = []
        asked = tuple(models)
        if plan.dag.alike and len(asked) == len(plan):
            self.results: list[AgentResult] = _Results(plan, asked)
        else:
            steps = zip(plan.agents, plan.dag.layer, asked, strict=True)
            self.results = [_result_of(one, one.name, layer, model) for one, layer, model in steps]
        self.ended_s: float | None = None
        self.cut = False

    def label_forecast(self, note: ForecastNote) -> None:
        self.forecast, self.replays_simulation = note, note.simulated

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "keeper": None}

    def __getitem__(self, name: str) -> AgentResult:
        try:
            return self.results[self.plan.index[same_name(name)]]
        except (KeyError, TypeError):
            if (last := self._last_round(name) or self._last_of_plan(name)) is not None:
                return last
            raise UnknownAgent(name, known=self.plan.index, in_run=True, groups=self.plan.groups) from None

    def _last_round(self, name: object) -> AgentResult | None:
        members = self.plan.groups.get(name, {}).values() if isinstance(name, str) else ()
        results = [self.results[one] for one in members]
        rounds = [self.plan.agents[one].part for one in members]
        if not results or rounds[0] is None or not rounds[0].rounds:
            return None
        return next((one for one in reversed(results) if not one.is_left_out), results[0])

    def _last_of_plan(self, name: object) -> AgentResult | None:
        """Return the answer of a nested plan, as used in prompts, if it has exactly one."""
        last = last_in(self.plan.agents, str(name))
        return None if last is None else self[last.name] if last.part is None else self._last_round(last.part.group)

    @property
    def left_out(self) -> dict[int, Left]:
        return {number: left for number, left in self._ended_by_flow() if left.status != "failed"}

    @property
    def decisions(self) -> dict[int, Left]:
        """Steps ended by a decision, by number, with the reason; `failed` if nothing could be decided."""
        # Lost races and hedges that were not sent are not included, since the times of a run decide them.
        return {
            number: left
            for number, left in self._ended_by_flow()
            if left.kind not in {BEATEN, NO_ANSWER} and self.plan.agents[number].hedges is None
        }

    def _ended_by_flow(self) -> Iterator[tuple[int, Left]]:
        for number in sorted(self.plan.flow.decides) if self.plan.flow is not None else ():
            one = self.results[number]
            unsure = one.status == "failed" and one.ready_s is None
            if unsure or one.is_left_out:
                yield number, Left(one.status, one.error or "", one.kind or "")  # pyright: ignore[reportArgumentType] - one of three

    @property
    def degraded(self) -> list[AgentResult]:
        """Results with requests that the policy turned cheaper: another model or effort."""
        if self.terms is None or not self.terms.policy.get("degrade"):
            return []
        asked = [(one, agent.effort) for one, agent in zip(self.results, self.plan.agents, strict=True) if one.attempts]
        return [one for one, effort in asked if one.moved_by == "degraded" or one.attempts[-1].request.effort != effort]

    @property
    def is_complete(self) -> bool:
        ended = self.ended_s is not None and not self.cut
        return ended and all(one.status in WITH_ANSWER or one.is_left_out for one in self.results)

    @property
    def rows(self) -> list[AgentResult]:
        return [one for one in self.results if one.status != "unused"]

    def measured(self, kind: Kind, base: Base) -> None:
        """Store a baseline: the same job, measured in another way."""
        self.bases[kind] = base
        if self.keeper is not None:
            self.keeper(self.bases)

    @property
    def attempts(self) -> list[Attempt]:
        return sorted(Facts.of(self.results).attempts, key=lambda one: one.started_s)

    @property
    def facts(self) -> Facts:
        return Facts(self.attempts)

    def source_at(self, number: int) -> Source | None:
        """Return the source of a step's answer, or of the answer that it forwards."""
        result, step = self.results[number], self.plan.agents[number]
        if result.source is None or not (step.race or (step.part is not None and step.part.asked)):
            return result.source
        if step.part is not None and step.part.asked:
            source = self.results[self.plan.index[step.part.asked]].source
            return "shared" if step.part.shares and source != "replay" else source
        parents = (self.results[one] for one in self.plan.dag.parents[number])
        return next((one.source for one in parents if one.status == "succeeded"), None)

    @property
    def simulated(self) -> bool:
        """True if any attempt was simulated, failed and replayed ones included."""
        return self.replays_simulation or "simulated" in Facts.of(self.results).sources

    @property
    def served(self) -> bool:
        """True if answers were bought before; in a replay, when it was recorded."""
        return "ledger" in self.replayed.values() or any(one.is_served and not one.is_shared for one in self.results)

    def stopped_for(self, reason: str) -> tuple[str, ...]:
        """Return the agents with an answer that was cut for a reason of `CUT`, and passed on."""
        return tuple([one.name for one in self._whose_answer({reason}) if one.status != "failed"])

    @property
    def refused(self) -> tuple[str, ...]:
        return tuple([one.name for one in self._whose_answer(REFUSED) if one.status == "succeeded"])

    @property
    def empty(self) -> tuple[str, ...]:
        """Agents that succeeded with an answer without text."""
        return tuple(
            one.name
            for one in self.results
            if one.status == "succeeded"
            and not one.is_task
            and not (one.attempts and (end := one.attempts[-1].ended) and end.answer and end.answer.text[:9].strip())
            and not one.text.strip()
        )

    def _whose_answer(self, reasons: AbstractSet[str]) -> list[AgentResult]:
        return [
            one
            for one in self.results
            if one.attempts and (end := one.attempts[-1].ended) and end.answer and end.answer.stop_reason in reasons
        ]

    def add(self, event: Event) -> None:
        self.events.append(event)
        FOLD[type(event)](self, event)


def capped_loops(record: RunRecord) -> list[tuple[str, str]]:
    """Return the first step of each capped loop, and its unmet condition."""
    # No status says it, since every step of such a loop has answered: it is read from the answers, so that older
    # recordings have it too. Without the texts of the answers nothing is known.
    flow = record.plan.flow
    if flow is None or record.redacted or record.forecast is not None:
        return []
    return flow.unmet(Returned(record))


def capped_steps(record: RunRecord) -> dict[int, str]:
    """Return the steps of the last rounds of capped loops, each with the unmet condition."""
    overs = {f"{ROUNDS}{name}": until for name, until in capped_loops(record)}
    parts = [one.part for one in record.plan.agents] if overs else []
    return {
        step: overs[one.over]
        for step, one in enumerate(parts)
        if one is not None and one.over in overs and one.number == one.rounds
    }


class Returned(Mapping[str, Any]):
    """What agents and tasks returned, by their names, read on access."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        number = self._record.plan.index[name]
        result = self._record.results[number]
        if result.status == "succeeded":
            return result.meaning
        if result.status == "capped":
            return self._record.plan.meaning_of(number, result.text)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        number = self._record.plan.index.get(name) if isinstance(name, str) else None
        return number is not None and self._record.results[number].status in WITH_ANSWER

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._record.plan.names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def conversation_of(result: AgentResult) -> Request | None:
    last = result.told[-1] if result.told else None
    if last is None or last.answer is None:
        return None
    own = own_text(result.calls, len(result.attempts))  # a person has changed the answer
    return answered(last.request, last.answer, own or "")


def sharers_of(record: RunRecord) -> list[int | None]:
    """Return per step the first one with the same request; `None` if it shares nothing."""
    plan, first = record.plan, dict[Hashable, int]()
    if record.same is not None:
        return [*record.same]
    bought = sorted(range(len(plan)), key=lambda step: record.results[step].is_shared)
    found: list[int | None] = [None] * len(plan)
    for step in bought if not record.redacted else ():
        attempts = record.results[step].attempts
        if attempts and (same := same_of(plan, step, attempts[0].request)) is not None:
            found[step] = first.setdefault(same, step)
    asked = {(rows_of(plan, one), record.results[one].attempts[0].request.prompt): one for one in first.values()}
    for step, result in enumerate(record.results) if not record.redacted else ():
        if result.status == "failed" and not result.attempts and (rows := rows_of(plan, step)):
            with suppress(AgentMagicError, KeyError):  # a prompt that cannot be written has failed by itself
                found[step] = asked.get((rows, plan.prompt_of(step, Returned(record)).text))
    return found
