"""The health of one run, felt when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.schedule.health import Thresholds, Watch, health_of

if TYPE_CHECKING:
    from agent_magic.record.results import RunRecord
    from agent_magic.schedule.health import Health
    from agent_magic.schedule.room import Gate


class Pulse:
    """Judges how a run fares; of one that is over, how it fared at its end.

    Args:
        gate: Knows the limits and the breakers; `None` has neither.
    """

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate
        self._watch = Watch()
        self._final: Health | None = None

    def feel(self, record: RunRecord, now: float) -> Health:
        """Return the health of the run of this record, at a time of its clock."""
        if self._final is not None:
            return self._final
        self._watch.read(record.events)
        gate = self._gate
        limits, breakers = ([], ()) if gate is None else (gate.limits_in_use(now), gate.open_breakers(now))
        health = health_of(self._watch, now, limits=limits, breakers=breakers, thresholds=Thresholds())
        if record.ended_s is not None:
            self._final = health
        return health
