"""F31: user code that holds the event loop up. What had arrived meanwhile is no time-out."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

from agent_magic.api import Agent, Claude, Plan, Policy
from tests.providers.wire import BEGIN, CLOSE, OPEN, REASON, STOP, TEXT, reply, serving


@contextmanager
def elsewhere(answer):
    """Serve on a thread of its own: its loop goes on while ours stands still."""
    found, ready, over = [], threading.Event(), threading.Event()

    async def serve():
        async with serving(answer) as server:
            found.append(server)
            ready.set()
            while not over.is_set():  # noqa: ASYNC110 - set on another thread
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        over.set()
        thread.join()


DEADLINE_S = 3.0
HELD_S = DEADLINE_S + 1.0


def run_held_up(answer):
    """Run five agents, hold the loop up from when all have asked until behind their deadline; return run and calls."""
    with elsewhere(answer) as server:

        async def main():
            plan = Plan([Agent(f"a{number}", "x", timeout_s=DEADLINE_S) for number in range(5)])
            client = Claude(base_url=server.url, api_key="a-key-of-a-test")
            await Plan([Agent("first", "x")]).run(client=client)  # loads the SDK, and shows the key to be good
            running = asyncio.create_task(plan.run(Policy(5, max_attempts=2), client=client))
            while server.calls < 6:  # noqa: ASYNC110 - counted on another thread
                await asyncio.sleep(0.01)
            time.sleep(HELD_S)  # noqa: ASYNC251 - that is the point
            return await running

        return asyncio.run(main()), server.calls


def test_what_arrived_while_the_loop_stood_still_is_no_time_out(caplog):
    """Answers that were whole after 0.1 s, read a second behind the deadline: none is late, none is asked for twice."""

    async def answer(writer, _):
        writer.write(reply(BEGIN + OPEN))
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(TEXT + CLOSE + REASON + STOP)
        await writer.drain()

    run, calls = run_held_up(answer)
    assert run.ok
    assert calls == 6
    assert "was blocked" in caplog.text


def test_what_had_not_arrived_is_late_all_the_same():
    """The deadline holds, a moment after the loop goes on."""

    async def answer(writer, number):
        writer.write(reply(BEGIN + OPEN + TEXT + CLOSE + (REASON + STOP if number == 1 else b"")))
        await writer.drain()
        await asyncio.sleep(90 if number > 1 else 0)

    run, calls = run_held_up(answer)
    assert {"failed"} == set(run.agents["status"])
    assert run.agents["error"].str.startswith("Late").all()
    assert run.summary["wall_s"].item() < HELD_S + 30  # the server would go on for 90 s
    assert calls == 6
