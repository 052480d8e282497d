"""Questions to a person: may this call be made, may this answer be passed on, what of a call that may have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from agent_magic.engine.calls import Verdict

if TYPE_CHECKING:
    from agent_magic.engine.calls import Call
    from agent_magic.record.results import RunRecord

Asker = Callable[["Question"], Awaitable[Verdict]]
"""Shows a question to a person and returns the answer. It is cancelled where nobody needs one any more."""
NOBODY = Verdict(approved=False, why="nobody is there to ask")


class Question(NamedTuple):
    """What a person is asked.

    Attributes:
        kind: `call` before a tool is called, `answer` before an answer is passed on, `doubt` about a call that was
            begun by a kernel that is gone: to agree calls it again, a changed text is taken as its result, to deny
            tells the model that it failed.
        agent: The agent it is about.
        tool: The name of the function; empty for an answer.
        text: The exact arguments as JSON, or the answer. What is approved is this, or what it is changed to.
        seconds: After so long it counts as denied.
    """

    kind: Literal["call", "answer", "doubt"]
    agent: str
    tool: str
    text: str
    seconds: float


async def ask(asker: Asker | None, question: Question) -> Verdict:
    """Ask a person. Where nobody is there, and after the time limit, it is denied."""
    if asker is None:
        return NOBODY
    try:
        async with asyncio.timeout(question.seconds):
            return await asker(question)
    except TimeoutError:
        return Verdict(approved=False, why=f"nobody answered within {question.seconds:g} s")


def question_of(record: RunRecord, call: Call, seconds: float) -> Question:
    """Return what is asked about a call, or about an answer."""
    kind = "call" if call.wanted.tool else "answer"
    return Question(kind, record.results[call.step].name, call.wanted.tool, call.wanted.arguments, seconds)
