"""Server tools: their results, which are part of the response.

Web pages, files and outputs are invented; their addresses use reserved names.
"""

from __future__ import annotations

from random import Random

from agent_magic.simulator.content import blocks_of
from agent_magic.simulator.json_types import Json
from agent_magic.simulator.thinking import digest
from agent_magic.simulator.topic import Subject
from agent_magic.simulator.writer import SENTENCES, Pen, capital

FAMILIES = ("web_search", "web_fetch", "code_execution")
"""The tools called without a directive."""
OLD_CODE = "code_execution_20250522"
CODE_NAMES = ("code_execution", "bash_code_execution", "text_editor_code_execution")


def name_in_response(tool: Json) -> str:
    """Return the name used in calls of a tool: newer code execution runs commands."""
    name = str(tool["name"])
    return "bash_code_execution" if name == "code_execution" and tool["type"] != OLD_CODE else name


def result_of(name: str, number: str, given: Json, subject: Subject, rng: Random) -> Json:
    """Return the fields of a call's result, as a block without deltas."""
    kind = f"{'tool_search' if name.startswith('tool_search') else name}_tool_result"
    return {"type": kind, "tool_use_id": number, "content": _content(name, given, subject, rng)}


def too_often(name: str, number: str) -> Json:
    """Return the result of a call beyond `max_uses`: an error inside a successful response."""
    error: Json = {"type": f"{name}_tool_result_error", "error_code": "max_uses_exceeded"}
    return {"type": f"{name}_tool_result", "tool_use_id": number, "content": error}


def citations_of(result: Json, pen: Pen) -> list[tuple[str, Json]]:
    """Return sentences on the pages of a web search, each with its citation; empty for other results."""
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
