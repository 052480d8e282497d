"""A conductor for races (`agent_magic.declare.race`): the first answer of several agents counts.

A race has all of its agents as parents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.flow import Left
from agent_magic.declare.race import BEATEN, NO_ANSWER
from agent_magic.engine.conductor.conductor import ENDED, PASSED_ON, PENDING, UNDER_WAY, Conductor, to_reopen
from agent_magic.engine.contract import Abort, Send

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.contract import Decision, Requests
    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Status


class RacingConductor(Conductor):
    """Decides for one run of a plan with races."""

    def __init__(
        self,
        dag: Dag,
        policy: Policy,
        *,
        races: Collection[int],
        names: Sequence[str],
        requests: Requests,
        **more: Any,
    ) -> None:
        super().__init__(dag, policy, **more)
        self._races, self._names, self._requests = races, names, requests
        self._won: set[int] = set()
        self._beaten: dict[int, Left] = {}  # also those with a request still being aborted

    def cancelled(self, agent: int, now: float, *, left: bool = False) -> list[Decision]:
        if agent not in self._beaten:
            return super().cancelled(agent, now, left=left)
        if not left:
            self._leave(agent)
        self._leave_out(agent, self._beaten[agent], now)
        return self._go_on(now)

    def _fill(self, now: float) -> None:
        super()._fill(now)
        self._out.sort(key=self._is_sent_for_a_race)

    def _is_sent_for_a_race(self, one: Decision) -> bool:
        if not isinstance(one, Send) or one.step in self._tasks or not self._races_of(one.step):
            return False
        return not self._requests.need(one.step).free

    def _pass_on(
        self, agent: int, status: Status, why: str | None, now: float, kind: str | None = None
    ) -> list[Decision]:
        if agent in self._beaten:  # its answer was whole before it could be aborted
            self._leave_out(agent, self._beaten[agent], now)
            return self._go_on(now)
        self._hand_on(agent, status, why, now, kind)
        return self._go_on(now)

    def _hand_on(self, agent: int, status: Status, why: str | None, now: float, kind: str | None) -> None:
        self._end(agent, status, why, now, kind)
        self._win(agent, now)
        self._release(agent, now)

    def _settle_done(self, now: float) -> None:
        answered = [agent for agent, status in self._ends.done.items() if status in PASSED_ON]
        for agent in answered:
            self._won.update(self._races_of(agent))
        super()._settle_done(now)
        for agent in answered:
            self._win(agent, now)

    def _win(self, winner: int, now: float) -> None:
        for race in self._races_of(winner):
            self._won.add(race)
            for other in self._dag.parents[race]:
                self._ends.lost.pop(other, None)  # no race wants them again
            for agent in self._needless(race):
                if self._state[agent] == ENDED:  # with one before it: the place of a hedge
                    continue
                left = self._beaten[agent] = Left("skipped", f"{self._names[winner]!r} answered first", BEATEN)
                if self._state[agent] in UNDER_WAY:
                    self._ends.stopping[agent] = left.status, left.why
                    self._out.append(Abort(agent, "stopped"))
                else:
                    self._leave_out(agent, left, now)

    def _races_of(self, agent: int) -> list[int]:
        return [child for child in self._dag.children[agent] if child in self._races]

    def _needless(self, race: int) -> list[int]:
        """Return the open agents of a race and the steps that only they use, children before parents."""
        parents, children = self._dag.parents, self._dag.children
        todo = [one for one in parents[race] if self._state[one] != ENDED]
        found: dict[int, None] = {}
        while todo:
            one = todo.pop(0)
            found[one] = None
            for before in parents[one]:
                wanted = [after for after in children[before] if after not in found and self._state[after] != ENDED]
                if self._state[before] != ENDED and not wanted:
                    todo.append(before)
        return [*found]

    def _can_do_without(self, step: int, now: float) -> bool:
        if step not in self._races:
            return False
        self._missing[step] -= 1
        if self._missing[step] or self._state[step] != PENDING:
            return True
        if self._is_lost(step):
            self._give_up(step, NO_ANSWER, "", now)
        else:
            self._make_ready(step, now)
        return True

    def _is_lost(self, race: int) -> bool:
        """Return whether all agents of a race have ended without an answer, at least one without success."""
        return race not in self._won and any(one in self._ends.lost for one in self._dag.parents[race])

    def _why_left_out(self, agent: int) -> Left | None:
        if agent in self._races and self._is_lost(agent):
            return Left("failed", "", NO_ANSWER)
        return super()._why_left_out(agent)

    def _give_up(self, agent: int, kind: str, why: str, now: float) -> None:
        if kind != NO_ANSWER:
            super()._give_up(agent, kind, why, now)
            return
        cause = next(one for one in self._dag.parents[agent] if one in self._ends.lost)
        self._end(agent, "skipped", None, now, cause=cause)
        self._skip_descendants(agent, now)

    def _to_reopen(self, asked: Iterable[int]) -> tuple[list[int], dict[int, int]]:
        again, skipped = to_reopen(self._dag, self._ends.lost, asked, self._races)
        for agent in again:
            for race in self._races_of(agent):
                self._missing[race] += 1
        return again, skipped
