"""The content blocks of a reply, kept so that a turn the API paused can go on: they go back as they came.

Source: the vendor's page on stop reasons. A paused turn goes on when its content is sent back as the assistant's
message; the blocks of server tools have to be in it, whatever they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_magic.declare.template import sendable

if TYPE_CHECKING:
    from agent_magic.providers.base import Stream

Json = dict[str, Any]


class Blocks:
    """Collects blocks while they arrive. Text stays with the stream: only where it begins is noted."""

    __slots__ = ("_begins", "_blocks", "_deltas")

    def __init__(self) -> None:
        self._blocks: list[Json] = []
        self._begins: list[int] = []
        self._deltas: list[list[Json]] = []

    def open(self, block: Any, stream: Stream) -> None:
        """Take in that a block begins."""
        if isinstance(block, dict):
            self._blocks.append(block)  # pyright: ignore[reportUnknownArgumentType] - nobody checks what the API sends
            self._begins.append(len(stream.parts))
            self._deltas.append([])

    def add(self, delta: Json) -> None:
        """Take in a piece of a block that is no text."""
        if self._deltas:
            self._deltas[-1].append(delta)

    def as_json(self, stream: Stream) -> str | None:
        """Write them all; `None` where there are none, and nothing can go on."""
        if not self._blocks:
            return None
        ends = [*self._begins[1:], len(stream.parts)]
        texts = [sendable("".join(stream.parts[begin:end])) for begin, end in zip(self._begins, ends, strict=True)]
        whole = [_whole(*each) for each in zip(self._blocks, texts, self._deltas, strict=True)]
        kept = [block for block in whole if block.get("type") != "text" or block.get("text")]  # it takes no empty text
        return json.dumps(kept, ensure_ascii=True, separators=(",", ":")) if kept else None


def _whole(block: Json, text: str, deltas: list[Json]) -> Json:
    """Put a block and its pieces together."""
    found = {**block, "text": text} if block.get("type") == "text" else dict(block)
    pieces = ""
    for delta in deltas:
        match delta.get("type"):
            case "input_json_delta":
                pieces += delta.get("partial_json") or ""
            case "thinking_delta":
                found["thinking"] = (found.get("thinking") or "") + (delta.get("thinking") or "")
            case "signature_delta":
                found["signature"] = delta.get("signature")
            case "citations_delta":
                found["citations"] = [*(found.get("citations") or ()), delta.get("citation")]
            case _:
                pass
    return {**found, "input": json.loads(pieces)} if pieces else found


def joined(before: str | None, content: str) -> str:
    """Write the blocks of two turns one behind the other: a turn that goes on brings what is new only."""
    return content if before is None else json.dumps([*json.loads(before), *json.loads(content)], separators=(",", ":"))
