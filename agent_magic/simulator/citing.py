"""Citations: sentences of the documents of a request, with the places where they stand."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from agent_magic.simulator.content import blocks_of, pdf_pages, pdf_text, source_of
from agent_magic.simulator.json_types import Json

MOST_CITED = 3
_Thing = TypeVar("_Thing")
_SENTENCE = re.compile(r"[^\s.!?][^.!?\n]{8,300}[.!?]?")


def cited(documents: tuple[Json, ...], rng: Random) -> list[tuple[str, Json]]:
    """Return up to three sentences, each on one place in a document, with its citation."""
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
    """Return two places of a document that can be cited, with their texts."""
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
    """Return two pages of a PDF; one whose text cannot be read is cited by its number."""
    pdf = base64.b64decode(data)
    texts, count = pdf_text(pdf), pdf_pages(pdf)
    found: list[Json] = []
    for at in sorted(_some(range(count), rng)):
        text = texts[at] if at < len(texts) else f"page {at + 1} covers this"
        found.append({"cited_text": text[:300], "start_page_number": at + 1, "end_page_number": at + 2})
    return found


def _some(things: Sequence[_Thing], rng: Random) -> list[_Thing]:
    return rng.sample(things, min(2, len(things)))
