"""CPU, memory and lag of the kernel, sampled while a run goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from agent_magic.live import MOMENT_S, Sample
from agent_magic.live.monitor import Sampling
from tests.live.virtual import run_virtually


@pytest.mark.parametrize("fails", [False, True], ids=["a block that ends well", "a block that raises"])
def test_samples_are_taken_within_the_block_only(fails):
    """A sample comes four times a second, and none after the block, however it ends."""

    async def work(loop):
        began = loop.time()
        samples = list[Sample]()
        with suppress(ZeroDivisionError), Sampling(lambda: loop.time() - began, samples):
            await asyncio.sleep(1.1)
            _ = 1 / (not fails)
        within = [one.at_s for one in samples]
        await asyncio.sleep(5)
        return within, samples

    within, samples = run_virtually(work)

    assert within == [pytest.approx(0.25 * number) for number in (1, 2, 3, 4)]
    assert len(samples) == len(within)


def test_samples_of_the_preparation_are_left_out():
    """The run's clock begins anew when it is prepared; with both the curve of a dashboard went backwards."""

    async def work(loop):
        began = loop.time()
        samples = list[Sample]()
        with Sampling(lambda: loop.time() - began, samples):
            await asyncio.sleep(1.1)
            began = loop.time()
            await asyncio.sleep(0.6)
        return [one.at_s for one in samples]

    assert [pytest.approx(0.15), pytest.approx(0.4)] == run_virtually(work)


def test_no_sample_is_asked_for_in_the_past(monkeypatch):
    """A browser's event loop refuses that, and what was to come at the same moment would never come."""
    delays, samples = list[float](), list[Sample]()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay, *args, **more):
            delays.append(delay)
            return later(delay, *args, **more)

        monkeypatch.setattr(loop, "call_later", call_later)
        with Sampling(lambda: 0.0, samples):
            time.sleep(2 * MOMENT_S)  # noqa: ASYNC251 - the first sample is due when its timer is set
            await asyncio.sleep(0.1)

    asyncio.run(work())
    assert samples
    assert 0.0 in delays
    assert min(delays) >= 0.0
