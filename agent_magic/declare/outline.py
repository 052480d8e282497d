"""A plan without the user's texts: steps, edges and options, and no prompts, values, items, schemas or functions.

A forecast needs only the recorded run and this shape, so what-ifs work without texts and without Jinja2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.agent import Agent
from agent_magic.declare.condition import condition_of
from agent_magic.declare.options import AGENT, to_plain
from agent_magic.declare.plan_json import part_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent_magic.declare.attaching import Parts
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

TEXT: Final = "."
"""Stands for a text."""


def outline_of(plan: Plan, replaced: Callable[[str], str], prompts: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Return plain data for `plan_from_dict`, with only these prompts, and contexts as `replaced` returns them."""
    prompts = prompts or {}
    conditions = [text for one in plan.agents for text in (one.when, one.until) if text is not None]
    values = {name: TEXT for text in conditions for name in condition_of(text).names if not _is_step(plan, name)}
    contexts = {one.context: _text(plan.context_of(at)) for at, one in enumerate(plan.agents) if _has_context(one)}
    return {
        "name": plan.name,
        "on_cycle": plan.on_cycle,
        "on_missing": plan.on_missing,
        "agents": [_step(plan, one, prompts.get(at, TEXT)) for at, one in enumerate(plan.agents)],
        "values": {**values, **{str(name): replaced(text) for name, text in contexts.items()}},
    }


def _text(context: str | Parts | None) -> str:
    if isinstance(context, str | None):
        return context or ""
    return " ".join(one if isinstance(one, str) else one.label for one in context)


def _has_context(step: Step) -> bool:
    return isinstance(step, Agent) and step.context is not None


def _is_step(plan: Plan, name: str) -> bool:
    return name in plan.index or name in plan.groups


def _step(plan: Plan, step: Step, prompt: str) -> dict[str, Any]:
    uses = [name for name in step.uses if _is_step(plan, name)]
    found: dict[str, Any] = {"name": step.name, "after": list(step.after)}
    for option in ("when", "until"):
        text = getattr(step, option)
        if text is not None:
            condition = condition_of(text, step.name, option)
            found[option] = " and ".join(_asked(condition.names, condition.can_miss))
    if step.part is not None:
        found["part"] = {**part_to_dict(step.part), "key": step.part.number, "item": None, "asks": 0}
        for name in ("levels", "dtypes"):
            found["part"].pop(name, None)
    if not isinstance(step, Agent):
        known = {"rounds": step.rounds, "priority": step.priority, "timeout_s": step.timeout_s, "race": step.race}
        optional = sorted(step.optional.intersection(uses))
        return {**found, **_said(known), "kind": "task", "parameters": uses, "optional": optional}
    can_miss = step.can_miss if plan.flow is not None else frozenset[str]()
    if _has_context(step) and step.schema:  # agents of other types share no cache
        schemas = sorted({one.schema for one in plan.agents if isinstance(one, Agent)})
        # Shorter than any other: missing length can be filled up, excess cannot be taken away.
        found["returns"] = {"type": "object", "properties": {str(schemas.index(step.schema)): {"enum": [1]}}}
    if step.cascade:
        found["escalate"] = "answer"
    batch = step.batch or ("off" if step.tools.functions else None)
    answers = "".join(f"{{{{ {name} }}}}" for name in _asked(uses, can_miss))
    known = {name: value for name, value in to_plain(step).items() if AGENT[name].outlined}
    return {**found, **_said({**known, "batch": batch}), "prompt": prompt + answers}


def _asked(names: Iterable[str], can_miss: frozenset[str]) -> list[str]:
    return [f"{name} | default('')" if name in can_miss else name for name in names]


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value}
