"""What watches a run: its health, computed on demand, its alerts, and its log.

No line of the log, `logging.getLogger("agent_magic")` at DEBUG, has a prompt, an answer, a key, or arguments or results
of calls.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent_magic.engine.alerts import AlertWatch, slots_of
from agent_magic.engine.health import Thresholds, Watch, health_of
from agent_magic.record.display import single_line
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
    FirstToken,
    RunEnded,
)
from agent_magic.record.reasons import held

if TYPE_CHECKING:
    from agent_magic.engine.admission.gate import Gate
    from agent_magic.engine.alerts import Alerts, Episode, OnAlert
    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.class_pacer import LimitUse
    from agent_magic.record.events import Event
    from agent_magic.record.results import AgentResult, RunRecord

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
        alerts, watch = self._alerts, self._watch
        if alerts is None or watch is None or not (began := watch.read(self._record.events)):
            return None
        if alerts.tell is not None:
            loop = asyncio.get_running_loop()
            for episode in began:  # later: a mistake in it must not end a run that was paid for
                loop.call_soon(alerts.tell, episode)
        return alerts.on_alert


LOG = logging.getLogger("agent_magic")


def tell(record: RunRecord, since: int) -> int:
    events = record.events
    for event in events[since:]:
        if isinstance(event, RunEnded):
            LOG.debug("%.3f s: the run %s", event.at_s, "was stopped" if event.cut else "is over")
        else:
            result = record.results[event.agent]
            LOG.debug("%.3f s: %s %s", event.at_s, result.name, _what(event, result))
    return len(events)


def _of_call(event: CallStarted | CallEnded, result: AgentResult) -> str:
    if isinstance(event, CallStarted):
        return f"begins call {event.number}: {single_line(event.tool)}{held(event.held_by)}"
    took_s = event.at_s - result.call(event.number).started_s
    return f"ended call {event.number}: {event.kind or event.status} after {took_s:.3f} s"


def _what(event: Event, result: AgentResult) -> str:
    match event:
        case AgentReady():
            return "is ready"
        case AttemptStarted():
            return f"sends attempt {event.number} to {event.request.model}{held(event.held_by)}"
        case FirstToken():
            return f"has the first token of attempt {event.number}"
        case AttemptEnded():
            used = event.usage
            tokens = "unknown tokens"
            if used is not None and used.total_input_tokens is not None and used.output_tokens is not None:
                tokens = f"{used.total_input_tokens} input and {used.output_tokens} output tokens"
            return f"ended attempt {event.number}: {event.kind or 'answered'}, {tokens}"
        case CallStarted() | CallEnded():
            return _of_call(event, result)
        case BackoffStarted():
            return f"tries again at {event.until_s:.3f} s"
        case AgentEnded():
            return f"{event.status}{f' ({event.kind})' if event.kind else ''}"
        case _:
            return "is to run again"
