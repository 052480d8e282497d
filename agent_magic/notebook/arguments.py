"""The command lines of `%%agent` and of the subcommands of `%agents`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from agent_magic.errors import did_you_mean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

Parser = MagicArgumentParser


def _run_options(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these agents and what they wait for.")
    parser.add_argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default.")
    parser.add_argument("--concurrency", type=int, metavar="N", help="The most requests under way at once.")
    parser.add_argument("--schedule", metavar="WORD", help="ready, layers or sequential.")
    parser.add_argument("--max-attempts", type=int, metavar="N", help="The most requests for one agent.")
    parser.add_argument("--timeout", type=float, metavar="S", help="Deadline in seconds of agents that name none.")
    parser.add_argument("--cache", metavar="WORD", help="auto, on or off: caching of contexts that agents share.")
    parser.add_argument("--deadline", type=float, metavar="S", help="Seconds after which nothing of the run goes on.")
    parser.add_argument("--budget", type=float, metavar="USD", help="The most dollars; the cap cannot be crossed.")
    parser.add_argument("--budget-tokens", type=int, metavar="N", help="The most tokens, input and output together.")
    parser.add_argument("--on-max-tokens", metavar="WORD", help="fail, warn or allow answers cut at max_tokens.")
    parser.add_argument("--on-cycle", metavar="WORD", help="error or sequential.")
    parser.add_argument("--on-missing", metavar="WORD", help="error or drop.")
    parser.add_argument("--fresh", action="store_true", help="Buy again what was bought before.")


def _plan_options(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these agents and what they wait for.")
    parser.add_argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default.")
    parser.add_argument("--on-cycle", metavar="WORD", help="error or sequential.")
    parser.add_argument("--on-missing", metavar="WORD", help="error or drop.")


def _connect_options(parser: Parser) -> None:
    parser.add_argument("where", nargs="?", metavar="WHERE", help="simulator, or api for the real one.")
    parser.add_argument("--seed", type=int, default=0, help="Changes every simulated text and duration.")
    parser.add_argument("--latency", default="real", help="none, fast, real, or a factor such as x0.1.")
    parser.add_argument("--rpm", type=float, help="Simulated limit of requests per minute.")
    parser.add_argument("--itpm", type=float, help="Simulated limit of input tokens per minute.")
    parser.add_argument("--otpm", type=float, help="Simulated limit of output tokens per minute.")
    parser.add_argument("--script", metavar="FILE", help="Scripted answers, one JSON object a line.")


def _names_options(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Agents.")
    parser.add_argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default.")


def _name_options(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="An agent of the last run.")


def _file_options(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A cassette, such as run.cassette.jsonl.")


def _no_options(parser: Parser) -> None:
    del parser


def _list_options(parser: Parser) -> None:
    parser.add_argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default.")


COMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "list": ("List the declared agents by layer.", _list_options),
    "plan": ("Show the graph, the prompts and what they may cost. Nothing is spent.", _plan_options),
    "run": ("Run the agents and show the graph while they run. Returns the run.", _run_options),
    "start": ("Run in the background; the next cells work meanwhile.", _run_options),
    "wait": ("Wait for the run in the background. Returns the run.", _no_options),
    "stop": ("Stop the run in the background, or these agents of it.", _names_options),
    "last": ("Return the last run, one that was cut too.", _no_options),
    "show": ("Show the answer of an agent of the last run.", _name_options),
    "error": ("Show all that is known of why an agent of the last run failed.", _name_options),
    "drop": ("Forget agents.", _names_options),
    "clear": ("Forget all agents of a plan.", _list_options),
    "record": ("Write the last run to a cassette, to share it.", _file_options),
    "replay": ("Let a cassette answer from now on: no key, no network, the recorded clock.", _file_options),
    "connect": ("Say who answers: simulator, or api. Without a word: show it.", _connect_options),
}
"""Every subcommand with its help and its options."""
AWAITED = frozenset({"run", "plan", "start", "wait"})
"""The subcommands that wait for something."""


def split_command(line: str) -> tuple[str, str]:
    """Split `run a --fresh` into `run` and the rest. An empty line is `list`.

    Raises:
        UsageError: There is no such subcommand.
    """
    command, _, rest = line.strip().partition(" ")
    command = command or "list"
    if command.startswith("-"):
        return "list", line.strip()
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS) or f" One of {', '.join(COMMANDS)}."
        raise UsageError(f"%agents {command}: there is no such command.{hint}")
    return command, rest.strip()


def waits(magic: str, argument: str | None) -> bool:
    """Tell whether a call of a magic has to wait for something; see `AwaitRewriter`."""
    del magic
    if argument is None:
        return True
    return argument.strip().partition(" ")[0] in AWAITED


def read_command(command: str, rest: str) -> Namespace:
    """Read the options of a subcommand.

    Raises:
        UsageError: An option is unknown, or its value is wrong.
    """
    what, options = COMMANDS[command]
    parser = _Parser(prog=f"%agents {command}", description=what, add_help=False)
    options(parser)
    try:
        given: Namespace = cast("Any", parser).parse_argstring(rest)
    except ValueError as error:  # an open quotation
        raise UsageError(f"%agents {command}: {error}.") from None
    return given


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


__all__ = ["AWAITED", "COMMANDS", "Parser", "read_command", "split_command", "waits"]
