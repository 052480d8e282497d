"""Expected work of steps from earlier answers: it orders ready steps, and tells for `--degrade` if time is short."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.each import for_all
from agent_magic.declare.flow import is_reserved
from agent_magic.record.history import History, kin_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.record.history import Past


_Key = tuple[str, str, str]
"""Agent or group name, and model."""


class Factors:
    """Ratios of actual to expected work, by kind of step."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        self._took = self._expected = 0.0

    def add(self, kind: str, took: float, expected: float) -> None:
        before = self._seen.get(kind, (0.0, 0.0))
        self._seen[kind] = before[0] + took, before[1] + expected
        self._took, self._expected = self._took + took, self._expected + expected

    def of(self, kind: str) -> float:
        took, expected = self._seen.get(kind, (self._took, self._expected))
        return took / expected if expected > 0 else 1.0


def kinds_of(plan: Plan) -> list[str]:
    """Return the kind of each step: its group, its model, or its own name."""
    found = [
        one.part.group if one.part is not None else one.name if one.is_task else one.model or DEFAULT_MODEL
        for one in plan.firsts
    ]
    return [*for_all(found, plan.dag.alike)]


def expected_work_s(agents: Sequence[Step], models: Sequence[str], history: History) -> list[float] | None:
    """Return the expected seconds of work of each agent, all above 0; `None` if nothing is known.

    1. An agent, or its group, with earlier answers of the same model: their median.
    2. An agent with `expect`: that; with `expect_out`: that many tokens at the model's median pace.
    3. An agent with `max_tokens`: the share of it that such answers use, at that pace.
    4. Any other: the median answer of its model, of all models, or of the declared values.
    """
    latest = history.latest
    made_up = latest is not None and latest.simulated
    if latest is not None and latest.simulated and not latest.elsewhere:  # of the present mock server, then all are
        history = History(row for row in history if not row.elsewhere)
    rows = _answers_of(agents, models, history, simulated=made_up)
    middle_s = {key: median(row.api_s for row in some) for key, some in rows.items() if some}
    answers = {model: _usable(history.of_model(model), simulated=made_up) for model in set(models)}
    known = [row.api_s for some in answers.values() for row in some]
    known = known or [one.expect for one in agents if one.expect is not None]
    if not known:
        return None
    paces = {model: _pace_s(some) for model, some in answers.items()}
    keys = [_key(agent, model, rows) for agent, model in zip(agents, models, strict=True)]
    capped = {key: agent.max_tokens for agent, key in zip(agents, keys, strict=True) if agent.max_tokens}
    shares = [row.output_tokens / most for key, most in capped.items() for row in rows[key] if row.output_tokens]
    share = median(shares) if shares else 1.0
    usual = {model: median(row.api_s for row in some) if some else median(known) for model, some in answers.items()}

    def seconds(agent: Step, model: str, key: _Key) -> float:
        if key in middle_s:
            return middle_s[key]
        if agent.expect is not None:
            return agent.expect
        pace_s = paces[model]
        if pace_s is not None and agent.expect_out is not None:
            return pace_s * agent.expect_out
        if agent.max_tokens is None or pace_s is None:
            return usual[model]
        return pace_s * agent.max_tokens * share

    return [seconds(*each) for each in zip(agents, models, keys, strict=True)]


def _answers_of(
    agents: Sequence[Step], models: Sequence[str], history: History, *, simulated: bool
) -> dict[_Key, list[Past]]:
    found: dict[_Key, list[Past]] = {}
    for agent, model in zip(agents, models, strict=True):
        own, kin = (agent.name, "", model), ("", kin_of(agent.name), model)
        if rows := history.of_agent(agent, model):
            found[own] = _usable(rows, simulated=simulated)
        elif kin not in found:
            found[kin] = _usable(history.of_kin(agent, model), simulated=simulated)
    return found


def _key(agent: Step, model: str, found: Mapping[_Key, list[Past]]) -> _Key:
    own = (agent.name, "", model)
    return own if own in found else ("", kin_of(agent.name), model)


def _usable(rows: Sequence[Past], *, simulated: bool) -> list[Past]:
    return [row for row in rows if row.simulated == simulated and row.api_s > 0]


def _pace_s(rows: Sequence[Past]) -> float | None:
    paces = [row.api_s / row.output_tokens for row in rows if row.output_tokens]
    return median(paces) if paces else None


ANEW = 8
"""The estimate is renewed after this fraction (1/8) of new durations."""


class Pressure:
    """Knows if a run is short of time: its longest path, or its work divided by the slots, exceeds the time left."""

    def __init__(self, plan: Plan, dag: Dag, deadline_s: float, slots: int, work_s: Sequence[float] | None) -> None:
        self._dag, self._deadline_s, self._slots, self._known = dag, deadline_s, slots, work_s is not None
        needed = [not (one.is_task or is_reserved(one)) for one in plan.agents]
        self._work = [
            seconds if counts else 0.0 for seconds, counts in zip(work_s or [1.0] * len(plan), needed, strict=True)
        ]
        self._kinds, self._factors = kinds_of(plan), Factors()
        self._to_do = {step for step, counts in enumerate(needed) if counts}
        self._path_s: list[float] = []
        self._work_s: list[float] = []
        self._volume_s = 0.0
        self._ended = self._next = 0

    def learn(self, step: int, took_s: float) -> None:
        if self._work[step] > 0:
            self._factors.add(self._kinds[step], took_s, self._work[step])
            self._ended += 1
            self._known = True

    def began(self, step: int) -> None:
        if step in self._to_do:
            self._to_do.discard(step)
            self._volume_s -= self._work_s[step] if self._work_s else 0.0

    def is_late(self, step: int, now: float) -> bool:
        if not self._known:
            return False
        if not self._work_s or self._ended >= self._next:
            self._work_s = [work * self._factors.of(kind) for work, kind in zip(self._work, self._kinds, strict=True)]
            self._path_s = self._dag.remaining(self._work_s)
            self._volume_s = sum(self._work_s[one] for one in self._to_do)
            self._next = self._ended + max(1, self._ended // ANEW)
        return max(self._path_s[step], self._volume_s / self._slots) > self._deadline_s - now
