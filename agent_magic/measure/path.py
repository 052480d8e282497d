"""The critical path of a run, and what the seconds of each agent are worth.

Everything here is arithmetic on recorded seconds with slots for all. What the run's own policy would have made of it is
the forecast's business.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_magic.measure.frames import make_frame
from agent_magic.measure.metrics import critical_path, slack_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.dag import Dag
    from agent_magic.record.results import RunRecord

STEPS: Mapping[str, str] = {
    "agent": "string",
    "work_s": "Float64",
    "share": "Float64",
    "halving_saves_s": "Float64",
}
SAVINGS: Mapping[str, str] = {
    "agent": "string",
    "work_s": "Float64",
    "on_critical_path": "bool",
    "slack_s": "Float64",
    "halving_saves_s": "Float64",
    "removing_saves_s": "Float64",
    "started_early_s": "Float64",
}
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The longest chain of work of a run: no schedule and no number of slots makes it shorter than that.

    Attributes:
        agents: The agents on it, first to last; those that did no work are left out.
        length_s: Its length: the sum of `work_s`.
        work_s: Per agent of it, seconds of own work: `api_s + tool_s + local_s`.
        halving_saves_s: Per agent of it, by how much the longest chain shrinks if this agent takes half as long. Less
            than half its work where another chain becomes the longest.
        wall_s: What the run took; `None` where nothing finished.
    """

    agents: tuple[str, ...]
    length_s: float
    work_s: tuple[float, ...] = field(kw_only=True)
    halving_saves_s: tuple[float, ...] = field(kw_only=True)
    wall_s: float | None = field(kw_only=True)

    def __len__(self) -> int:
        return len(self.agents)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per agent of the path, in its order. Columns are `STEPS`; `share` is of the path's length."""
        rows = zip(self.agents, self.work_s, self.halving_saves_s, strict=True)
        return make_frame(
            [
                {"agent": agent, "work_s": work, "share": work / self.length_s, "halving_saves_s": saves}
                for agent, work, saves in rows
            ],
            STEPS,
        )

    def __repr__(self) -> str:
        if not self.agents:
            return "CriticalPath: no agent ran"
        steps = [f"{agent} {work:.1f} s" for agent, work in zip(self.agents, self.work_s, strict=True)]
        if len(steps) > MOST_NAMED:
            steps = [*steps[: MOST_NAMED - 2], f"({len(steps) - MOST_NAMED + 1} more)", steps[-1]]
        of = "" if self.wall_s is None else f" of {self.wall_s:.1f} s"
        best = max(range(len(self.agents)), key=lambda one: self.halving_saves_s[one])
        return (
            f"CriticalPath: {self.length_s:.1f} s{of}: {' -> '.join(steps)}. "
            f"Halving {self.agents[best]} saves {self.halving_saves_s[best]:.1f} s."
        )


def find_path(record: RunRecord, wall_s: float | None) -> CriticalPath:
    """Find the critical path of a run, finished or not, that took `wall_s`."""
    work, path = works(record), critical_path(record)
    chains = Chains.of(record.dag, work)
    return CriticalPath(
        tuple(record.results[agent].name for agent in path),
        sum(work[agent] for agent in path),
        work_s=tuple(work[agent] for agent in path),
        halving_saves_s=tuple(chains.saved_s(agent, work[agent] / 2) for agent in path),
        wall_s=wall_s,
    )


def savings_frame(record: RunRecord) -> pd.DataFrame:
    """Return per agent what its seconds are worth, with slots for all. One row per agent, in plan order.

    Columns are `SAVINGS`: `work_s` of own work; `slack_s`, how much later it could have finished without delaying the
    run; by how much the longest chain shrinks if the agent takes half as long, or no time. `NA` where the agent never
    ran. Splitting an agent into two concurrent halves saves what halving saves; into halves that wait for each other,
    nothing.

    An agent has no speedup of its own: it works as long alone as beside others. What concurrency gives it is an earlier
    start: `started_early_s` is when a sequential run would have started it (the work of all agents before it in that
    order), minus `started_s`. Below 0 it started later, because it waited.
    """
    work, path, slack = works(record), set(critical_path(record)), slack_s(record)
    chains = Chains.of(record.dag, work)
    sequential_s, done_s = [0.0] * len(work), 0.0
    for agent in record.dag.order:
        sequential_s[agent], done_s = done_s, done_s + work[agent]

    def row(agent: int) -> Mapping[str, object]:
        result = record.results[agent]
        known = {"agent": result.name, "on_critical_path": agent in path, "slack_s": slack[agent]}
        if result.started_s is None:
            return known
        return {
            **known,
            "work_s": work[agent],
            "halving_saves_s": chains.saved_s(agent, work[agent] / 2),
            "removing_saves_s": chains.saved_s(agent, 0.0),
            "started_early_s": sequential_s[agent] - result.started_s,
        }

    return make_frame([row(agent) for agent in range(len(record.results))], SAVINGS)


def works(record: RunRecord) -> list[float]:
    """Return per agent its seconds of own work, 0 where it never ran."""
    return [result.work_s for result in record.results]


@dataclass(frozen=True, slots=True)
class Chains:
    """The longest chains of work of a plan.

    Attributes:
        longest_s: The longest of all.
        through_s: Per agent, the longest that goes through it.
        around_s: Per agent, the longest that does not.
        work_s: Per agent, its own work.
    """

    longest_s: float
    through_s: Sequence[float] = field(kw_only=True)
    around_s: Sequence[float] = field(kw_only=True)
    work_s: Sequence[float] = field(kw_only=True)

    @classmethod
    def of(cls, dag: Dag, work: Sequence[float]) -> Chains:
        """Measure them, in time of edges times the logarithm of their number."""
        head = [0.0] * len(work)
        for agent in dag.order:
            head[agent] = work[agent] + max((head[parent] for parent in dag.parents[agent]), default=0.0)
        tail = dag.remaining(work)
        return cls(
            max(head, default=0.0),
            through_s=[before + after - own for before, after, own in zip(head, tail, work, strict=True)],
            around_s=_around(dag, head, tail),
            work_s=work,
        )

    def saved_s(self, agent: int, instead_s: float) -> float:
        """Return by how much the longest chain shrinks if this agent works that long instead."""
        changed = max(self.around_s[agent], self.through_s[agent] - self.work_s[agent] + instead_s)
        return self.longest_s - changed


def _around(dag: Dag, head: Sequence[float], tail: Sequence[float]) -> list[float]:
    """Return per agent the longest chain that leaves it out.

    In the plan's order such a chain ends before the agent, begins after it, or has one edge that passes over its place.

    Args:
        dag: The plan.
        head: Per agent, the longest chain that ends with it.
        tail: Per agent, the longest chain that begins with it.
    """
    place = [0] * len(head)
    for number, agent in enumerate(dag.order):
        place[agent] = number
    later = [0.0] * (len(head) + 1)
    for number in range(len(head) - 1, -1, -1):
        later[number] = max(later[number + 1], tail[dag.order[number]])
    around = [0.0] * len(head)
    ended, over = 0.0, list[tuple[float, int]]()
    for number, agent in enumerate(dag.order):
        while over and over[0][1] <= number:
            heapq.heappop(over)
        passing = -over[0][0] if over else 0.0
        around[agent] = max(ended, passing, later[number + 1])
        ended = max(ended, head[agent])
        for child in dag.children[agent]:
            heapq.heappush(over, (-(head[agent] + tail[child]), place[child]))
    return around
