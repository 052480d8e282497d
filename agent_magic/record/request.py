"""A request to a model: a conversation and its options. Identical ones of a run may share an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from agent_magic.declare.answers.schema import schema_of, told_by
from agent_magic.declare.content import Attachment, Placed, blocks_of, with_bytes
from agent_magic.declare.values import sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from agent_magic.declare.plan import Plan
    from agent_magic.record.answer import Answer

Ttl = Literal["5m", "1h"]
"""How long a cached context lives after each use."""


_KEYS = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"))
SERVER_ROUNDS = 10
"""Maximum rounds of the API's own tools in one request. Source: the vendor's page on server tools."""
THINKING = frozenset({"thinking", "redacted_thinking"})
"""The blocks that a model has signed, and others do not read."""
Kind = tuple[str, str, str, str, str, str, bool]


class Message(NamedTuple):
    """Content blocks as a JSON array, kept byte for byte: a provider may have signed them."""

    role: Literal["user", "assistant"]
    content: str


class Request(NamedTuple):
    """One request: a conversation and its options.

    A conversation only grows. Providers may refuse one with a changed beginning.

    Attributes:
        context: Text before everything else, shared with other requests.
        cached: True to ask the provider to cache it, for `ttl`.
        tools: Tool definitions as a JSON array.
        schema: JSON schema of the answer, fields in their order; empty for text.
        tool_choice: `none` to forbid tool calls; empty to leave it to the model.
        cached_turns: True to ask the provider to cache the whole conversation for its next turn.
        returned: Pictures and PDFs returned by tools, which `messages` name by their sha256.
        shared: Length of the prompt's shared context if it has several parts; otherwise 0.
        options: Pass-through options of its agent as a JSON object.
        opening: Number of `messages` before the first answer, if it continues a conversation.
    """

    model: str
    prompt: str
    max_tokens: int
    system: str | None = None
    context: str | None = None
    cached: bool = False
    effort: str | None = None
    timeout_s: float = 300.0
    ttl: Ttl = "5m"
    messages: tuple[Message, ...] = ()
    tools: str = ""
    schema: str = ""
    tool_choice: str = ""
    attachments: tuple[Placed, ...] = ()
    cite: bool = False
    cached_turns: bool = False
    returned: tuple[Attachment, ...] = ()
    shared: int = 0
    options: str = ""
    opening: int = 0

    @property
    def goes_on(self) -> bool:
        """True if its agent has answered before in this conversation."""
        return len(self.messages) > self.opening

    @property
    def asked(self) -> str:
        """The agent's own text: the prompt, or the last message of a continued conversation."""
        if not self.opening:
            return self.prompt
        blocks: Any = read_blocks(self.messages[self.opening - 1].content)
        return blocks if isinstance(blocks, str) else "".join(str(one.get("text", "")) for one in blocks)

    def content(self, data_of: Callable[[Attachment], str]) -> str | list[dict[str, Any]]:
        """Return the prompt, or its parts in order if it has pictures or documents."""
        if not self.attachments:
            return self.prompt
        parts = blocks_of(self.prompt, self.attachments, self.shared)
        return [{"type": "text", "text": one} if isinstance(one, str) else self._block(one, data_of) for one in parts]

    def _block(self, one: Attachment, data_of: Callable[[Attachment], str]) -> dict[str, Any]:
        block = one.block(data_of(one))
        return block | {"citations": {"enabled": True}} if self.cite and one.kind == "document" else block

    def canonical(self) -> dict[str, Any]:
        """Leave out fields that change only cost or timing. Bytes are a sha256."""
        # Fingerprints depend on it, so it must never change for requests that could be written before. It has
        # the form of a Messages API body, the first API that was recorded.
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.content(lambda one: one.sha256)}]
        messages += [{"role": one.role, "content": read_blocks(one.content)} for one in self.messages]
        asked: dict[str, Any] = {"model": self.model, "max_tokens": self.max_tokens, "messages": messages}
        if self.context:
            asked["system"] = [{"type": "text", "text": self.context}]
            if self.system:
                asked["system"].append({"type": "text", "text": sendable(self.system)})
        elif self.system:
            asked["system"] = sendable(self.system)
        output: dict[str, Any] = {"effort": self.effort} if self.effort else {}
        if self.schema:
            output["format"] = {"type": "json_schema", "schema": schema_of(self.schema) or read_blocks(self.schema)}
        if output:
            asked["output_config"] = output
        if self.tools:
            asked["tools"] = read_blocks(self.tools)
            if self.tool_choice:
                asked["tool_choice"] = {"type": self.tool_choice}
        return asked

    def key(self, endpoint: str) -> str:
        asked: list[Any] = [endpoint, self.canonical()]
        if self.schema:  # as it is: a field that comes before another can change the answer
            asked.append(self.schema)
        if self.options:
            asked.append(self.sent)
        return hashlib.sha256(_KEYS.encode(asked).encode()).hexdigest()

    @property
    def sent(self) -> dict[str, Any]:
        """The pass-through options, by the names that `am.Agent` has for them."""
        return json.loads(self.options) if self.options else {}

    def with_files(self, file_of: Callable[[str], bytes]) -> Request:
        if not self.files:
            return self
        filled = with_bytes([one.attachment for one in self.attachments], file_of)
        places = [at for at, _ in self.attachments]
        return self._replace(
            attachments=tuple(map(Placed, places, filled)), returned=with_bytes(self.returned, file_of)
        )

    @property
    def kind(self) -> Kind:
        """Everything but its text that decides its tokens."""
        return self.model, self.system or "", self.context or "", self.tools, self.schema, self.tool_choice, self.cite

    @property
    def files(self) -> tuple[Attachment, ...]:
        return (*(one.attachment for one in self.attachments), *self.returned) if self.attachments else self.returned

    @property
    def most_output_tokens(self) -> int:
        """Maximum billed output. With tools of the API, a request has several answers in one."""
        if not self.tools:
            return self.max_tokens
        tools: list[dict[str, Any]] = read_blocks(self.tools) if self.tools.startswith("[") else []
        return self.max_tokens * (SERVER_ROUNDS if any("input_schema" not in one for one in tools) else 1)

    def texts(self) -> tuple[str, ...]:
        said = [one.content for one in self.messages]
        said += [one.attachment.text for one in self.attachments]
        schema = told_by(self.schema) or self.schema
        return (self.prompt, self.system or "", self.context or "", self.tools, schema, *said)


