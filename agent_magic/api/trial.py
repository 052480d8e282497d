"""`await run.trial(...)`: runs a sample of rows under several settings and grades the answers, batch by batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from agent_magic.api.plan import Plan
from agent_magic.declare.agent import Agent
from agent_magic.declare.changes import with_options
from agent_magic.declare.models import job_of
from agent_magic.declare.validation import check_integer, check_positive, is_word, must_be
from agent_magic.engine.policy import Policy, as_policy
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.measure.intervals import stratified
from agent_magic.measure.judge import Judge, judged
from agent_magic.measure.scores import FEW, answer_key, answers_of, grade_by, why_not
from agent_magic.measure.trial import Setting, Stopped, Trial, Tried
from agent_magic.measure.truths import check_truths, grade_truth, score_answers
from agent_magic.record.prices import Prices, asking_usd
from agent_magic.show.progress import Progress

if TYPE_CHECKING:
    from agent_magic.api.run import Run
    from agent_magic.api.session import Session
    from agent_magic.measure.scores import Answered, Grade, Grader
    from agent_magic.record.results import AgentResult

Until = Literal["decided"]


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """What a trial is asked for; see `Run.trial`."""

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
        """Raise `DeclarationError` for the first that is not what it must be."""
        check_integer("n", self.n)
        check_positive("margin", self.margin, 1.0)
        check_positive("error_rate", self.error_rate, 0.5)
        if (self.truth is None) == (self.grader is None):
            raise DeclarationError("A trial takes one of truth= and grader=.", hint="Such as truth='column'.")
        if self.until is not None and not is_word(self.until, ("decided",)):
            raise must_be("until", "'decided' or None", self.until)


async def run_trial(run: Run, options: TrialOptions, policy: Policy | None, session: Session) -> Trial:
    """Run a trial. The rows that the run has answered under a setting are not asked again.

    Args:
        run: The run whose rows are tried.
        options: What is asked for.
        policy: How to run; its budget is that of the whole trial.
        session: Who answers.

    Raises:
        PlanError: The target has no rows; nothing was sent.
        DeclarationError: An option is wrong, or scores are not between 0 and 1 and it should stop when decided.
    """
    options.check()
    session.check_models(one.model for one in options.settings)
    answers = rows_to_try(run, options.target, truth=options.truth, grader=options.grader)
    return await _Trial(run, options, as_policy(policy), session, answers).run()


def rows_to_try(run: Run, target: str, *, truth: Any = None, grader: Grader | Judge | None = None) -> list[Answered]:
    """Return the rows of a trial, its grader tried on answers that are there: so none is paid for and then not graded.

    Args:
        run: The run whose rows are tried.
        target: What is graded.
        truth: What answers are held against.
        grader: A function or a judge.

    Raises:
        PlanError: The target has no rows that could be asked one by one.
        DeclarationError: The truth or the function does not fit.
    """
    answers = answers_of(run.record, target)
    first, name = answers[0], target.partition(".")[0]
    part = run.plan[first.result.name].part
    if part is None:
        raise PlanError(f"A trial needs rows: {target!r} is one agent. Declare it with --each.")
    if part.rounds:
        raise PlanError(f"A trial needs rows: {name!r} runs in rounds. Try an agent with --each that does its work.")
    if first.result.is_task:
        why = "asks for several rows at once (--group)" if part.asked else "has no answer of a model of its own"
        raise PlanError(f"A trial asks row by row, and {name!r} {why}. Declare it without, run, try, and put it back.")
    if truth is not None:
        check_truths(grade_truth(answers, target, _by_key(answers, truth)), target)
    elif grader is not None and not isinstance(grader, Judge):
        some = [one for one in answers if one.result.status == "succeeded"][:FEW]
        grades = grade_by(some, target, grader)
        if grades and all(one.error is not None for one in grades):
            raise DeclarationError(f"The grader fails on the answers that are there. {why_not(grades)}")
    return answers


class _Trial:
    """A trial under way.

    Args:
        run: The run whose rows are tried.
        options: What is asked for.
        policy: How to run.
        session: Who answers.
        answers: The run's own answers, one per row.
    """

    def __init__(
        self, run: Run, options: TrialOptions, policy: Policy, session: Session, answers: Sequence[Answered]
    ) -> None:
        self._run, self._options, self._policy, self._session = run, options, policy, session
        self._answers, self._prices = answers, session.price_book(_untold)
        self._tried: list[list[Tried]] = [[] for _ in options.settings]
        self._spent: float | None = 0.0
        self._simulated = self._is_capped = False

    async def run(self) -> Trial:
        """Ask batch by batch, until it is decided or nothing is left to ask. Stopped, the run keeps what was graded."""
        try:
            return self._found(await self._ask_all())
        except asyncio.CancelledError:
            if any(self._tried):
                self._run.trials = [*self._run.trials, self._found("stopped")]
            raise

    async def _ask_all(self) -> Stopped:
        options, racing = self._options, list(range(len(self._options.settings)))
        batches = _batches(self._answers, options)
        total = sum(map(len, batches)) * len(racing)
        with Progress("answers") as progress:
            for batch in batches:
                for place in racing:
                    await self._ask(place, batch)
                    progress.tell(sum(map(len, self._tried)), total)
                found = self._found("rows")
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

    def _found(self, stopped: Stopped) -> Trial:
        options = self._options
        return Trial(
            options.target,
            options.settings,
            tuple(map(tuple, self._tried)),
            rows=len(self._answers),
            others_usd=_others_usd(self._run, self._answers, self._prices),
            margin=options.margin,
            error_rate=options.error_rate,
            sequential=options.until is not None,
            stopped=stopped,
            spent_usd=self._spent,
            simulated=self._simulated,
        )

    async def _ask(self, place: int, batch: Sequence[Answered]) -> None:
        """Answer a batch of rows under a setting, and grade the answers."""
        base = self._run
        plan = _plan_of(base, self._options.settings[place], batch)
        done = await plan.run(self._capped(), session=self._session, resume=base)
        self._pay(done.totals.cost_usd if done.record.attempts else 0.0)
        self._is_capped = self._is_capped or any(one.kind == "BudgetExceeded" for one in done.record.results)
        self._simulated = self._simulated or done.record.simulated
        done.grades = base.grades
        grades = await self._grades(done)
        self._tried[place] += [self._tried_one(done, *one) for one in grades]

    async def _grades(self, done: Run) -> list[tuple[AgentResult, Grade]]:
        options, answers = self._options, answers_of(done.record, self._options.target)
        if isinstance(options.grader, Judge):
            if all(one.result.status != "succeeded" for one in answers):  # nobody answered: there is nothing to judge
                none = judged(options.grader, options.target, answers, {})
                return [(one.result, grade) for one, grade in zip(answers, none, strict=True)]
            frame = await done.judge(options.target, options.grader, policy=self._capped(), session=self._session)
            self._pay(frame.attrs["cost_usd"])
            name = options.grader.name
        else:
            how: Any = {"truth": _by_key(self._answers, options.truth), "grader": options.grader, "part": True}
            name = str(score_answers(done.record, done.grades, options.target, **how).loc[0, "grader"])
        answered = [one.result for one in answers]
        grades = [
            next(
                one for one in done.grades.of(done.record, result) if (one.target, one.grader) == (options.target, name)
            )
            for result in answered
        ]
        return list(zip(answered, grades, strict=True))

    def _tried_one(self, done: Run, result: AgentResult, grade: Grade) -> Tried:
        """Return an answer with what it cost when the run or the trial bought it, or else what its tokens cost."""
        if result.status != "succeeded":
            return Tried(result.name, grade, None, None)
        if not result.is_served:
            return Tried(result.name, grade, result.cost_usd, result.work_s)
        base = self._run.record
        earlier = base.results[base.plan.number(result.name)]
        bought = earlier if answer_key(base, earlier) == answer_key(done.record, result) else result
        work_s = None if bought.is_served else bought.work_s  # the ledger does not say how long an answer took
        cost_usd = asking_usd(bought, self._prices)
        return Tried(result.name, grade, cost_usd, work_s, by_tokens=bought.is_served)

    def _pay(self, cost_usd: float | None) -> None:
        self._spent = None if self._spent is None or cost_usd is None else self._spent + cost_usd

    def _left(self) -> float | None:
        """Return the dollars that are left; 0 also where nobody knows what was spent. `None` is without a budget."""
        budget = self._policy.budget_usd
        return None if budget is None else 0.0 if self._spent is None else max(0.0, budget - self._spent)

    def _capped(self) -> Policy:
        left = self._left()
        return self._policy if left is None else replace(self._policy, budget_usd=max(left, 1e-9))


def trial_plans(run: Run, options: TrialOptions) -> list[Plan]:
    """Return what a trial would run: a plan per setting, of the rows that it takes; with `until`, of all of them.

    Args:
        run: The run whose rows are tried.
        options: What is asked for.

    Raises:
        PlanError: The target has no rows that could be asked one by one.
        DeclarationError: `n` is wrong, or the truth or the function does not fit. Without either there is a price.
    """
    check_integer("n", options.n)
    answers = rows_to_try(run, options.target, truth=options.truth, grader=options.grader)
    rows = [one for batch in _batches(answers, options) for one in batch]
    return [_plan_of(run, setting, rows) for setting in options.settings]


def _plan_of(run: Run, setting: Setting, rows: Sequence[Answered]) -> Plan:
    """Return the plan of a run with these rows alone, under a setting."""
    few = run.plan.select([one.result.name for one in rows])
    given = {name: value for name, value in setting._asdict().items() if value is not None}
    return with_options(Plan, few, {few.number(one.result.name): given for one in rows})


def _batches(answers: Sequence[Answered], options: TrialOptions) -> list[list[Answered]]:
    """Choose rows: all in a random order where it stops when decided, else a sample with the shares of the whole.

    A confidence sequence needs each next row to be a random one, so there the order is not balanced.
    """
    if options.until is None:
        return [[answers[place] for place in stratified(_strata(answers, options), options.n, options.seed)]]
    order = random.Random(options.seed).sample(answers, len(answers))
    return [order[at : at + options.n] for at in range(0, len(order), options.n)]


def _strata(answers: Sequence[Answered], options: TrialOptions) -> list[str]:
    """Return the stratum of each row: its truth, or else what the run answered, where these are few words."""
    truths = _by_key(answers, options.truth)
    if isinstance(truths, str):
        found = [str(one.row.get(truths)) for one in answers]
    elif truths is not None:
        found = [str(truths.get(one.key)) for one in answers]
    else:
        found = [one.result.text for one in answers]
    return found if len(set(found)) <= max(2, options.n // 2) else [""] * len(found)


def _untold(_: str) -> None:
    """Say nothing of a model without a price: whoever ran it was told."""


def _others_usd(run: Run, answers: Sequence[Answered], prices: Prices) -> float | None:
    """Return what asking the agents of a run costs whose answers are not tried; `None` is unknown."""
    tried = {one.result.name for one in answers}
    costs = [asking_usd(one, prices) for one in run.record.results if one.name not in tried and one.attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def tried_job(run: Run, target: str) -> str:
    """Return the fingerprint of what a trial's agents are asked, whatever the model, the effort and the row."""
    agent = run.plan.agents[run.plan.numbers([target.partition(".")[0]])[0]]
    return "" if not isinstance(agent, Agent) else job_of(replace(agent, effort=None))


def trials_before(run: Run) -> list[Trial]:
    """Return the trials of the session whose agents this run asks the same: they count for its rows.

    Args:
        run: The run.
    """
    found: list[Trial] = []
    prices = run.prices or Prices(tell=_untold)
    for job, trial in run.grades.trials:
        name = trial.target.partition(".")[0]
        if (name in run.plan.groups or name in run.plan.index) and tried_job(run, trial.target) == job:
            answers = answers_of(run.record, trial.target)
            found.append(replace(trial, rows=len(answers), others_usd=_others_usd(run, answers, prices)))
    return found


def _by_key(answers: Sequence[Answered], truth: Any) -> Any:
    """Return truths that a part of the rows can be held against: a list is by the rows' keys."""
    if not isinstance(truth, list | tuple):
        return truth.to_dict() if hasattr(truth, "to_dict") else truth
    values: list[Any] = [*cast("Sequence[Any]", truth)]
    if len(values) != len(answers):
        raise DeclarationError(f"truth has {len(values)} values for {len(answers)} rows.", hint="Give one for each.")
    return dict(zip([one.key for one in answers], values, strict=True))
