"""Runs that grade answers: `run.judge(...)`, and `run.trial(...)`, a sample of rows under several settings."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from agent_magic import measure, show
from agent_magic.api.running import run_plan
from agent_magic.declare.agent import Agent
from agent_magic.declare.declared import with_options
from agent_magic.declare.plan import Plan
from agent_magic.declare.step import job_of
from agent_magic.declare.units import plural
from agent_magic.declare.validation import check_integer, check_positive, is_word, must_be
from agent_magic.engine.policy import Policy, as_policy
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.measure.intervals import stratified
from agent_magic.measure.metrics import total_cost
from agent_magic.measure.scores import FEW, NO_TRUTH, answer_key, answers_of, grade_by, keep_grades, score_rows, why_not
from agent_magic.record.prices import Prices, asking_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from agent_magic.api.session import Session
    from agent_magic.measure.judge import Judge
    from agent_magic.measure.scores import Answered, Grade, GradeBook, Grader
    from agent_magic.measure.trial import Setting, Stopped, Trial, Tried
    from agent_magic.record.results import AgentResult, RunRecord

P = TypeVar("P", bound=Plan)


def judge_plan(kind: type[P], record: RunRecord, target: str, judge: Judge, against: RunRecord | None) -> P:
    answers = answers_of(record, target)
    if not isinstance(judge, measure.judge.Judge):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError("judge must be am.judge('...').", hint="A function goes to run.score(grader=...).")
    others = None if against is None else answers_of(against, target)
    values = measure.judge.to_judge(answers) if others is None else measure.judge.to_compare(answers, others)
    if not any(values.values()):
        raise PlanError(f"{target!r} has no answer to judge. run.agents shows what happened.")
    return kind([judge.agent(pairs=others is not None)], values, name=f"{record.plan.name}: {judge.name}")


async def ask_judge(
    record: RunRecord,
    grades: GradeBook,
    target: str,
    judge: Judge,
    against: RunRecord | None,
    policy: Policy | None,
    session: Session,
) -> pd.DataFrame:
    """Run a judge's plan and grade the answers by its verdicts."""
    done = (await run_plan(judge_plan(Plan, record, target, judge, against), policy, session)).record
    answers, parts = answers_of(record, target), [agent.part for agent in done.plan.agents]
    said = {part.key: one for part, one in zip(parts, done.results, strict=True) if part is not None}
    pairs = against is not None
    found = (measure.judge.compared if pairs else measure.judge.judged)(judge, target, answers, said)
    rows = (measure.judge.compared_rows if pairs else score_rows)(found)
    frame = keep_grades(record, grades, answers, found, rows)
    frame.attrs["cost_usd"] = total_cost(done.results) if done.attempts else 0.0
    frame.attrs["committed_usd"] = done.committed_usd
    return frame


