"""Which agents run again when somebody asks for some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from agent_magic.declare.dag import Dag


def to_reopen(
    dag: Dag, lost: Mapping[int, int], asked: Iterable[int], races: Container[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """Say which agents are to run again, and which stay skipped for another reason than before.

    An agent that was asked for brings along what it cannot go without: its ancestors that did not succeed either. And
    it brings back what was skipped because of them, as far as nothing else is in its way. What somebody had skipped or
    stopped by name comes back only by name.

    Args:
        dag: Who waits for whom.
        lost: The agents that ended without success, each with the agent that was the cause: itself, or the ancestor
            that had it skipped.
        asked: The agents to run again. Those that succeeded, or have not ended, stay as they are.
        races: The steps that need only one of their parents.

    Returns:
        The agents to run again, parents before children, and the new cause of those that stay skipped.
    """
    wanted = {agent for agent in asked if agent in lost}
    if not wanted:
        return [], {}
    wanted |= {agent for agent in dag.ancestors(wanted) if agent in lost}
    below = dag.descendants(wanted)
    found: dict[int, None] = {}
    causes: dict[int, int] = {}
    for agent in dag.order:
        if agent in wanted or (agent in below and lost.get(agent, agent) != agent):
            in_its_way = [parent for parent in dag.parents[agent] if parent in lost and parent not in found]
            if agent in races and len(in_its_way) < len(dag.parents[agent]):
                in_its_way = []
            if not in_its_way:
                found[agent] = None
            elif lost[agent] in found:
                causes[agent] = causes.get(in_its_way[0], lost[in_its_way[0]])
    return list(found), causes
