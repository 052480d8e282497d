"""`run.judge(...)`: a judge's plan runs like any other, and its verdicts become grades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.api.plan import Plan
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.measure.compare import record_of
from agent_magic.measure.judge import Judge, compared, compared_rows, judged, to_compare, to_judge
from agent_magic.measure.metrics import total_cost
from agent_magic.measure.scores import answers_of, keep_grades, score_rows

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.api.run import Run
    from agent_magic.api.session import Session
    from agent_magic.engine.policy import Policy


def plan_of(run: Run, target: str, judge: Judge, against: Run | None) -> Plan:
    """Return the plan of a judge; see `Run.judge_plan`."""
    answers = answers_of(run.record, target)
    if not isinstance(judge, Judge):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError("judge must be am.judge('...').", hint="A function goes to run.score(grader=...).")
    others = None if against is None else answers_of(record_of(against, "judge"), target)
    values = to_judge(answers) if others is None else to_compare(answers, others)
    if not any(values.values()):
        raise PlanError(f"{target!r} has no answer to judge. Look at run.agents for what became of it.")
    return Plan([judge.agent(pairs=others is not None)], values, name=f"{run.plan.name}: {judge.name}")


async def ask_judge(
    run: Run, target: str, judge: Judge, against: Run | None, policy: Policy | None, session: Session
) -> pd.DataFrame:
    """Run a judge's plan and grade the answers by its verdicts; see `Run.judge`."""
    plan = plan_of(run, target, judge, against)
    done = await plan.run(policy, session=session)
    answers, parts = answers_of(run.record, target), [agent.part for agent in done.plan.agents]
    said = {part.key: one for part, one in zip(parts, done.record.results, strict=True) if part is not None}
    pairs = against is not None
    grades = (compared if pairs else judged)(judge, target, answers, said)
    rows = (compared_rows if pairs else score_rows)(grades)
    frame = keep_grades(run.record, run.grades, answers, grades, rows)
    frame.attrs["cost_usd"] = total_cost(done.record.results) if done.record.attempts else 0.0
    frame.attrs["committed_usd"] = done.record.committed_usd
    return frame
