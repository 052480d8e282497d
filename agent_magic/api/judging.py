"""`run.judge(...)`: a judge's plan runs like any other, and its verdicts become grades."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from agent_magic.api.running import run_plan
from agent_magic.declare.plan import Plan
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.measure.judge import Judge, compared, compared_rows, judged, to_compare, to_judge
from agent_magic.measure.metrics import total_cost
from agent_magic.measure.scores import answers_of, keep_grades, score_rows

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.api.session import Session
    from agent_magic.engine.policy import Policy
    from agent_magic.measure.scores import GradeBook
    from agent_magic.record.results import RunRecord

P = TypeVar("P", bound=Plan)


def plan_of(kind: type[P], record: RunRecord, target: str, judge: Judge, against: RunRecord | None) -> P:
    answers = answers_of(record, target)
    if not isinstance(judge, Judge):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError("judge must be am.judge('...').", hint="A function goes to run.score(grader=...).")
    others = None if against is None else answers_of(against, target)
    values = to_judge(answers) if others is None else to_compare(answers, others)
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
    done = (await run_plan(plan_of(Plan, record, target, judge, against), policy, session)).record
    answers, parts = answers_of(record, target), [agent.part for agent in done.plan.agents]
    said = {part.key: one for part, one in zip(parts, done.results, strict=True) if part is not None}
    pairs = against is not None
    found = (compared if pairs else judged)(judge, target, answers, said)
    rows = (compared_rows if pairs else score_rows)(found)
    frame = keep_grades(record, grades, answers, found, rows)
    frame.attrs["cost_usd"] = total_cost(done.results) if done.attempts else 0.0
    frame.attrs["committed_usd"] = done.committed_usd
    return frame
