"""The answer to a request: its text or tool calls, where they are cut, and its stop reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from agent_magic.simulator import tokens
from agent_magic.simulator.directives import Overrides, without_directives
from agent_magic.simulator.request import Request
from agent_magic.simulator.structured import fill, schema_of
from agent_magic.simulator.topic import Subject, subject_of
from agent_magic.simulator.writer import more, write


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the kind of its block, its tool, and its input as JSON, which may be cut."""

    kind: str
    name: str
    input_json: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes:
        text: The text; empty for a refusal, tool calls or `max_tokens: 0`.
        pieces: The text in the pieces that are streamed.
        calls: The tool calls after the text.
        stop_reason: Why it ends.
        stop_sequence: The stop sequence that ended it, or `None`.
        output_tokens: Its length.
    """

    text: str
    pieces: tuple[str, ...]
    calls: tuple[Call, ...]
    stop_reason: str
    stop_sequence: str | None
    output_tokens: int


def compose(request: Request, overrides: Overrides, rng: Random) -> Answer:
    """Answer a request.

    Args:
        request: The request.
        overrides: Deviations from the usual answer.
        rng: Seeded with the content of the request, so that equal requests get equal answers.
    """
    text = _text(request, overrides, rng)
    calls = [Call("tool_use", call["name"], json.dumps(call["input"])) for call in overrides.tool_use]
    reason = "tool_use" if calls else "end_turn"
    text, sequence = _stopped(text, request.stop_sequences)
    if sequence is not None:
        reason, calls = "stop_sequence", []
    most = request.max_tokens
    length = tokens.count(text) + sum(tokens.count(call.input_json) for call in calls)
    if most is not None and (most == 0 or length > most):
        text, calls = _cut(text, calls, most)
        sequence, reason, length = None, "max_tokens", min(length, most)
    reason = overrides.stop_reason or reason
    if reason == "pause_turn":  # A server-side search that is not finished; it is not billed.
        calls.append(Call("server_tool_use", "web_search", json.dumps({"query": " ".join(text.split()[:6])})))
    return Answer(text, tuple(tokens.pieces(text, rng)), tuple(calls), reason, sequence, length)


def _text(request: Request, overrides: Overrides, rng: Random) -> str:
    """Return the text before it is cut."""
    if overrides.text is not None:
        return overrides.text
    if overrides.stop_reason == "refusal" or overrides.tool_use:
        return ""
    said = f"{request.earlier}\n\n{request.prompt}" if request.earlier and request.schema else request.prompt
    subject = subject_of(without_directives(said), request.system)
    schema = schema_of(subject, request.system) if request.schema is None else request.schema
    if overrides.echo:
        text = request.prompt
    elif schema is not None:
        text = fill(schema, subject, rng)
    else:
        text = write(subject, request.system, rng)
    return text if overrides.tokens is None else _fitted(text, overrides.tokens, subject, rng)


def _fitted(text: str, wanted: int, subject: Subject, rng: Random) -> str:
    """Cut or continue a text to exactly so many tokens."""
    parts, length = [text], tokens.count(text)
    while length < wanted:
        parts.append(more(subject, rng))
        length += tokens.count(parts[-1])
    return tokens.cut("\n\n".join(parts), wanted)


def _stopped(text: str, sequences: tuple[str, ...]) -> tuple[str, str | None]:
    """Cut a text before the stop sequence that comes first."""
    hits = [(place, sequence) for sequence in sequences if (place := text.find(sequence)) >= 0]
    if not hits:
        return text, None
    place, sequence = min(hits)
    return text[:place], sequence


def _cut(text: str, calls: list[Call], most: int) -> tuple[str, list[Call]]:
    """Cut text and calls to so many tokens; the last call may be cut in the middle of its JSON."""
    text = tokens.cut(text, most)
    left, kept = most - tokens.count(text), list[Call]()
    for call in calls:
        if left > 0:
            kept.append(Call(call.kind, call.name, tokens.cut(call.input_json, left)))
            left -= tokens.count(call.input_json)
    return text, kept
