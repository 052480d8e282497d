"""CPU, memory and loop lag of the kernel, sampled while a run goes on."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

EVERY_S = 0.25
MOST = 4000
"""Of a longer run every other sample is left out, and later ones are half as many."""
BYTES_PER_MB = 1e6


class Sample(NamedTuple):
    """The kernel at one moment.

    Attributes:
        at_s: When, in seconds since the run began.
        cpu_share: CPU seconds per second since the sample before, of one core: 1.0 is a core.
        rss_mb: Memory that is resident; `None` without psutil, which ipykernel brings.
        lag_s: How much later than asked for the event loop came back: what blocks it, blocks every agent.
    """

    at_s: float
    cpu_share: float
    rss_mb: float | None
    lag_s: float


@asynccontextmanager
async def sampling(now: Callable[[], float]) -> AsyncGenerator[list[Sample]]:
    """Sample the kernel within a block. Yields the list that grows.

    Args:
        now: Returns the seconds since the run began.
    """
    samples: list[Sample] = []
    task = asyncio.create_task(_sample(now, samples))
    try:
        yield samples
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sample(now: Callable[[], float], samples: list[Sample]) -> None:
    rss_mb, every_s = None, EVERY_S
    while True:
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(every_s)
        took_s = time.perf_counter() - wall
        rss_mb = rss_mb or _memory()  # not before: to find itself costs psutil as much as a short run takes
        share = (time.process_time() - cpu) / took_s
        samples.append(Sample(now(), share, rss_mb(), max(0.0, took_s - every_s)))
        if len(samples) > MOST:
            del samples[::2]
            every_s *= 2


def _memory() -> Callable[[], float | None]:
    """Return what measures the resident memory of this process."""
    if importlib.util.find_spec("psutil") is None:
        return lambda: None
    import psutil  # noqa: PLC0415  # lazy: a script need not have it

    process: Any = psutil.Process()
    return lambda: process.memory_info().rss / BYTES_PER_MB
