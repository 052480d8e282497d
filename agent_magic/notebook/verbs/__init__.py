"""The subcommands of `%agents`, a module for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.notebook.verbs import (
    cassettes,
    connection,
    declared,
    limits,
    past,
    prices,
    results,
    runs,
    steering,
    trials,
)
from agent_magic.notebook.verbs.helping import help_verb

if TYPE_CHECKING:
    from agent_magic.notebook.verb import Verb

__all__ = ["VERBS"]

VERBS: dict[str, Verb] = {
    **declared.VERBS,
    **runs.VERBS,
    **past.VERBS,
    **results.VERBS,
    **trials.VERBS,
    **cassettes.VERBS,
    **steering.VERBS,
    **connection.VERBS,
    **limits.VERBS,
    **prices.VERBS,
}
"""Every subcommand by its name."""
VERBS["help"] = help_verb(VERBS)
