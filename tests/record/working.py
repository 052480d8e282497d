"""A run in which all kinds of steps work: tasks, tools, a person, a typed answer, a picture.

python -m tests.record.working FOLDER      writes a ledger and what it must tell, to be kept for ever
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

import agent_magic as am
from agent_magic import Question, Verdict
from agent_magic.errors import Rejected
from agent_magic.providers import EVERYTHING, Provider
from agent_magic.record import Answer, Usage

USED = Usage(10, output_tokens=5)
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
"""A picture of one pixel."""
SALES = {"region": ["north", "south"], "eur": [1200, 800]}
EDITED = '{"to": "ben@x.org", "text": "South lost."}'
SCRIPT = (
    [("run_sql", {"query": "select region"}), ("broken", {})],
    [("send_mail", {"to": "ann@x.org", "text": "South lost."})],
)
"""What the analyst asks for in each turn."""

OTHER = "Which region won?"
"""The question of the run that was cut."""


@dataclass
class Label:
    """A judgement.

    Attributes:
        mood: How it sounds.
        score: From 1 to 5.
    """

    mood: Literal["good", "bad"]
    score: int


class Work:
    """What the run does.

    Attributes:
        called: The functions that were called, in order.
        question: What the analyst is asked.
        cut: Whether its second turn fails, as if somebody had pulled the plug.
    """

    def __init__(self, question: str = "Which region lost?", *, cut: bool = False) -> None:
        self.called: list[str] = []
        self.question, self.cut = question, cut

    def plan(self) -> am.Plan:
        """Return the plan."""

        @am.tool
        def run_sql(query: str) -> str:
            """Run one SELECT on the sales database."""
            self.called.append("run_sql")
            print("asked", query)
            return "north,1200\nsouth,800"

        @am.tool
        def broken() -> str:
            """Always fails."""
            self.called.append("broken")
            raise ValueError("the printer is on fire")

        @am.tool(ask=True)
        def send_mail(to: str, text: str) -> str:
            """Send a mail."""
            self.called.append("send_mail")
            return f"sent {text!r} to {to}"

        def totals(sales: pd.DataFrame) -> pd.DataFrame:
            self.called.append("totals")
            print("summed")
            return sales.assign(share=sales.eur / sales.eur.sum())

        steps = [
            am.Task("totals", totals),
            am.Agent("analyst", f"{self.question} {{{{ totals }}}}", tools=[run_sql, broken, send_mail]),
            am.Agent("label", "Judge {{ analyst }} by {{ picture }}", returns=Label),
        ]
        return am.Plan(steps, values={"sales": pd.DataFrame(SALES), "picture": am.image(PNG, title="chart.png")})

    def run(self, **more: Any) -> am.Run:
        """Run it."""

        async def changes(question: Question) -> Verdict:
            assert question.tool == "send_mail"
            return Verdict(approved=True, text=EDITED)

        return asyncio.run(self.plan().run(client=Scripted(self), ask=changes, **more))


class Scripted(Provider):
    """Answers as the script says, by the length of the conversation."""

    capabilities = EVERYTHING
    endpoint = "scripted"
    is_limited = False

    def __init__(self, work: Work) -> None:
        self._work, self.sent = work, 0

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer one request."""
        self.sent += 1
        turn = sum(one.role == "assistant" for one in request.messages)
        if self._work.cut and turn:
            raise Rejected("the plug was pulled", status=400)
        stream.replied(200)
        stream.opened()
        await asyncio.sleep(0)
        if request.schema:
            return self._said('{"mood": "bad", "score": 2}', request)
        if turn == len(SCRIPT):
            return self._said("The south lost 400 EUR, and Ben knows.", request)
        thinking = {"type": "thinking", "thinking": "", "signature": f"signed{turn}"}
        calls = [
            {"type": "tool_use", "id": f"call{turn}{number}", "name": name, "input": given}
            for number, (name, given) in enumerate(SCRIPT[turn])
        ]
        return Answer("", "tool_use", usage=USED, model=request.model, content=json.dumps([thinking, *calls]))

    @staticmethod
    def _said(text: str, request: Any) -> Answer:
        return Answer(text, "end_turn", usage=USED, model=request.model)


def told(run: am.Run) -> dict[str, Any]:
    """Return what a record must tell, however old it is."""
    seen = [*run.record.results]
    return {
        "statuses": [one.status for one in seen],
        "texts": [one.text for one in seen],
        "calls": [
            [one.tool, one.turn, one.arguments, one.status, one.result, one.error, one.prints]
            for result in seen
            for one in result.calls
        ],
        "messages": [
            [[said.role, said.content] for said in one.request.messages] for result in seen for one in result.attempts
        ],
        "files": [placed.attachment.sha256 for one in run.record.attempts for placed in one.request.attachments],
        "cost_usd": run.totals.cost_usd,
    }


def keep(folder: Path) -> None:
    """Write a ledger with a whole run and one that was cut, and what the whole one tells."""
    ledger = am.Ledger(folder / "ledger.sqlite3")
    whole = Work().run(ledger=ledger)
    Work(OTHER, cut=True).run(ledger=ledger)
    ledger.close()
    (folder / "told.json").write_text(json.dumps(told(whole), indent=1))


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
