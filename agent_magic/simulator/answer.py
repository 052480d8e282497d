"""The answer to a request: its blocks and their deltas, tool calls, citations, truncation and stop reason.

If no directive sets the calls, a tool matches a prompt that has words of its name or description; a lookup tool also
matches a prompt that asks for something. Web pages, files and outputs of server tools are invented; the addresses use
reserved names.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from agent_magic.simulator.api import Json, as_list, as_object, count_tokens, cut_text, invalid, pieces_of
from agent_magic.simulator.content import Chain, blocks_of, digest, pdf_pages, pdf_text, source_of
from agent_magic.simulator.directives import Overrides, without_directives
from agent_magic.simulator.request import UNBOUND, Request, canonical
from agent_magic.simulator.structured import SLIPS, fill, schema_of, told_schema
from agent_magic.simulator.tools import is_of_server, is_own
from agent_magic.simulator.writer import (
    COMMON,
    LOOK_AT,
    SENTENCES,
    STOP_WORDS,
    Pen,
    Subject,
    capital,
    more,
    subject_of,
    write,
)

FAMILIES = ("web_search", "web_fetch", "code_execution")
"""Called without a directive."""
OLD_CODE = "code_execution_20250522"
CODE_NAMES = ("code_execution", "bash_code_execution", "text_editor_code_execution")
MOST_CALLS = 3
OPTIONAL = 0.4
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
_ASKS = re.compile(
    r"\b(?:which|what|who|when|where|how|look up|check|find|search|query|verify|"
    r"use (?:the|a) tools?)\b",
    re.IGNORECASE,
)
_READS = re.compile(r"(?:sql|query|search|look|fetch|read|get|find|load|list|select|database|web)", re.IGNORECASE)
_CHANGES = re.compile(
    r"(?:^|_)(?:send|write|delete|remove|create|update|insert|post|pay|book|order|save|mail|notify|cancel|set)(?:_|$)"
)
_DENIED = re.compile(r"\b(?:denied|declined|refused|rejected|not (?:allowed|approved|permitted))\b", re.IGNORECASE)
_ABOUT = {
    "web_search": "search the web for current news and latest facts today",
    "web_fetch": "fetch a page url https www",
    "code_execution": "run python code to calculate compute simulate",
    "bash": "shell command terminal",
    "memory": "remember recall memory",
    "str_replace_editor": "edit file text",
    "str_replace_based_edit_tool": "edit file text",
}
_FIXED: dict[str, tuple[Json, ...]] = {
    "bash": ({"command": "ls -la"}, {"command": "wc -l *.csv"}),
    "memory": ({"command": "view", "path": "/memories"},),
    "str_replace_editor": ({"command": "view", "path": "/repo/README.md"},),
    "str_replace_based_edit_tool": ({"command": "view", "path": "/repo/README.md"},),
    "code_execution": ({"command": "python -c 'print(sum(range(10)))'"},),
    "web_fetch": ({"url": "https://example.com/"},),
    "tool_search_tool_regex": ({"query": ".*"},),
    "tool_search_tool_bm25": ({"query": "data"},),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call by the model."""

    name: str
    given: Json


def wanted_calls(request: Request, subject: Subject, rng: Random) -> list[Wanted]:
    tools = request.tools
    if not tools.may_call or (request.resumed and not tools.must_call):
        return []
    ranked = _ranked(request)
    if tools.must_call:
        forced = tools.find(tools.forced) if tools.forced else None
        named = [tool for tool in tools.offered if tool.get("name")]
        chosen = [forced] if forced else (ranked or named)[:1]
    else:
        chosen = _chosen(request, ranked, rng)
    return [Wanted(tool["name"], _arguments(tool, request, subject, rng)) for tool in chosen]


def _ranked(request: Request) -> list[Json]:
    """Return the matching tools, best first, without far worse ones."""
    words = _stems(request.prompt) - STOP_WORDS
    asks = bool(_ASKS.search(request.prompt))
    scores = [(_score(tool, words, asks=asks), -index, tool) for index, tool in enumerate(request.tools.offered)]
    least = max(1, max(score for score, _, _ in scores) / 2)
    return [tool for score, _, tool in sorted(scores, key=lambda each: each[:2], reverse=True) if score >= least]


