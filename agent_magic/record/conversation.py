"""The conversation of an agent up to its answer, which an agent that continues it sends again, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_magic.record.call import own_text
from agent_magic.record.request import continued

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request
    from agent_magic.record.results import AgentResult


def conversation_of(result: AgentResult) -> Request | None:
    last = result.attempts[-1] if result.attempts else None
    if last is None or last.answer is None:
        return None
    own = own_text(result.calls, len(result.attempts))  # a person has changed the answer
    return answered(last.request, last.answer, own or "")


def answered(request: Request, answer: Answer, text: str = "") -> Request:
    """Append an answer; `text` replaces its blocks or text."""
    content = answer.content
    if text or content is None:
        said = text or answer.text
        content = json.dumps([{"type": "text", "text": said}]) if said.strip() else ""
    before = (*request.messages, *answer.turns)
    return request._replace(messages=continued(before, content) if content else before)


def exported(request: Request) -> list[dict[str, Any]]:
    """Return the `messages` of the API, files by their sha256."""
    found: list[dict[str, Any]] = request.canonical()["messages"]
    return found


CONVERSATION: Final[Mapping[str, str]] = {"turn": "Int64", "role": "string", "kind": "string", "text": "string"}
"""`run["more"].conversation`."""


def conversation_frame(request: Request | None) -> pd.DataFrame:
    import pandas as pd

    rows = [] if request is None else [*_rows(exported(request))]
    return pd.DataFrame(rows, columns=[*CONVERSATION]).astype(dict(CONVERSATION))


def _rows(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str, str, str]]:
    answers = 0
    for message in messages:
        answers += message["role"] == "assistant"
        turn = answers + (message["role"] == "user")
        blocks = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            kind = str(block.get("type", ""))
            yield turn, message["role"], kind, _text(kind, block)


def _text(kind: str, block: dict[str, Any]) -> str:
    if kind in {"text", "thinking"}:
        return str(block.get(kind, ""))
    if kind == "tool_use":
        return f"{block.get('name')} {json.dumps(block.get('input'), ensure_ascii=False)}"
    content = block.get("content", block.get("source", {}).get("data", ""))
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
