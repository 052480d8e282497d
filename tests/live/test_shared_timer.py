"""Calls that come a moment later share a timer, and cost none where they are taken back."""

from __future__ import annotations

import asyncio

import pytest

from agent_magic.live import MOMENT_S
from agent_magic.live.tasks import forget, in_a_moment
from tests.live.virtual import run_virtually


def test_calls_of_one_moment_share_a_timer():
    """Each comes once, within the moment; one that is taken back does not come."""

    async def work(loop):
        came, timers = list[tuple[str, float]](), list[float]()
        later = loop.call_later
        loop.call_later = lambda delay_s, *what: timers.append(delay_s) or later(delay_s, *what)
        first, second, third = (lambda name=name: came.append((name, loop.time())) for name in "abc")
        began = loop.time()
        in_a_moment(loop, first)
        in_a_moment(loop, first)
        await asyncio.sleep(0.1)
        in_a_moment(loop, second)
        in_a_moment(loop, third)
        forget(loop, third)
        await asyncio.sleep(1)
        forget(loop, first)
        ours = [one for one in timers if one == MOMENT_S]
        return [(name, at_s - began) for name, at_s in came], ours

    came, ours = run_virtually(work)

    assert came == [("a", pytest.approx(MOMENT_S)), ("b", pytest.approx(MOMENT_S))]
    assert [MOMENT_S] == ours


def test_a_later_moment_has_a_timer_of_its_own():
    """A function may ask to be called again, also from its own call."""

    async def work(loop):
        began, came = loop.time(), list[float]()

        def again() -> None:
            came.append(loop.time() - began)
            if len(came) < 3:
                in_a_moment(loop, again)

        in_a_moment(loop, again)
        await asyncio.sleep(5)
        return came

    assert [pytest.approx(MOMENT_S * number) for number in (1, 2, 3)] == run_virtually(work)