def read_blocks(text: str) -> Any:
    """Return content blocks; text that is no JSON is returned unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def continued(messages: tuple[Message, ...], content: str) -> tuple[Message, ...]:
    # Two assistant turns in a row become one message. Its JSON is spliced, not rewritten.
    if messages and messages[-1].role == "assistant":
        content = f"{messages[-1].content.rstrip()[:-1]},{content.lstrip()[1:]}"
        messages = messages[:-1]
    return (*messages, Message("assistant", content))


def said(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    return (*messages, Message("user", json.dumps([{"type": "text", "text": text}])))


def older_request(data: dict[str, Any]) -> dict[str, Any]:
    """Read a request from before conversations."""
    so_far = data.get("so_far")
    if not isinstance(so_far, str) or not so_far or "messages" in data:
        return data
    return {**data, "messages": [{"role": "assistant", "content": so_far}]}


def going_on(request: Request, before: Request) -> Request:
    """Return the request as the next message of a conversation."""
    parts = request.content(lambda one: one.sha256)
    blocks = [{"type": "text", "text": sendable(parts)}] if isinstance(parts, str) else parts
    said_before = before.messages if before.model == request.model else without_thinking(before.messages)
    messages = (*said_before, Message("user", json.dumps(blocks)))
    return before._replace(
        model=request.model,
        max_tokens=request.max_tokens,
        effort=request.effort,
        timeout_s=request.timeout_s,
        schema=request.schema,
        options=request.options,
        tool_choice="",
        messages=messages,
        opening=len(messages),
        returned=(*before.returned, *(one.attachment for one in request.attachments)),
        cached_turns=request.cached_turns,
    )


def without_thinking(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    found: list[Message] = []
    for one in messages:
        blocks: Any = read_blocks(one.content) if "thinking" in one.content else None
        kept: list[Any] = [
            block
            for block in blocks or ()
            if isinstance(block, dict) and cast("Any", block).get("type") not in THINKING
        ]
        if not isinstance(blocks, list) or len(kept) == len(cast("list[Any]", blocks)):
            found.append(one)
        elif kept:
            found.append(Message(one.role, json.dumps(kept)))
    return tuple(found)


def rows_of(plan: Plan, number: int) -> str:
    """Return the name of a step's group of rows that may share answers, if any."""
    step = plan.agents[number]
    if step.is_task or step.part is None or not step.part.has_item:
        return ""
    if plan.flow is not None and number in plan.flow.ahead_of:
        return ""
    return step.part.group if all(one.pure for one in step.tools.functions) else ""


class Same:
    """The key of a row's request. Equal keys share an answer."""

    # Fingerprints are compared only if prompts are equal, since most are not.

    __slots__ = ("_hash", "_key", "_more", "_request")

    def __init__(self, request: Request, *more: Hashable) -> None:
        self._request, self._more, self._key = request, more, ""
        self._hash = hash((request.model, request.prompt, more))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return NotImplemented
        return self is other or (self._more == other._more and self.key == other.key)

    @property
    def key(self) -> str:
        if not self._key:
            self._key = self._request.key("")
        return self._key


def same_of(plan: Plan, number: int, request: Request, *, fresh: bool = False) -> Same | None:
    rows = rows_of(plan, number)
    return Same(request, rows, fresh) if rows else None


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
