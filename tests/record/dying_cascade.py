"""Children that are killed in each gap of a cascade, and what the run after them buys.

    python -m tests.record.dying_cascade FOLDER

Prints one JSON object per kill: which models were asked, and whose answers were kept, before and after it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import agent_magic as am
from agent_magic.providers.base import Provider
from agent_magic.record.answer import Answer
from tests.record.dying_tools import USED, DyingLedger, Life, child, words

CHEAP, DEAR = "claude-haiku-5-5", "claude-sonnet-5-5"


class Unsure(Provider):
    """Answers with the name of its model."""

    endpoint = "scripted"
    is_limited = False

    def __init__(self, life: Life) -> None:
        self._life = life

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer, maybe for the last time."""
        self._life.step()
        self._life.say("sent", request.model)
        stream.replied(200)
        await asyncio.sleep(0)
        self._life.step()
        stream.add(request.model)
        return Answer(request.model, "end_turn", usage=USED, model=request.model)


def live(folder: Path, last: int, done: Path | None = None) -> None:
    """Run an agent whose cheap answer is never sure."""
    life = Life(folder, last)
    agent = am.Agent("a", "Go", cascade=[CHEAP, DEAR], escalate=f"answer == {CHEAP!r}")
    ledger = DyingLedger(folder / "ledger.sqlite3", life)
    run = asyncio.run(am.Plan([agent]).run(client=Unsure(life), ledger=ledger))
    result = run.record.results[0]
    if done is not None:
        asked = [(one.model, one.status, one.source) for one in result.attempts]
        done.write_text(json.dumps({"status": result.status, "text": result.text, "asked": asked}))
    ledger.close()


def kill_everywhere(folder: Path) -> list[dict[str, Any]]:
    """Kill one child at each step in turn, and run another to the end behind it."""
    found: list[dict[str, Any]] = []
    for last in range(1, 1000):
        here = folder / str(last)
        here.mkdir(parents=True)
        status = child(lambda at=last, into=here: live(into, at))
        if status == 0:
            return found
        assert status == -signal.SIGKILL, status
        before = {what: words(here, what) for what in ("sent", "kept")}
        assert child(lambda into=here: live(into, 0, into / "end")) == 0
        after = {what: words(here, what)[len(said) :] for what, said in before.items()}
        found.append({"before": before, "after": after, **json.loads((here / "end").read_text())})
    raise AssertionError("it never came to its end")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "warm").mkdir()
    live(place / "warm", 0)  # loads everything, for all children
    print(json.dumps(kill_everywhere(place)))
