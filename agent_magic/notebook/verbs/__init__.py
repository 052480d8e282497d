"""The commands of `%agents`, a module per group. To add one, write its `Verb` into a group; the table finds it."""

from __future__ import annotations

from argparse import Namespace

from agent_magic.notebook.command import CommandContext, Commands, Parser, Verb
from agent_magic.notebook.front_end import is_kernel, show_page
from agent_magic.notebook.verbs import (
    batches,
    cassettes,
    declared,
    doctor,
    ledger,
    mcp,
    operations,
    people,
    plans,
    provider,
    results,
    runs,
    steering,
    trials,
    workers,
    worth,
)

__all__ = ["VERBS"]

GROUPS = (
    declared,
    plans,
    runs,
    batches,
    ledger,
    results,
    worth,
    trials,
    cassettes,
    steering,
    people,
    provider,
    workers,
    mcp,
    operations,
    doctor,
)
VERBS = Commands({name: verb for group in GROUPS for name, verb in group.VERBS.items()})
"""Every command by its name."""


def _help_options(parser: Parser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="One of the commands.")


def _help(ctx: CommandContext, given: Namespace) -> None:
    show_page(VERBS.help(given.command), graphic=is_kernel(ctx.shell))


VERBS["help"] = Verb(
    "List the commands, or explain one with its options and examples.",
    _help_options,
    _help,
    examples=("%agents help", "%agents help run", "%agents run --help    # the same"),
)
