"""Servers that count wrongly or break off, what runs ask of them, and the books that such a server keeps.

A server of a scene has a list of fates, one for each request in turn. It knows what it made, which it bills; what it
tells is another matter. Where a stream breaks it may go on to `max_tokens` and bill all of that.
"""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hypothesis import strategies as st

import agent_magic as am

if TYPE_CHECKING:
    from collections.abc import Iterator

CHEAP, DEAR = "claude-haiku-4-5", "claude-sonnet-4-6"
USD_PER_MTOK = {CHEAP: (1.0, 5.0), DEAR: (3.0, 15.0)}
WRITE = 1.25
"""What writing to the cache costs, in input."""
HALF = 0.5
"""What a batch costs."""
OVERHEAD = 16
"""What a request may have in tokens besides its text."""
FINALS = (
    *("told", "missing", "null", "empty", "zero", "falling", "negative", "absurd", "text", "fraction"),
    *("one", "huge", "true", "list", "unknown", "whole"),
)
CUTS = ("", "close", "reset", "silence", "garbage", "error", "half")
STARTS = ("usual", "growing", "without", "null", "empty", "zeros", "negative", "absurd", "text", "late")
FORMS = ("json", "page", "nothing")
"""What comes in place of a stream: the message in one piece, a web page, or nothing at all."""
REFUSALS = (400, 408, 502, 504, 529, 0)
"""Statuses of what is no answer; 0 closes the connection before one."""
BILLED = frozenset({0, 408, 502, 504})
"""Those where a gateway may have passed the request on, and nobody says what became of it."""
FEWEST_OF_A_GROUP = 8
"""Tokens of the shortest answer to three rows."""
LONGEST = 64
"""More bytes than a token has."""


@dataclass(frozen=True)
class Fate:
    """What becomes of one request.

    Attributes:
        tokens: The share of `max_tokens` that is made.
        size: How many bytes a token has.
        start: What `message_start` counts.
        final: What the last count is.
        cut: How the stream breaks; empty if it does not.
        after: After which share of its events.
        status: A refusal in place of an answer; `None` answers.
        name: What the answer calls its model: `same`, `dated`, or `unknown`.
        pause_s: How long it takes to begin.
        form: What comes in place of a stream; see `FORMS`.
        read: What is counted as read from the cache, in shares of the input.
    """

    tokens: float = 0.5
    size: int = 4
    start: str = "usual"
    final: str = "told"
    cut: str = ""
    after: float = 0.5
    status: int | None = None
    name: str = "same"
    pause_s: float = 0.0
    form: str = ""
    read: float | None = None

    @property
    def is_honest(self) -> bool:
        """Whether it counts, as the API does, all that it bills."""
        counts = self.final == "whole" or (self.start in {"usual", "growing", "late"} and self.final == "told")
        return counts and not self.cut and self.status is None and self.form in {"", "json"}


@dataclass(frozen=True)
class Scene:
    """A server, and runs that ask it.

    Attributes:
        feature: What the plan has; see `plan_of`.
        rows: How many rows it asks for.
        max_tokens: The most output of each request.
        requests: The budget, in requests of the worst kind.
        fates: What becomes of the requests, in turn.
        bills_all: Whether what is cut is billed up to `max_tokens`.
        sessions: `one`, two `beside` each other on one ledger, or one `after` the other.
        policy: Options of the policy.
        is_chat: Whether it speaks the chat completions API.
    """

    feature: str
    rows: int
    max_tokens: int
    requests: float
    fates: tuple[Fate, ...]
    bills_all: bool
    sessions: str
    policy: dict[str, Any]
    is_chat: bool = False


