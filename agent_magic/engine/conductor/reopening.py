"""Which agents run again after a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from agent_magic.declare.dag import Dag


def to_reopen(
    dag: Dag, lost: Mapping[int, int], asked: Iterable[int], races: Container[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """Return the agents to run again, parents before children, and the new cause of each that stays skipped.

    A retried agent brings its unsuccessful ancestors, and the steps skipped because of them unless another cause
    remains. Agents skipped or stopped by name come back only by name; successful and running ones are ignored.
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
