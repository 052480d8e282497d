"""A conductor for speculation: steps that start before their condition can be decided.

A step with `speculate` waits for the parents its prompt uses, not for those of its condition alone. When these have
ended, the condition is decided: the step goes on, or is aborted and ends as skipped, with its cost. An answer or
failure that comes earlier is held back until then. If most conditions of one declaration were false, its remaining
steps do not speculate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.each import group_of
from agent_magic.declare.flow import CONDITION
from agent_magic.engine.conductor.conductor import AWAY, ENDED, PENDING, UNDER_WAY, Conductor
from agent_magic.engine.conductor.hedging import HedgingConductor
from agent_magic.engine.conductor.racing import RacingConductor
from agent_magic.engine.contract import Abort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.flow import Left
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.contract import Decision, Requests
    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Status


LEAST_KNOWN: Final = 5
"""Decided conditions to predict others. An assumption."""


class SpeculatingConductor(HedgingConductor):
    """Decides for one run of a plan with speculation; `ahead_of` are the parents that only a step's condition uses."""

    def __init__(self, dag: Dag, policy: Policy, *, ahead_of: Mapping[int, AbstractSet[int]], **more: Any) -> None:
        super().__init__(dag, policy, **more)
        self._ahead_of = {step: only & {*dag.parents[step]} for step, only in ahead_of.items()}
        self._ahead: set[int] = set()  # those that have begun, and are not decided
        self._kept_back: dict[int, tuple[Status, str | None, str | None]] = {}
        self._causes: dict[int, int] = {}  # of those that are aborted, since a parent did not succeed: which
        self._to_look_at: dict[int, None] = {}
        self._group = {step: group_of(more["plan"].agents[step]) for step in ahead_of}
        self._held: dict[str, dict[int, bool]] = {}  # per group, the decided conditions, and how

    def start(self, now: float) -> list[Decision]:
        found = super().start(now)
        self._to_look_at.update(dict.fromkeys(self._ahead_of))
        return [*found, *self._go_on(now)]

    def held_by(self, agent: int) -> str:
        return "dependencies" if agent in self._kept_back else super().held_by(agent)

    def _go_on(self, now: float) -> list[Decision]:
        while self._to_look_at:
            agent, _ = self._to_look_at.popitem()
            self._look_at(agent, now)
        return super()._go_on(now)

    def _look_at(self, agent: int, now: float) -> None:
        if self._state[agent] == PENDING and self._missing[agent]:
            missing = sum(self._state[one] != ENDED for one in self._ahead_of[agent])
            if self._missing[agent] == missing and not self._is_unlikely(agent):
                self._ahead.add(agent)
                self._make_ready(agent, now, decided=True)
        elif agent in self._ahead and not self._missing[agent]:
            self._ahead.discard(agent)
            self._decide(agent, self._why_left_out(agent), now)

    def _is_unlikely(self, agent: int) -> bool:
        known = self._held.get(self._group[agent], {})
        return len(known) >= LEAST_KNOWN and 2 * sum(known.values()) < len(known)

    def _why_left_out(self, agent: int) -> Left | None:
        left = super()._why_left_out(agent)
        if agent in self._group and (left is None or left.kind == CONDITION):
            self._held.setdefault(self._group[agent], {})[agent] = left is None
        return left

    def _decide(self, agent: int, left: Left | None, now: float) -> None:
        kept = self._kept_back.pop(agent, None)
        if left is None and kept is not None and kept[0] == "failed":
            self._give_up(agent, kept[2] or "", kept[1] or "", now)
        elif left is None and kept is not None:
            self._hand_on(agent, *kept[:2], now, kept[2])
        elif left is not None and kept is None and self._state[agent] in UNDER_WAY:
            self._beaten[agent] = left
            self._ends.stopping[agent] = "skipped", left.why
            self._out.append(Abort(agent, "stopped"))
        elif left is not None:
            self._leave_out(agent, left, now)

    def _pass_on(
        self, agent: int, status: Status, why: str | None, now: float, kind: str | None = None
    ) -> list[Decision]:
        if agent not in self._ahead:
            return super()._pass_on(agent, status, why, now, kind)
        if agent in self._ends.stopping:  # its condition cannot be decided any more, or it was stopped
            return self.cancelled(agent, now, left=True)
        self._keep_back(agent, status, why, kind)
        return self._go_on(now)

    def _keep_back(self, agent: int, status: Status, why: str | None, kind: str | None) -> None:
        """Hold the end of a step back until its condition is decided; steps before that may need its resources."""
        self._state[agent], self._kept_back[agent] = AWAY, (status, why, kind)
        if self._holding is not None:
            self._holding.give_back(agent)

    def _give_up(self, agent: int, kind: str, why: str, now: float) -> None:
        if agent in self._ahead:
            self._keep_back(agent, "failed", why, kind)
        else:
            super()._give_up(agent, kind, why, now)

    def _run_late(self, agent: int, now: float) -> None:
        if agent not in self._kept_back:  # it was not late, its parents are
            super()._run_late(agent, now)

    def _can_do_without(self, step: int, now: float) -> bool:
        """Return whether a step survives its parent for now, because its request must be aborted first."""
        if step not in self._ahead or self._state[step] not in UNDER_WAY or step in self._kept_back:
            return super()._can_do_without(step, now)
        if step not in self._ends.stopping:
            cause = self._causes[step] = next(one for one in self._ahead_of[step] if one in self._ends.lost)
            self._ends.stopping[step] = "skipped", f"{self._names[cause]!r} did not succeed"
            self._out.append(Abort(step, "stopped"))
        return True

    def _end(self, agent: int, *told: Any, **more: Any) -> None:
        self._ahead.discard(agent)
        self._kept_back.pop(agent, None)
        if (cause := self._causes.pop(agent, None)) is not None:
            more["cause"] = cause
        super()._end(agent, *told, **more)
        self._to_look_at.update((child, None) for child in self._dag.children[agent] if child in self._ahead_of)


def conductor_for(plan: Plan, requests: Requests) -> Callable[..., Conductor]:
    flow = plan.flow
    if flow is None or requests.flow is None or not (flow.races or flow.ahead_of):
        return Conductor
    ahead_of = requests.flow.ahead_of
    options: dict[str, Any] = {"races": flow.races, "names": plan.names, "requests": requests}
    if ahead_of:
        return partial(SpeculatingConductor, ahead_of=ahead_of, plan=plan, **options)
    if any(one.hedges is not None for one in plan.agents):
        return partial(HedgingConductor, plan=plan, **options)
    return partial(RacingConductor, **options)