fates = st.builds(
    Fate,
    st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    st.sampled_from([1, 1, 4, 9]),
    st.sampled_from(["usual"] * 8 + [*STARTS]),
    st.sampled_from(["told"] * 4 + [*FINALS]),
    st.sampled_from([""] * 8 + [*CUTS]),
    st.floats(0.0, 1.0),
    st.sampled_from([None] * 20 + [*REFUSALS]),
    st.sampled_from(["same"] * 4 + ["dated", "unknown"]),
    st.sampled_from([0.0] * 3 + [0.03]),
    st.sampled_from([""] * 12 + [*FORMS]),
    st.sampled_from([None] * 6 + [-1.0, 50.0]),
)
FEATURES = (
    *("rows", "thinking", "tools", "groups", "cascade", "hedge", "loop", "repeat", "chain", "batch"),
    *("equal", "race", "degrade", "typed", "context", "talk", "goes on", "tokens"),
)
scenes = st.builds(
    Scene,
    st.sampled_from(FEATURES),
    st.integers(1, 9),
    st.integers(20, 300),
    st.floats(0.5, 6.0),
    st.lists(fates, min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.sampled_from(["one", "one", "beside", "after"]),
    st.fixed_dictionaries({"concurrency": st.integers(1, 8), "max_attempts": st.integers(1, 3)}),
    st.booleans(),
)


@dataclass
class Title:
    """What rows of a group return."""

    title: str


def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


def plan_of(scene: Scene) -> am.Plan:  # noqa: C901, PLR0912 - a case for each feature
    """Return the plan of a scene."""
    options: dict[str, Any] = {"max_tokens": scene.max_tokens, "model": CHEAP}
    options["timeout_s"] = 1.0 if any(one.cut == "silence" for one in scene.fates) else 30.0
    rows = [f"row {number} " + "word " * (number * 7 % 23) for number in range(scene.rows)]
    each, agents = {"each": "rows", **options}, []
    match scene.feature:
        case "tools":
            agents = [am.Agent("a", "use a tool: {{ item }}", tools=[note], max_turns=4, **each)]
        case "groups":
            agents = [am.Agent("a", "group: {{ item }}", returns=Title, group=3, **each)]
        case "cascade":
            del each["model"]
            agents = [am.Agent("a", "{{ item }}", cascade=[CHEAP, DEAR], escalate="answer | length > 40", **each)]
        case "hedge":
            agents = [am.Agent("a", "{{ item }}", hedge=0.02, **each)]
        case "loop":
            agents = [am.Agent("a", "Better: {{ a }}", until="a | length > 300", rounds=4, **options)]
        case "repeat":
            agents = [am.Agent("a", "{{ rows[0] }}", repeat=3, **options), am.Agent("b", "{{ a }}", **options)]
        case "equal":
            rows = [rows[number % 2] for number in range(scene.rows)]
            agents = [am.Agent("a", "{{ item }}", **each)]
        case "race":
            agents = [*(am.Agent(name, f"{name} {{{{ rows }}}}", **options) for name in "xy"), am.first_of("a", "x,y")]
        case "degrade":
            agents = [am.Agent("a", "{{ item }}", fallback=[CHEAP], **{**each, "model": DEAR})]
        case "typed":  # what it answers fits no number, so it is asked again
            agents = [am.Agent("a", "{{ item }}", returns=int, **each)]
        case "context":
            agents = [am.Agent("a", "{{ item }}", context="shared", **each)]
        case "talk":
            agents = [am.Agent("a", "{{ rows[0] }}", **options), am.Agent("b", "More?", continues="a", **options)]
        case "goes on":
            agents = [am.Agent("a", "{{ item }}", max_turns=3, **each)]
        case "chain":
            agents = [am.Agent("a", "{{ item }}", **each), am.Agent("b", "All: {{ a }}", **options)]
        case _:  # `thinking` and `batch` are the server's
            agents = [am.Agent("a", "{{ item }}", **each)]
    shared = {"shared": "text " * 200} if scene.feature == "context" else {}
    return am.Plan(agents, shared if scene.feature == "loop" else {"rows": rows, **shared})


def worst_usd(model: str, size: int, max_tokens: int, *, written: bool = False) -> float:
    """Return the most that a request with this many bytes can cost."""
    taken, made = USD_PER_MTOK[model]
    return ((size + OVERHEAD) * taken * (WRITE if written else 1.0) + max_tokens * made) / 1e6


@dataclass
class Sent:
    """One request, as the server has it in its books."""

    fate: Fate
    body: dict[str, Any]
    payer: str
    taken: int
    made: int = 0
    told: bool = False
    half: bool = False
    usd: float = 0.0
    is_chat: bool = False

    @property
    def is_honest(self) -> bool:
        """Whether all was told that is billed."""
        fate = self.fate
        if self.is_chat:  # it counts once, at the end
            fate = replace(fate, start="usual")
        if fate.final == "falling" and fate.form == "json":
            fate = replace(fate, final="told")
        if fate.final == "one" and self.made * fate.size <= LONGEST:
            fate = replace(fate, final="told")
        return replace(fate, cut="").is_honest and self.told


@dataclass
class Books:
    """A server of a scene, and what it bills.

    Attributes:
        scene: The scene.
        sent: All requests, by their ids.
    """

    scene: Scene
    sent: dict[str, Sent] = field(default_factory=dict)
    batches: dict[str, dict[str, Sent]] = field(default_factory=dict)
    url: str = ""

    def billed_usd(self, payer: str) -> float:
        """Return what a key is billed."""
        return sum(one.usd for one in self.sent.values() if one.payer == payer)

    def enter(self, body: dict[str, Any], payer: str, *, half: bool = False) -> tuple[str, Sent]:
        """Write a request into the books."""
        fate = self.scene.fates[len(self.sent) % len(self.scene.fates)]
        texts = [body["messages"], body.get("system", ""), body.get("tools", "")]
        found = Sent(fate, body, payer, -(-len(json.dumps(texts)) // 5), half=half, is_chat=self.scene.is_chat)
        id_ = f"req_{len(self.sent)}"
        self.sent[id_] = found
        return id_, found

    def bill(self, sent: Sent, made: int) -> None:
        """Bill what was made."""
        taken_usd, made_usd = USD_PER_MTOK[sent.body["model"]]
        sent.made = made
        taken = sent.taken * (WRITE if is_written(sent.body) else 1.0)
        sent.usd = (taken * taken_usd + made * made_usd) / 1e6 * (HALF if sent.half else 1.0)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection, which has one request."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                headers = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:] if line)
                read = await reader.readexactly(int(headers.get("content-length", 0)))
                body, payer = json.loads(read or b"null"), _key_in(headers)
                if path.startswith("/v1/messages/batches"):
                    writer.write(self._batch(method, path, body, payer))
                elif path.endswith("count_tokens"):
                    texts = [body["messages"], body.get("system", ""), body.get("tools", "")]
                    writer.write(_page({"input_tokens": -(-len(json.dumps(texts)) // 5)}))
                else:
                    await self._answer(*self.enter(body, payer), reader, writer)
                await writer.drain()
        finally:  # also if the loop ends first, or the next test is told of an unclosed connection
            writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(  # noqa: C901, PLR0912 - a case for each fate
        self, id_: str, sent: Sent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        fate, most = sent.fate, sent.body["max_tokens"]
        await asyncio.sleep(fate.pause_s)
        if fate.status is not None:
            if fate.status in BILLED:
                self.bill(sent, most)
            if fate.status:
                writer.write(_page({"type": "error", "error": {"type": "e", "message": "no"}}, fate.status))
            return
        made = max(1 if self.scene.feature != "groups" else FEWEST_OF_A_GROUP, round(fate.tokens * most))
        self.bill(sent, made)
        told = answer_events(sent, self.scene, made)
        if fate.form:
            sent.told = fate.form == "json"
            bodies = {
                "json": json.dumps(completion(told, sent) if sent.is_chat else whole(sent, self.scene)).encode(),
                "page": b"<html>busy</html>",
                "nothing": b"",
            }
            kind = {"json": "application/json", "page": "text/html"}.get(fate.form, "text/event-stream")
            writer.write(_page(None, body=bodies[fate.form], kind=kind, id_=id_))
            return
        events = [*map(_event, told)]
        if sent.is_chat:
            events = [*map(_chunk, chunks(told, sent)), b"data: [DONE]\n\n"]
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: {id_}\r\nx-request-id: {id_}\r\n"
        head += "connection: close\r\n\r\n"
        writer.write(head.encode())
        if not fate.cut:
            sent.told = True
            writer.write(b"".join(events))
            return
        stop = min(len(events) - 1, round(fate.after * len(events)))
        sent.told = stop > len(events) - 2  # the last event says no more than that it is the last
        writer.write(b"".join(events[:stop]))
        if self.scene.bills_all and not sent.told:
            self.bill(sent, most)
        await writer.drain()
        match fate.cut:
            case "reset":
                await asyncio.sleep(0.01)  # what was sent arrives before the end does
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "half":
                writer.write(b'event: content_block_delta\ndata: {"type": "content_block_del')
            case "silence":
                await reader.read()  # until the client has gone
            case "garbage":
                writer.write(b"event: content_block_delta\ndata: {{{ \x00\xff\n\n" + b"\x00\x01\x02")
            case "error":
                writer.write(_event({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}))
            case _:
                pass

    def _batch(self, method: str, path: str, body: Any, payer: str) -> bytes:
        parts = path.split("?", maxsplit=1)[0].removeprefix("/v1/messages/batches").strip("/").split("/")
        if method == "POST" and parts == [""]:
            id_ = f"msgbatch_{len(self.batches)}"
            found = {one["custom_id"]: self.enter(one["params"], payer, half=True)[1] for one in body["requests"]}
            self.batches[id_] = found
            for sent in found.values():
                if sent.fate.status is None or sent.fate.status in BILLED:
                    self.bill(sent, max(1, round(sent.fate.tokens * sent.body["max_tokens"])))
            return _page(_described(self.url, id_, found))
        if parts == [""]:
            return _page({"data": [], "has_more": False, "first_id": None, "last_id": None})
        if parts[1:] == ["results"]:
            lines = [line for item in self.batches[parts[0]].items() if (line := _line(*item, self.scene))]
            page = "".join(json.dumps(one) + "\n" for one in lines).encode()
            return _page(None, body=page, kind="application/x-jsonl")
        return _page(_described(self.url, parts[0], self.batches.get(parts[0], {})))


def _key_in(headers: dict[str, str]) -> str:
    """Return the key of a request. The SDK sends one that is not the API's as a bearer token."""
    return headers["x-api-key"] if "x-api-key" in headers else headers["authorization"].removeprefix("bearer ")


def _described(url: str, id_: str, found: dict[str, Sent]) -> dict[str, Any]:
    """Return a batch that has ended."""
    now = "2026-11-26T00:00:00Z"
    counts = {"processing": 0, "succeeded": len(found), "errored": 0, "canceled": 0, "expired": 0}
    state = {"id": id_, "type": "message_batch", "processing_status": "ended", "request_counts": counts}
    state["results_url"] = f"{url}/v1/messages/batches/{id_}/results"
    return state | {"created_at": now, "ended_at": now, "expires_at": now, "cancel_initiated_at": None}


def _line(name: str, sent: Sent, scene: Scene) -> dict[str, Any] | None:
    """Return a line of results; `None` where it is lost."""
    fate = sent.fate
    if fate.status in {400, 529}:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}
        return {"custom_id": name, "result": {"type": "errored", "error": error}}
    if fate.status is not None or fate.cut in {"silence", "close"}:
        return None
    sent.told = True
    return {"custom_id": name, "result": {"type": "succeeded", "message": whole(sent, scene)}}


def whole(sent: Sent, scene: Scene) -> dict[str, Any]:
    """Return an answer in one piece. It has one count, which cannot fall."""
    first, *blocks, last, _ = answer_events(sent, scene, sent.made)
    content: list[dict[str, Any]] = []
    for one in blocks:
        if one["type"] == "content_block_start":
            content.append(dict(one["content_block"]))
        elif one["type"] == "content_block_delta":
            (name,) = {*one["delta"]} - {"type"}
            content[-1][name] = (content[-1].get(name) or "") + one["delta"][name]
    for one in content:
        if "partial_json" in one:
            one["input"] = json.loads(one.pop("partial_json"))
    usage: Any = {**(first["message"].get("usage") or {}), **(last.get("usage") or {})}
    if sent.fate.final in {"missing", "null", "empty"}:
        usage = None if sent.fate.final == "null" else {}
    elif sent.fate.final == "falling":
        usage["output_tokens"] = sent.made
    return {**first["message"], "content": content, "stop_reason": last["delta"]["stop_reason"], "usage": usage}


def answer_events(sent: Sent, scene: Scene, made: int) -> list[dict[str, Any]]:
    """Return the events of an answer of so many tokens."""
    fate, body = sent.fate, sent.body
    blocks, reason = _blocks(scene, body, made * fate.size)
    ends: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]
    events = [{"type": "message_start", "message": _message(sent)}, *blocks]
    if fate.start == "growing" or fate.final == "falling":
        events.append({"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": made}})
    finals = {"told": made, "zero": 0, "falling": made // 2, "negative": -5, "absurd": 10**9, "text": "7"}
    finals |= {"fraction": made + 0.5, "huge": 2**70, "true": True, "list": [made], "unknown": None, "whole": made}
    finals |= {"one": 1 if made * fate.size > LONGEST else made}
    if fate.final in finals:
        ends[0]["usage"] = {"output_tokens": finals[fate.final]}
        if fate.final == "whole" or fate.start == "late":  # all counts come last
            ends[0]["usage"] |= counts_of(sent)
            ends[0]["usage"]["output_tokens"] = finals[fate.final]
    elif fate.final != "missing":
        ends[0]["usage"] = None if fate.final == "null" else {}
    return [*events, *ends]


def counts_of(sent: Sent) -> dict[str, Any]:
    """Return what is counted where an answer begins."""
    kind = "cache_creation_input_tokens" if is_written(sent.body) else "input_tokens"
    return {"input_tokens": 0, kind: sent.taken, "output_tokens": 1}


def is_written(body: dict[str, Any]) -> bool:
    """Tell whether a request asks to write to the cache."""
    return "cache_control" in json.dumps(body)


def _message(sent: Sent) -> dict[str, Any]:
    fate, model = sent.fate, sent.body["model"]
    names = {"dated": f"{model}-20250929", "unknown": "tiny.gguf"}
    counts = counts_of(sent)
    starts: dict[str, Any] = {"null": None, "empty": {}, "zeros": {"input_tokens": 0, "output_tokens": 0}}
    starts["negative"] = {"input_tokens": -3, "output_tokens": -1}
    starts |= {"absurd": {"input_tokens": 4 * 10**9, "output_tokens": 1}, "text": {"input_tokens": "many"}}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
    message |= {"model": names.get(fate.name, model)}
    return message if fate.start in {"without", "late"} else {**message, "usage": starts.get(fate.start, counts)}


def _blocks(scene: Scene, body: dict[str, Any], size: int) -> tuple[list[dict[str, Any]], str]:
    """Return the blocks of an answer of about so many bytes, and why it stops."""
    asked = json.dumps(body["messages"])
    text = ("word " * (size // 5 + 1))[:size]
    if scene.feature == "groups":
        items = range(1, max(1, len(re.findall(r"row \d+ ", asked))) + 1)
        text = json.dumps({"answers": [{"item": one, "answer": {"title": "t"}} for one in items]})
    is_first = "tool_result" not in asked and '"role": "tool"' not in asked
    if "tools" in body and is_first and body.get("tool_choice") not in ("none", {"type": "none"}):
        given = json.dumps({"text": text})
        block = {"type": "tool_use", "id": f"toolu_{crc32(asked.encode())}", "name": "note", "input": {}}
        return _block(0, block, "input_json_delta", "partial_json", given), "tool_use"
    if scene.feature == "goes on" and "assistant" not in asked:
        return _block(0, {"type": "text", "text": ""}, "text_delta", "text", text), "pause_turn"
    if scene.feature in {"thinking", "cascade"}:
        thought = {"type": "thinking", "thinking": "", "signature": ""}
        return [
            *_block(0, thought, "thinking_delta", "thinking", text),
            *_block(1, {"type": "text", "text": ""}, "text_delta", "text", text[:9]),
        ], "end_turn"
    return _block(0, {"type": "text", "text": ""}, "text_delta", "text", text), "end_turn"


def _block(index: int, block: dict[str, Any], kind: str, name: str, text: str) -> list[dict[str, Any]]:
    step = max(1, len(text) // 4)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    deltas = [{"type": "content_block_delta", "index": index, "delta": {"type": kind, name: one}} for one in pieces]
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": index},
    ]


def chunks(events: list[dict[str, Any]], sent: Sent) -> Iterator[dict[str, Any]]:
    """Yield an answer's events as chunks of the chat completions API: all counts come last."""
    named = {"id": "c_1", "object": "chat.completion.chunk", "model": events[0]["message"]["model"]}
    reasons = {"tool_use": "tool_calls", "end_turn": "stop", "pause_turn": "stop"}
    for one in events:
        kind, delta, reason = one["type"], one.get("delta", {}), None
        if kind == "content_block_start" and one["content_block"]["type"] == "tool_use":
            block = one["content_block"]
            told: Any = {"tool_calls": [{"index": 0, "id": block["id"], "function": {"name": block["name"]}}]}
        elif kind == "content_block_delta":
            (name,) = {*delta} - {"type"}
            text = delta[name]
            told = {{"text": "content", "thinking": "reasoning_content"}.get(name, name): text}
            if name == "partial_json":
                told = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        elif kind == "message_delta":
            told, reason = {}, reasons.get(delta["stop_reason"])
        else:
            continue
        if reason or kind != "message_delta":
            yield named | {"choices": [{"index": 0, "delta": told, "finish_reason": reason}]}
        if "usage" in one:
            yield named | {"choices": [], "usage": chat_counts(one["usage"], sent)}


def chat_counts(counts: dict[str, Any] | None, sent: Sent) -> dict[str, Any] | None:
    """Return counts as the chat completions API writes them."""
    if not counts:
        return counts
    found: dict[str, Any] = {"prompt_tokens": sent.taken, "completion_tokens": counts["output_tokens"]}
    if sent.fate.read is not None:
        found["prompt_tokens_details"] = {"cached_tokens": round(sent.fate.read * sent.taken)}
    return found


def completion(events: list[dict[str, Any]], sent: Sent) -> dict[str, Any]:
    """Return an answer of the chat completions API in one piece."""
    found: dict[str, Any] = {}
    message: dict[str, Any] = {}
    for chunk in chunks(events, sent):
        for choice in chunk["choices"]:
            for name, value in choice["delta"].items():
                if name != "tool_calls":
                    message[name] = message.get(name, "") + value
                elif name in message:
                    message[name][0]["function"]["arguments"] = (
                        message[name][0]["function"].get("arguments", "") + value[0]["function"]["arguments"]
                    )
                else:
                    message[name] = value
        if sent.fate.final != "falling" or "usage" not in found:  # it has one count, which cannot fall
            found |= chunk
        if chunk["choices"]:
            reason = chunk["choices"][0]["finish_reason"]
    return found | {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def _chunk(chunk: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _page(
    found: Any, status: int = 200, *, body: bytes | None = None, kind: str = "application/json", id_: str = "req"
) -> bytes:
    body = json.dumps(found).encode() if body is None else body
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nretry-after-ms: 10\r\n"
    head += f"request-id: {id_}\r\nx-request-id: {id_}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body


@asynccontextmanager
async def serving(scene: Scene):
    """Serve a scene on a free port."""
    books = Books(scene)
    listening = await asyncio.start_server(books.handle, "127.0.0.1", 0)
    books.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield books
    finally:
        listening.close()
        await listening.wait_closed()
