"""Reads the line of `%agents`: which subcommand, with which options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError

from agent_magic.errors import did_you_mean
from agent_magic.notebook.verb import Parser
from agent_magic.notebook.verbs import VERBS

if TYPE_CHECKING:
    from argparse import Namespace

_HELP = frozenset({"--help", "-h"})


def split_command(line: str) -> tuple[str, str]:
    """Split `run a --fresh` into `run` and the rest. An empty line is `list`, and `run --help` is `help run`.

    Raises:
        UsageError: There is no such subcommand.
    """
    line = without_comment(line)
    command, _, rest = line.strip().partition(" ")
    command = command or "list"
    if command in _HELP:
        return "help", rest.strip()
    if command.startswith("-"):
        return "list", line.strip()
    if command not in VERBS:
        hint = did_you_mean(command, VERBS) or f" One of {', '.join(VERBS)}."
        raise UsageError(f"%agents {command}: there is no such command.{hint}")
    if _HELP.intersection(rest.split()):
        return "help", command
    return command, rest.strip()


def without_comment(line: str) -> str:
    """Cut off what stands behind a `#` at the start of a word, outside quotes: it is said to people, as in Python."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place].rstrip()
    return line


def waits(magic: str, argument: str | None) -> bool:
    """Tell whether a call of a magic has to wait for something; see `AwaitRewriter`."""
    del magic
    if argument is None:
        return True
    verb = VERBS.get(without_comment(argument).strip().partition(" ")[0])
    return verb is not None and verb.waits


def read_command(command: str, rest: str) -> Namespace:
    """Read the options of a subcommand.

    Raises:
        UsageError: An option is unknown, or its value is wrong.
    """
    parser: Any = parser_of(command)
    try:
        given = unquoted(parser.parse_argstring(rest))
    except ValueError as error:  # an open quotation
        raise UsageError(f"%agents {command}: {error}.") from None
    return given


def unquoted(given: Namespace) -> Namespace:
    """Take the quotes off that IPython leaves around an argument."""
    for name, value in vars(given).items():
        if isinstance(value, str):
            setattr(given, name, _without_quotes(value))
        elif isinstance(value, list):
            setattr(given, name, [_without_quotes(one) for one in cast("list[str]", value)])
    return given


def _without_quotes(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def parser_of(command: str) -> Parser:
    """Make the reader of a subcommand's options."""
    parser = _Parser(prog=f"%agents {command}", description=VERBS[command].help, add_help=False)
    VERBS[command].options(parser)
    return parser


class _Parser(Parser):
    """A reader whose errors say what to do next."""

    def error(self, message: str) -> Any:
        """Raise `UsageError` in place of leaving the program."""
        unknown = message.removeprefix("unrecognized arguments: ")
        hint = ""
        if unknown != message:
            known = [option for action in self._actions for option in action.option_strings]
            word = unknown.split()[0]
            hint = did_you_mean(word, known) or (f" Options: {', '.join(known)}." if known else "")
            message = f"unknown option {unknown!r}."
        raise UsageError(f"{self.prog}: {message}{hint}")
