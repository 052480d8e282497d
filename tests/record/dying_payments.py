"""Children that are killed several times in a row while their agents pay, and what they have paid in the end.

    python -m tests.record.dying_payments FOLDER STORIES SEED

The agents are asked over HTTP by the real SDK. Prints one JSON object per story: which lives it had, and what each did.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sqlite3
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import agent_magic as am
from agent_magic import Policy, tool
from tests.live.test_tool_turns import asks, call, says
from tests.providers.wire import reply, serving
from tests.record.dying_tools import DyingLedger, Life, child, is_finished

PLANS = ("several", "loop", "map", "each", "parallel")
MOST_STEPS = 45


def words_of(body: Any) -> tuple[str, bool]:
    """Return the prompt of a request, and whether a tool has returned already."""
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else content[-1]["text"], len(body["messages"]) > 1


def script(body: Any) -> bytes:
    """Answer as the prompt says."""
    prompt, returned = words_of(body)
    if prompt.startswith("Pay all") and not returned:  # three payments in one turn, side by side
        ids = (f"t{zlib.crc32(prompt.encode())}{number}" for number in range(3))
        return asks(*(call(n, json.dumps({"what": f"{prompt} {n}"}), "charge", id_) for n, id_ in enumerate(ids)))
    if prompt.startswith("Pay") and not returned:
        return asks(call(0, json.dumps({"what": prompt}), "charge", f"t{zlib.crc32(prompt.encode())}"))
    if prompt.startswith("Plan"):
        return says('{"value": ["one", "two", "three"]}')
    if prompt.startswith("Judge"):
        return says("good" if "again" in prompt else "not yet")
    return says(f"done: {prompt[:40]}")


def serve(place: Path) -> None:
    """Answer requests until the end of the process that began this one, and write each down."""

    async def go() -> None:
        async def answer(writer: Any, number: int) -> None:
            body = server.bodies[number - 1]
            with (place / "requests").open("a") as file:
                file.write(json.dumps(body, sort_keys=True) + "\n")
            writer.write(reply(script(body)))
            await writer.drain()

        async with serving(answer) as server:
            (place / "new").write_text(server.url)
            (place / "new").rename(place / "url")
            while os.getppid() != 1:  # noqa: ASYNC110 - nothing tells of the end of a parent
                await asyncio.sleep(0.2)

    asyncio.run(go())


def plan_of(name: str, life: Life, version: str) -> am.Plan:
    """Make a plan of agents that pay, in a row, again and again, or for each item, and of tasks that write in books."""

    @tool(alone=True)
    def charge(what: str) -> str:
        """Charge an account."""
        life.step()
        life.say("charged", json.dumps(what))
        life.step()
        return "charged"

    @tool(name="charge")
    def beside(what: str) -> str:
        """Charge an account, beside others."""
        return charge(what)

    def book(end: object) -> str:
        life.say("booked", json.dumps(f"{version} {end}"))
        return "booked"

    pays: Any = {"tools": [charge], "model": "claude-haiku-5-5"}
    end = am.Agent("end", "End {{ book }}", model="claude-haiku-5-5")
    if name == "parallel":
        agents = [am.Agent(one, f"Pay all {version} {one}", **{**pays, "tools": [beside]}) for one in ("left", "right")]
        return am.Plan([*agents, am.Task("book", lambda left, right: book([left, right])), end])
    if name == "loop":
        draft = am.Agent(
            "draft", f"Pay {version}{{% if judge %}} again{{% endif %}}", until="'good' in judge", rounds=3, **pays
        )
        judge = am.Agent("judge", "Judge {{ draft }}", model="claude-haiku-5-5")
        return am.Plan([draft, judge, am.Task("book", lambda draft: book(draft)), end])  # noqa: PLW0108 - its parameter is its edge
    if name == "map":
        planner = am.Agent("planner", f"Plan {version}", returns=list[str], model="claude-haiku-5-5")
        work = am.Agent("work", f"Pay {version} {{{{ item }}}}", each="planner", most=4, **pays)
        return am.Plan([planner, work, am.Task("book", lambda item: book(item), each="planner", most=4), end])  # noqa: PLW0108
    if name == "each":
        work = am.Agent("work", f"Pay {version} {{{{ item }}}}", each="rows", **pays)
        return am.Plan([work, am.Task("book", lambda item: book(item), each="rows"), end], {"rows": ["x", "y", "z"]})  # noqa: PLW0108
    first = am.Agent("first", f"Pay {version} first", **pays)
    second = am.Agent("second", "Pay second {{ first }}", **pays)
    return am.Plan([first, second, am.Task("book", lambda second: book(second)), end])  # noqa: PLW0108


def live(name: str, folder: Path, last: int, version: str, on_doubt: Any, url: str) -> None:
    """Run the plan, and say how it ended."""
    life = Life(folder, last)
    logging.basicConfig(filename=folder / "log", level=logging.WARNING, force=True)
    plan, ledger = plan_of(name, life, version), DyingLedger(folder / "ledger.sqlite3", life)
    client = am.Claude(base_url=url, api_key="any")
    run = asyncio.run(plan.run(Policy(concurrency=2, on_doubt=on_doubt), client=client, ledger=ledger))
    doubts = [one.kind for result in run.record.results for one in result.calls if one.kind == "CallInDoubt"]
    (folder / "end").write_text(json.dumps([run.ok, len(doubts)]))
    ledger.close()


def said(folder: Path, what: str) -> list[str]:
    """Return what was said."""
    path = folder / what
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def done(folder: Path) -> int:
    """Return how many tasks the ledger knows to be done, of a run that is not complete."""
    if not (folder / "ledger.sqlite3").exists():
        return 0
    file = sqlite3.connect(folder / "ledger.sqlite3")
    if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'tool_calls'").fetchall():
        return 0
    (rows,) = file.execute("SELECT count(*) FROM tool_calls WHERE state = 'done' AND tool LIKE 'book%'").fetchone()
    file.close()
    return rows


def story(folder: Path, url: str, draw: random.Random) -> dict[str, Any]:
    """Live several lives, all but the last killed, then one more that a person begins."""
    name, on_doubt = draw.choice(PLANS), draw.choice(["ask", "error"])
    cuts = [draw.randint(1, MOST_STEPS) for _ in range(draw.randint(1, 4))]
    edits = draw.random() < 0.3
    lives: list[dict[str, Any]] = []

    def one_life(last: int, version: str) -> dict[str, Any]:
        (folder / "end").unlink(missing_ok=True)
        status = child(lambda: live(name, folder, last, version, on_doubt, url))
        assert status in {0, -signal.SIGKILL}, status
        ended, log = said(folder, "end"), folder / "log"
        return {
            "killed": bool(status) and not is_finished(folder),  # else it died with its run behind it
            "version": version,
            "end": ended[0] if ended else None,
            "done": done(folder),
            "charged": said(folder, "charged"),
            "booked": said(folder, "booked"),
            "log": log.read_text() if log.exists() else "",
        }

    for last in [*cuts, 0]:
        lives.append(one_life(last, draw.choice(["v1", "v2"]) if edits and last else "v1"))
        if not lives[-1]["killed"]:
            break
    lives.append(one_life(0, lives[-1]["version"]))
    return {"plan": name, "on_doubt": on_doubt, "cuts": cuts, "lives": lives}


if __name__ == "__main__":
    place, draw = Path(sys.argv[1]), random.Random(int(sys.argv[3]))
    server = os.fork()
    if not server:
        serve(place)
        os._exit(0)
    try:
        while not (place / "url").exists():
            time.sleep(0.01)
        url = (place / "url").read_text()
        (place / "warm").mkdir()
        for name in PLANS:
            live(name, place / "warm", 0, "v1", "ask", url)  # loads everything, for all children
        for number in range(int(sys.argv[2])):
            here = place / str(number)
            here.mkdir()
            print(json.dumps(story(here, url, draw)), flush=True)
    finally:
        os.kill(server, signal.SIGKILL)
