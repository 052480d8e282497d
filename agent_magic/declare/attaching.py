"""What agents attach: read when a plan is frozen, put before the text, and checked before anything is sent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.content import Attachment, Placed, Prompt, check_sizes
from agent_magic.declare.values import (
    RenderError,
    as_attachment,
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
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.declare.step import Step


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
