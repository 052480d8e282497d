"""A server of chat completions that says what a test says, in the words and with the habits of several servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import agent_magic as am
from agent_magic.providers import Stream
from agent_magic.record import Answer, Request
from tests.providers.wire import Server, reply, serving

KEY = "gsk-abcdefghijklmnop0123456789"
MODEL = "qwen3:8b"


def chunk(end: str = "\n\n", **fields: Any) -> bytes:
    """One event."""
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [], **fields})}{end}".encode()


def delta(reason: str | None = None, **fields: Any) -> bytes:
    """An event with a piece of the answer."""
    return chunk(id="c_1", model=MODEL, choices=[{"index": 0, "delta": fields, "finish_reason": reason}])


def counts(prompt: int = 7, completion: int = 3, **more: Any) -> dict[str, Any]:
    """The counts of an answer."""
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


def called(index: int | None, name: str = "", arguments: Any = "", id_: str | None = None) -> dict[str, Any]:
    """A piece of a call."""
    found: dict[str, Any] = {"function": {**({"name": name} if name else {}), "arguments": arguments}}
    return found | ({} if index is None else {"index": index}) | ({"id": id_, "type": "function"} if id_ else {})


DONE = b"data: [DONE]\n\n"
TEXT = delta(role="assistant", content="") + delta(content="hello ") + delta(content="world")
WHOLE = TEXT + delta("stop") + chunk(**counts()) + DONE


def said(text: str, reason: str = "stop") -> bytes:
    """The events of an answer."""
    return delta(role="assistant", content=text) + delta(reason) + chunk(**counts()) + DONE


def completion(message: dict[str, Any], reason: str = "stop", **more: Any) -> bytes:
    """An answer in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return json.dumps({"id": "c_1", "object": "chat.completion", "model": MODEL, "choices": [choice], **more}).encode()


def problem(status: int, message: str, **fields: Any) -> bytes:
    """An error as most servers write it."""
    headers = {name: fields.pop(name) for name in [*fields] if name.startswith(("x_", "retry"))}
    body = {"error": {"message": message, **fields}}
    return reply(json.dumps(body).encode(), status, "application/json", **headers)


def asked(prompt: str = "Hello", **options: Any) -> Request:
    """Return a request."""
    return Request(MODEL, prompt, 100, **options)


def answers(*replies: bytes) -> Any:
    """Send these one after the other, the last one again and again."""

    async def handle(writer: Any, number: int) -> None:
        writer.write(replies[min(number, len(replies)) - 1])
        await writer.drain()

    return handle


def ask(reply_: Any, request: Request | None = None, **options: Any) -> tuple[Answer, Stream, Server]:
    """Send a request to a server that replies so; return the answer, what arrived, and the server."""

    async def main() -> tuple[Answer, Stream, Server]:
        async with serving(reply_ if callable(reply_) else answers(reply_)) as server:
            chat, stream = am.Chat(server.url, **options), Stream()
            async with chat.open():
                return await chat.send(request or asked(), stream), stream, server

    return asyncio.run(main())


def run(plan: am.Plan, reply_: Any, *, chat: dict[str, Any] | None = None, **options: Any) -> tuple[am.Run, Server]:
    """Run a plan against a server that replies so."""
    given: Any = {"free": True} if chat is None else chat

    async def main() -> tuple[am.Run, Server]:
        async with serving(reply_ if callable(reply_) else answers(reply_)) as server:
            return await plan.run(client=am.Chat(server.url, **given), **options), server

    return asyncio.run(main())
