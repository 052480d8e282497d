"""CPU, memory and loop lag of the kernel during a run."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.live.tasks import MOMENT_S, forget, in_a_moment

if TYPE_CHECKING:
    from collections.abc import Callable

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
