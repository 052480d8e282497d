"""What answers are worth: grade them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.errors import did_you_mean
from agent_magic.measure.judge import Judge, judge
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.planning import show_price
from agent_magic.notebook.settings import add_policy

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd


def _score_options(parser: Parser) -> None:
    parser.add_argument("target", metavar="AGENT.FIELD", help="An agent or a group, and the field of a typed answer.")
    _add_graders(parser)
    parser.add_argument(
        "--judge", metavar="QUESTION", help="Ask a model: a question, or a variable with am.judge(...)."
    )
    add_policy(parser)


def _add_graders(parser: Parser) -> None:
    parser.add_argument("--truth", metavar="COLUMN", help="The column of the rows, or a variable, with what is true.")
    parser.add_argument("--grader", metavar="FUNCTION", help="Takes (answer, row); returns a number or a bool.")


async def _score(ctx: CommandContext, given: Namespace) -> pd.DataFrame:
    run = ctx.session.last_run()
    how = {name: value for name in ("truth", "grader", "judge") if (value := getattr(given, name)) is not None}
    if len(how) != 1:
        raise UsageError("%agents score takes one of --truth COLUMN, --grader FUNCTION and --judge QUESTION.")
    if given.judge is None:
        return run.score(given.target, **graders_of(ctx, given))
    asked = ctx.shell.user_ns.get(given.judge)
    asked = asked if isinstance(asked, Judge) else judge(given.judge)
    await show_price(run.judge_plan(given.target, asked), ctx.session, ctx.policy(given))
    return await run.judge(given.target, asked, policy=ctx.policy(given))


def graders_of(ctx: CommandContext, given: Namespace) -> dict[str, Any]:
    """Return `truth` and `grader` as the options name them: a function or values of the notebook, or a column.

    Raises:
        UsageError: There is no such function.
    """
    found: dict[str, Any] = {}
    if given.truth is not None:
        value = ctx.shell.user_ns.get(given.truth)
        found["truth"] = given.truth if value is None or callable(value) else value
    if given.grader is not None:
        if not callable(ctx.shell.user_ns.get(given.grader)):
            names = [name for name, value in ctx.shell.user_ns.items() if callable(value)]
            hint = did_you_mean(given.grader, names) or " Define it: def right(answer, row): return ..."
            raise UsageError(f"--grader {given.grader}: there is no such function.{hint}")
        found["grader"] = ctx.shell.user_ns[given.grader]
    return found


VERBS = {
    "score": Verb(
        "Grade answers of the last run: against a column, by a function, or by a model as judge (its price first).",
        _score_options,
        _score,
        waits=True,
        examples=(
            "%agents score label.sentiment --truth true_sentiment",
            "%agents score report --grader has_three_sources    # def has_three_sources(answer, row): ...",
            '%agents score report --judge "Is every claim supported?" --budget 0.50',
        ),
    ),
}
