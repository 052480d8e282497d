"""What was declared of a plan: the way back from its expanded steps to one for a group or a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.agent import Agent
from agent_magic.declare.each import REPEATS, Part
from agent_magic.declare.grouping import declared_agent, declared_name
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
