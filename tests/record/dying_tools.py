"""Children that are killed in each gap of a tool loop, and what the run after them does.

    python -m tests.record.dying_tools FOLDER

Prints one JSON object per kill: what was bought and done before and after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import agent_magic as am
from agent_magic import Policy, tool
from agent_magic.providers import EVERYTHING, Provider
from agent_magic.record import Answer, Usage

TURNS = 2
USED = Usage(10, output_tokens=5)


class Life:
    """Ends at the step with a number.

    Args:
        folder: Where it says what it does.
        last: The step; 0 never ends.
    """

    def __init__(self, folder: Path, last: int) -> None:
        self._folder, self._left = folder, last

    def step(self) -> None:
        """Take a step, maybe the last."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def say(self, what: str, word: str) -> None:
        """Say what was done; it outlives a kill."""
        with (self._folder / what).open("a") as file:
            file.write(f"{word}\n")


class Scripted(Provider):
    """Asks for two calls in each turn, then answers."""

    capabilities = EVERYTHING
    endpoint = "scripted"
    is_limited = False

    def __init__(self, life: Life) -> None:
        self._life = life

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer by the length of the conversation."""
        turn = sum(one.role == "assistant" for one in request.messages)
        self._life.step()
        self._life.say("sent", str(turn))
        stream.replied(200)
        stream.opened()
        await asyncio.sleep(0)
        self._life.step()
        if turn == TURNS:
            stream.add("the end")
            return Answer("the end", "end_turn", usage=USED, model=request.model)
        names = ("charge", "look")
        calls = [
            {"type": "tool_use", "id": f"t{turn}{name}", "name": name, "input": {"what": str(turn)}} for name in names
        ]
        return Answer("", "tool_use", usage=USED, model=request.model, content=json.dumps(calls))


class DyingJournal:
    """A journal around which somebody may die."""

    def __init__(self, journal: Any, life: Life) -> None:
        self._journal, self._life = journal, life

    async def ask(self, *args: Any, **more: Any) -> Any:
        """Ask, maybe for the last time."""
        self._life.step()
        found = await self._journal.ask(*args, **more)
        self._life.step()
        return found

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._journal, name)

        def around(*args: Any, **more: Any) -> Any:
            self._life.step()
            found = work(*args, **more)
            self._life.step()
            return found

        return around

    async def on_disk(self, agent: int, number: int) -> None:
        """Say what is kept as soon as it is."""
        await self._journal.on_disk(agent, number)
        self._life.say("kept", str(number - 1))
        self._life.step()


class DyingLedger(am.Ledger):
    """A ledger with such journals."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self._life = life

    def begin(self, record: Any, prices: Any = None) -> Any:
        """Record a run that is about to begin."""
        return DyingJournal(super().begin(record, prices), self._life)


def live(folder: Path, last: int, on_doubt: Any, done: Path | None = None) -> None:
    """Run an agent with a tool that must not be repeated, and one that may be."""
    life = Life(folder, last)

    @tool(alone=True)
    def charge(what: str) -> str:
        """Charge an account."""
        life.step()
        life.say("charged", what)
        life.step()
        return f"charged {what}"

    @tool(safe=True)
    def look(what: str) -> str:
        """Look at it."""
        life.step()
        life.say("looked", what)
        life.step()
        return f"saw {what}"

    plan = am.Plan([am.Agent("a", "Go", tools=[charge, look])])
    ledger = DyingLedger(folder / "ledger.sqlite3", life)
    policy = Policy(on_doubt=on_doubt)
    run = asyncio.run(plan.run(policy, client=Scripted(life), ledger=ledger))
    result = run.record.results[0]
    told = [(one.tool, one.status, one.source, one.error) for one in result.calls]
    if done is not None:
        done.write_text(json.dumps({"status": result.status, "kind": result.kind, "calls": told}))
    ledger.close()


def child(work: Any) -> int:
    """Do something in a child; return its status."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def words(folder: Path, what: str) -> list[str]:
    """Read what was said."""
    path = folder / what
    return path.read_text().split() if path.exists() else []


def is_finished(folder: Path) -> bool:
    """Tell whether the ledger has a run that came to its end."""
    if not (folder / "ledger.sqlite3").exists():
        return False
    file = sqlite3.connect(folder / "ledger.sqlite3")
    tables = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchall()
    found = tables and file.execute("SELECT 1 FROM runs WHERE state = 'finished'").fetchall()
    file.close()
    return bool(found)


def kill_everywhere(folder: Path, on_doubt: str) -> list[dict[str, Any]]:
    """Kill one child at each step in turn, and run another to the end behind it."""
    found: list[dict[str, Any]] = []
    for last in range(1, 1000):
        here = folder / f"{on_doubt}-{last}"
        here.mkdir(parents=True)
        status = child(lambda at=last, into=here: live(into, at, on_doubt))
        if status == 0:
            return found
        assert status == -signal.SIGKILL, status
        before = {what: words(here, what) for what in ("sent", "kept", "charged")}
        end, was_over = here / "end", is_finished(here)
        assert child(lambda into=here, to=end: live(into, 0, on_doubt, to)) == 0
        after = {what: words(here, what)[len(said) :] for what, said in before.items()}
        found.append(
            {"step": last, "was_over": was_over, "before": before, "after": after, **json.loads(end.read_text())}
        )
    raise AssertionError("it never came to its end")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "warm").mkdir()
    live(place / "warm", 0, "ask")  # loads everything, for all children
    print(json.dumps({way: kill_everywhere(place, way) for way in ("ask", "again", "error")}))
