"""Tool calls and their arguments, if no directive sets them.

A tool matches a prompt that has words of its name or description; a lookup tool also matches a prompt that asks for
something. Web pages, files and outputs of server tools are invented; the addresses use reserved names.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from agent_magic.simulator.api import Json, as_list, as_object
from agent_magic.simulator.content import blocks_of
from agent_magic.simulator.request import Request
from agent_magic.simulator.structured import fill
from agent_magic.simulator.thinking import digest
from agent_magic.simulator.tools import is_of_server, is_own
from agent_magic.simulator.writer import COMMON, LOOK_AT, SENTENCES, STOP_WORDS, Pen, Subject, capital

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
    scores = [(_score(tool, words, asks=asks), -place, tool) for place, tool in enumerate(request.tools.offered)]
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
    return [readers[(first + place) % len(readers)] for place in range(count)]


def _to_be_called_again(request: Request) -> list[Json]:
    """Return the tools whose last call other arguments may fix, or only listed the tables."""
    names = [each.name for each in request.results if each.is_error or tables_told(each.text)]
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
    if sounds_like_sql(tool):
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


def sounds_like_sql(tool: Json) -> bool:
    return bool(_SOUNDS.search(f"{tool.get('name')} {tool.get('description')}"))


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


def tables_told(text: str) -> bool:
    """Return whether a result is the catalogue of a database."""
    return bool(re.search(r"\bcreate table\b", text, re.IGNORECASE))


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


def too_often(name: str, number: str) -> Json:
    """A call beyond `max_uses` is an error inside a successful response."""
    error: Json = {"type": f"{name}_tool_result_error", "error_code": "max_uses_exceeded"}
    return {"type": f"{name}_tool_result", "tool_use_id": number, "content": error}


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
        return [_page(place, subject, rng) for place in range(1, rng.randint(4, 5))]
    if name == "web_fetch":
        url = str(given.get("url", "https://example.com/"))
        source = {"type": "text", "media_type": "text/plain", "data": pen.paragraph()}
        page = {"type": "document", "source": source, "title": capital(subject.topic), "citations": None}
        return {"type": "web_fetch_result", "url": url, "retrieved_at": "2026-11-22T12:00:00Z", "content": page}
    if name.startswith("tool_search"):
        return {"type": "tool_search_tool_search_result", "tool_references": []}
    out: Json = {"stdout": f"{rng.randint(10, 990) / 10}\n", "stderr": "", "return_code": 0, "content": []}
    return {"type": f"{name}_result", **out}


def _page(place: int, subject: Subject, rng: Random) -> Json:
    word = rng.choice((*subject.terms, subject.topic))
    url = f"https://example.com/{'-'.join(word.lower().split())}/{place}"
    page: Json = {"type": "web_search_result", "title": f"{capital(subject.topic)}: {word}", "url": url}
    return {**page, "encrypted_content": digest(url, word).hex(), "page_age": f"November {rng.randint(1, 20)}, 2026"}