def _score(tool: Json, words: set[str], *, asks: bool) -> int:
    if (name := tool.get("name")) is None:
        return 0
    about = str(tool.get("description") or _ABOUT.get(name, ""))
    named = _stems(name) - STOP_WORDS
    described = _stems(about) - COMMON - named
    looks = asks and bool(_READS.search(f"{name} {about}")) and (is_own(tool) or name in FAMILIES)
    return 2 * len(named & words) + len(described & words) + looks


def _stems(text: str) -> set[str]:
    return {word.lower().removesuffix("s") for word in _WORD.findall(text.replace("_", " "))}


def _chosen(request: Request, ranked: list[Json], rng: Random) -> list[Json]:
    if any(each.is_error and _DENIED.search(each.text) for each in request.results):
        return []
    again = _to_be_called_again(request)
    told = [tool for tool in ranked if re.search(rf"\b{re.escape(tool['name'])}\b", request.prompt)]
    due = [tool for tool in told if tool["name"] not in request.called]
    if again and request.turn <= MOST_CALLS - len(due):
        return again[:1]
    # The number of calls is a property of the prompt: the same in each turn.
    total = 1 + zlib.crc32(request.prompt.encode("utf-8", "surrogatepass")) % MOST_CALLS
    readers = [tool for tool in ranked if not _CHANGES.search(tool["name"])]
    writers = [tool for tool in ranked if tool not in readers and tool["name"] not in request.called]
    looks_first = bool(readers) and not request.called and all(tool in writers for tool in due)
    left = min(max(total, len(request.called) + len(due) + looks_first), MOST_CALLS) - len(request.called)
    if left <= 0:
        return []
    if not readers or left <= len(due) or (left == 1 and writers and request.called):
        return (due or writers)[:1]
    left -= bool(writers) and left > 1
    count = rng.randint(1, left) if request.tools.parallel and len(readers) > 1 else 1
    first = len(request.called) % len(readers)
    return [readers[(first + index) % len(readers)] for index in range(count)]


def _to_be_called_again(request: Request) -> list[Json]:
    """Return the tools to call again: other arguments may help, or the last call only listed the tables."""
    listed = re.compile(r"\bcreate table\b", re.IGNORECASE)
    names = [each.name for each in request.results if each.is_error or listed.search(each.text)]
    return [tool for name in names if (tool := request.tools.find(name)) and not _CHANGES.search(name)]


def _arguments(tool: Json, request: Request, subject: Subject, rng: Random) -> Json:
    name, examples = tool["name"], as_list(tool.get("input_examples"))
    if is_of_server(tool) and name == "web_search":
        return {"query": " ".join([*subject.terms[:2], subject.topic])}
    if not is_own(tool):
        return rng.choice(_FIXED.get(name, ({},)))
    if examples and rng.random() < 0.5:
        return rng.choice(examples)
    schema: Json = tool["input_schema"]
    given: Json = json.loads(fill(schema, subject, rng))
    required = as_list(schema.get("required")) or ()
    given = {key: value for key, value in given.items() if key in required or rng.random() < OPTIONAL or not required}
    if _SOUNDS.search(f"{tool.get('name')} {tool.get('description')}"):
        context = "\n".join(
            text[:LOOK_AT]
            for text in (
                *(each.text for each in request.results),
                str(tool.get("description")),
                request.system,
                request.prompt,
            )
        )
        for key in _text_keys(schema, given):
            given[key] = sql_for(context, rng)
    return given


def _text_keys(schema: Json, given: Json) -> Sequence[str]:
    properties = as_object(schema.get("properties")) or {}
    texts = [key for key in given if (as_object(properties.get(key)) or {}).get("type") == "string"]
    named = [key for key in texts if re.search(r"sql|query|statement", key, re.IGNORECASE)]
    return named or texts[: len(texts) == 1]


