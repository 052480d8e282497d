"""A context: text, pictures and documents that several agents share, sent before their prompts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_magic.declare.content import blocks_of
from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_name, compare_names
from agent_magic.declare.values import RenderError, check_values, sendable, value_text
from agent_magic.errors import DeclarationError, PlanError, UndefinedVariable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.step import Step


@dataclass(frozen=True, slots=True)
class Context:
    """A declared context. Declaring one sends nothing.

    It is rendered once, when a plan is created: the provider's cache requires the same bytes for every agent that
    shares it. So it may use values, but no agent's answer.

    Args:
        name: The key: agents share it by `context=NAME`, and `{{ NAME }}` in a prompt is its text.
        text: A Jinja2 template, with the rules of a prompt. With a picture or document in it, it is sent in parts, as a
            list is.

    Raises:
        DeclarationError: The name or the template is invalid.
    """

    name: str
    text: str = field(repr=False)
    template: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, "a context")
        if not isinstance(self.text, str) or not self.text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "Write its text below the %%context line, or give text='...'."
            raise DeclarationError(f"Context {self.name!r} is empty.", hint=hint)
        template = Template.parse(self.text, agent=self.name, title=f"Context {self.name!r}")
        object.__setattr__(self, "template", template)
        if self.name in self.uses:
            hint = "Give the context or the variable another name."
            raise DeclarationError(f"Context {self.name!r} uses its own name, {{{{ {self.name} }}}}.", hint=hint)
        compare_names(self)

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of the values it uses, in order of appearance."""
        return self.template.names

    def render(self, values: Mapping[str, Any]) -> str | list[str | Attachment]:
        """Return the text that is sent; with pictures or documents in it a list of the parts, in order.

        Args:
            values: A value for each of `uses`.

        Raises:
            DeclarationError: One of its expressions fails, a value can be read only once, or it renders empty.
        """
        check_values(self.uses, values, f"Context {self.name!r}")
        found = self.template.render(values)
        if found.attachments:
            return blocks_of(found.text, found.attachments)
        return self.template.check_not_empty(found.text)


def context_of(agent: Step, values: Mapping[str, Any]) -> str | None:
    if agent.context is None:
        return None
    value = values[agent.context]
    try:
        text = value_text(agent.context, value)
    except RenderError as error:
        message = f"The context of agent {agent.name!r} cannot be rendered: {error}."
        raise DeclarationError(message, agent=agent.name) from None
    if not text.strip():
        message = f"The context {agent.context!r} of agent {agent.name!r} is empty."
        raise DeclarationError(message, agent=agent.name, hint="Fill it, or leave context out.")
    return sendable(text)


def with_contexts(contexts: Sequence[Context], agents: Sequence[Step], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the text of each used context to the values; refuse one that uses an agent or another context."""
    if not contexts:
        return values
    by_name = {one.name: one for one in contexts}
    own = {agent.name if agent.part is None else agent.part.group for agent in agents}
    for name, count in Counter(one.name for one in contexts).items():
        if count > 1:
            raise PlanError(f"Two contexts are named {name!r}. Rename one of them, or leave one out.")
        if name in own:
            raise PlanError(f"{name!r} is both an agent and a context. Rename one of them.")
    used = dict.fromkeys(name for agent in agents for name in agent.reads if name in by_name)
    return {**values, **{name: _rendered(by_name[name], own, by_name, values) for name in used}}


def _rendered(context: Context, agents: Collection[str], contexts: Iterable[str], values: Mapping[str, Any]) -> Any:
    for name in context.uses:
        if name in agents:
            raise PlanError(
                f"Context {context.name!r} uses the answer of agent {name!r}. A context must be the same for all who "
                f"share it, and is sent before any answer: put {{{{ {name} }}}} into a prompt."
            )
        if name in contexts:
            raise PlanError(
                f"Context {context.name!r} uses the context {name!r}. Contexts do not nest: put the shared text into a "
                "variable that both use."
            )
        if name not in values:
            raise UndefinedVariable(name, user=f"Context {context.name!r}", known=values)
    return context.render(values)
