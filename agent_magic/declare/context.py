"""A context: text that several agents share, sent before anything of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_name
from agent_magic.errors import DeclarationError, PlanError, UndefinedVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.declare.agent import Agent


@dataclass(frozen=True, slots=True)
class Context:
    """A declared context. A value: declaring one sends nothing.

    It is written once, when a plan is made, so that it is the same bytes for every agent that shares it: only then can
    the provider's cache serve it. It takes values, therefore, and no agent's answer.

    Args:
        name: The key: agents share it by `context=NAME`, and a prompt that names it takes its text.
        text: A Jinja2 template, with the rules of a prompt.

    Raises:
        DeclarationError: The name or the template cannot be read.
    """

    name: str
    text: str = field(repr=False)
    template: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, "a context")
        if not isinstance(self.text, str) or not self.text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(f"Context {self.name!r} has no text.", hint="Write it below the line.")
        template = Template.parse(self.text, agent=self.name, title=f"Context {self.name!r}")
        object.__setattr__(self, "template", template)

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of the values it takes, in order of appearance."""
        return self.template.names

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text that goes out.

        Args:
            values: A value for each of `uses`.

        Raises:
            DeclarationError: One of its expressions fails, or it is empty.
        """
        return self.template.check_not_empty(self.template.render(values))


def with_contexts(contexts: Iterable[Context], agents: Sequence[Agent], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values, the text of each context that an agent uses among them.

    Raises:
        PlanError: Two contexts have one name, one has an agent's, or one uses an agent or another context.
        UndefinedVariable: One uses a name without a value.
        DeclarationError: One of their expressions fails.
    """
    by_name: dict[str, Context] = {}
    for one in contexts:
        if one.name in by_name:
            raise PlanError(f"Two contexts are named {one.name!r}. Rename one of them, or leave one out.")
        by_name[one.name] = one
    if not by_name:
        return values
    own = {agent.name if agent.part is None else agent.part.group for agent in agents}
    for name in by_name:
        if name in own:
            raise PlanError(f"{name!r} is both an agent and a context. Rename one of them.")
    used = dict.fromkeys(name for agent in agents for name in agent.reads if name in by_name)
    for name in used:
        _check_uses(by_name[name], own, by_name, values)
    return {**values, **{name: by_name[name].render(values) for name in used}}


def _check_uses(
    context: Context, agents: Iterable[str], contexts: Mapping[str, Context], values: Mapping[str, Any]
) -> None:
    """Raise for the first name that a context cannot take."""
    own = set(agents)
    for name in context.uses:
        if name in own:
            raise PlanError(
                f"Context {context.name!r} uses the answer of agent {name!r}. A context goes out before any "
                f"answer, the same for all who share it: put {{{{ {name} }}}} into a prompt."
            )
        if name in contexts:
            raise PlanError(
                f"Context {context.name!r} uses the context {name!r}. Contexts do not nest: put the shared text into a "
                "variable that both use."
            )
        if name not in values:
            raise UndefinedVariable(name, user=f"Context {context.name!r}", known=values)