Until = Literal["decided"]


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The options of a trial; see `Run.trial`."""

    target: str
    settings: tuple[Setting, ...]
    n: int
    truth: Any = None
    grader: Grader | Judge | None = None
    until: Until | None = None
    margin: float = 0.05
    error_rate: float = 0.05
    seed: int = 0

    def check(self) -> None:
        check_integer("n", self.n)
        check_positive("margin", self.margin, 1.0)
        check_positive("error_rate", self.error_rate, 0.5)
        if (self.truth is None) == (self.grader is None):
            raise DeclarationError("A trial takes one of truth= and grader=.", hint="Such as truth='column'.")
        if self.until is not None and not is_word(self.until, ("decided",)):
            raise must_be("until", "'decided' or None", self.until)


async def run_trial(
    record: RunRecord,
    grades: GradeBook,
    options: TrialOptions,
    policy: Policy | None,
    session: Session,
    keep: Callable[[Trial], None],
) -> Trial:
    """Run a trial and keep it, also if it is stopped; rows answered by the run are not asked again."""
    options.check()
    session.check_models(one.model for one in options.settings)
    rows = rows_to_try(record, options.target, truth=options.truth, grader=options.grader)
    policy = as_policy(policy)
    for setting in options.settings:  # the later ones too, before the first is paid for
        session.check_plan(_plan_of(Plan, record, setting, rows.all[:1]), policy)
    trial = _Trial(record, grades, options, policy, session, rows)
    try:
        found = await trial.run()
    except asyncio.CancelledError:
        if trial.has_answers:
            keep(trial.found("stopped"))
        raise
    keep(found)
    return found


class Rows(NamedTuple):
    """The rows of a trial, and those that can be graded: with a truth, or by a function or a judge all of them."""

    all: Sequence[Answered]
    gradable: Sequence[Answered]

    @property
    def words(self) -> str:
        """Return the number of rows with a truth in words; empty if all can be graded."""
        if len(self.gradable) == len(self.all):
            return ""
        return f"{len(self.gradable):,} of {plural(len(self.all), 'row')} have a truth: only those are asked."


def rows_to_try(record: RunRecord, target: str, *, truth: Any = None, grader: Grader | Judge | None = None) -> Rows:
    """Return a trial's rows, after trying its grader on existing answers, so that all paid ones can be graded."""
    answers = answers_of(record, target)
    first, name = answers[0], target.partition(".")[0]
    part = record.plan[first.result.name].part
    if part is None:
        raise PlanError(f"A trial needs rows: {target!r} is one agent. Declare it with --each.")
    if part.rounds:
        raise PlanError(f"A trial needs rows: {name!r} runs in rounds. Try an agent with --each that does its work.")
    if first.result.is_task:
        why = "asks for several rows at once (--group)" if part.asked else "has no answer of a model of its own"
        raise PlanError(f"A trial asks row by row, and {name!r} {why}. Declare it without, run, try, and put it back.")
    if truth is not None:
        found = measure.truths.grade_truth(answers, target, truth)
        measure.truths.check_truths(found, target)
        known = zip(answers, found.grades, strict=True)
        return Rows(answers, [one for one, grade in known if grade.error != NO_TRUTH])
    if grader is not None and not isinstance(grader, measure.judge.Judge):
        some = [one for one in answers if one.result.status == "succeeded"][:FEW]
        grades = grade_by(some, target, grader)
        if grades and all(one.error is not None for one in grades):
            raise DeclarationError(f"The grader fails on the existing answers. {why_not(grades)}")
    return Rows(answers, answers)


