"""The ready agents that wait for a slot or for room, in lines, each ordered by who goes first."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.schedule.policy import Policy


class Lines:
    """One line per kind of room: where one is held, the others move on.

    Args:
        names: Per agent, the name of its line.
        turns: Per agent, its place among all; lower goes first.
    """

    def __init__(self, names: Sequence[str], turns: Sequence[int]) -> None:
        number = {name: line for line, name in enumerate(dict.fromkeys(names))}
        self._line_of = [number[name] for name in names]
        self._turns = turns
        self._waiting: list[list[int]] = [[] for _ in number]
        self._reasons = [""] * len(number)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, agent: int) -> None:
        """Put an agent into its line."""
        self._count += 1
        heapq.heappush(self._waiting[self._line_of[agent]], self._turns[agent])

    def first(self, held: Container[int]) -> int | None:
        """Return the line whose first agent goes before all others, held ones left out."""
        best: int | None = None
        for line, waiting in enumerate(self._waiting):
            if waiting and line not in held and (best is None or waiting[0] < self._waiting[best][0]):
                best = line
        return best

    def head(self, line: int) -> int:
        """Return the turn of the first agent of a line."""
        return self._waiting[line][0]

    def leave(self, line: int) -> str:
        """Let the first agent of a line out. Returns what it last waited for, if anything."""
        self._count -= 1
        waiting, reason = self._waiting[line], self._reasons[line]
        heapq.heappop(waiting)
        if reason and not waiting:
            self._reasons[line] = ""
        return reason

    def hold(self, line: int, reason: str) -> None:
        """Note what a line waits for."""
        self._reasons[line] = reason

    def hold_others(self, held: Container[int], reason: str) -> None:
        """Note what all lines wait for that are not among these."""
        for line, waiting in enumerate(self._waiting):
            if waiting and line not in held:
                self._reasons[line] = reason

    def reason(self, agent: int) -> str:
        """Return what the agent's line waits for, or last waited for."""
        return self._reasons[self._line_of[agent]]


def turns_of(dag: Dag, policy: Policy, work_s: Sequence[float] | None) -> tuple[list[int], list[int]]:
    """Number the agents by who goes first among ready ones; return turn by agent and agent by turn."""
    if policy.schedule == "sequential":
        by_turn = list(dag.order)
    else:
        rest = dag.remaining([1.0] * len(dag.order) if work_s is None else work_s)
        by_turn = sorted(range(len(rest)), key=rest.__getitem__, reverse=True)  # equal ones stay in declared order
    turn = [0] * len(by_turn)
    for place, agent in enumerate(by_turn):
        turn[agent] = place
    return turn, by_turn
