"""Servers that refuse and announce nothing, over HTTP with the real SDK: no row fails, few requests are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import agent_magic as am
from tests.providers.wire import WHOLE, problem, reply, serving

REFUSAL = problem(429, "rate_limit_error", retry_after_ms="30")
TOOK_S = 0.03
"""How long the server takes for an answer."""
PLAN = am.Plan([am.Agent(f"a{number}", f"{number}") for number in range(80)])


def refused_of(answer: Any) -> tuple[set[str], int, int]:
    """Run eighty agents. Return how they ended, how many requests came, and how many attempts were 429s."""

    async def work() -> tuple[set[str], int, int]:
        async with serving(answer) as server:
            client = am.Claude(base_url=server.url, api_key="none")
            run = await PLAN.run(am.Policy(20, seed=1), client=client)
            classes = run.attempts["error_class"].fillna("").tolist()
            return set(run.agents["status"]), server.calls, classes.count("RateLimited")

    return asyncio.run(work())


def test_a_server_of_four_places_answers_all_and_refuses_few():
    """A request is refused where four are being answered: that number is kept to, attempts are not used up."""
    busy = 0

    async def answer(writer: Any, _: int) -> None:
        nonlocal busy
        if busy >= 4:
            writer.write(REFUSAL)
            return
        busy += 1
        try:
            await asyncio.sleep(TOOK_S)
            writer.write(reply(WHOLE))
            await writer.drain()
        finally:
            busy -= 1

    ends, requests, refused = refused_of(answer)
    assert {"succeeded"} == ends
    assert requests == 80 + refused
    assert refused <= 24


def test_a_server_that_refuses_by_chance_is_asked_no_more_than_it_refuses():
    """Of one in twenty-five nothing follows but that it is asked again."""

    async def answer(writer: Any, number: int) -> None:
        if number % 25 == 7:
            writer.write(REFUSAL)
            return
        await asyncio.sleep(TOOK_S)
        writer.write(reply(WHOLE))
        await writer.drain()

    ends, requests, refused = refused_of(answer)
    assert {"succeeded"} == ends
    assert (80 + refused, (requests + 18) // 25) == (requests, refused)
