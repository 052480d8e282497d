"""A subcommand of `%agents`: its help, its options, and what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from IPython.core.magic_arguments import MagicArgumentParser

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from agent_magic.api import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.notebook.session import Session

Parser = MagicArgumentParser


class Desk(Protocol):
    """What a subcommand works with: the session, the shell, and the defaults of `%config AgentMagics`."""

    session: Session
    shell: Any
    model: Any
    confirm_agents: Any
    confirm_usd: Any

    def freeze(self, given: Namespace) -> Plan:
        """Make the plan that the options name of what is declared."""
        ...

    def policy(self, given: Namespace) -> Policy:
        """Make the policy of the options, and of the defaults where they say nothing."""
        ...


class Verb(NamedTuple):
    """One subcommand.

    Attributes:
        help: What it does, in one sentence.
        options: Adds its options to a parser.
        do: Does it. A coroutine is awaited on the notebook's loop.
        waits: Whether `do` is a coroutine function.
        examples: Lines that show its use, each with what it does behind a `#` where that is not plain.
    """

    help: str
    options: Callable[[Parser], None]
    do: Callable[[Desk, Namespace], Any]
    waits: bool = False
    examples: tuple[str, ...] = ()


def add_plan(parser: Parser) -> None:
    """Add the option that names a plan."""
    parser.add_argument("--plan", default=None, metavar="P", help="The plan; 'agents' by default.")


def add_names(parser: Parser) -> None:
    """Add the names of agents, and of their plan."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="Agents.")
    add_plan(parser)


def add_name(parser: Parser) -> None:
    """Add the name of one agent of the last run."""
    parser.add_argument("name", metavar="NAME", help="An agent of the last run.")


def add_nothing(parser: Parser) -> None:
    """Take no options."""
    del parser
