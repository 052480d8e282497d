"""`%agents help`: the list of the commands, or one with its options and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.declare.options import AGENT, flag_of
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.front_end import is_kernel, show_page
from agent_magic.notebook.verbs import VERBS as EVERY
from agent_magic.show.page import Line, Page

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

MARKS: Final = {"line": "%", "cell": "%%"}
_FLAGS: Final = {flag_of(row): row for row in AGENT.values()}


def _options(parser: Parser) -> None:
    parser.add_argument("command", nargs="?", metavar="NAME", help="One of the commands, or an option of %%agent.")


def _help(ctx: CommandContext, given: Namespace) -> None:
    flag = f"--{given.command}"
    if given.command not in EVERY and flag in _FLAGS:
        told = Line(_FLAGS[flag].help, head=f"%%agent NAME {flag}:")
        page = Page([told, Line("%%agent? lists all options.", "soft")])
    else:
        magics: Mapping[str, Mapping[str, object]] = ctx.shell.magics_manager.magics
        others = [f"{mark}{given.command}" for kind, mark in MARKS.items() if given.command in magics[kind]]
        more = [Line(f"{other} is another command: {other}? shows its help.", "soft") for other in others]
        page = Page([*EVERY.help(given.command).blocks, *more])
    show_page(page, graphic=is_kernel(ctx.shell))


VERBS = {
    "help": Verb(
        "List the commands, or explain one with its options and examples.",
        _options,
        _help,
        examples=("%agents help", "%agents help run", "%agents run --help    # the same"),
    )
}
