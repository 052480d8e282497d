"""Replies that are cut at any byte: an answer is whole, or its loss is told in plain words and what it cost is kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any

import pytest

import agent_magic as am
from tests.conftest import NIGHTLY

MODEL, TEXT = "claude-haiku-4-5", "Grüße, 12345 und mehr."
TAKEN, MADE = 20, 7
PRICE = am.TokenPrice(1.0, 5.0)
COST_USD = (TAKEN * PRICE.input + MADE * PRICE.output) / 1e6
PLAIN = re.compile(
    r"Truncated: The stream ended before the answer did \(.+\)\."
    r"|Unreachable: No reply from [\d.:]+: (Server disconnected|the connection closed before the reply began)\."
    r" Check .+"
    r"|Unreachable: The connection broke: [^<>]+"
)
"""How the loss of an answer may be told."""


def events() -> list[dict[str, Any]]:
    """A stream of the vendor's."""
    counts = {"input_tokens": TAKEN, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": counts}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    parts = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT[at : at + 6]}}
        for at in range(0, len(TEXT), 6)
    ]
    ends: list[dict[str, Any]] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": MADE}},
        {"type": "message_stop"},
    ]
    return [{"type": "message_start", "message": start}, block, *parts, *ends]


def chunks() -> list[dict[str, Any]]:
    """The same by the chat completions API."""
    deltas = [{"content": TEXT[at : at + 6]} for at in range(0, len(TEXT), 6)]
    found: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    found.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*found, {"choices": [], "usage": {"prompt_tokens": TAKEN, "completion_tokens": MADE}}]


def whole(vendor: str, form: str) -> bytes:
    """A reply with its head."""
    if vendor == "claude":
        sent = "".join(f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n" for one in events())
    else:
        sent = "".join(f"data: {json.dumps(one, ensure_ascii=False)}\n\n" for one in chunks()) + "data: [DONE]\n\n"
    body, version, extra = sent.encode(), "1.0" if form == "HTTP/1.0" else "1.1", ""
    if form == "gzip":
        body = gzip.compress(body, mtime=0)
        extra = f"content-encoding: gzip\r\ncontent-length: {len(body)}\r\n"
    elif form == "chunked":
        parts = [body[at : at + 90] for at in range(0, len(body), 90)]
        body = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in parts) + b"0\r\n\r\n"
        extra = "transfer-encoding: chunked\r\n"
    elif form == "until it closes":
        extra = "connection: close\r\n"
    return f"HTTP/{version} 200 OK\r\ncontent-type: text/event-stream\r\n{extra}\r\n".encode() + body


async def cut(vendor: str, form: str, step: int) -> am.Run:
    """Ask once for each place of a cut."""
    reply = whole(vendor, form)
    letter = reply.find("ß".encode())
    places = [*range(0, len(reply), step), *([letter + 1] if letter > 0 else []), len(reply)]
    left = iter(places)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(reply[: next(left)])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = am.Claude(base_url=url, api_key="key") if vendor == "claude" else am.Chat(base_url=url, api_key="key")
    rows = [str(one) for one in places]
    plan = am.Plan([am.Agent("a", "{{ item }}", each="rows", model=MODEL, max_tokens=50)], {"rows": rows})
    policy = am.Policy(4, max_attempts=1, seed=1, breaker_share=None, budget_usd=1.0, identical="each")
    run = await plan.run(policy, client=client, prices={MODEL: PRICE})
    server.close()
    return run


@pytest.mark.parametrize("form", ["until it closes", "chunked", "gzip", "HTTP/1.0"])
@pytest.mark.parametrize("vendor", ["claude", "chat"])
def test_a_reply_that_is_cut_anywhere(vendor: str, form: str) -> None:
    """It is an answer if its end has come; else it says so, and the budget keeps what it may have cost."""
    run = asyncio.run(cut(vendor, form, 1 if NIGHTLY else 31))
    attempts = run.record.attempts
    assert [] == [one.error for one in attempts if one.error is not None and not PLAIN.fullmatch(one.error)]
    answers = [one for one in attempts if one.answer is not None]
    assert {TEXT} == {one.answer.text for one in answers if one.answer is not None}
    assert {(TAKEN, MADE)} == {
        (one.usage.total_input_tokens, one.usage.output_tokens)
        for one in answers
        if one.usage is not None and one.usage.is_final
    }
    assert len(attempts) * COST_USD <= (run.record.committed_usd or 0.0) + 1e-12
