"""Edit an answer, and go on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.command import EDIT, CommandContext, Parser, Verb, add_name
from agent_magic.notebook.editing import edit_answer, text_to_edit
from agent_magic.notebook.front_end import note, put_cell, say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from agent_magic.api import Run


def _options(parser: Parser) -> None:
    add_name(parser)
    parser.add_argument("--undo", action="store_true", help="Take the edit back: the model's answer counts again.")


def _edit(ctx: CommandContext, given: Namespace) -> None:
    """Put a cell with the answer below, to be changed and run; or undo an edit."""
    run = ctx.session.last_run()
    if given.undo:
        run.unedit(given.name, session=ctx.session.shared)
        say(f"Taken back: {given.name} has the model's answer again. %agents run goes on from it.")
        return
    text = text_to_edit(run, given.name)
    put_cell(ctx.shell, f"%%agents {EDIT} {given.name}\n{text}")


def edit_cell(ctx: CommandContext, line: str, text: str) -> None:
    """Take a cell's text as the answer of an agent of the last run."""
    parser = Parser(f"%%agents {EDIT}")
    add_name(parser)
    name = parser.read(line.split(maxsplit=1)[1] if line.split()[1:] else "").name
    if not text.strip():
        raise UsageError(f"%%agents {EDIT} {name}: the cell is empty. Write the answer below the first line.")
    say(edit_answer(ctx.session, ctx.session.last_run(), name, text.removesuffix("\n")))


def take_back(ctx: CommandContext, run: Run, names: Iterable[str]) -> None:
    """Take back the edits of agents that are to be asked again by name."""
    asked = {
        run.plan.names[one]
        for one in run.plan.numbers(one for one in names if one in {*run.plan.index, *run.plan.groups})
    }
    edits = {name for name, _ in run.record.edits}
    edits |= {one.name for one in run.record.results if one.original is not None}
    for name in sorted(edits & asked):
        run.unedit(name, session=ctx.session.shared)
        note(f"{name} is asked again, so its edit is taken back")


VERBS = {
    EDIT: Verb(
        "Edit an answer of the last run: a cell comes below with it. The next run asks again what depends on it.",
        _options,
        _edit,
        examples=(
            "%agents edit writer",
            "%%agents edit writer    # such a cell: your answer stands below its first line",
            "%agents edit writer --undo",
            'run.edit("writer", text)    # the same in Python',
        ),
    ),
}
