"""One account in several kernels: the runs of a session keep to its share of the rate limits."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from agent_magic.engine.pacing.share import (
    BEAT_S,
    beat_s,
    claims,
    is_news,
    limits_of,
    row_of,
    shares_of,
    with_parts,
    without_growth,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.pacing.share import Claims, Demands
    from agent_magic.record.terms import Ceilings


class Rows(Protocol):
    """Rows in which kernels with the same key publish their demand."""

    name: str

    def look(self, decide: Callable[[Mapping[str, Any]], Any], *, beat: bool = True) -> bool: ...

    def peek(self) -> Mapping[str, Any]: ...

    def leave(self) -> None: ...


class Sharing:
    """Keeps a pacer to its share of the rate limits during the session's runs."""

    def __init__(
        self,
        pacer: Pacer,
        rows: Rows,
        clock: Callable[[], float] = time.monotonic,
        common_clock: Callable[[], float] = time.time,
    ) -> None:
        self.pacer, self._rows, self._clock, self._common_clock = pacer, rows, clock, common_clock
        self._runs: list[tuple[tuple[str, ...], Callable[[], object]]] = []
        self._told: Claims = {}
        self._limits: Ceilings = {}
        self._looked_s = self._wrote_s = -BEAT_S
        self.kernels = 1

    @asynccontextmanager
    async def taking_part(self, limit_classes: Iterable[str], wake: Callable[[], object]) -> AsyncGenerator[None]:
        """Share the limits with other kernels during a run; `wake` is called when the share has changed."""
        run = tuple(limit_classes), wake
        self._runs.append(run)
        if self._look(self._demands()):  # before the first request, so that present kernels are seen
            self._keep()
        beats = asyncio.create_task(self._beats())
        try:
            yield
        finally:
            beats.cancel()
            with suppress(asyncio.CancelledError):
                await beats
            self._runs.remove(run)
            if not self._runs:
                self._rows.leave()
                self._told, self.kernels = {}, 1
                self.pacer.set_shares({}, self._clock())

    async def _beats(self) -> None:
        """Poll the rows, on a thread: the loop never waits for the file."""
        while True:
            wait_s = beat_s(self._told)
            await asyncio.sleep(wait_s)
            if self._clock() - self._looked_s < wait_s / 2:  # another run of the session has just looked
                continue
            is_new, ahead = await asyncio.to_thread(self._peek, self._demands())
            beat = self._looked_s - self._wrote_s >= BEAT_S - wait_s / 2
            if not (beat or is_new):
                continue
            demands = self._demands()  # the next kernel's start: nothing may leave between this and giving away
            shrunk = self.pacer.set_shares(shares_of(without_growth(ahead, self._told)), self._clock())
            if await asyncio.to_thread(self._look, demands, beat=beat) and (self._keep() or shrunk):
                for _, wake in list(self._runs):
                    wake()

    def _demands(self) -> Demands:
        self._looked_s = self._clock()
        return self.pacer.demands((name for names, _ in self._runs for name in names), self._looked_s)

    def _peek(self, demands: Demands) -> tuple[bool, Claims]:
        # A new share of a limit applies only once it is written.
        told = claims(demands, self._told, self._rows.name, self._rows.peek(), self._common_clock())
        is_new, self._told = is_news(told, self._told), with_parts(told, self._told)
        return is_new, told

    def _look(self, demands: Demands, *, beat: bool = True) -> bool:
        def decide(others: Mapping[str, Any]) -> Any:
            self.kernels = 1 + len(others)
            self._limits = limits_of(others, demands)
            self._told = claims(demands, self._told, self._rows.name, others, self._common_clock())
            return row_of(self._told)

        if beat:
            self._wrote_s = self._looked_s
        return self._rows.look(decide, beat=beat)

    def _keep(self) -> bool:
        now = self._clock()
        changed = self.pacer.set_shares(shares_of(self._told), now)
        self.pacer.recall(self._limits, {}, now)
        return changed
