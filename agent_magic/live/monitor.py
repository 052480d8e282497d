"""The health of a run, computed on demand, and its alerts, checked as it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_magic.engine.alerts import AlertWatch, slots_of
from agent_magic.engine.health import Thresholds, Watch, health_of

if TYPE_CHECKING:
    from agent_magic.engine.admission.gate import Gate
    from agent_magic.engine.alerts import Alerts, Episode, OnAlert
    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.class_pacer import LimitUse
    from agent_magic.record.results import RunRecord

    Look = tuple[float, list[LimitUse], tuple[str, ...]]
    """The time of the query, the use of the limits, and what blocks all requests."""


class HealthMonitor:
    """Computes the health of a run; after the run, its health at the end."""

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate
        self._watch: Watch | None = None
        self._kept: Look | None = None
        self._final: Health | None = None

    def close(self, now: float) -> None:
        """Keep the state of the gate at the end, since the use of limits fades."""
        self._kept = self._look(now)

    def snapshot(self, record: RunRecord, now: float) -> Health:
        if self._final is not None:
            return self._final
        watch = self._watch = self._watch or Watch()
        watch.read(record.events)
        at_s, limits, breakers = self._kept or self._look(now)
        health = health_of(watch, at_s, limits=limits, breakers=breakers, thresholds=Thresholds())
        if record.ended_s is not None:
            self._final = health
        return health

    def _look(self, now: float) -> Look:
        gate = self._gate
        return (now, [], ()) if gate is None else (now, gate.limits_in_use(now), gate.halted(now))


class AlertMonitor:
    """Watches a run for alerts, and returns what to do."""

    def __init__(self, record: RunRecord, alerts: Alerts | None) -> None:
        self.rules = () if alerts is None else alerts.rules
        self.paused_by: list[Episode] = []
        self._alerts = alerts
        self._record = record
        self._watch = AlertWatch(self.rules, slots_of(record)) if self.rules else None

    @property
    def open(self) -> list[Episode]:
        return [] if self._watch is None else self._watch.open

    def check(self) -> OnAlert | None:
        """Tell listeners of new alerts, and return the action these ask for, if any."""
        alerts, watch = self._alerts, self._watch
        if alerts is None or watch is None or not (began := watch.read(self._record.events)):
            return None
        if alerts.tell is not None:
            loop = asyncio.get_running_loop()
            for episode in began:  # later: a mistake in it must not end a run that was paid for
                loop.call_soon(alerts.tell, episode)
        return alerts.on_alert
