"""Hundreds of agents and more: groups of them as one node each, with a tally and a ring.

Agents are grouped by layer, and inside a layer by role or by what their names begin with, where that makes a graph
that can be read; of deep plans neighbouring layers become one group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from agent_magic.declare.dag import build_dag
from agent_magic.show.layout import place
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.show.layout import Layout

K = TypeVar("K")
GROUP_H = 84.0
MOST_GROUPS = 40
MOST_COLUMNS = 10
TONES = ("s", "f", "r", "q", "k")
"""The parts of a ring: done, failed, running, queued, and what will not run. What is left is to do."""
TODO = len(TONES)
_PARTS = {"s": 0, "l": 0, "y": 0, "m": 0, "f": 1, "r": 2, "q": 3, "k": 4, "c": 4}
_TAIL_WORDS = ((1, "failed"), (2, "running"), (3, "queued"), (4, "not run"))
_NUMBERED = re.compile(r"[\W_]*\d[\d_\-.]*$")


@dataclass(frozen=True, slots=True)
class Group:
    """Agents that are one node.

    Attributes:
        label: Its name.
        place: Where it stands, such as `layer 2`; empty where the label says it.
        agents: Numbers, in plan order.
    """

    label: str
    place: str
    agents: tuple[int, ...] = field(kw_only=True)

    @property
    def where(self) -> str:
        """Its place in words, or else how many agents it has."""
        return self.place or plural(len(self.agents), "agent")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The groups of a plan, laid out."""

    groups: tuple[Group, ...]
    layout: Layout = field(kw_only=True)

    def group_of(self) -> list[int]:
        """Return the group of each agent."""
        found = [0] * sum(len(group.agents) for group in self.groups)
        for place_, group in enumerate(self.groups):
            for agent in group.agents:
                found[agent] = place_
        return found


def sheet_of(plan: Plan) -> Sheet:
    """Group the agents of a plan and place the groups."""
    groups = _grouped(plan)
    found = [0] * len(plan)
    for place_, group in enumerate(groups):
        for agent in group.agents:
            found[agent] = place_
    before: list[set[int]] = [set() for _ in groups]
    for child, parents in enumerate(plan.dag.parents):
        before[found[child]].update(found[parent] for parent in parents)
    dag = build_dag([sorted(some - {here}) for here, some in enumerate(before)])
    if dag is None:  # layers only go up, and a group lies in its own: cannot be
        raise AssertionError("groups wait for each other")
    return Sheet(groups, layout=place(dag, GROUP_H, graphviz=False))


def part_of(state: str) -> int:
    """Return the place of a state among the parts of a ring."""
    return _PARTS.get(state, TODO)


def counted(states: str) -> list[int]:
    """Count the agents of a group by the parts of its ring, what is to do last."""
    counts = [0] * (TODO + 1)
    for state, place_ in _PARTS.items():
        counts[place_] += states.count(state)
    counts[-1] = len(states) - sum(counts)
    return counts


def group_texts(counts: Sequence[int]) -> tuple[str, str, str]:
    """Return what a group's card says: its percentage, what is done, and what else there is."""
    total = sum(counts) or 1
    share = f"{100 * counts[0] // total} %"
    rest = [f"{counts[place_]:,} {word}" for place_, word in _TAIL_WORDS if counts[place_]]
    return share, f"{counts[0]:,} of {total:,}", " · ".join(rest)


def tone_of(counts: Sequence[int]) -> str:
    """Return the character of a group's state: of the worst that is in it, or else of what goes on."""
    for place_ in (1, 2, 3):
        if counts[place_]:
            return TONES[place_]
    return "p" if counts[-1] else "s" if counts[0] else "k"


def _grouped(plan: Plan) -> tuple[Group, ...]:
    layers = plan.dag.layer
    if plan.dag.depth <= MOST_COLUMNS:
        roles = [agent.role for agent in plan.agents]
        names: list[Callable[[int], str]] = [lambda agent: roles[agent] or ""] if any(roles) else []
        names.append(lambda agent: beginning(plan.agents[agent].name))
        for name in names:
            found = _collect(len(plan), lambda agent, name=name: (layers[agent], name(agent)))
            if len(found) <= MOST_GROUPS and _tells_more(found, plan.dag.depth):
                return tuple(
                    Group(key[1] or f"layer {key[0]}", f"layer {key[0]}", agents=tuple(some))
                    for key, some in found.items()
                )
    step = -(-plan.dag.depth // MOST_COLUMNS) or 1
    spans = _collect(len(plan), lambda agent: layers[agent] // step)
    last = plan.dag.depth - 1
    return tuple(
        Group(_span(key * step, min(last, key * step + step - 1)), "", agents=tuple(spans[key]))
        for key in sorted(spans)
    )


def _tells_more(found: dict[tuple[int, str], list[int]], depth: int) -> bool:
    """Tell whether names group agents that belong together, rather than name each one."""
    agents = sum(map(len, found.values()))
    return len(found) <= max(depth, agents // 4) and any(key[1] for key in found)


def _collect(count: int, key: Callable[[int], K]) -> dict[K, list[int]]:
    found: dict[K, list[int]] = {}
    for agent in range(count):
        found.setdefault(key(agent), []).append(agent)
    return found


def _span(first: int, last: int) -> str:
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def beginning(name: str) -> str:
    """Return a name without the number at its end: `review_17` is one of `review`."""
    return _NUMBERED.sub("", name) or name
