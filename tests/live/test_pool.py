"""Two runs of one session over real HTTP: together they have no more under way than the larger of them may."""

from __future__ import annotations

import asyncio
import json
import urllib.request

from agent_magic.api import Agent, Claude, Plan, Policy, Session, start
from agent_magic.simulator import start as simulator


def test_runs_share_their_slots():
    """Twelve agents in each of two runs, three slots for all: never more at once, all done, each gets its part."""
    with simulator(latency="x0.05", unlimited=True) as server:
        client = Claude(base_url=server.url, api_key="any")

        async def scene() -> None:
            await Plan([Agent("first", "shows that the key is good [[tokens:1]]")]).run(client=client)
            session = Session(client=client)
            drivers = [
                start(
                    Plan([Agent(f"{name}{number}", f"{name} {number} [[tokens:40]]") for number in range(12)]),
                    Policy(concurrency),
                    session=session,
                )
                for name, concurrency in (("a", 3), ("b", 2))
            ]
            async with asyncio.TaskGroup() as group:
                for driver in drivers:
                    group.create_task(driver.drive())
            records = [driver.record for driver in drivers]
            assert {"succeeded"} == {one.status for record in records for one in record.results}
            assert any(one.held_by == "slot" for one in records[1].attempts)

        asyncio.run(scene())
        with urllib.request.urlopen(f"{server.url}/simulator/log") as reply:
            log = json.load(reply)
    assert 1 + 24 == len(log["requests"])
    assert log["peak_overlap"] <= 3
    assert {"a", "b"} == {one["prompt"][0] for one in log["requests"][1:10]}


def test_a_run_that_is_paused_or_stopped_leaves_its_slots_to_the_other():
    """The other goes on alone with all of them; afterwards nothing is counted as under way."""
    with simulator(latency="none", unlimited=True) as server:
        client = Claude(base_url=server.url, api_key="any")

        async def scene() -> tuple[list[str], list[str], int]:
            await Plan([Agent("first", "shows that the key is good [[tokens:1]]")]).run(client=client)
            session = Session(client=client)
            plans = [Plan([Agent(f"{name}{one}", f"{name} {one} [[ttft:0.2]]") for one in range(9)]) for name in "abc"]
            paused, stopped, other = (start(plan, Policy(3), session=session) for plan in plans)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one.drive()) for one in (paused, stopped, other)]
                while len(stopped.record.attempts) < 2:  # noqa: ASYNC110 - the requests of a task are no event
                    await asyncio.sleep(0.01)
                paused.pause()
                stopped.stop()
                await tasks[2]
                statuses = [[result.status for result in one.record.results] for one in (paused, other)]
                paused.stop()
            under_way = sum(one.under_way for one in session.pacer.health(0.0).values())
            return statuses[0], statuses[1], under_way

        held, done, under_way = asyncio.run(scene())
        with urllib.request.urlopen(f"{server.url}/simulator/log") as reply:
            log = json.load(reply)
    assert "pending" in held or "queued" in held
    assert ["succeeded"] * 9 == done
    assert 0 == under_way
    # Of a request that was stopped the server hears later than the client lets the next one go.
    whole = [one for one in log["requests"] if one["finished_s"] is not None]
    assert 3 >= max(sum(two["started_s"] <= one["started_s"] < two["finished_s"] for two in whole) for one in whole)
