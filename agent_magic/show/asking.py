"""A question to a person, for a page and a terminal: what would happen, and the choices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.units import seconds
from agent_magic.engine.calls import Verdict
from agent_magic.record.display import single_line, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.live.people import Question


class Ways(NamedTuple):
    """Labels of the buttons: approve, approve the edited text, deny."""

    approve: str
    edit: str
    deny: str


USUAL = Ways("Approve", "Edit", "Deny")
DOUBT = Ways("Call again", "Give a result", "It failed")
"""Buttons for a call that may have happened already."""


def ways_of(question: Question) -> Ways:
    return DOUBT if question.kind == "doubt" else USUAL


def heading_of(question: Question) -> str:
    agent, tool = single_line(question.agent), single_line(question.tool)
    if question.kind == "answer":
        return f"{agent} has answered: may others use this?"
    if question.kind == "doubt":
        return f"{agent} called {tool} before, and it may have finished"
    return f"{agent} wants to call {tool}"


def text_of(question: Question) -> str:
    """Return the arguments or answer, hidden and text-reversing characters made visible."""
    return visible(question.text if question.kind == "answer" else _pretty(question.text))


def rows_of(question: Question) -> list[list[str]]:
    """Return arguments as name and value; none for an answer, or JSON that is no object."""
    if question.kind == "answer":
        return []
    try:
        read: object = json.loads(question.text or "{}")
    except ValueError:
        return []
    if not isinstance(read, dict):
        return []
    return [
        [visible(name), visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))]
        for name, value in cast("dict[str, Any]", read).items()
    ]


def limit_of(question: Question) -> str:
    return f"Without an answer within {seconds(question.seconds)} it is denied."


def asked(questions: Mapping[int, Question]) -> list[dict[str, Any]]:
    """Return open questions as plain data, oldest first."""
    return [
        {
            "number": number,
            "heading": heading_of(one),
            "rows": rows_of(one),
            "text": text_of(one),
            "start": "" if one.kind == "doubt" else text_of(one),
            "ways": list(ways_of(one)),
            "limit": limit_of(one),
        }
        for number, one in questions.items()
    ]


def verdict_of(way: str, text: str) -> Verdict:
    """Return a verdict; anything but `approve` and `edit` denies, with `text` as the reason."""
    if way == "approve":
        return Verdict(approved=True)
    return Verdict(approved=True, text=text) if way == "edit" else Verdict(approved=False, why=text.strip())


def asked_text(number: int, question: Question) -> str:
    lines = [f"{number}  {heading_of(question)}", *text_of(question).splitlines()]
    return "\n    ".join(lines)


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text or "{}"), indent=2, ensure_ascii=False)
    except ValueError:
        return text
