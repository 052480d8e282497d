"""Content blocks of a request: pictures and documents with their token counts, thinking with its signatures.

Pictures are measured by their file headers. PDF pages are counted in the bytes. Source: the vendor's pages on vision
and on PDF support.

Every model refuses an edited thinking block. Models with preserved thinking refuse a block if anything before it has
changed, or after a gap. A block of another model is dropped silently. Source: the vendor's pages on thinking and on
preserved thinking.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_magic.simulator.api import ApiError, Json, as_int, as_list, as_object, count_tokens, invalid
from agent_magic.simulator.models import Model

PATCH = 28
"""A picture costs one token per patch of 28 x 28 pixels."""
MEDIA_TOKENS = 1500
"""For a picture or document given by URL or file id."""
PAGE_TOKENS = (1500, 3000)
"""Minimum and maximum; a fuller page has more."""
MOST_BYTES = 10 * 1024 * 1024
MOST_SIDE = 8000
MANY = 20
MOST_SIDE_OF_MANY = 2000
LARGE_CONTEXT = 1_000_000
MOST_TEXT = 100_000
"""Bytes read of a page."""
HEAD = 400_000
"""Base64 characters searched for a size: a JPEG may start with a large profile."""
PICTURE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PNG_HEADER = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,5})")
_STREAM = re.compile(rb"stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
_SHOWN = re.compile(rb"\(((?:[^()\\]|\\.)*)\)\s*Tj|\[((?:[^\]\\]|\\.)*)\]\s*TJ")
_LITERAL = re.compile(rb"\(((?:[^()\\]|\\.)*)\)")


def blocks_of(content: object) -> list[Json]:
    return [block for each in as_list(content) or () if (block := as_object(each))]


def source_of(block: Json) -> Json:
    return as_object(block.get("source")) or {}


def picture_size(head: bytes) -> tuple[str, tuple[int, int]] | None:
    found = None
    if head.startswith(PNG_HEADER) and len(head) >= 24:
        found = "image/png", (int.from_bytes(head[16:20]), int.from_bytes(head[20:24]))
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        found = "image/gif", (int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        found = "image/webp", _webp_size(head)
    elif head.startswith(b"\xff\xd8"):
        found = "image/jpeg", _jpeg_size(head)
    return found if found and all(found[1]) else None


def _webp_size(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF


def _jpeg_size(head: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 <= len(head):
        if head[place] != 0xFF:
            break
        if head[place + 1] in _JPEG_SIZES:
            return int.from_bytes(head[place + 7 : place + 9]), int.from_bytes(head[place + 5 : place + 7])
        place += 2 + int.from_bytes(head[place + 2 : place + 4])
    return 0, 0


def tokens_of_picture(size: tuple[int, int], longest: int, most: int) -> int:
    """Scale it down to the longest side and the most tokens first."""
    scale = min(1.0, longest / max(size))
    while True:
        # Minus 1e-9, so that a side of a whole number of patches is not rounded up.
        columns, rows = (max(1, math.ceil(side * scale / PATCH - 1e-9)) for side in size)
        if columns * rows <= most:
            return columns * rows
        scale = max((columns - 1) * PATCH / size[0], (rows - 1) * PATCH / size[1])


def pdf_pages(data: bytes) -> int:
    return len(_PAGE.findall(data)) or max(map(int, _COUNT.findall(data)), default=1) or 1


def pdf_text(data: bytes) -> list[str]:
    """Return the texts of a PDF, one per stream, except those in a font's own encoding."""
    found: list[str] = []
    for stream in _STREAM.findall(data):
        try:
            plain = zlib.decompressobj().decompress(stream, MOST_TEXT)
        except zlib.error:  # It is not compressed, or in another way.
            plain = stream
        shown = (b"".join(_LITERAL.findall(parts)) if parts else one for one, parts in _SHOWN.findall(plain))
        text = " ".join(part.decode("latin-1") for part in shown if part.isascii())
        if text.strip().isprintable() and text.strip():
            found.append(text.strip())
    return found


