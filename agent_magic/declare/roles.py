"""Roles: short system prompts with the perspective of an agent.

Add one with `am.roles["lawyer"] = "You are a lawyer. ..."`, then `--role lawyer`. Agents take the text when they are
declared.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent_magic.declare.validation import check_name, check_text, must_be
from agent_magic.errors import DeclarationError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


class Roles(dict[str, str]):
    """System prompts by role. Names are read in any capitalization."""

    def __setitem__(self, name: str, text: str) -> None:
        """Add a role, or give one another text.

        Raises:
            DeclarationError: The name is not one word, or the text is empty.
        """
        check_name(name, "a role")
        check_text(f"role {name!r}", text)
        if not text.strip():
            raise must_be(f"role {name!r}", "the text of a system prompt", text)
        super().__setitem__(name.lower(), text)

    def __getitem__(self, name: str) -> str:
        """Return the text of a role."""
        return super().__getitem__(name.lower())

    def update_all(self, roles: Mapping[str, str]) -> None:
        """Add several; see `__setitem__`."""
        for name, text in roles.items():
            self[name] = text

    def read(self, name: object, agent: str) -> tuple[str, str]:
        """Return a role as it is written here, and its text.

        Raises:
            DeclarationError: There is no such role.
        """
        found = name.lower() if isinstance(name, str) else name
        if not isinstance(found, str) or found not in self:
            hint = f"{did_you_mean(found, self)} Your own: am.roles['name'] = 'You are ...'"
            error = partial(DeclarationError, agent=agent)
            raise must_be(f"role of agent {agent!r}", f"one of {', '.join(self)}", name, hint, error=error)
        return found, self[found]


BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "researcher": "You are a researcher. Gather what is known about the question, say how sure you are of each "
        "point, and keep facts apart from opinions. Do not recommend anything yet.",
        "analyzer": "You are an analyst. Compare the material you are given, name patterns, contradictions and gaps, "
        "and say what follows from it. Bring in no new facts.",
        "planner": "You are a planner. Turn the goal into steps with an order, an owner's role and a check for each, "
        "and name the risks that could change the order.",
        "writer": "You are a writer. Turn the material into clear prose for its reader. Keep every number and every "
        "reservation of your sources.",
        "critic": "You are a critic. Look for the weakest assumptions, the missing evidence and the cheapest way to "
        "be wrong. Say what would change your mind.",
        "synthesizer": "You are a synthesizer. Bring the contributions together into one answer: what they agree on, "
        "where they differ and why, and what to do.",
        "coordinator": "You are a coordinator. Line up the contributions, find what is missing or doubled between "
        "them, and hand over one consistent picture.",
    }
)
ROLES = Roles(BUILT_IN)