class _Trial:
    def __init__(
        self,
        record: RunRecord,
        grades: GradeBook,
        options: TrialOptions,
        policy: Policy,
        session: Session,
        rows: Rows,
    ) -> None:
        self._record, self._book = record, grades
        self._options, self._policy, self._session = options, policy, session
        self._answers, self._gradable = rows
        self._prices = session.price_book(_untold)
        self._bought = _bought(record, [one.result for one in self._answers])
        self._tried: list[list[Tried]] = [[] for _ in options.settings]
        self._priced: list[set[str]] = [set() for _ in options.settings]
        self._spent: float | None = 0.0
        self._committed_usd = 0.0
        self._simulated = self._is_capped = False

    @property
    def has_answers(self) -> bool:
        return any(self._tried)

    async def run(self) -> Trial:
        """Ask batch by batch, until it is decided or complete."""
        return self.found(await self._ask_all())

    async def _ask_all(self) -> Stopped:
        options, racing = self._options, list(range(len(self._options.settings)))
        batches = _batches(self._gradable, _by_agent(self._answers, options))
        total = sum(map(len, batches)) * len(racing)
        with show.Progress("answers") as progress:
            for batch in batches:
                for place in racing:
                    await self._ask(place, batch)
                    progress.tell(sum(map(len, self._tried)), total)
                found = self.found("rows")
                if options.until is not None:
                    if not found.bounded:
                        hint = "Give a grader that returns a bool, or a number from 0 to 1; or leave until out."
                        raise DeclarationError("until='decided' needs scores between 0 and 1.", hint=hint)
                    racing = found.racing()
                    if found.decided:
                        return "decided"
                if self._is_capped or self._left() == 0:
                    return "budget"
        return "sample" if options.until is None else "rows"

    def found(self, stopped: Stopped) -> Trial:
        """Return the result so far, and the reason to stop."""
        options = self._options
        return measure.trial.Trial(
            options.target,
            options.settings,
            tuple(map(tuple, self._tried)),
            rows=len(self._answers),
            asked=_asked(self._answers),
            gradable=len(self._gradable),
            by_truth=options.truth is not None,
            others_usd=_others_usd(self._record, self._answers, self._prices),
            margin=options.margin,
            error_rate=options.error_rate,
            sequential=options.until is not None,
            stopped=stopped,
            spent_usd=self._spent,
            simulated=self._simulated,
        )

    async def _ask(self, place: int, batch: Sequence[Answered]) -> None:
        """Answer a batch of rows under a setting, and grade the answers."""
        plan = _plan_of(Plan, self._record, self._options.settings[place], batch)
        done = (await run_plan(plan, self._capped(), self._session, resume=self._record)).record
        self._pay(total_cost(done.results) if done.attempts else 0.0, done.committed_usd)
        self._is_capped = self._is_capped or any(one.kind == "BudgetExceeded" for one in done.results)
        self._simulated = self._simulated or done.simulated
        grades = await self._grades(done)
        bought = _bought(done, [result for result, _ in grades]) | self._bought
        self._tried[place] += [
            self._tried_one(answer_key(done, result), bought, self._priced[place], result, grade)
            for result, grade in grades
        ]

    async def _grades(self, done: RunRecord) -> list[tuple[AgentResult, Grade]]:
        options, answers = self._options, answers_of(done, self._options.target)
        if isinstance(options.grader, measure.judge.Judge):
            if all(one.result.status != "succeeded" for one in answers):  # no answers: there is nothing to judge
                none = measure.judge.judged(options.grader, options.target, answers, {})
                return [(one.result, grade) for one, grade in zip(answers, none, strict=True)]
            asked = (done, self._book, options.target, options.grader, None, self._capped(), self._session)
            frame = await ask_judge(*asked)
            self._pay(frame.attrs["cost_usd"], frame.attrs["committed_usd"])
            name = options.grader.name
        else:
            how: Any = {"truth": _by_agent(self._answers, options).truth, "grader": options.grader, "part": True}
            name = str(measure.truths.score_answers(done, self._book, options.target, **how).loc[0, "grader"])
        answered = [one.result for one in answers]
        grades = [
            next(one for one in self._book.of(done, result) if (one.target, one.grader) == (options.target, name))
            for result in answered
        ]
        return list(zip(answered, grades, strict=True))

    def _tried_one(
        self, key: str, bought: Mapping[str, AgentResult], priced: set[str], result: AgentResult, grade: Grade
    ) -> Tried:
        """Return an answer with its cost in the run or trial, or else the price of its tokens."""
        if result.status != "succeeded" or key in priced:  # equal rows have the dollars of one
            return measure.trial.Tried(result.name, grade, None, None)
        priced.add(key)
        if not result.is_served:
            return measure.trial.Tried(result.name, grade, result.cost_usd, result.work_s)
        one = bought.get(key, result)
        work_s = None if one.is_served else one.work_s  # the ledger does not say how long an answer took
        return measure.trial.Tried(result.name, grade, asking_usd(one, self._prices), work_s, by_tokens=one.is_served)

    def _pay(self, cost_usd: float | None, committed_usd: float | None) -> None:
        self._spent = None if self._spent is None or cost_usd is None else self._spent + cost_usd
        self._committed_usd += committed_usd or 0.0

    def _left(self) -> float | None:
        """Return the remaining dollars, less possible bills without a count; `None` without a budget."""
        budget = self._policy.budget_usd
        return None if budget is None else max(0.0, budget - self._committed_usd)

    def _capped(self) -> Policy:
        left = self._left()
        return self._policy if left is None else replace(self._policy, budget_usd=max(left, 1e-9))


