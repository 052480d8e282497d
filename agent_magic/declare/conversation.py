"""Agents that continue the conversation of another: `%%agent more --continues analyst`.

They send the other's requests byte for byte, followed by their prompt, so the provider's cache has all but the end.
They inherit the tools, and by default model and effort: with others the cache would have nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.each import groups_of, view_of
from agent_magic.declare.equal_steps import firsts
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.step import Step


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
    model = agent.cascade[0] if agent.cascade else agent.model or first.model
    given: dict[str, Any] = {
        "tools": agent.tools or first.tools,
        "model": model,
        "effort": agent.effort or first.effort,
    }
    return agent if all(getattr(agent, option) == one for option, one in given.items()) else replace(agent, **given)
