"""The shape of a plan as numbers: dependencies, order, depth.

Agents are numbered in declared order. Nothing here recurses, so a chain of 10,000 is as good as a layer of 10,000.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from agent_magic.declare.each import firsts, for_all
from agent_magic.errors import Cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Dag:
    """A directed graph without cycles.

    Attributes:
        order: Parents before children, ties in declared order.
        layer: Length of the longest path to each agent from one without parents.
        priority: Highest priority among each agent and its descendants.
        alike: Ranges of agents with the same parents and children.
    """

    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    layer: tuple[int, ...]
    priority: tuple[int, ...] = ()
    alike: tuple[range, ...] = field(default=(), compare=False)

    def with_priority(self, own: Sequence[int]) -> Dag:
        """Return the graph with each agent's own priority, which its ancestors inherit."""
        if not any(own):
            return self
        found = list(own)
        for agent in reversed(self.order):
            found[agent] = max([found[agent], *(found[child] for child in self.children[agent])])
        return replace(self, priority=tuple(found))

    @property
    def depth(self) -> int:
        return max(self.layer, default=-1) + 1

    def layers(self) -> tuple[tuple[int, ...], ...]:
        rows: list[list[int]] = [[] for _ in range(self.depth)]
        for agent, layer in enumerate(self.layer):
            rows[layer].append(agent)
        return tuple(tuple(row) for row in rows)

    def ancestors(self, agents: Iterable[int]) -> set[int]:
        return _reach(agents, self.parents)

    def descendants(self, agents: Iterable[int]) -> set[int]:
        return _reach(agents, self.children)

    @cached_property
    def turns(self) -> tuple[Sequence[int], Sequence[int]]:
        return by_most(self.remaining([1.0] * len(self.order)), self.priority)

    def remaining(self, work: Sequence[float]) -> list[float]:
        """Return per agent the longest path of work from its start to the end of the plan."""
        rest, alike = [0.0] * len(self.parents), self._alike
        for agent in self.backwards:
            below = self.children[agent]
            longest = max([rest[child] for child in below]) if below else 0.0
            rest[agent] = work[agent] + longest
            if alike and (others := alike.get(agent)):
                rest[others.start : others.stop] = [own + longest for own in work[others.start : others.stop]]
        return rest

    @cached_property
    def _alike(self) -> dict[int, range]:
        return {one.start: one for one in self.alike}

    @cached_property
    def backwards(self) -> Sequence[int]:
        """Children before parents; of equal agents the first only."""
        others = set[int]().union(*(one[1:] for one in self.alike))
        return [one for one in reversed(self.order) if one not in others] if others else self.order[::-1]

    def longest_path(self, work: Sequence[float]) -> tuple[tuple[int, ...], float]:
        if not self.parents:
            return (), 0.0
        rest = self.remaining(work)
        agent = max(range(len(rest)), key=lambda one: (rest[one], -one))
        length, path = rest[agent], [agent]
        while self.children[agent]:
            agent = max(self.children[agent], key=lambda one: (rest[one], -one))
            path.append(agent)
        return tuple(path), length


def build_dag(parents: Sequence[Sequence[int]], names: Sequence[str] = (), alike: Sequence[range] = ()) -> Dag:
    """Order agents by their parents; `alike` are ranges of equal agents."""
    children: list[list[int]] = [[] for _ in parents]
    for agent, before in enumerate(parents):
        for parent in before:
            children[parent].append(agent)
    waiting = [len(before) for before in parents]
    layer = [0] * len(parents)
    order = [agent for agent, count in enumerate(waiting) if not count]
    for agent in order:
        below = layer[agent] + 1
        for child in children[agent]:
            layer[child] = max(layer[child], below)
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    if len(order) < len(parents):
        raise Cycle([names[one] if names else str(one) for one in _find_cycle(parents)])
    alike = [one for one in alike if all(children[one.start] == children[other] for other in one[1:])]
    before = for_all([tuple(one) for one in firsts(parents, alike)], alike)
    after = for_all([tuple(one) for one in firsts(children, alike)], alike)
    return Dag(tuple(before), tuple(after), tuple(order), tuple(layer), alike=tuple(alike))


def _find_cycle(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return a cycle in the direction of the work, closed at its first declared agent."""
    try:  # only here: graphlib takes ten times as long to order a plan as the loop above
        TopologicalSorter[int](dict(enumerate(parents))).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1][:-1]
        first = cycle.index(min(cycle))
        return [*cycle[first:], *cycle[: first + 1]]
    raise AssertionError("the graph has no cycle")


def without_laps(cycle: Sequence[str]) -> list[str]:
    """Shorten a cycle of steps to declared names: rounds of a loop repeat them."""
    found = list[str]()
    for name in cycle[:-1]:
        found = [*found[: found.index(name)], name] if name in found else [*found, name]
    return [*found, cycle[-1]]


def by_most(rest: Sequence[float], priority: Sequence[int] = ()) -> tuple[Sequence[int], Sequence[int]]:
    """Rank the agents by priority, then most remaining work: each one's rank, and the agents by rank."""
    ordered = tuple(sorted(range(len(rest)), key=rest.__getitem__, reverse=True))
    if priority:
        ordered = tuple(sorted(ordered, key=priority.__getitem__, reverse=True))
    return places(ordered), ordered


def places(ordered: Sequence[int]) -> tuple[int, ...]:
    place = [0] * len(ordered)
    for number, agent in enumerate(ordered):
        place[agent] = number
    return tuple(place)


def _reach(agents: Iterable[int], step: Sequence[Sequence[int]]) -> set[int]:
    found: set[int] = set()
    todo = list(agents)
    while todo:
        for near in step[todo.pop()]:
            if near not in found:
                found.add(near)
                todo.append(near)
    return found
