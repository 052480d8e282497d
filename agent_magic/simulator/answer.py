"""Deciding what a request is answered with: the text, where it is cut, and why it ends."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from agent_magic.simulator import tokens, writer
from agent_magic.simulator.ask import Ask
from agent_magic.simulator.behaviour import Behaviour, without_markers
from agent_magic.simulator.structured import Filler
from agent_magic.simulator.topic import subject_of


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes:
        text: All of it; empty for a refusal or `max_tokens: 0`.
        pieces: The text in the pieces it is streamed in.
        stop_reason: Why it ends.
        stop_sequence: The stop sequence that ended it, if one did.
        output_tokens: Its length.
    """

    text: str
    pieces: tuple[str, ...]
    stop_reason: str
    stop_sequence: str | None
    output_tokens: int


def compose(ask: Ask, behaviour: Behaviour, rng: Random) -> Answer:
    """Answer a request.

    Args:
        ask: The request.
        behaviour: What was asked for instead of the usual answer.
        rng: Seeded with the content of the request, so that the same request gets the same answer.
    """
    text = _text(ask, behaviour, rng)
    text, sequence = _stopped(text, ask.stop_sequences)
    reason = "end_turn" if sequence is None else "stop_sequence"
    most = ask.max_tokens or 0
    if ask.max_tokens is not None and tokens.count(text) > most:
        text, sequence, reason = tokens.cut(text, most), None, "max_tokens"
    return Answer(
        text,
        tuple(tokens.pieces(text, rng)),
        behaviour.stop_reason or ("max_tokens" if most == 0 else reason),
        sequence,
        tokens.count(text),
    )


def _text(ask: Ask, behaviour: Behaviour, rng: Random) -> str:
    """Return the answer before anything cuts it."""
    if behaviour.text is not None:
        return behaviour.text
    if behaviour.stop_reason == "refusal":
        return ""
    prompt = without_markers(ask.prompt)
    if behaviour.echo:
        text = ask.prompt
    elif ask.schema is not None:
        text = Filler(ask.schema, subject_of(prompt, ask.system), rng).text()
    else:
        text = writer.write(prompt, ask.system, rng)
    return text if behaviour.tokens is None else _fitted(text, behaviour.tokens, prompt, ask.system, rng)


def _fitted(text: str, wanted: int, prompt: str, system: str, rng: Random) -> str:
    """Return a text of exactly so many tokens: cut, or written on."""
    parts, length = [text], tokens.count(text)
    while length < wanted:
        parts.append(writer.more(prompt, system, rng))
        length += tokens.count(parts[-1])
    return tokens.cut("\n\n".join(parts), wanted)


def _stopped(text: str, sequences: tuple[str, ...]) -> tuple[str, str | None]:
    """Cut a text before the stop sequence that comes first."""
    hits = [(place, sequence) for sequence in sequences if (place := text.find(sequence)) >= 0]
    if not hits:
        return text, None
    place, sequence = min(hits)
    return text[:place], sequence
