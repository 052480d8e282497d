"""A recording played in time, shown and stopped like a live run. `lay` decides how a cassette answers a plan."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from agent_magic.engine.health import record_health
from agent_magic.engine.requests import model_of
from agent_magic.live.monitor import AlertMonitor
from agent_magic.record.answer import Price
from agent_magic.record.events import (
    AgentEnded,
    AttemptEnded,
    Event,
    FirstToken,
    RunEnded,
    on_grid,
)
from agent_magic.record.results import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.health import Health
    from agent_magic.engine.policy import Policy
    from agent_magic.live.batching import Waiting
    from agent_magic.live.driver import Driver
    from agent_magic.live.monitor import Sample
    from agent_magic.providers.recorded import Deck, Match
    from agent_magic.record.prices import Prices

TAIL = 80


class Player:
    """Plays a run at its recorded times, `pace` of its seconds per second; nothing is sent."""

    # It has the attributes of a driver: alerts, batched and asked are empty in a replay.

    def __init__(
        self, recorded: RunRecord, policy: Policy, *, pace: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.plan, self.policy, self.pace, self._clock = recorded.plan, policy, pace, clock
        self._recorded = recorded
        self.record = RunRecord(
            recorded.plan,
            began_at=recorded.began_at,
            models=map(model_of, recorded.plan.agents),
            origin=recorded.origin,
        )
        self.record.replays_simulation = recorded.replays_simulation
        self.record.replayed, self.record.provenance = recorded.replayed, recorded.provenance
        self.record.terms, self.record.bases = recorded.terms, recorded.bases
        self.record.redacted, self.record.same = recorded.redacted, recorded.same
        if recorded.forecast is not None:
            self.record.label_forecast(recorded.forecast)
        self.streams: dict[int, _Arriving] = {}
        self.batched, self.asked = frozenset[int](), 0
        self.prices: Prices | None = None
        self.alerts = AlertMonitor(self.record, None)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.samples: list[Sample] = []
        self._stopped = False
        self._held_since: float | None = None
        self._nudge = asyncio.Event()
        self._began = clock()

    @property
    def paused(self) -> bool:
        return self._held_since is not None

    def health(self) -> Health:
        return record_health(self.record)

    def now(self) -> float:
        now = self._clock() if self._held_since is None else self._held_since
        return on_grid((now - self._began) * self.pace)

    def held_by(self, _agent: int) -> str:
        """Return an empty string: a recording knows only afterwards what held an agent."""
        return ""

    def batches_waiting(self) -> list[Waiting]:
        return []

    def stop(self, names: Iterable[str] | None = None) -> None:
        if names is None:
            self._stopped = True
            self._nudge.set()

    def pause(self) -> None:
        if self._held_since is None:
            self._held_since = self._clock()
            self._nudge.set()

    def resume(self) -> None:
        if self._held_since is not None:
            self._began += self._clock() - self._held_since
            self._held_since = None
            self._nudge.set()

    def retry(self, _names: Iterable[str] | None = None) -> None: ...

    def skip(self, _names: Iterable[str]) -> None: ...

    async def check(self) -> None: ...

    async def drive(self) -> RunRecord:
        self.loop = asyncio.get_running_loop()
        self._began = self._clock()
        try:
            for event in self._recorded.events:
                while (left_s := event.at_s - self.now()) > 0 and not self._stopped:
                    self._nudge.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._nudge.wait(), None if self.paused else left_s / self.pace)
                if self._stopped or isinstance(event, RunEnded):
                    break
                self._play(event)
        finally:
            self._close()
        return self.record

    def _play(self, event: Event) -> None:
        self.record.add(event)
        match event:
            case FirstToken():
                ended = self._recorded.results[event.agent].attempts[event.number - 1].ended
                if ended is not None:
                    self.streams[event.agent] = _Arriving(self, event.at_s, ended)
            case AttemptEnded():
                self.streams.pop(event.agent, None)
            case _:
                pass

    def _close(self) -> None:
        whole = len(self.record.events) >= len(self._recorded.events) - 1
        if whole:
            self.record.add(self._recorded.events[-1])
            return
        now = max(self.now(), *(event.at_s for event in self.record.events[-1:]), 0.0)
        for agent, result in enumerate(self.record.results):
            if result.attempts and result.attempts[-1].ended is None:
                self.record.add(_cut(now, agent, result.attempts[-1].number, self.streams.pop(agent, None)))
            if result.finished_s is None:
                self.record.add(AgentEnded(now, agent, "cancelled", "stopped"))
        self.record.add(RunEnded(now, cut=True))


class _Arriving:
    """An answer, as far as it has arrived by now."""

    def __init__(self, player: Player, since_s: float, ended: AttemptEnded) -> None:
        self._player, self._since_s, self._until_s = player, since_s, ended.at_s
        self._whole = ended.answer.text if ended.answer else ended.partial

    @property
    def text(self) -> str:
        whole_s = self._until_s - self._since_s
        share = 1.0 if whole_s <= 0 else (self._player.now() - self._since_s) / whole_s
        return self._whole[: max(0, int(len(self._whole) * min(share, 1.0)))]

    def tail(self, most: int = TAIL) -> str:
        return self.text[-most:]


def _cut(now: float, agent: int, number: int, arriving: _Arriving | None) -> AttemptEnded:
    return AttemptEnded(
        now,
        agent,
        number,
        answer=None,
        error="stopped",
        kind="cancelled",
        partial=arriving.text if arriving else "",
        usage=None,
        price=Price(None, "unknown"),
        source="replay",
        status_code=None,
    )


def lay(deck: Deck, plan: Plan, policy: Policy, start: Callable[[Match], Driver]) -> RunRecord | Player | Driver:
    match = deck.find(plan, timeout_s=policy.timeout_s)
    if match.missing and deck.fill:
        driver = start(match)
        driver.record.provenance = deck.provenance(match.run)
        if driver.buys():
            return driver
        record = driver.record
    else:
        record = deck.whole(match)
    return record if deck.pace is None else Player(record, policy, pace=deck.pace)
