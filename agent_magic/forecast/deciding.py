"""Decisions of a run with fewer rounds or items: its conditions, evaluated on the remaining values.

A forecast repeats the decisions of the recorded run. If a loop ends sooner, or a map has fewer items, conditions that
use them change: `when="not critic"` is decided by the critic of the last remaining round, whose value is in the record.
Unknown conditions, such as those on a step that never ran, are assumed to hold, so that the forecast is too high rather
than too low.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.flow import is_reserved
from agent_magic.record.returned import Returned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.declare.flow import Flow, Left
    from agent_magic.declare.plan import Plan
    from agent_magic.record.results import RunRecord


class Decided(NamedTuple):
    """Steps left out of a forecast.

    Attributes:
        left: The steps with reasons, those of the scenario included.
        words: Decisions that differ from the record, in words.
        assumed: True if some are unknown.
    """

    left: Mapping[int, Left]
    words: tuple[str, ...] = ()
    assumed: bool = False


class _Without(Mapping[str, Any]):
    """Results of a run's steps, without some of them."""

    def __init__(self, record: RunRecord, without: Mapping[int, Left]) -> None:
        self._all, self._without = Returned(record), {record.plan.names[one] for one in without}

    def __getitem__(self, name: str) -> Any:
        if name in self._without:
            raise KeyError(name)
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name not in self._without and name in self._all

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def decide(record: RunRecord, beyond: Mapping[int, Left]) -> Decided:
    """Decide a run without some of its rounds and places.

    Args:
        record: The run.
        beyond: The rounds and places that are left out.
    """
    flow, before = record.plan.flow, record.decisions
    cut = {step for step in beyond if not record.results[step].is_left_out}
    if flow is None or not cut:
        return Decided({**beyond, **before})
    return _Deciding(record, flow, beyond, cut).all()


class _Deciding:
    """Goes through the steps of one run, in the order in which they are decided.

    Args:
        record: The run.
        flow: The conditions of its plan.
        beyond: The rounds and places that are left out.
        cut: Those of them that ran.
    """

    def __init__(self, record: RunRecord, flow: Flow, beyond: Mapping[int, Left], cut: set[int]) -> None:
        self._plan: Plan = record.plan
        self._flow, self._beyond, self._before = flow, beyond, record.decisions
        self._known = not record.redacted  # without texts, conditions cannot be decided
        self._answers = _Without(record, beyond)
        self._changed, self._new, self._after = set(cut), set[int](), set[int]()
        self._left: dict[int, Left] = {}
        self._words: dict[str, None] = {}
        self._assumed = False

    def all(self) -> Decided:
        """Return all left-out steps."""
        for step in self._plan.dag.order:
            why = self._beyond[step] if step in self._beyond else self._one(step)
            if why is not None:
                self._left[step] = why
        return Decided(self._left, tuple(self._words), self._assumed)

    def _one(self, step: int) -> Left | None:
        """Return why a step does not run; `None` if it does."""
        agent, before, parents = self._plan.agents[step], self._before.get(step), set(self._plan.dag.parents[step])
        if parents & (self._after | self._changed):
            self._after.add(step)
        own = agent.when is not None or is_reserved(agent)
        if own and parents & (self._after - self._new):
            self._say("conditions, items and rounds behind what is cut as recorded, which may be decided otherwise")
        if step not in self._flow.decides or not parents & self._changed or agent.hedges is not None:
            return before
        now, decided = self._flow.follows(step, self._left), True
        if now is None:
            unknown = own and (not self._known or parents & self._new)
            now = None if unknown else self._flow.choose(step, self._answers, self._left)
            undecided = now is not None and now.status == "failed" and (before is None or before.status != "failed")
            if unknown or undecided:
                now, decided = None, False
        if (now is None) != (before is None):
            self._changed.add(step)
            self._tell(step, now, decided=decided)
        return now

    def _tell(self, step: int, now: Left | None, *, decided: bool) -> None:
        agent = self._plan.agents[step]
        name = agent.name if agent.part is None else agent.part.group
        if now is not None:
            self._words[f"{name}: left out then ({now.why})"] = None
            return
        self._new.add(step)
        if decided:
            self._words[f"{name}: runs then" + (f" ({agent.when} holds)" if agent.when else "")] = None
        else:
            self._say(f"{name}: assumed to run, since nobody knows what would be decided then")

    def _say(self, words: str) -> None:
        self._words[words] = None
        self._assumed = True
