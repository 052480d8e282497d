"""The commands of `%agents`, a module per group. To add one, write its `Verb` into a group."""

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


def _help_options(parser: Parser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="One of the commands.")


def _help(ctx: CommandContext, given: Namespace) -> None:
    show_page(VERBS.help(given.command), graphic=is_kernel(ctx.shell))


HELP = Verb(
    "List the commands, or explain one with its options and examples.",
    _help_options,
    _help,
    examples=("%agents help", "%agents help run", "%agents run --help    # the same"),
)

VERBS = Commands(
    {
        "declare": declared.VERBS | plans.VERBS,
        "run": runs.VERBS | batches.VERBS,
        "read": results.VERBS,
        "steer": steering.VERBS | people.VERBS,
        "improve": trials.VERBS | worth.VERBS,
        "come back": ledger.VERBS,
        "share": cassettes.VERBS,
        "connect": provider.VERBS | workers.VERBS | mcp.VERBS,
        "operate": operations.VERBS,
        "set up": doctor.VERBS | {"help": HELP},
    }
)
"""Every command by its name, under what a user wants to do."""
