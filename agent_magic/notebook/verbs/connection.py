"""Who answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.errors import did_you_mean
from agent_magic.notebook.verb import Desk, Parser, Verb

if TYPE_CHECKING:
    from argparse import Namespace

SIMULATOR_OPTIONS = ("seed", "latency", "rpm", "itpm", "otpm", "script")


def _options(parser: Parser) -> None:
    parser.add_argument("where", nargs="?", metavar="WHERE", help="simulator, or api for the real one.")
    parser.add_argument("--seed", type=int, default=0, help="Changes every simulated text and duration.")
    parser.add_argument("--latency", default="real", help="none, fast, real, or a factor such as x0.1.")
    parser.add_argument("--rpm", type=float, help="Simulated limit of requests per minute.")
    parser.add_argument("--itpm", type=float, help="Simulated limit of input tokens per minute.")
    parser.add_argument("--otpm", type=float, help="Simulated limit of output tokens per minute.")
    parser.add_argument("--script", metavar="FILE", help="Scripted answers, one JSON object a line.")


def _connect(desk: Desk, given: Namespace) -> None:
    if given.where == "simulator":
        desk.session.connect_simulator(**{name: getattr(given, name) for name in SIMULATOR_OPTIONS})
    elif given.where == "api":
        desk.session.disconnect()
    elif given.where is not None:
        hint = did_you_mean(given.where, ("simulator", "api")) or " It is simulator, or api."
        raise UsageError(f"%agents connect {given.where}: unknown.{hint}")
    print(f"Answers come from {desk.session.connection}.")  # noqa: T201 - the answer


VERBS = {
    "connect": Verb(
        "Say who answers: simulator, or api. Without a word: show it.",
        _options,
        _connect,
        examples=(
            "%agents connect simulator",
            "%agents connect simulator --latency fast --rpm 50    # quick answers, at most 50 a minute",
            "%agents connect api",
        ),
    )
}
