"""What is asked of a model: a conversation and its options, before any transport."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent_magic.declare.content import Attachment, Placed, blocks_of, with_bytes
from agent_magic.declare.serialization import sendable

if TYPE_CHECKING:
    from collections.abc import Callable

Ttl = Literal["5m", "1h"]
"""How long a cached context lives after each use."""


Kind = tuple[str, str, str, str, str, str, bool]
"""See `Request.kind`."""


class Message(NamedTuple):
    """One message of a conversation, its content kept byte for byte.

    Attributes:
        role: Who speaks.
        content: The content blocks as a JSON array. A provider may have signed them, so they are never rebuilt.
    """

    role: Literal["user", "assistant"]
    content: str


class Request(NamedTuple):
    """One request: a conversation and its options. A value.

    The conversation only ever grows: the prompt, then `messages`. A provider may refuse a conversation whose earlier
    part has changed.

    Attributes:
        prompt: The text of the first message.
        context: Text in front of everything else, shared with other requests.
        cached: Whether the provider is asked to cache it.
        ttl: For how long, if it is.
        messages: What was said after the prompt.
        tools: The definitions of the tools as a JSON array; empty for none.
        schema: The JSON schema of the answer; empty for text. The order of its fields is that of the answer.
        tool_choice: `none` where no tool may be asked for; empty leaves it to the model.
        attachments: Pictures and documents, and where in the prompt each stands; its label stands there.
        cite: Whether the answer names the places of the documents that it quotes.
        cached_turns: Whether the provider is asked to cache the conversation up to its end, for its next turn.
        returned: Pictures and PDFs that tools returned. In `messages` the sha256 of each stands for its bytes.
        shared: How much of the prompt is a context of several parts; 0 where that is one of them, or a text.
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

    def content(self, data_of: Callable[[Attachment], str]) -> str | list[dict[str, Any]]:
        """Write the first message: the prompt, or its parts in order where it has pictures or documents.

        Args:
            data_of: What stands for the bytes of one.
        """
        if not self.attachments:
            return self.prompt
        parts = blocks_of(self.prompt, self.attachments, self.shared)
        return [{"type": "text", "text": one} if isinstance(one, str) else self._block(one, data_of) for one in parts]

    def _block(self, one: Attachment, data_of: Callable[[Attachment], str]) -> dict[str, Any]:
        block = one.block(data_of(one))
        return block | {"citations": {"enabled": True}} if self.cite and one.kind == "document" else block

    def canonical(self) -> dict[str, Any]:
        """Write what is asked as plain data, without what changes only the bill or the waiting. Bytes are a sha256.

        It has the form of a Messages API body, the first API that was recorded. Fingerprints are made of it, so it
        never changes for a request that could be written before.
        """
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
            output["format"] = {"type": "json_schema", "schema": read_blocks(self.schema)}
        if output:
            asked["output_config"] = output
        if self.tools:
            asked["tools"] = read_blocks(self.tools)
            if self.tool_choice:
                asked["tool_choice"] = {"type": self.tool_choice}
        return asked

    def key(self, endpoint: str) -> str:
        """Return the fingerprint of this request to this endpoint: equal keys ask the same of the same."""
        asked: list[Any] = [endpoint, self.canonical()]
        if self.schema:  # as it is: a field that comes before another can change the answer
            asked.append(self.schema)
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_files(self, file_of: Callable[[str], bytes]) -> Request:
        """Return it with the bytes of its pictures and documents."""
        if not self.files:
            return self
        filled = with_bytes([one.attachment for one in self.attachments], file_of)
        places = [at for at, _ in self.attachments]
        return self._replace(
            attachments=tuple(map(Placed, places, filled)), returned=with_bytes(self.returned, file_of)
        )

    @property
    def kind(self) -> Kind:
        """All but its text that says how many tokens it has: requests of one kind differ in their prompts."""
        return self.model, self.system or "", self.context or "", self.tools, self.schema, self.tool_choice, self.cite

    @property
    def files(self) -> tuple[Attachment, ...]:
        """All its pictures and documents, in the order in which they are sent."""
        return (*(one.attachment for one in self.attachments), *self.returned)

    def texts(self) -> tuple[str, ...]:
        """Return all text of the request, to estimate its length."""
        said = [one.content for one in self.messages]
        said += [one.attachment.text for one in self.attachments]
        return (self.prompt, self.system or "", self.context or "", self.tools, self.schema, *said)


def read_blocks(text: str) -> Any:
    """Read JSON; a text that is none, such as one that was left out of a cassette, stays a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def continued(messages: tuple[Message, ...], content: str) -> tuple[Message, ...]:
    """Append content blocks of the assistant to a conversation.

    Two turns of the assistant in a row are one message. Its JSON is spliced, not written anew.
    """
    if messages and messages[-1].role == "assistant":
        content = f"{messages[-1].content.rstrip()[:-1]},{content.lstrip()[1:]}"
        messages = messages[:-1]
    return (*messages, Message("assistant", content))


def said(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Append a message of the user to a conversation."""
    return (*messages, Message("user", json.dumps([{"type": "text", "text": text}])))


def older_request(data: dict[str, Any]) -> dict[str, Any]:
    """Read the fields of a request as they were written before it held a conversation."""
    so_far = data.get("so_far")
    if not isinstance(so_far, str) or not so_far or "messages" in data:
        return data
    return {**data, "messages": [{"role": "assistant", "content": so_far}]}
