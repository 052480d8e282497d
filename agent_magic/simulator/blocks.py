"""Blocks of an answer: their opening in a stream, their deltas, and their complete form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from agent_magic.simulator import tokens
from agent_magic.simulator.json_types import Json

_STREAMED = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
    "server_tool_use": ("input", "input_json_delta", "partial_json"),
}
"""By block type: the streamed field, the type of its deltas, and their field."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an answer; `late` deltas (a signature, or citations) follow the pieces."""

    kind: str
    text: str = ""
    pieces: tuple[str, ...] = ()
    fields: Json = field(default_factory=dict[str, object])
    late: tuple[Json, ...] = ()
    tokens: int = 0

    def opened(self) -> Json:
        found: Json = {"type": self.kind, **self.fields}
        if self.kind in _STREAMED:
            found[_STREAMED[self.kind][0]] = {} if self.kind.endswith("tool_use") else ""
        if self.kind == "thinking":
            found["signature"] = ""
        return found

    def deltas(self) -> Iterator[tuple[Json, int]]:
        """Yield the deltas, each with its number of text characters."""
        if self.kind in _STREAMED:
            _, kind, name = _STREAMED[self.kind]
            for piece in self.pieces:
                yield {"type": kind, name: piece}, len(piece)
        for each in self.late:
            yield each, 0

    def whole(self) -> Json:
        """The input of a cut call is empty."""
        found: Json = {"type": self.kind, **self.fields}
        if self.kind in _STREAMED:
            found[_STREAMED[self.kind][0]] = self._input() if self.kind.endswith("tool_use") else self.text
        for each in self.late:
            if each["type"] == "signature_delta":
                found["signature"] = each["signature"]
            else:
                found.setdefault("citations", []).append(each["citation"])
        return found

    def _input(self) -> Json:
        try:
            return json.loads(self.text)
        except ValueError:  # Cut at `max_tokens`.
            return {}


def text_block(text: str, rng: Random, citations: tuple[Json, ...] = ()) -> Block:
    late = tuple({"type": "citations_delta", "citation": each} for each in citations)
    return Block("text", text, tuple(tokens.pieces(text, rng)), late=late, tokens=tokens.count(text))


def thinking_block(text: str, signature: str, length: int, rng: Random, *, shown: bool) -> Block:
    """Without `shown` its text is empty."""
    seen = text if shown else ""
    late = {"type": "signature_delta", "signature": signature}
    return Block("thinking", seen, tuple(tokens.pieces(seen, rng)), late=(late,), tokens=length)


def call_block(kind: str, number: str, name: str, given: Json, rng: Random, *, eager: bool = False) -> Block:
    """`eager` streams arguments as they are written, else each when complete."""
    text = json.dumps(given)
    pieces = tuple(tokens.pieces(text, rng)) if eager else _by_argument(given)
    return Block(kind, text, pieces, {"id": number, "name": name}, tokens=tokens.count(text))


def cut(block: Block, most: int) -> Block:
    if block.tokens <= most:
        return block
    text = tokens.cut(block.text, most)
    pieces, left = list[str](), len(text)
    for piece in block.pieces:
        pieces.append(piece[:left])
        left -= len(pieces[-1])
    return Block(block.kind, text, tuple(filter(None, pieces)), block.fields, block.late, most)


def broken(block: Block) -> Block:
    """Make the arguments invalid JSON: without the first colon, or else the last brace."""
    text = block.text.replace('": ', '" ', 1) if '": ' in block.text else block.text[:-1]
    return Block(block.kind, text, (text,), block.fields, block.late, block.tokens)


def _by_argument(given: Json) -> tuple[str, ...]:
    items = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in given.items()]
    pieces = [f"{', ' if place else '{'}{item}" for place, item in enumerate(items)]
    return (*pieces[:-1], pieces[-1] + "}") if pieces else ()
