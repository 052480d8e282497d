"""The critical path of a run, and what shorter agents would save, by arithmetic with unlimited slots."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_magic.declare.units import seconds
from agent_magic.errors import shortened
from agent_magic.measure.frames import make_frame, table
from agent_magic.measure.metrics import critical_path, longest_chain, slack_s
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.dag import Dag
    from agent_magic.record.results import RunRecord

STEPS = table("agent work_s share halving_saves_s")
SAVINGS = table("agent work_s on_critical_path slack_s halving_saves_s removing_saves_s started_early_s")
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class CriticalPath(Shown):
    """The longest chain of work of a run. No schedule and no number of slots makes the run shorter.

    Attributes:
        agents: Its agents, first to last, without idle ones.
        length_s: The sum of `work_s`, less work done before the previous agent had ended.
        work_s: The work of each agent on it, `api_s + tool_s + local_s`.
        halving_saves_s: How much shorter the longest chain gets if an agent on it takes half as long. Less than half
            its work if another chain becomes the longest.
        wall_s: Wall time of the run; `None` if nothing finished.
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
        """One row per agent on the path, in order. Columns are `STEPS`; `share` is of its length."""
        rows = zip(self.agents, self.work_s, self.halving_saves_s, strict=True)
        return make_frame(
            [
                {"agent": agent, "work_s": work, "share": work / self.length_s, "halving_saves_s": saves}
                for agent, work, saves in rows
            ],
            STEPS,
            verdict=self._verdict,
        )

    @property
    def _verdict(self) -> str:
        if not self.agents:
            return "no agent ran"
        of = "" if self.wall_s is None else f" of {seconds(self.wall_s)}"
        best = max(range(len(self.agents)), key=lambda one: self.halving_saves_s[one])
        saves = f"halving {self.agents[best]} saves {seconds(self.halving_saves_s[best])}"
        return f"the longest chain takes {seconds(self.length_s)}{of} · {saves}"

    def __repr__(self) -> str:
        if not self.agents:
            return "CriticalPath: no agent ran"
        steps = [f"{agent} {seconds(work)}" for agent, work in zip(self.agents, self.work_s, strict=True)]
        of = "" if self.wall_s is None else f" of {seconds(self.wall_s)}"
        best = max(range(len(self.agents)), key=lambda one: self.halving_saves_s[one])
        return (
            f"CriticalPath: {seconds(self.length_s)}{of}: {' -> '.join(shortened(steps, MOST_NAMED))}. "
            f"Halving {self.agents[best]} saves {seconds(self.halving_saves_s[best])}."
        )


def find_path(record: RunRecord, wall_s: float | None) -> CriticalPath:
    work, path = works(record), critical_path(record)
    _, length_s = longest_chain(record, work)
    chains = Chains.of(record.dag, work)
    return CriticalPath(
        tuple(record.results[agent].name for agent in path),
        length_s,
        work_s=tuple(work[agent] for agent in path),
        halving_saves_s=tuple(chains.saved_s(agent, work[agent] / 2) for agent in path),
        wall_s=wall_s,
    )


def savings_frame(record: RunRecord) -> pd.DataFrame:
    """Return a row per agent: `slack_s` without delay of the run, and the savings of a shorter agent."""
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
    return [result.work_s for result in record.results]


@dataclass(frozen=True, slots=True)
class Chains:
    """The longest chains of work: `through_s` each agent, and `around_s`, without it."""

    longest_s: float
    through_s: Sequence[float] = field(kw_only=True)
    around_s: Sequence[float] = field(kw_only=True)
    work_s: Sequence[float] = field(kw_only=True)

    @classmethod
    def of(cls, dag: Dag, work: Sequence[float]) -> Chains:
        """Find the chains, in O(E log E)."""
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
        changed = max(self.around_s[agent], self.through_s[agent] - self.work_s[agent] + instead_s)
        return self.longest_s - changed


def _around(dag: Dag, head: Sequence[float], tail: Sequence[float]) -> list[float]:
    # In topological order such a chain ends before the agent, begins after it, or has an edge that passes over it.
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
