"""Declarations of a plan, read back from its expanded steps, and plans with other options of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_magic.declare.agent import Agent
from agent_magic.declare.each import REPEATS, Part
from agent_magic.declare.grouping import apart, declared_agent, declared_name
from agent_magic.declare.options import AGENT
from agent_magic.declare.race import FIRST, HEDGE, declared_hedge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step


def declared_names(plan: Plan) -> tuple[str, ...]:
    """Return each step's declared name: of a member the group's, of a request its agent's."""
    hedged = {one.hedges for one in plan.agents}
    found: list[str] = []
    for one in plan.agents:
        name = declared_name(one)
        if one.hedges is not None:
            name = name.removesuffix(HEDGE)
        elif one.name in hedged:
            name = name.removesuffix(FIRST)
        found.append(name)
    return tuple(found)


def askers(plan: Plan, numbers: Iterable[int]) -> list[int]:
    """Return who asks for steps: for a grouped or hedged row, its requests."""
    found: list[int] = []
    hedged = {one.hedges for one in plan.agents if one.hedges is not None}
    for number in numbers:
        step = plan.agents[number]
        if step.part is not None and step.part.asked:
            found.append(plan.index[step.part.asked])
        elif step.race and step.parameters[0] in hedged:
            found += [plan.index[name] for name in step.parameters]
        else:
            found.append(number)
    return list(dict.fromkeys(found))


def declared(plan: Plan) -> Iterator[Step]:
    """Yield one step for all items of a value, or all rounds of a loop."""
    seen: set[str] = set()
    raced = {one.hedges: one for one in plan.agents if isinstance(one, Agent) and one.hedges is not None}
    for step in plan.agents:
        if step.race and step.parameters[0] in raced:
            again = declared_hedge(raced[step.parameters[0]])
            if again.name not in seen:
                seen.add(again.name)
                yield again
        elif step.hedges is not None or step.name in raced:  # its race stands for it
            continue
        elif step.part is None:
            yield step
        elif step.part.group not in seen:
            seen.add(step.part.group)
            if step.part.asked:  # its request stands for it
                continue
            yield _whole(step, step.part, len(plan.groups[step.part.group]))


def _whole(step: Step, part: Part, members: int) -> Step:
    again = part.over.startswith(REPEATS)
    if isinstance(step, Agent) and part.asks:
        return declared_agent(step, part)
    over: dict[str, Any] = {"repeat": members} if again else {} if part.rounds else {"each": part.over}
    return replace(step, name=part.group, part=None, **over)


CHANGED: Final = (*(name for name, row in AGENT.items() if row.changes), "prompt")
"""A named model replaces a cascade."""
ANEW: Final = ("group", "rounds", "most")
"""Options that determine the steps of a plan: a change expands it again."""
P = TypeVar("P", bound="Plan")


def with_options(
    kind: type[P], plan: Plan, changes: Mapping[int, Mapping[str, Any]], *, without: Collection[int] = ()
) -> P:
    agents = [
        with_changes(agent, changes.get(number, {}))
        for number, agent in enumerate(plan.agents)
        if number not in without
    ]
    return _of_steps(kind, plan, agents)


def declared_anew(kind: type[P], plan: Plan, changes: Mapping[str, Mapping[str, Any]]) -> P:
    """Change options by declared name, those included that determine the steps."""
    steps = [with_changes(one, changes.get(one.name, {})) for one in declared(plan)]
    return _of_steps(kind, plan, steps, {one.each: _items_of(plan, one.each) for one in steps if one.each is not None})


def asked_apart(kind: type[P], plan: P) -> P:
    """Return a plan that asks each item of a common request, those with the same prompt too."""
    shares = any(one.part is not None and one.part.shares for one in plan.agents)
    return _of_steps(kind, plan, apart(plan.agents)) if shares else plan


def _items_of(plan: Plan, over: str) -> dict[Any, Any]:
    parts = (one.part for one in plan.agents)
    return {one.key: one.item for one in parts if one is not None and one.over == over and not one.source}


def _of_steps(kind: type[P], plan: Plan, steps: Collection[Step], items: Mapping[str, Any] | None = None) -> P:
    return kind(
        tuple(steps),
        {**{name: each for name, each in (items or {}).items() if each}, **plan.values},
        name=plan.name,
        description=plan.description,
        on_cycle=plan.on_cycle,
        on_missing=plan.on_missing,
        on_conflict=plan.on_conflict,
        notes=plan.notes,
    )


def with_changes(step: Step, options: Mapping[str, Any]) -> Step:
    if options.get("model"):
        options = {**{row.name: row.default for row in AGENT.values() if row.replaced}, **options}
    return replace(step, **options)


def without_value(prompt: str, name: str) -> str:
    """Remove `{{ name }}` from a prompt, and tags and lines that held nothing else."""
    # Other uses, as in `{{ name.field }}`, stay.
    placed = rf"\{{\{{-?\s*{re.escape(name)}\s*-?\}}\}}"
    text = re.sub(rf"(?m)^## {re.escape(name)}\n({placed})", r"\1", prompt)  # as `depends_on` writes it
    text = re.sub(rf"<(\w+)>\s*({placed})\s*</\1>", r"\2", text)
    lines = [(line, re.sub(rf"[ \t]*{placed}", "", line)) for line in text.split("\n")]
    return "\n".join(after for before, after in lines if after.strip() or after == before).strip("\n")


def changed_options(before: Plan, after: Plan) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return differing options by declared name, before and after, without those in `ANEW`."""
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for agent, name in zip(before.agents, declared_names(before), strict=True):
        other = after.agents[after.index[agent.name]] if agent.name in after.index else None
        if other is None:
            found.setdefault(name, {})["dropped"] = (False, True)
            continue
        for option in CHANGED:
            pair = getattr(agent, option, None), getattr(other, option, None)
            if pair[0] != pair[1]:
                found.setdefault(name, {})[option] = pair
    return found
