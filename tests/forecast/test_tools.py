"""Forecasts of runs with tools and tasks, against the live driver on a virtual clock.

Both have the same service: each turn and each call takes what a lot says for it, however many run beside it. Real time
would say the same with the noise of the machine on top; `benchmarks.forecast` measures that.
"""

# Tests look into rooms: the driver's clock is the virtual one.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from agent_magic import Task, resource, tool
from agent_magic.api import Agent, Plan, Policy, Run, start
from agent_magic.providers import EVERYTHING, Provider
from agent_magic.record import Answer, Usage
from tests.live.virtual import run_virtually

CLOSE = 0.02
AGENTS = 9


def lot(*of: Any) -> Random:
    """The lot of one thing that takes time."""
    return Random(repr(of))


class Paced(Provider):
    """Answers each turn after its time; how many turns an agent takes is its lot."""

    capabilities = EVERYTHING
    endpoint = "paced"
    is_limited = False

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer one turn."""
        turn = sum(one.role == "assistant" for one in request.messages)
        chance = lot(request.prompt, turn)
        stream.replied(200)
        await asyncio.sleep(chance.uniform(0.2, 2.0))
        used = Usage(100 + 50 * turn, output_tokens=40)
        if not request.tools or turn == lot(request.prompt).randrange(1, 4):
            return Answer("done", "end_turn", usage=used, model=request.model)
        names = ["look", "hold", "lonely"][: chance.randrange(1, 4)]
        calls = [
            {"type": "tool_use", "id": f"t{turn}{name}", "name": name, "input": {"key": f"{request.prompt[:8]}{turn}"}}
            for name in names
        ]
        return Answer("", "tool_use", usage=used, model=request.model, content=json.dumps(calls))


def plan_of() -> Plan:
    """Agents with tools behind a task, a task for each of them, and one agent that reads all."""

    async def look(key: str) -> str:
        """Look."""
        await asyncio.sleep(lot("look", key).uniform(0.1, 3.0))
        return key

    @tool(uses="db")
    async def hold(key: str) -> str:
        """Use the database."""
        await asyncio.sleep(lot("hold", key).uniform(0.1, 0.5))
        return key

    @tool(alone=True)
    async def lonely(key: str) -> str:
        """Look alone."""
        await asyncio.sleep(lot("lonely", key).uniform(0.1, 1.0))
        return key

    async def load() -> str:
        await asyncio.sleep(1.5)
        return "x"

    resource("db", AGENTS)  # enough for all: who waits for whom is no part of what a recording says
    asks = [Agent(f"a{n}", f"Agent {n} {{{{ load }}}}", tools=[look, hold, lonely]) for n in range(AGENTS)]
    every = " ".join(f"{{{{ a{n} }}}}" for n in range(AGENTS))
    return Plan([Task("load", load), *asks, Agent("all", f"All {every}")])


def taken(concurrency: int) -> Run:
    """Run it on a virtual clock."""
    return played(plan_of(), Paced(), Policy(concurrency, seed=1))


def played(plan: Plan, client: Provider, policy: Policy | None = None, **more: Any) -> Run:
    """Run a plan on a virtual clock."""

    async def work(loop: Any) -> Run:
        driver = start(plan, policy or Policy(seed=1), client=client, **more)
        driver._clock = loop.time
        await driver.drive()
        return Run(driver.record)

    return run_virtually(work)


@pytest.mark.parametrize("then", [2, 4, 20])
@pytest.mark.parametrize("now", [1, 2, 3, 6, 20])
def test_a_forecast_of_tools_at_another_concurrency_is_what_a_run_then_takes(then: int, now: int) -> None:
    """Within 2 %: turns wait for slots, calls take their time beside them and hold none."""
    recorded, real = taken(then), taken(now)
    assert real.ok
    assert any(one.tool == "lonely" for result in real.record.results for one in result.calls)
    forecast = recorded.forecast(concurrency=now)
    assert forecast.totals.wall_s == pytest.approx(real.totals.wall_s, rel=CLOSE)
    assert forecast.totals.cost_usd == pytest.approx(real.totals.cost_usd)


CALL: Any = {"content": '[{"type": "tool_use", "id": "t", "name": "wait", "input": {}}]'}
PAUSE: Any = {"content": '[{"type": "text", "text": "so far"}]'}


async def wait() -> None:
    """Wait."""
    await asyncio.sleep(0.5)


@dataclass
class Told(Provider):
    """Answers with these stop reasons and texts in turn, each in a second."""

    says: list[tuple[str, str]]
    capabilities = EVERYTHING
    endpoint = "told"
    is_limited = False

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer one turn."""
        reason, text = self.says.pop(0)
        stream.replied(200)
        await asyncio.sleep(1)
        content = {"tool_use": CALL, "pause_turn": PAUSE}.get(reason, {})
        return Answer(text, reason, usage=Usage(9, output_tokens=5), model=request.model, **content)


@pytest.mark.parametrize(
    ("turns", "says", "options"),
    [
        pytest.param([1, 2], ["tool_use", "end_turn text"], {"max_turns": 2}, id="no calls in the last turn"),
        pytest.param([1, 2], ["tool_use", "tool_use"], {"max_turns": 2}, id="capped in its calls"),
        pytest.param([1, 2], ["pause_turn", "pause_turn"], {"max_turns": 2}, id="capped in its pauses"),
        pytest.param([1, 2], ["tool_use", "tool_use x"], {"max_turns": 2, "ask": True}, id="capped, and agreed to"),
        pytest.param([1, 2, 3], ["tool_use", "end_turn", "end_turn text"], {}, id="silent"),
        pytest.param([1, 2, 3], ["tool_use", "end_turn no", "end_turn 3"], {"returns": int}, id="mended"),
        pytest.param([1, 2], ["end_turn no", "end_turn no"], {"returns": int}, id="unfit"),
    ],
)
def test_a_forecast_has_the_turns_that_were(turns: list[int], says: list[str], options: Any) -> None:
    """They end as they did, and so does the step."""
    told = [(one.partition(" ")[0], one.partition(" ")[2]) for one in says]
    plan = Plan([Agent("a", "A", tools=[wait], **options), Agent("b", "B {{ a }}")])
    run = played(plan, Told([*told, ("end_turn", "")]), ask=lambda _: True)
    found = run.forecast()
    assert turns == [one.turn for one in run["a"].attempts]
    assert [(one.status, one.kind, one.finished_s) for one in run.record.results] == [
        (one.status, one.kind, one.finished_s) for one in found.record.results
    ]
    assert [(one.agent, one.turn, one.status, one.ended_s) for one in run.record.attempts] == [
        (one.agent, one.turn, one.status, one.ended_s) for one in found.record.attempts
    ]


def test_what_a_person_denied_ends_a_forecast_too() -> None:
    """Nothing after it is forecast as if it had run."""
    plan = Plan([Agent("a", "A", ask=True), Agent("b", "{{ a }}")])
    run = played(plan, Told([("end_turn", "text")]), ask=lambda _: False)
    assert ["failed", "skipped"] == [one.status for one in run.forecast().record.results]
    assert run.forecast().totals.cost_usd == run.totals.cost_usd