def tokens_of(block: Json, model: Model) -> int:
    source = source_of(block)
    kind, data = source.get("type"), str(source.get("data", ""))
    if kind == "base64" and block["type"] == "image":
        measured = picture_size(_decoded(data[:HEAD]) or b"")
        return tokens_of_picture(measured[1], *model.picture) if measured else MEDIA_TOKENS
    if kind == "base64":
        pdf = _decoded(data) or b""
        pages = pdf_pages(pdf)
        fewest, most = PAGE_TOKENS
        return pages * min(most, fewest + len(pdf) // pages // 40)
    if kind == "content":
        return sum(
            count_tokens(str(each.get("text", ""))) if each.get("type") == "text" else tokens_of(each, model)
            for each in blocks_of(source.get("content"))
        )
    return count_tokens(data) if kind == "text" else MEDIA_TOKENS


def check_media(found: Iterable[tuple[str, Json]], model: Model) -> None:
    """Check number, size and format; raise the first error."""
    media = list(found)
    pictures = [(where, block) for where, block in media if block["type"] == "image"]
    most = 600 if model.context >= LARGE_CONTEXT else 100
    if len(pictures) > most:
        raise invalid(f"messages: Too many images and documents: {len(pictures)} + 0 > {most}")
    side = MOST_SIDE if len(pictures) <= MANY else MOST_SIDE_OF_MANY
    pages = 0
    for where, block in media:
        source = source_of(block)
        if source.get("type") not in ("base64", "url", "file", "text", "content"):
            raise invalid(f"{where}.source: Input tag {source.get('type')!r} does not match any of the expected tags")
        if block["type"] == "image" and source["type"] == "base64":
            _check_picture(source, f"{where}.source.base64", side, many=len(pictures) > MANY)
        elif block["type"] == "document" and source["type"] == "base64":
            pages += _checked_pages(source, f"{where}.source.base64")
    if pages > most:
        raise invalid(f"messages: A maximum of {most} PDF pages may be provided.")


def _check_picture(source: Json, where: str, side: int, *, many: bool) -> None:
    data, kind = str(source.get("data", "")), source.get("media_type")
    if kind not in PICTURE_TYPES:
        raise invalid(f"{where}.media_type: Input should be {', '.join(map(repr, PICTURE_TYPES))}")
    if len(data) > MOST_BYTES:
        raise invalid(f"{where}: image exceeds 10 MB maximum: {len(data)} bytes > {MOST_BYTES} bytes")
    head = _decoded(data[:HEAD])
    if head is None:
        raise invalid(f"{where}.data: invalid base64 data")
    if (measured := picture_size(head)) is None:
        raise invalid(f"{where}: Could not process image")
    if measured[0] != kind:
        raise invalid(f"{where}.data: Image does not match the provided media type {kind}")
    if max(measured[1]) > side:
        what = "many-image requests: " if many else ""
        raise ApiError(
            400,
            f"{where}.data: At least one of the image dimensions exceed max allowed size"
            f"{' for ' if what else ': '}{what}{side} pixels",
            code="image_dimensions_too_large",
        )


def _checked_pages(source: Json, where: str) -> int:
    if source.get("media_type") != "application/pdf":
        raise invalid(f"{where}.media_type: Input should be 'application/pdf'")
    data = _decoded(str(source.get("data", "")))
    if data is None:
        raise invalid(f"{where}.data: invalid base64 data")
    if b"%PDF-" not in data[:1024]:
        raise invalid(f"{where}: The PDF specified was not valid.")
    if b"/Encrypt" in data:
        raise invalid(f"{where}: The PDF specified is password protected.")
    return pdf_pages(data)


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data[: len(data) // 4 * 4] if len(data) >= HEAD else data, validate=True)
    except (binascii.Error, ValueError):
        return None


LEAST_BUDGET = 1024
KINDS = ("adaptive", "enabled", "disabled", "between_tools")
THINKING_BLOCKS = ("thinking", "redacted_thinking")
_SIZE = 8
_LENGTH = 4
_BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Without a kind the model decides."""

    kind: str | None = None
    shown: bool = False


USUAL = Thinking()


def parse_thinking(body: Json, model: Model, choice: str) -> Thinking:
    given = as_object(body.get("thinking"))
    if given is None:
        return Thinking(shown=not model.preserved)
    kind = given.get("type")
    if kind not in KINDS:
        raise invalid(f"thinking.type: Input should be one of {', '.join(KINDS)}")
    if kind == "enabled" and not model.sampling:
        raise invalid('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".')
    if kind == "adaptive" and model.prefill:
        raise invalid("adaptive thinking is not supported on this model")
    budget = as_int(given.get("budget_tokens"))
    if kind == "enabled":
        if budget is None or budget < LEAST_BUDGET:
            raise invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}")
        if (most := as_int(body.get("max_tokens"))) is not None and most <= budget:
            raise invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")
        if choice in ("any", "tool"):
            raise invalid("Thinking may not be enabled when tool_choice forces tool use.")
    return Thinking(kind, given.get("display", "omitted" if model.preserved else "summarized") == "summarized")


def digest(*parts: str | bytes) -> bytes:
    state = hashlib.blake2b(digest_size=_SIZE, key=b"simulated")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.digest()


class Chain:
    """Walks a conversation block by block, checks its signatures, and signs new blocks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._before = bytes(_SIZE)
        self._last = bytes(_SIZE)

    def add(self, label: str, text: str) -> None:
        self._before = digest(self._before, label, text)

    def sign(self, kind: str, text: str, tokens: int) -> str:
        links = digest(self._model.id) + self._before + self._last
        length = tokens.to_bytes(_LENGTH, "big")
        self._last = digest(kind, text, length, links)
        return base64.b64encode(length + links + self._last).decode()

    def check(self, block: Json, where: str) -> int:
        """Return the tokens of a returned block, 0 for another model's. An edit is an error."""
        kind = str(block["type"])
        text, signature = (
            str(block.get("thinking", "")),
            block.get("data" if kind == "redacted_thinking" else "signature"),
        )
        if not isinstance(signature, str):
            raise invalid(f"{where}.signature: Field required")
        try:
            data = base64.b64decode(signature, validate=True)
        except ValueError:
            data = b""
        length, links, own = data[:_LENGTH], data[_LENGTH:-_SIZE], data[-_SIZE:]
        if len(data) != _LENGTH + 4 * _SIZE or own != digest(kind, text, length, links):
            raise invalid(f"{where}: Invalid `signature` in `{kind}` block")
        model, before, last = (links[at : at + _SIZE] for at in range(0, 3 * _SIZE, _SIZE))
        if model != digest(self._model.id):
            return 0
        gap = any(self._last) and last != self._last
        if self._model.preserved and (before != self._before or gap):
            raise invalid(f"{where}: {_BOUND}")
        self._last = own
        return int.from_bytes(length, "big")


def check_start(messages: Sequence[Json], thinking: Thinking) -> None:
    """Refuse tool results after a turn without thinking if thinking is enabled explicitly."""
    if thinking.kind != "enabled":
        return
    if (blocks_of(messages[-1]["content"]) or [{"type": ""}])[0]["type"] != "tool_result":
        return
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    first = messages[turns[-1]]["content"][0]["type"]
    if first not in THINKING_BLOCKS:
        raise invalid(
            f"messages.{turns[-1]}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
        )


def block_of(text: str) -> Json:
    return as_object(json.loads(text)) or {}
