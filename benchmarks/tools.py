"""What a turn with a tool, and a task, cost over what one would write by hand.

By hand there are two loops. One has the SDK's helper put each message together, as its documentation shows and as most
people write it: `async with client.messages.stream(...)`, `get_final_message()`. The other reads raw events, which is
the least one can write: it joins the pieces of a call, reads its JSON, calls the function, appends both messages and
asks again. Ours is `Plan.run`, without a ledger on all sides: it checks the arguments, writes every event down, prices
each turn and can be stopped. The server answers at once, from another process.

A task that does nothing is compared with a task of asyncio that awaits a coroutine, and with `asyncio.to_thread`.

Run it with `python -m benchmarks.tools`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anthropic

from agent_magic.api import Agent, Claude, Plan, Policy, Session, start
from agent_magic.declare.task import Task
from agent_magic.live.driver import Driver
from benchmarks.instant_server import MODEL, instant_server
from benchmarks.measuring import Case, in_rounds, print_heading, print_table, ratio
from benchmarks.overhead import NoOp

CONVERSATIONS = 60
TURNS = (2, 5, 10)
AT_ONCE = (1, 10)
TASKS = (10, 100, 1_000)
ROUNDS = 9


async def look(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return f"found {word}"


def nothing() -> None:
    """Do nothing, in a thread."""


async def nothing_on_the_loop() -> None:
    """Do nothing."""


async def done(driver: Driver) -> None:
    """Run, and raise unless every step succeeded."""
    await driver.drive()
    assert all(result.status == "succeeded" for result in driver.record.results)


# turns


Converse = Callable[[anthropic.AsyncAnthropic, Any, int], Awaitable[int]]


async def converse_by_helper(sdk: anthropic.AsyncAnthropic, tools: Any, number: int) -> int:
    """Hold one conversation, with the SDK's helper. Returns its turns."""
    messages: list[Any] = [{"role": "user", "content": f"Question number {number}."}]
    for turn in range(1, 100):
        async with sdk.messages.stream(model=MODEL, max_tokens=2048, messages=messages, tools=tools) as stream:
            message = await stream.get_final_message()
        if message.stop_reason != "tool_use":
            return turn
        calls: list[Any] = [one for one in message.content if one.type == "tool_use"]
        found = await asyncio.gather(*(look(**one.input) for one in calls))
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results_of(calls, found)},
        ]
    raise AssertionError("it never ends")


def results_of(calls: Sequence[Any], found: Sequence[str]) -> list[dict[str, Any]]:
    """Write the results of calls."""
    ids = [one["id"] if isinstance(one, dict) else one.id for one in calls]
    return [{"type": "tool_result", "tool_use_id": id_, "content": text} for id_, text in zip(ids, found, strict=True)]


async def converse(sdk: anthropic.AsyncAnthropic, tools: Any, number: int) -> int:
    """Hold one conversation, on raw events. Returns its turns."""
    messages: list[Any] = [{"role": "user", "content": f"Question number {number}."}]
    for turn in range(1, 100):
        stream = await sdk.messages.create(model=MODEL, max_tokens=2048, messages=messages, tools=tools, stream=True)
        blocks: dict[int, dict[str, Any]] = {}
        pieces: dict[int, str] = {}
        reason = None
        async for event in stream:
            if event.type == "content_block_start":
                blocks[event.index] = event.content_block.to_dict()
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                blocks[event.index]["text"] += event.delta.text
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces[event.index] = pieces.get(event.index, "") + event.delta.partial_json
            elif event.type == "message_delta":
                reason = event.delta.stop_reason
        for index, text in pieces.items():
            blocks[index]["input"] = json.loads(text)
        if reason != "tool_use":
            return turn
        calls = [one for one in blocks.values() if one["type"] == "tool_use"]
        found = await asyncio.gather(*(look(**one["input"]) for one in calls))
        messages += [
            {"role": "assistant", "content": list(blocks.values())},
            {"role": "user", "content": results_of(calls, found)},
        ]
    raise AssertionError("it never ends")


