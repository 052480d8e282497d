"""A valid request as a value: what the model is asked, in the order it is cached, with its tokens counted."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from agent_magic.simulator.catalog import Model
from agent_magic.simulator.shapes import Json, as_list, as_object
from agent_magic.simulator.tokens import count

REQUEST_OVERHEAD = 3
MESSAGE_OVERHEAD = 4
MEDIA_TOKENS = 1500
TTL_S = {"5m": 300, "1h": 3600}


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of the prompt.

    Attributes:
        label: Where it stands, such as `system` or `user:text`; part of what makes a prefix the same.
        text: Its content, without `cache_control`.
        tokens: Its length, with its share of the overhead.
        ttl_s: Lifetime of the cache entry that ends here, or `None` if no entry does.
    """

    label: str
    text: str
    tokens: int
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that passed validation.

    Attributes:
        model: The model.
        segments: Tools, system and messages, in prefix order.
        max_tokens: Most tokens to answer with; `None` when only counted.
        stream: Whether events are wanted.
        stop_sequences: Texts that end the answer.
        system: All text of the system prompt.
        prompt: All text of the last user message.
        schema: The JSON schema the answer must follow, or `None`.
    """

    model: Model
    segments: tuple[Segment, ...]
    max_tokens: int | None = None
    stream: bool = False
    stop_sequences: tuple[str, ...] = ()
    system: str = ""
    prompt: str = ""
    schema: Json | None = None

    @property
    def input_tokens(self) -> int:
        """Tokens of the whole prompt, cached or not."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def breakpoints(self) -> int:
        """How many cache entries the request asks for."""
        return sum(segment.ttl_s is not None for segment in self.segments)

    def prefixes(self) -> Iterator[tuple[Segment, int, bytes]]:
        """Walk the prompt: each segment, the tokens up to its end, and a digest of everything up to its end."""
        state = hashlib.blake2b(self.model.id.encode(), digest_size=16)
        tokens = 0
        for segment in self.segments:
            for part in (segment.label, segment.text):
                data = part.encode("utf-8", "surrogatepass")
                state.update(len(data).to_bytes(8, "big"))
                state.update(data)
            tokens += segment.tokens
            yield segment, tokens, state.digest()

    def digest(self) -> bytes:
        """Return a digest of model and prompt; `max_tokens`, `stream` and cache marks do not change it."""
        return deque(self.prefixes(), maxlen=1)[0][2]


def segments_of(body: Json) -> tuple[Segment, ...]:
    """Split a valid body into its segments, the top-level `cache_control` applied to the last one."""
    found = [*_tools(body), *_system(body), *_messages(body)]
    found[0] = replace(found[0], tokens=found[0].tokens + REQUEST_OVERHEAD)
    found[-1] = replace(found[-1], ttl_s=found[-1].ttl_s or _ttl_s(body))
    return tuple(found)


def text_of(content: object) -> str:
    """Return the text of a message's or tool result's content, blocks joined by blank lines."""
    if isinstance(content, str):
        return content
    texts = [_block_text(block) for each in as_list(content) or [] if (block := as_object(each))]
    return "\n\n".join(text for text in texts if text)


def _block_text(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return text_of(block.get("content")) if block.get("type") == "tool_result" else ""


def _ttl_s(block: Json) -> int | None:
    control = as_object(block.get("cache_control"))
    return TTL_S.get(str(control.get("ttl") or "5m"), TTL_S["5m"]) if control else None


def _canonical(block: Json) -> str:
    return json.dumps({key: value for key, value in block.items() if key != "cache_control"}, separators=(",", ":"))


def _tools(body: Json) -> Iterator[Segment]:
    for tool in cast("Sequence[Json]", body.get("tools") or ()):
        text = _canonical(tool)
        yield Segment("tool", text, count(text), _ttl_s(tool))


def _system(body: Json) -> Iterator[Segment]:
    system = body.get("system") or ()
    if isinstance(system, str):
        yield Segment("system", system, count(system))
        return
    for block in cast("Sequence[Json]", system):
        yield _segment("system", block)


def _messages(body: Json) -> Iterator[Segment]:
    for message in cast("Sequence[Json]", body["messages"]):
        role, content = str(message["role"]), message["content"]
        if isinstance(content, str):
            yield Segment(f"{role}:text", content, count(content) + MESSAGE_OVERHEAD)
            continue
        for place, block in enumerate(cast("Sequence[Json]", content)):
            yield _segment(role, block, overhead=0 if place else MESSAGE_OVERHEAD)


def _segment(role: str, block: Json, *, overhead: int = 0) -> Segment:
    kind = str(block.get("type"))
    text = str(block["text"]) if kind == "text" else _canonical(block)
    tokens = MEDIA_TOKENS if kind in ("image", "document") else count(text)
    return Segment(f"{role}:{kind}", text, tokens + overhead, _ttl_s(block))