# SQL.

_SOUNDS = re.compile(r"(?:\b|_)(?:sql|sqlite|duckdb|postgres|database|select)(?:\b|_)", re.IGNORECASE)
_NAME = r"[\"'`]?([A-Za-z_]\w{1,60})[\"'`]?"
_TABLE = re.compile(rf"\b(?:create table(?: if not exists)?|from|join|into|tables?:?)\s+{_NAME}", re.IGNORECASE)
_WITH_COLUMNS = re.compile(rf"{_NAME}\s?\((\s*[\"'`a-z_](?:[^()]|\([^()]*\)){{2,900}})\)", re.IGNORECASE)
_BEFORE_TABLE = re.compile(rf"\b{_NAME} table\b", re.IGNORECASE)
_COLUMN = re.compile(r"\s*[\"'`]?([A-Za-z_]\w*)")
_NO_TABLE = frozenset(
    "create drop alter "
    "the a an this that these those it its one each every any all select where sql sqlite database data table tables "
    "read only which what run query column columns row rows values limit".split()
)
_NO_COLUMN = frozenset("primary foreign unique check constraint key".split())
_NUMBER = re.compile(
    r"amount|revenue|total|price|sales|quantity|qty|cost|profit|count|units|value|score", re.IGNORECASE
)
_ID = re.compile(r"(?:^|_)id$", re.IGNORECASE)
CATALOGUE = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"


def sql_for(text: str, rng: Random) -> str:
    """Query a table of a text; `orders(id, region)` and `CREATE TABLE` also give the columns."""
    tables = tables_of(text)
    if not tables:
        return CATALOGUE
    table = rng.choice(list(tables))
    columns = [column for column in tables[table] if not _ID.search(column)]
    numbers = [column for column in columns if _NUMBER.search(column)]
    groups = [column for column in columns if column not in numbers]
    if groups and numbers:
        group, number, function = rng.choice(groups), rng.choice(numbers), rng.choice(("SUM", "AVG"))
        return (
            f"SELECT {group}, {function}({number}) AS {function.lower()}_{number} FROM {table} GROUP BY {group} "
            f"ORDER BY 2 {rng.choice(('DESC', 'ASC'))} LIMIT {rng.choice((5, 10))}"
        )
    if groups:
        group = rng.choice(groups)
        return f"SELECT {group}, COUNT(*) AS n FROM {table} GROUP BY {group} ORDER BY n DESC LIMIT 10"
    return rng.choice((f"SELECT COUNT(*) AS n FROM {table}", f"SELECT * FROM {table} LIMIT 5"))