async def by_hand(one: Converse, sdk: anthropic.AsyncAnthropic, tools: Any, at_once: int, turns: int) -> None:
    """Hold all conversations, so many at once."""
    numbers = iter(range(CONVERSATIONS))

    async def worker() -> None:
        for number in numbers:
            assert turns == await one(sdk, tools, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())


async def per_turn(server: str) -> None:
    """Compare conversations, by turn."""
    rows: list[tuple[object, ...]] = []
    plan = Plan(tuple(Agent(f"a{n}", f"Question number {n}.", tools=[look], model=MODEL) for n in range(CONVERSATIONS)))
    tools = json.loads(plan.agents[0].tools_text)
    for turns in TURNS:
        address = f"{server}/turns/{turns}"
        http = anthropic.DefaultAioHttpClient(trust_env=False)
        sdk = anthropic.AsyncAnthropic(api_key="x", base_url=address, max_retries=0, http_client=http)
        claude = Claude(base_url=address, api_key="x")
        session = Session(client=claude)
        async with sdk, claude.open():
            for at_once in AT_ONCE:
                policy = Policy(concurrency=at_once, max_turns=20, cache="off")
                cases: Mapping[str, Case] = {
                    "helper": lambda n=at_once, t=turns: by_hand(converse_by_helper, sdk, tools, n, t),  # noqa: B023 - awaited at once
                    "raw": lambda n=at_once, t=turns: by_hand(converse, sdk, tools, n, t),  # noqa: B023 - awaited at once
                    "ours": lambda p=policy: done(start(plan, p, session=session)),  # noqa: B023 - awaited at once
                }
                for case in cases.values():
                    await case()  # opens connections and fills caches
                times = await in_rounds(cases, ROUNDS)
                each = {kind: min(found) / CONVERSATIONS / turns * 1e6 for kind, found in times.items()}
                more = [f"{ratio(times['ours'], times[kind]):.2f}x" for kind in ("helper", "raw")]
                rows.append((f"{turns} turns, {at_once} at once", *(f"{one:.0f}" for one in each.values()), *more))
    print("Per turn. Target: 1.1.\n")
    print_table(("conversations", "helper us", "raw us", "ours us", "over the helper", "over raw events"), rows)


# tasks


async def bare(count: int) -> None:
    """Await coroutines, each in a task."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(nothing_on_the_loop())


async def in_threads(count: int) -> None:
    """Call a function in threads of the loop's pool."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(asyncio.to_thread(nothing))


async def per_task() -> None:
    """Compare tasks that do nothing."""
    rows: list[tuple[object, ...]] = []
    for name, function, floor in (("async def", nothing_on_the_loop, bare), ("def", nothing, in_threads)):
        for count in TASKS:
            plan = Plan(tuple(Task(f"t{number}", function) for number in range(count)))
            policy, client = Policy(concurrency=count), NoOp()
            cases: Mapping[str, Case] = {
                "floor": lambda f=floor, n=count: f(n),
                "ours": lambda p=plan, q=policy, c=client: done(start(p, q, client=c)),
            }
            await cases["ours"]()
            times = await in_rounds(cases, ROUNDS, repeat=20 if count < 100 else 3)
            each = [f"{min(found) / count * 1e6:.1f}" for found in times.values()]
            rows.append((f"{count:,} of {name}", *each, f"{ratio(times['ours'], times['floor']):.2f}x"))
    print("Per task that does nothing; the floor of `async def` is a bare coroutine, of `def` `asyncio.to_thread`.")
    print("Target: 3.\n")
    print_table(("tasks", "floor us", "ours us", "ratio"), rows)


async def main() -> None:
    """Measure both."""
    note = "CPU microseconds, least of the rounds; ratios are medians of the rounds."
    print_heading("Tools and tasks", note)
    with instant_server() as server:
        await per_turn(server)
    await per_task()


if __name__ == "__main__":
    asyncio.run(main())
