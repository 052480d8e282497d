"""What watches a run: its health, computed on demand, its alerts, its log, and samples of the kernel.

No line of the log, `logging.getLogger("agent_magic")` at DEBUG, has a prompt, an answer, a key, or arguments or results
of calls.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.engine.alerts import AlertWatch, slots_of
from agent_magic.engine.health import Thresholds, Watch, health_of
from agent_magic.live.tasks import MOMENT_S, forget, in_a_moment
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
    from collections.abc import Callable


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


EVERY_S = MOMENT_S
MOST = 4000
"""A longer run drops every other sample and samples half as often."""
BYTES_PER_MB = 1e6


class Sample(NamedTuple):
    """A sample of the kernel."""

    at_s: float
    cpu_share: float  # CPU seconds per second since the previous sample: 1.0 is one core
    rss_mb: float | None
    lag_s: float  # of the event loop: what blocks it, blocks every agent


class Sampling:
    """Samples the kernel inside `with Sampling(...):`, on the running event loop."""

    # It samples on timer callbacks. A task would cost a short run two more turns of the event loop.

    def __init__(self, now: Callable[[], float], samples: list[Sample]) -> None:
        self.samples = samples
        self._now, self._every_s = now, EVERY_S
        self._rss_mb: Callable[[], float | None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._begin()
        in_a_moment(self._loop, self._set)

    def __exit__(self, *_: object) -> None:
        forget(self._loop, self._set)
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._due_s = self._loop.time() + self._every_s
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def _set(self) -> None:
        left_s = max(0.0, self._due_s - self._loop.time())  # a browser's loop refuses a time that has passed
        self._timer = self._loop.call_later(left_s, self._sample)

    def _sample(self) -> None:
        took_s = time.perf_counter() - self._wall_s
        self._rss_mb = self._rss_mb or _memory()  # not before: to find itself costs psutil as much as a short run takes
        share = (time.process_time() - self._cpu_s) / took_s
        at_s = self._now()
        if self.samples and at_s < self.samples[-1].at_s:
            self.samples.clear()  # preparation came before: the run's clock begins behind it
        self.samples.append(Sample(at_s, share, self._rss_mb(), max(0.0, took_s - self._every_s)))
        if len(self.samples) > MOST:
            del self.samples[::2]
            self._every_s *= 2
        self._begin()
        self._set()


def _memory() -> Callable[[], float | None]:
    if importlib.util.find_spec("psutil") is None:
        return lambda: None
    import psutil  # noqa: PLC0415  # lazy: a script need not have it

    process: Any = psutil.Process()
    return lambda: process.memory_info().rss / BYTES_PER_MB