def tables_of(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, columns in _WITH_COLUMNS.findall(text):
        parts = [part[1] for part in map(_COLUMN.match, re.split(r",(?![^(]*\))", columns)) if part]
        if len(parts) > 1 and name.lower() not in _NO_TABLE:
            found[name] = [part for part in parts if part.lower() not in _NO_COLUMN]
    if found:
        return found
    named = [name for pattern in (_TABLE, _BEFORE_TABLE) for name in pattern.findall(text)]
    return {name: [] for name in dict.fromkeys(named) if name.lower() not in _NO_TABLE and name != "sqlite_master"}


def name_in_response(tool: Json) -> str:
    """Return the name of a server tool in responses; newer code execution runs commands."""
    name = str(tool["name"])
    return "bash_code_execution" if name == "code_execution" and tool["type"] != OLD_CODE else name


def result_of(name: str, number: str, given: Json, subject: Subject, rng: Random) -> Json:
    """Return the result of a server tool, as a block without deltas."""
    kind = f"{'tool_search' if name.startswith('tool_search') else name}_tool_result"
    return {"type": kind, "tool_use_id": number, "content": _content(name, given, subject, rng)}


def citations_of(result: Json, pen: Pen) -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for page in blocks_of(result["content"])[:2] if result["type"] == "web_search_tool_result" else ():
        said = pen.draw(SENTENCES)
        citation = {"type": "web_search_result_location", "cited_text": said, "url": page["url"]}
        citation |= {"title": page["title"], "encrypted_index": digest(page["url"], said).hex()}
        found.append((f"“{page['title']}” holds: {said}", citation))
    return found


def _content(name: str, given: Json, subject: Subject, rng: Random) -> object:
    pen = Pen(subject, rng)
    if name == "web_search":
        return [_page(index, subject, rng) for index in range(1, rng.randint(4, 5))]
    if name == "web_fetch":
        url = str(given.get("url", "https://example.com/"))
        source = {"type": "text", "media_type": "text/plain", "data": pen.paragraph()}
        page = {"type": "document", "source": source, "title": capital(subject.topic), "citations": None}
        return {"type": "web_fetch_result", "url": url, "retrieved_at": "2026-11-22T12:00:00Z", "content": page}
    if name.startswith("tool_search"):
        return {"type": "tool_search_tool_search_result", "tool_references": []}
    out: Json = {"stdout": f"{rng.randint(10, 990) / 10}\n", "stderr": "", "return_code": 0, "content": []}
    return {"type": f"{name}_result", **out}


def _page(index: int, subject: Subject, rng: Random) -> Json:
    word = rng.choice((*subject.terms, subject.topic))
    url = f"https://example.com/{'-'.join(word.lower().split())}/{index}"
    page: Json = {"type": "web_search_result", "title": f"{capital(subject.topic)}: {word}", "url": url}
    return {**page, "encrypted_content": digest(url, word).hex(), "page_age": f"November {rng.randint(1, 20)}, 2026"}


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
    return Block("text", text, tuple(pieces_of(text, rng)), late=late, tokens=count_tokens(text))


def call_block(kind: str, number: str, name: str, given: Json, rng: Random, *, eager: bool = False) -> Block:
    """Return a block of a call; `eager` streams arguments as they are written."""
    text = json.dumps(given)
    pieces = tuple(pieces_of(text, rng)) if eager else _by_argument(given)
    return Block(kind, text, pieces, {"id": number, "name": name}, tokens=count_tokens(text))


def cut(block: Block, most: int) -> Block:
    if block.tokens <= most:
        return block
    text = cut_text(block.text, most)
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
    pieces = [f"{', ' if index else '{'}{item}" for index, item in enumerate(items)]
    return (*pieces[:-1], pieces[-1] + "}") if pieces else ()


NO_SLIPS: Mapping[str, float] = {}
EMPTY_TOKENS = 2
QUOTED = 120
THOUGHTS = (
    "The question is about {topic}. What matters first is {a}.",
    "Before anything is said on {topic}, {a} and {b} should be looked at.",
    "For {topic} the open point is {a}; {b} can wait.",
)
LEADS = ("I look at {a} first.", "Let me check {a}.", "I need to know more about {topic}.")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; its blocks are empty for a refusal or `max_tokens: 0`."""

    blocks: tuple[Block, ...]
    stop_reason: str
    stop_sequence: str | None
    output_tokens: int

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if block.kind == "text")


def compose(
    request: Request, overrides: Overrides, rng: Random, serial: str, slips: Mapping[str, float] = NO_SLIPS
) -> Answer:
    """Compose an answer; `slips` are rates of choices other than the prompt suggests."""
    # The generator is seeded with the content of the request, so that equal requests get equal answers.
    return _Composer(request, overrides, rng, serial, slips.get(request.model.family, SLIPS)).answer()


class _Composer:
    def __init__(self, request: Request, overrides: Overrides, rng: Random, serial: str, slips: float) -> None:
        self._request, self._overrides, self._rng, self._serial = request, overrides, rng, serial
        self._slips = slips
        self._numbers = 0
        said = request.prompt
        self._schema = told_schema(request.system) if request.schema is None else request.schema
        if self._schema:  # A choice follows the words of the conversation, and of the tools' results.
            told = (each.text[:LOOK_AT] for each in request.results)
            said = "\n\n".join(filter(None, (request.earlier, request.prompt, *told)))
        self._subject = subject_of(without_directives(said), request.system)

    def answer(self) -> Answer:
        calls = self._calls()
        text = self._text(calls)
        text, sequence = _stopped(text, self._request.stop_sequences)
        if sequence is not None:
            calls = []
        # A server tool's call waits if the client has to act too: its result opens the next response.
        own = [call for call in calls if not self._is_of_server(call)]
        blocks = [*self._opening(calls), *self._body(text, calls, waiting=bool(own))]
        reason = "tool_use" if own else "end_turn" if sequence is None else "stop_sequence"
        reason, sequence, blocks = self._cut(reason, sequence, blocks)
        if self._overrides.stop_reason == "pause_turn":  # A server-side search that is not finished; it is not billed.
            query = {"query": " ".join(text.split()[:6])}
            search = call_block("server_tool_use", self._number("srvtoolu"), "web_search", query, self._rng)
            blocks.append(Block(search.kind, search.text, search.pieces, search.fields))
        length = sum(block.tokens for block in blocks)
        if not blocks and reason == "end_turn" and self._request.max_tokens:
            length = min(EMPTY_TOKENS, self._request.max_tokens)
        return Answer(tuple(blocks), reason, sequence, length)

    def _calls(self) -> list[Wanted]:
        overrides = self._overrides
        if overrides.tool_use:
            return [Wanted(call["name"], call["input"]) for call in overrides.tool_use]
        exact = overrides.text is not None or overrides.echo or overrides.calls_given
        if exact or overrides.stop_reason not in (None, "max_tokens", "tool_use"):
            return []
        return wanted_calls(self._request, self._subject, self._rng)

    def _text(self, calls: list[Wanted]) -> str:
        overrides, rng, request = self._overrides, self._rng, self._request
        if overrides.text is not None:
            return overrides.text
        if overrides.stop_reason == "refusal" or overrides.tool_use:
            return ""
        if any(not self._is_of_server(call) for call in calls):
            leads = not request.model.notes and rng.random() < 0.5
            return Pen(self._subject, rng).draw(LEADS) if leads else ""
        subject = self._subject
        schema = schema_of(subject, request.system) if self._schema is None else self._schema
        if overrides.echo:
            text = request.prompt
        elif schema is not None:
            text = fill(schema, subject, rng, self._slips, request.system)
        else:
            text = write(subject, request.system, rng)
            if request.results and " " in text:
                text = f"{self._quotes()}\n\n{text}"
        return text if overrides.tokens is None else _fitted(text, overrides.tokens, subject, rng)

    def _quotes(self) -> str:
        found: list[str] = []
        for each in self._request.results:
            short = " ".join(each.text[: 9 * QUOTED].split())
            short = short if len(short) <= QUOTED else f"{short[:QUOTED].rsplit(' ', 1)[0]} …"
            verb = "failed" if each.is_error else "returned"
            found.append(f"`{each.name}` {verb}: “{short}”." if short else f"`{each.name}` {verb} nothing.")
        return "\n".join(dict.fromkeys(found))

    def _opening(self, calls: list[Wanted]) -> list[Block]:
        """Return the first blocks: results of open server tool calls, then thinking."""
        blocks = [
            Block(fields["type"], fields={key: value for key, value in fields.items() if key != "type"})
            for call in self._request.open_calls
            for fields in [result_of(call["name"], call["id"], call["input"], self._subject, self._rng)]
        ]
        thought = self._thought(calls)
        if thought is None or self._request.max_tokens == 0:
            return blocks
        chain = self._request.chain or _chain_of(self._request)
        for block in blocks:
            chain.add(f"assistant:{block.kind}", canonical(block.whole()))
        length, shown = count_tokens(thought), self._request.thinking.shown
        if thought == "redacted":
            data = chain.sign("redacted_thinking", "", length)
            return [*blocks, Block("redacted_thinking", fields={"data": data}, tokens=length)]
        signature = chain.sign("thinking", thought if shown else "", length)
        seen = thought if shown else ""
        late = {"type": "signature_delta", "signature": signature}
        return [*blocks, Block("thinking", seen, tuple(pieces_of(seen, self._rng)), late=(late,), tokens=length)]

    def _thought(self, calls: list[Wanted]) -> str | None:
        request, kind = self._request, self._request.thinking.kind
        own = self._overrides.think
        notes = kind is None and request.model.notes and bool(calls) and not self._overrides.tool_use
        if own is None and kind not in ("adaptive", "enabled", "between_tools") and not notes:
            return None
        return own or " ".join(Pen(self._subject, self._rng).draw(THOUGHTS) for _ in range(2))

    def _body(self, text: str, calls: list[Wanted], *, waiting: bool) -> Iterator[Block]:
        """Return the other blocks: results of server tools before the text, client calls after it."""
        own = [call for call in calls if not self._is_of_server(call)]
        sources: list[tuple[str, Json]] = []
        used = dict[str, int]()
        for call in calls:
            if self._is_of_server(call) and not waiting:
                yield from (pair := self._resolved(call, used))
                sources += citations_of({"type": pair[1].kind, **pair[1].fields}, Pen(self._subject, self._rng))
        exact = self._overrides.text is not None or self._overrides.echo or self._overrides.tokens is not None
        if self._request.citable and not own and not exact and self._request.schema is None:
            sources += cited(self._request.citable, self._rng)
        head, gap, rest = text.partition("\n\n") if sources else (text, "", "")
        if head:
            yield text_block(head + gap, self._rng)
        for sentence, citation in sources:
            yield text_block(sentence, self._rng, (citation,))
        if rest:
            yield text_block(f"\n\n{rest}", self._rng)
        for call in calls:
            if waiting and self._is_of_server(call):
                yield self._server_call(call)
        for call in own:
            yield self._own_call(call)

    def _resolved(self, call: Wanted, used: dict[str, int]) -> tuple[Block, Block]:
        block = self._server_call(call)
        tool = self._request.tools.find(call.name) or {}
        used[call.name] = used.get(call.name, 0) + 1
        name, number = block.fields["name"], block.fields["id"]
        if used[call.name] > (tool.get("max_uses") or used[call.name]):
            error: Json = {"type": f"{name}_tool_result_error", "error_code": "max_uses_exceeded"}
            fields: Json = {"type": f"{name}_tool_result", "tool_use_id": number, "content": error}
        else:
            fields = result_of(name, number, call.given, self._subject, self._rng)
        return block, Block(fields.pop("type"), fields=fields)

    def _server_call(self, call: Wanted) -> Block:
        tool = self._request.tools.find(call.name)
        name = name_in_response(tool) if tool else call.name
        return call_block("server_tool_use", self._number("srvtoolu"), name, call.given, self._rng)

    def _own_call(self, call: Wanted) -> Block:
        tool = self._request.tools.find(call.name) or {}
        eager = bool(tool.get("eager_input_streaming"))
        block = call_block("tool_use", self._number("toolu"), call.name, call.given, self._rng, eager=eager)
        if not self._overrides.broken:
            return block
        if not (eager and self._request.stream):
            raise invalid("simulator: [[broken]] needs a stream and a tool with eager_input_streaming")
        return broken(block)

    def _is_of_server(self, call: Wanted) -> bool:
        tool = self._request.tools.find(call.name)
        return call.name in CODE_NAMES if tool is None else is_of_server(tool)

    def _number(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}_{self._serial}_{self._numbers - 1}"

    def _cut(self, reason: str, sequence: str | None, blocks: list[Block]) -> tuple[str, str | None, list[Block]]:
        """Cut the blocks at `max_tokens`, or by a directive inside the last call."""
        most, wanted = self._request.max_tokens, self._overrides.stop_reason
        if wanted == "max_tokens" and blocks and blocks[-1].kind == "tool_use":
            length = sum(block.tokens for block in blocks)
            most = min(length - (blocks[-1].tokens + 1) // 2, length if most is None else most)
        if most is None or (most > 0 and sum(block.tokens for block in blocks) <= most):
            return wanted or reason, sequence, blocks
        kept, left = list[Block](), most
        for block in blocks:
            if left <= 0:
                break
            kept.append(cut(block, left))
            left -= block.tokens
        return wanted or "max_tokens", None, kept


def _chain_of(request: Request) -> Chain:
    chain = Chain(request.model)
    for segment in request.segments:
        if segment.label not in UNBOUND:
            chain.add(segment.label, segment.text)
    return chain


def _fitted(text: str, wanted: int, subject: Subject, rng: Random) -> str:
    """Cut or extend a text to exactly `wanted` tokens."""
    parts, length = [text], count_tokens(text)
    while length < wanted:
        parts.append(more(subject, rng))
        length += count_tokens(parts[-1])
    return cut_text("\n\n".join(parts), wanted)


def _stopped(text: str, sequences: tuple[str, ...]) -> tuple[str, str | None]:
    hits = [(place, sequence) for sequence in sequences if (place := text.find(sequence)) >= 0]
    if not hits:
        return text, None
    place, sequence = min(hits)
    return text[:place], sequence


# Citations: sentences of the documents of a request, with the places where they stand.

MOST_CITED = 3
_Thing = TypeVar("_Thing")
_SENTENCE = re.compile(r"[^\s.!?][^.!?\n]{8,300}[.!?]?")


def cited(documents: tuple[Json, ...], rng: Random) -> list[tuple[str, Json]]:
    """Return up to three sentences, each with a citation of one place in a document."""
    counts = {"document": 0, "search_result": 0}
    places: list[Json] = []
    for block in documents:
        places += _places(block, counts[block["type"]], rng)
        counts[block["type"]] += 1
    chosen = sorted(rng.sample(range(len(places)), min(MOST_CITED, len(places))))
    return [(_sentence(places[at]), places[at]) for at in chosen]


def _sentence(place: Json) -> str:
    said = " ".join(str(place["cited_text"]).split()).rstrip(".!?")
    title = place.get("document_title") or place.get("title") or "the document"
    return f"According to {title}, {said}. "


def _places(block: Json, index: int, rng: Random) -> list[Json]:
    source, title = source_of(block), block.get("title")
    of_document: Json = {"document_index": index, "document_title": title, "file_id": None}
    if block["type"] == "search_result":
        about = {"search_result_index": index, "source": block.get("source"), "title": title}
        return [{"type": "search_result_location", **about, **each} for each in _parts(block.get("content"), rng)]
    if source.get("type") == "content":
        parts = _parts(source.get("content"), rng)
        return [{"type": "content_block_location", **of_document, **each} for each in parts]
    if source.get("type") == "base64":
        return [{"type": "page_location", **of_document, **each} for each in _pages(str(source.get("data")), rng)]
    found = _some(list(_SENTENCE.finditer(str(source.get("data", "")))), rng)
    where = [{"cited_text": one[0], "start_char_index": one.start(), "end_char_index": one.end()} for one in found]
    return [{"type": "char_location", **of_document, **each} for each in where]


def _parts(value: object, rng: Random) -> list[Json]:
    texts = [(at, str(part["text"])) for at, part in enumerate(blocks_of(value)) if part.get("type") == "text"]
    if isinstance(value, str):
        texts = [(0, value)]
    return [{"cited_text": text, "start_block_index": at, "end_block_index": at + 1} for at, text in _some(texts, rng)]


def _pages(data: str, rng: Random) -> list[Json]:
    """A page without readable text is cited by number."""
    pdf = base64.b64decode(data)
    texts, count = pdf_text(pdf), pdf_pages(pdf)
    found: list[Json] = []
    for at in sorted(_some(range(count), rng)):
        text = texts[at] if at < len(texts) else f"page {at + 1} covers this"
        found.append({"cited_text": text[:300], "start_page_number": at + 1, "end_page_number": at + 2})
    return found


def _some(things: Sequence[_Thing], rng: Random) -> list[_Thing]:
    return rng.sample(things, min(2, len(things)))
