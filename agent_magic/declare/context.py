"""What goes before an agent's prompt: a shared context, the conversation of another agent, attachments.

An agent that continues a conversation (`%%agent more --continues analyst`) sends the other's requests byte for byte,
followed by its prompt. It inherits tools, and by default model and effort: with others the provider's cache would have
nothing.

Attachments are read when a plan is frozen, put before the text, and checked before anything is sent.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.content import Attachment, Placed, Prompt, blocks_of, check_sizes
from agent_magic.declare.each import firsts, groups_of, view_of
from agent_magic.declare.options import INHERITED
from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_name, compare_names
from agent_magic.declare.values import (
    RenderError,
    as_attachment,
    check_values,
    frozen,
    holds_content,
    is_frozen,
    is_lazy,
    is_one,
    reader_of,
    sendable,
    text_document,
    value_text,
)
from agent_magic.errors import DeclarationError, PlanError, UndefinedVariable

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.agent import Agent
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
    """Add the text of each used context to the values; a context may not use agents or other contexts."""
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


def with_conversations(agents: Sequence[Step], places: Sequence[range], values: Container[str]) -> Sequence[Step]:
    if all(one.continues is None for one in firsts(agents, places)):
        return agents
    groups = groups_of(agents, places)
    index = {one.name: number for number, one in enumerate(agents)}
    found: dict[int, Step] = {}

    def whole(number: int, through: frozenset[int]) -> Step:
        agent = agents[number]
        before = None if agent.continues is None else _continued(agents, index, groups, values, agent)
        if before is None or number in through:  # a name that is missing, or a cycle, is told as for any edge
            return agent
        if number not in found:
            found[number] = _inheriting(cast("Agent", agent), whole(before, through | {number}))
        return found[number]

    return [whole(number, frozenset()) for number in range(len(agents))]


def _continued(
    agents: Sequence[Step],
    index: Mapping[str, int],
    groups: Mapping[str, Mapping[int, int]],
    values: Container[str],
    agent: Step,
) -> int | None:
    name = str(agent.continues)
    if name not in groups:
        if name in values and name not in index:
            hint = "Name an agent; a value goes into the prompt."
            raise PlanError(f"Agent {agent.name!r} continues {name!r}, which is a value and no agent. {hint}")
        return index.get(name)
    view = view_of(agents, groups[name], agent)
    if view.kind == "all" and len(view.members) > 1:
        first = agents[view.members[0]].name
        raise PlanError(
            f"Agent {agent.name!r} continues {name!r}, which is {len(view.members):,} conversations. Name one, such as "
            f"{first}, or declare it for each of the same items."
        )
    return view.members[-1] if view.members else None


def _inheriting(agent: Agent, before: Step) -> Agent:
    if before.is_task:
        raise PlanError(f"Agent {agent.name!r} continues {before.name!r}, which is a function and has no conversation.")
    first = cast("Agent", before)
    if agent.tools and agent.tools_text != first.tools_text:
        raise PlanError(
            f"Agent {agent.name!r} continues {first.name!r} and has other tools. A conversation has the tools of its "
            "first agent: give them to it."
        )
    given = {option: getattr(agent, option) or getattr(first, option) for option in ("tools", *INHERITED)}
    given |= {"model": agent.cascade[0]} if agent.cascade else {}
    return agent if all(getattr(agent, option) == one for option, one in given.items()) else replace(agent, **given)


def read_content(steps: Sequence[Step], values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return values with pictures and queries read now, and what prompts show for tasks' values."""
    # A figure or query of which a prompt uses a part, such as `{{ ax.get_title() }}`, is unchanged.
    shown = [name for name, value in values.items() if not is_frozen(value)]
    if not shown:
        return values, {}
    taken = {path[0] for step in steps for path in step.template.paths}
    kept = {name for name in shown if name in taken and (is_one(values[name]) or is_lazy(values[name]))}
    found = {name: frozen(values[name], name) for name in shown if name not in kept}
    called = {name for step in steps if step.is_task for name in step.parameters}
    instead = {name: one for name, one in found.items() if name in called}
    return {**values, **{name: one for name, one in found.items() if name not in called}}, instead


def shows_content(agent: Step, values: Mapping[str, Any]) -> bool:
    if agent.attach or agent.cite or (agent.context is not None and holds_content(values.get(agent.context))):
        return True
    found = values if agent.part is None else {**values, **agent.part.values}
    return any(name in found and holds_content(found[name]) for name in agent.template.names)


def render(agent: Step, shared: Sequence[str | Attachment], values: Mapping[str, Any]) -> Prompt:
    """Fill in shared parts, attachments (as documents of their text if needed), and the text."""
    prompt = agent.template.render(values)
    if not agent.attach and not shared:
        return prompt
    own = [
        text_document(one, name) if isinstance(one, str) else one
        for name in agent.attach
        for one in _parts(name, values[name], agent.name, "attaches")
    ]
    text, placed = "", list[Placed]()
    for one in (*shared, *own):
        if isinstance(one, Attachment):
            placed.append(Placed(len(text), one))
        text += f"{one if isinstance(one, str) else one.label}\n"
    several = sum(len(one if isinstance(one, str) else one.label) + 1 for one in shared) if len(shared) > 1 else 0
    placed += [Placed(at + len(text), one) for at, one in prompt.attachments]
    return Prompt(text + prompt.text, tuple(placed), several)


Parts = tuple[str | Attachment, ...]
"""The pictures, documents and texts of a context, in order."""


def documents_of(agents: Sequence[Step], values: Mapping[str, Any]) -> dict[str | None, Parts]:
    users = {one.context: one for one in reversed(agents) if one.context is not None}
    return {
        name: tuple(_parts(name, values[name], user.name))
        for name, user in users.items()
        if name in values and holds_content(values[name])
    }


def _parts(name: str, value: object, agent: str, does: str = "shares") -> Iterator[str | Attachment]:
    if holds_content(value) and not is_one(value):
        every = cast("dict[str, object]", value).values() if isinstance(value, dict) else cast("list[object]", value)
        for one in every:
            yield from _parts(name, one, agent, does)
        return
    if isinstance(value, os.PathLike):
        raise DeclarationError(
            f"Agent {agent!r} {does} {name}, which is a path.",
            agent=agent,
            hint=f"Read it: {reader_of(cast('os.PathLike[str]', value), name)}.",
        )
    known = as_attachment(value, name)
    if known is not None:
        yield known
        return
    try:
        text = value_text(name, value)
    except RenderError as error:
        message = f"Agent {agent!r} {does} {name}, which cannot be written as text: {error}."
        raise DeclarationError(message, agent=agent) from None
    if text.strip():
        yield sendable(text)


def checked(prompt: Prompt, agent: Step, *, ahead: bool = False) -> Prompt:
    """Refuse a prompt that is empty, too large or has nothing to cite; `ahead` if answers are missing."""
    if not prompt.text or prompt.text.isspace():
        agent.template.check_not_empty(prompt.text)
    if prompt.attachments or agent.cite:
        _check_content(prompt, agent, ahead=ahead)
    return prompt


def _check_content(prompt: Prompt, agent: Step, *, ahead: bool) -> None:
    attachments = [one.attachment for one in prompt.attachments]
    check_sizes(attachments, agent.name, len(prompt.text.encode(errors="replace")))
    if agent.cite and not ahead and all(one.kind != "document" for one in attachments):
        message = f"Agent {agent.name!r} has cite, and no document to cite from."
        hint = "Give it one: am.pdf(path), am.text_file(path), or any text by --attach NAME."
        raise DeclarationError(message, agent=agent.name, hint=hint)
