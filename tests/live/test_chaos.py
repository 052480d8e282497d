"""A plan of many agents against a server that answers whole, oddly, in part, late or not at all, in any order."""

# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from collections import Counter

import pytest

from agent_magic.api import Agent, Claude, Plan, Policy, Run, start
from tests.providers.wire import (
    BEGIN,
    CLOSE,
    MESSAGE,
    OPEN,
    REASON,
    STOP,
    TEXT,
    WHOLE,
    delta,
    event,
    problem,
    reply,
    serving,
    tasks_left,
)

AGENTS = 150
ENDING = CLOSE + REASON + STOP
ODD_HEADERS = [
    {"requests_limit": "NaN", "requests_remaining": "inf", "requests_reset": "never"},
    {"requests_limit": "-5", "requests_remaining": "-9", "requests_reset": "2020-01-01T00:00:00Z"},
    {"requests_limit": "0", "requests_remaining": "0", "requests_reset": "2099-01-01T00:00:00Z"},
    {"input_tokens_limit": "9" * 400, "input_tokens_remaining": "1e308", "input_tokens_reset": "9999-99-99"},
]
ODD_USAGE = [
    {"input_tokens": -5, "output_tokens": -1},
    {"input_tokens": "12", "output_tokens": "x"},
    {"input_tokens": 10**30, "output_tokens": 1.5},
]
COMPLETE = [
    reply(WHOLE),
    reply(WHOLE.replace(b"\n", b"\r\n")),
    reply(WHOLE.replace(b"data: ", b"data:").replace(b"event: ", b"event:")),
    reply(b": a comment\n\n" + WHOLE),
    reply(WHOLE + b"data: [DONE]\n\n"),
    reply(WHOLE + event("error", error={"type": "api_error", "message": "late"})),
    reply(BEGIN + BEGIN + OPEN + TEXT + ENDING),
    reply(BEGIN + OPEN + delta("hello ") + REASON + delta("world") + STOP),
    reply(BEGIN + b"event: ping\ndata: " + b"[" * 500 + b"]" * 500 + b"\n\n" + OPEN + TEXT + ENDING),
    reply(gzip.compress(WHOLE), content_encoding="gzip"),
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + reply(WHOLE),
    *(
        reply(WHOLE, **{f"anthropic_ratelimit_{name}": value for name, value in headers.items()})
        for headers in ODD_HEADERS
    ),
    *(reply(event("message_start", message={**MESSAGE, "usage": usage}) + OPEN + TEXT + ENDING) for usage in ODD_USAGE),
]
BROKEN = [
    reply(BEGIN + OPEN + TEXT),
    reply(BEGIN + event("error", error="boom")),
    reply(BEGIN + b"event: content_block_delta\ndata: null\n\n"),
    reply(b"[1]", 500, "application/json"),
    reply(b"<html>busy", 502, "text/html"),
    reply(b"", 204),
    reply(WHOLE, content_encoding="gzip"),
    problem(400),
    problem(418),
    problem(529, "overloaded_error"),
    problem(599),
    b"\x00\x01 no HTTP\r\n\r\n",
]


def random_plan(chance):
    """Agents that wait for up to two earlier ones."""
    agents = []
    for number in range(AGENTS):
        parents = chance.sample(range(number), min(number, chance.choice([0, 0, 1, 2])))
        agents.append(Agent(f"a{number}", f"p{number} " + " ".join(f"{{{{ a{one} }}}}" for one in parents)))
    return Plan(agents)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_in_chaos(seed):
    """Every agent ends, every request is one row, what succeeded is whole, times add up, no task is left."""
    asked, bodies = Counter(), []

    async def answer(writer, number):
        agent = re.findall(r"\bp\d+", json.dumps(bodies[number - 1]["messages"]))[0]
        asked[agent] += 1
        chance = random.Random(f"{seed} {agent} {asked[agent]}")  # by agent and try: not by who happens to come first
        body = chance.choice(BROKEN if chance.random() < 0.15 else COMPLETE)
        await asyncio.sleep(chance.choice([0, 0, 0.02]))
        writer.write(body[: chance.randrange(len(body))] if chance.random() < 0.05 else body)
        await writer.drain()

    async def main():
        async with serving(answer) as server:
            server.bodies = bodies
            policy = Policy(40, max_attempts=3, timeout_s=10.0, breaker_share=None, seed=seed)
            client = Claude(base_url=server.url, api_key="a-key-of-a-test")
            driver = start(random_plan(random.Random(seed)), policy, client=client)
            await driver.drive()
            return Run(driver.record, driver), server.calls, tasks_left()

    run, calls, left = asyncio.run(main())
    agents, attempts = run.agents, run.attempts
    assert not left
    assert len(attempts) == calls == agents["attempts"].sum()
    assert {"succeeded", "failed", "skipped"} == set(agents["status"])
    assert {"hello world"} == {run[name].text for name in agents.query("status == 'succeeded'")["agent"]}
    assert not (agents["cost_usd"] < 0).any()
    ran = agents[agents["attempts"] > 0]
    assert (ran["queued_s"] + ran["api_s"] + ran["backoff_s"] + ran["local_s"] == ran["total_s"]).all()
    for name in agents.query("status == 'skipped'")["agent"]:
        assert any(run[parent].status != "succeeded" for parent in run.plan.parents(name))
