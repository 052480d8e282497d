"""Children that are killed in each gap of a cascade, a loop and a map, and what the run after them buys.

    python -m tests.record.dying_flow PLAN FOLDER

Prints a JSON object: what an undisturbed run buys and ends with, and the same of each kill and the run behind it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import agent_magic as am
from agent_magic.providers import Provider
from agent_magic.record import Answer
from tests.record.dying_tools import USED, DyingLedger, Life, child

CHEAP, DEAR = "claude-haiku-5-5", "claude-sonnet-5-5"
ITEMS = '{"value": ["one", "two", "three"]}'
AFTER = "Draft{% if critic %} after {{ critic }}{% endif %}"


def plan_of(name: str) -> am.Plan:
    """Make a plan whose way depends on its answers; each of its answers is unlike the others."""
    if name == "cascade":
        return am.Plan([am.Agent("a", "Go", cascade=[CHEAP, DEAR], escalate=f"answer == '{CHEAP}: Go'")])
    if name == "loop":
        draft = am.Agent("draft", AFTER, until="'after' in critic", rounds=3)
        return am.Plan([draft, am.Agent("critic", "Judge {{ draft }}"), am.Agent("end", "End {{ draft }}")])
    planner = am.Agent("planner", "Plan", returns=list[str])
    work = am.Agent("work", "Do {{ item }}", each="planner", most=5)
    return am.Plan([planner, work, am.Agent("end", "Join {{ work }}")])


class Telling(Provider):
    """Answers with the name of its model and the prompt; a list where one is asked for."""

    endpoint = "scripted"
    is_limited = False

    def __init__(self, life: Life) -> None:
        self._life = life

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer, maybe for the last time."""
        text = (
            '{"value": ["one", "two", "three"]}' if request.prompt == "Plan" else f"{request.model}: {request.prompt}"
        )
        self._life.step()
        self._life.say("sent", json.dumps(text))
        stream.replied(200)
        await asyncio.sleep(0)
        self._life.step()
        stream.add(text)
        return Answer(text, "end_turn", usage=USED, model=request.model)


def live(name: str, folder: Path, last: int) -> None:
    """Run the plan, and say how it ended."""
    life = Life(folder, last)
    ledger = DyingLedger(folder / "ledger.sqlite3", life)
    run = asyncio.run(plan_of(name).run(client=Telling(life), ledger=ledger))
    found = zip(run.plan.names, run.record.results, strict=True)
    ends = {agent: [one.status, one.text, [made.status for made in one.attempts]] for agent, one in found}
    (folder / "end").write_text(json.dumps(ends))
    ledger.close()


def texts(folder: Path, what: str) -> list[str]:
    """Return the answers that were bought, or kept, in a folder."""
    path = folder / what
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def stored(folder: Path) -> list[str]:
    """Return the answers in the ledger of a folder."""
    if not (folder / "ledger.sqlite3").exists():
        return []
    with closing(sqlite3.connect(folder / "ledger.sqlite3")) as file:
        there = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchall()
        return [text.decode() for (text,) in file.execute("SELECT text FROM answers")] if there else []


def kill_everywhere(name: str, folder: Path) -> list[dict[str, Any]]:
    """Kill one child at each step in turn, and run another to the end behind it."""
    found: list[dict[str, Any]] = []
    for last in range(1, 1000):
        here = folder / str(last)
        here.mkdir(parents=True)
        status = child(lambda at=last, into=here: live(name, into, at))
        if status == 0:
            return found
        assert status == -signal.SIGKILL, status
        kept, sent = stored(here), len(texts(here, "sent"))
        assert child(lambda into=here: live(name, into, 0)) == 0
        ends = json.loads((here / "end").read_text())
        found.append({"kept": kept, "sent_after": texts(here, "sent")[sent:], "ends": ends})
    raise AssertionError("it never came to its end")


if __name__ == "__main__":
    which, place = sys.argv[1], Path(sys.argv[2])
    (place / "warm").mkdir()
    live(which, place / "warm", 0)  # loads everything, for all children
    whole = {"sent": texts(place / "warm", "sent"), "ends": json.loads((place / "warm" / "end").read_text())}
    print(json.dumps({"whole": whole, "killed": kill_everywhere(which, place)}))
