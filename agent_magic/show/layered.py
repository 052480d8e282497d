"""A small layered layout: order each layer so that edges cross little, then stack it. Linear in agents and edges."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.dag import Dag

SWEEPS = 6
LANE_H = 16.0  # the room of an edge that passes through a layer
MOST_LANES = 5000  # beyond it long edges run straight, behind the cards


def stack_layers(
    dag: Dag, *, card_h: float, gap: float
) -> tuple[list[float], dict[tuple[int, int], tuple[float, ...]]]:
    """Place agents and edges in the direction across the layers.

    Returns:
        Per agent the middle of its card, and per edge its height in each layer from its parent's to its child's, in px.
    """
    count = len(dag.layer)
    rows, chains = _with_lanes(dag)
    _untangle(rows, _neighbours(chains))
    at: dict[int, float] = {}
    tallest = max((_height(row, count, card_h, gap) for row in rows), default=0.0)
    for row in rows:
        y = (tallest - _height(row, count, card_h, gap)) / 2
        for item in row:
            size = card_h if item < count else LANE_H
            at[item] = y + size / 2
            y += size + gap
    return [at[agent] for agent in range(count)], {
        edge: tuple(at[item] for item in chain) for edge, chain in chains.items()
    }


def _height(row: Sequence[int], count: int, card_h: float, gap: float) -> float:
    return sum(card_h if item < count else LANE_H for item in row) + gap * (len(row) - 1)


def _with_lanes(dag: Dag) -> tuple[list[list[int]], dict[tuple[int, int], list[int]]]:
    """Give each layer its agents and a lane for every edge that passes, numbered after the agents."""
    rows = [list(row) for row in dag.layers()]
    edges = [(parent, child) for child, before in enumerate(dag.parents) for parent in before]
    passing = sum(dag.layer[child] - dag.layer[parent] - 1 for parent, child in edges)
    fresh = len(dag.layer)
    chains: dict[tuple[int, int], list[int]] = {}
    for parent, child in edges:
        chain = [parent]
        for layer in range(dag.layer[parent] + 1, dag.layer[child]):
            if passing <= MOST_LANES:
                rows[layer].append(fresh)
                chain.append(fresh)
                fresh += 1
        chains[parent, child] = [*chain, child]
    return rows, chains


def _neighbours(chains: dict[tuple[int, int], list[int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for chain in chains.values():
        for here, there in pairwise(chain):
            before.setdefault(there, []).append(here)
            after.setdefault(here, []).append(there)
    return before, after


def _untangle(rows: list[list[int]], neighbours: tuple[dict[int, list[int]], dict[int, list[int]]]) -> None:
    """Sort each layer by the mean place of its neighbours, forwards and backwards in turn."""
    place = {item: _share(row, index) for row in rows for index, item in enumerate(row)}

    def mean(item: int, near: dict[int, list[int]]) -> float:
        others = near.get(item)
        return sum(place[other] for other in others) / len(others) if others else place[item]

    for sweep in range(SWEEPS):
        near = neighbours[sweep % 2]
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = {item: mean(item, near) for item in row}
            row.sort(key=wanted.__getitem__)
            place.update({item: _share(row, index) for index, item in enumerate(row)})


def _share(row: Sequence[int], index: int) -> float:
    return (index + 0.5) / len(row)