def trial_plans(kind: type[P], record: RunRecord, options: TrialOptions) -> tuple[list[P], str]:
    """Return one plan per setting, with its sampled rows or (`until`) all, and the rows with a truth in words."""
    check_integer("n", options.n)
    found = rows_to_try(record, options.target, truth=options.truth, grader=options.grader)
    batches = _batches(found.gradable, _by_agent(found.all, options))
    rows = [one for batch in batches for one in batch]
    return [_plan_of(kind, record, setting, rows) for setting in options.settings], found.words


def _plan_of(kind: type[P], record: RunRecord, setting: Setting, rows: Sequence[Answered]) -> P:
    """Return the plan of these rows alone, under a setting."""
    few = record.plan.select([one.result.name for one in rows])
    given = {name: value for name, value in setting._asdict().items() if value is not None}
    return with_options(kind, few, {few.number(one.result.name): given for one in rows})


def _batches(answers: Sequence[Answered], options: TrialOptions) -> list[list[Answered]]:
    """Choose rows: all in random order with `until`, else a sample with the proportions of the whole."""
    # A confidence sequence needs each next row to be random, so its order is not balanced.
    if options.until is None:
        return [[answers[place] for place in stratified(_strata(answers, options), options.n, options.seed)]]
    order = random.Random(options.seed).sample(answers, len(answers))
    return [order[at : at + options.n] for at in range(0, len(order), options.n)]


def _strata(answers: Sequence[Answered], options: TrialOptions) -> list[str]:
    """Return each row's stratum: its truth, or else the run's answer, if these are few words."""
    truths = options.truth
    if isinstance(truths, str):
        found = [str(one.row.get(truths)) for one in answers]
    elif truths is not None:
        found = [str(truths.get(one.result.name)) for one in answers]
    else:
        found = [one.result.text for one in answers]
    return found if len(set(found)) <= max(2, options.n // 2) else [""] * len(found)


def _untold(_: str) -> None:
    """Ignore a model without a price: the runner was told."""


def _bought(record: RunRecord, results: Sequence[AgentResult]) -> dict[str, AgentResult]:
    """Return the result that paid for each fingerprint, possibly shared with equal rows."""
    return {answer_key(record, one): one for one in results if one.status == "succeeded" and not one.is_shared}


def _asked(answers: Sequence[Answered]) -> int:
    """Count the asked rows, without those that share an equal one's answer."""
    return sum(not one.result.is_shared for one in answers)


def _others_usd(record: RunRecord, answers: Sequence[Answered], prices: Prices) -> float | None:
    """Return the cost of a run's agents without tried answers; `None` if unknown."""
    tried = {one.result.name for one in answers}
    others = [one for one in record.results if one.name not in tried and one.attempts and not one.is_shared]
    costs = [asking_usd(one, prices) for one in others]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def tried_job(record: RunRecord, target: str) -> str:
    """Return the fingerprint of a trial's requests without model, effort and row."""
    agent = record.plan.agents[record.plan.numbers([target.partition(".")[0]])[0]]
    return "" if not isinstance(agent, Agent) else job_of(replace(agent, effort=None))


def trials_before(record: RunRecord, grades: GradeBook, prices: Prices | None) -> list[Trial]:
    """Return the session's trials with the same requests, which count for this run's rows."""
    found: list[Trial] = []
    prices, plan = prices or Prices(tell=_untold), record.plan
    for job, trial in grades.trials:
        name = trial.target.partition(".")[0]
        if (name in plan.groups or name in plan.index) and tried_job(record, trial.target) == job:
            answers = answers_of(record, trial.target)
            others_usd = _others_usd(record, answers, prices)
            found.append(replace(trial, rows=len(answers), asked=_asked(answers), others_usd=others_usd))
    return found


def _by_agent(answers: Sequence[Answered], options: TrialOptions) -> TrialOptions:
    """Return the options with truths by agent, which fit any part of the rows."""
    truth = options.truth
    if truth is None or isinstance(truth, str):
        return options
    return replace(options, truth=measure.truths.by_agent(answers, truth))
