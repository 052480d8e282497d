"""What the subcommands do, in the words of their own tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.errors import did_you_mean
from agent_magic.notebook.verb import Desk, Parser, Verb

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

_WIDTH = 100


def help_verb(verbs: Mapping[str, Verb]) -> Verb:
    """Make the subcommand that explains the others.

    Args:
        verbs: The table it reads, when it is asked.
    """

    def do(_: Desk, given: Namespace) -> None:
        print(help_text(verbs, given.command))  # noqa: T201 - the answer

    examples = ("%agents help", "%agents help run", "%agents run --help    # the same")
    return Verb("Say what the commands do, or one of them with its options.", _options, do, examples=examples)


def help_text(verbs: Mapping[str, Verb], command: str | None = None) -> str:
    """Write what the subcommands do, or one of them with its options and examples.

    Raises:
        UsageError: There is no such subcommand.
    """
    if command is None:
        width = max(map(len, verbs))
        lines = [f"  {name:<{width}}  {verb.help}" for name, verb in verbs.items()]
        last = "%agents help COMMAND tells the options of one. %%agent? tells how to declare an agent."
        return "\n".join(["%agents COMMAND", *lines, "", last])
    if command not in verbs:
        hint = did_you_mean(command, verbs) or f" One of {', '.join(verbs)}."
        raise UsageError(f"%agents help {command}: there is no such command.{hint}")
    verb = verbs[command]
    make: Any = Parser
    parser = make(f"%agents {command}", add_help=False, formatter_class=_Layout)
    verb.options(parser)
    parts = [verb.help, parser.format_help().strip()]
    if verb.examples:
        parts.append("\n".join(["examples:", *(f"  {line}" for line in verb.examples)]))
    return "\n\n".join(parts)


class _Layout(argparse.HelpFormatter):
    """Help that a notebook shows without wrapping each line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=_WIDTH)


def _options(parser: Parser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="One of the commands.")
