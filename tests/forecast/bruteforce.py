"""A second, simple-minded simulator of a run. It shares no code with the package: lists, and a look at everything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Played:
    """What came of it.

    Attributes:
        spans: Per agent that ran, when it began and ended.
        status: Per agent, `succeeded`, `failed` or `skipped`.
        wall: When everything was over.
    """

    spans: dict[int, tuple[int, int]]
    status: dict[int, str]
    wall: int


def children_of(parents, agent):
    """Who waits for this agent."""
    return [one for one in range(len(parents)) if agent in parents[one]]


def hops_left(parents, agent):
    """The number of agents on the longest way from this one to an end of the plan."""
    return 1 + max((hops_left(parents, child) for child in children_of(parents, agent)), default=0)


def layer_of(parents, agent):
    """How deep an agent stands."""
    return 1 + max((layer_of(parents, parent) for parent in parents[agent]), default=-1)


def below(parents, agent):
    """Everybody who waits for this agent, directly or not."""
    found = set(children_of(parents, agent))
    return found.union(*(below(parents, child) for child in found)) if found else found


def play(parents, takes, *, slots, layers=False, broken=()):
    """Run a plan.

    Args:
        parents: Per agent, for whom it waits.
        takes: Per agent, how long it works.
        slots: How many may work at once.
        layers: Whether a layer begins only when the one before is over.
        broken: Those that fail in the end; what waits for them is skipped.
    """
    everybody = range(len(parents))
    status: dict[int, str] = {}
    spans: dict[int, tuple[int, int]] = {}
    working: list[tuple[int, int, int]] = []  # ends, serial, agent
    now = serial = 0
    while len(status) < len(parents):
        for agent in sorted(everybody, key=lambda one: (-hops_left(parents, one), one)):
            depth = layer_of(parents, agent)
            free = len(working) < slots and agent not in status and agent not in spans
            may = all(status.get(parent) == "succeeded" for parent in parents[agent])
            if layers:
                may = may and all(one in status for one in everybody if layer_of(parents, one) < depth)
            if free and may:
                serial += 1
                spans[agent] = (now, now + takes[agent])
                working.append((now + takes[agent], serial, agent))
        now, _, agent = min(working)
        working.remove((now, _, agent))
        status[agent] = "failed" if agent in broken else "succeeded"
        if agent in broken:
            status.update(dict.fromkeys(below(parents, agent), "skipped"))
    return Played(spans, status, max(end for _, end in spans.values()))
