"""Pictures and documents of a request: validation and token counts.

Pictures are measured by their file headers. PDF pages are counted in the bytes. Source: the vendor's pages on vision
and on PDF support.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from collections.abc import Iterable

from agent_magic.simulator.api import ApiError, Json, as_list, as_object, count_tokens, invalid
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
