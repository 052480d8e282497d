"""A request that nobody waits for any more is closed at once, so that a server of one's own stops generating.

The run goes on meanwhile: the other agent's answer comes only when the server has seen the client leave.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.live import Driver
from agent_magic.providers import Provider
from tests.providers import wire
from tests.providers.chat import speaking

KEY = "sk-ant-api03-abcdefghijklmnop"
BEGUN = {"chat": speaking.TEXT, "anthropic": wire.BEGIN + wire.OPEN + wire.TEXT}
WHOLE = {"chat": speaking.WHOLE, "anthropic": wire.WHOLE}
MOMENTS = {"before the first byte": None, "behind the head": False, "in the middle": True}
"""Whether the answer has begun where a request is given up; `None` without a head."""

pytestmark = [
    pytest.mark.parametrize("provider", ["chat", "anthropic"]),
    pytest.mark.parametrize("moment", MOMENTS),
]


def of(provider: str, url: str) -> Provider:
    """Return the provider for a server."""
    return am.Chat(url, free=True) if provider == "chat" else am.Claude(base_url=url, api_key=KEY)


class Slow:
    """Answers one request up to a moment; the others when its client has left.

    Args:
        provider: Whose API it speaks.
        moment: How far the first answer comes.
        held: What the prompt of that request has in it; the very first request if empty.
        at_once: Number of answers that do not wait for the client to leave.
    """

    def __init__(self, provider: str, moment: str, held: str = "", at_once: int = 0) -> None:
        self._provider, self._held, self._at_once = provider, held, at_once
        self._answered = 0
        self.begins = MOMENTS[moment]
        self.server: wire.Server

    async def __call__(self, writer: Any, number: int) -> None:
        """Answer one request."""
        if self._held in str(self.server.bodies[number - 1]) if self._held else number == 1:
            if self.begins is not None:
                writer.write(wire.reply(BEGUN[self._provider] if self.begins else b""))
                await writer.drain()
            await asyncio.Event().wait()
        self._answered += 1
        if self._answered > self._at_once:
            await self.server.left.wait()
        writer.write(wire.reply(WHOLE[self._provider]))
        await writer.drain()


async def driven(provider: str, slow: Slow, plan: am.Plan, policy: Policy, *, stop: str = "") -> Any:
    """Run a plan to its end against a server; return the record."""
    async with asyncio.timeout(45), wire.serving(slow) as server:
        slow.server = server
        driver = Driver(plan, policy, of(provider, server.url))
        task = asyncio.ensure_future(driver.drive())
        if stop:
            await wire.until(lambda: server.calls == len(plan))
            if slow.begins:
                await wire.until(lambda: any(one.parts for one in driver.streams.values()))
            driver.stop([stop])
        await task
        assert 1 == server.gone
        return driver.record


def statuses(record: Any) -> list[str]:
    """How each agent ended."""
    return [one.status for one in record.results]


def test_an_agent_that_is_stopped(provider: str, moment: str) -> None:
    """Its connection is closed while the other agent waits for its own answer."""
    plan = am.Plan([am.Agent("stopped", "one"), am.Agent("other", "two")])
    slow = Slow(provider, moment, "one")
    assert ["cancelled", "succeeded"] == statuses(asyncio.run(driven(provider, slow, plan, Policy(), stop="stopped")))


def test_an_agent_that_is_late(provider: str, moment: str) -> None:
    """Its connection is closed at its deadline, while the other agent waits for its own answer."""
    plan = am.Plan([am.Agent("late", "one", timeout_s=0.5), am.Agent("other", "two")])
    assert ["failed", "succeeded"] == statuses(
        asyncio.run(driven(provider, Slow(provider, moment, "one"), plan, Policy()))
    )


def test_a_hedge_that_loses(provider: str, moment: str) -> None:
    """The second request answers, and the first is closed while the agent behind it waits for its own answer."""
    plan = am.Plan([am.Agent("hedged", "one", hedge=0.2), am.Agent("after", "{{ hedged }}")])
    record = asyncio.run(driven(provider, Slow(provider, moment, at_once=1), plan, Policy()))
    assert ["succeeded"] * 2 == [record[name].status for name in ("hedged", "after")]


def test_an_agent_that_loses_a_race(provider: str, moment: str) -> None:
    """One of two answers, and the other is closed while the agent behind them waits for its own answer."""
    racers = [am.Agent("slow", "one"), am.Agent("fast", "two"), am.first_of("first", "slow,fast")]
    plan = am.Plan([*racers, am.Agent("after", "{{ first }}")])
    record = asyncio.run(driven(provider, Slow(provider, moment, "one", at_once=1), plan, Policy()))
    assert ["skipped", "succeeded", "succeeded"] == [record[name].status for name in ("slow", "fast", "after")]
