"""Answers out of the raw pages of a damaged SQLite file, whatever is left of the rest.

Every page that looks like a leaf of a table is read by itself, in the file and in its write-ahead log; a row whose
checksum is right is an answer. Source: https://www.sqlite.org/fileformat2.html, 1.5 to 2.1 and 4.1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from agent_magic.record.ledger.schema import MARK, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_magic.record.ledger.file import Row

LEAF = 0x0D
LOG_HEADER, FRAME_HEADER = 32, 24
PAGE_SIZES = frozenset({512, 1024, 2048, 4096, 8192, 16384, 32768, 65536})
USUAL_SIZE = 4096
INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
CONSTANTS = {0: None, 8: 0, 9: 1}


def answers_in(path: Path) -> list[Row]:
    """Return what look like rows of `answers`. Who reads them checks their sums.

    Args:
        path: The file; its log stands beside it under its name and `-wal`.
    """
    data = path.read_bytes()
    size = struct.unpack(">H", data[16:18])[0] if len(data) >= 18 else 0
    size = 65536 if size == 1 else size
    if size not in PAGE_SIZES:
        size = USUAL_SIZE
    pages = {number + 1: data[number * size : (number + 1) * size] for number in range(len(data) // size)}
    log = path.with_name(f"{path.name}-wal")
    later = list(_logged(log.read_bytes(), size)) if log.exists() else []
    newest = {**pages, **dict(later)}
    found: list[Row] = []
    for number, page in [*pages.items(), *later]:
        found += _rows(page, 100 if number == 1 else 0, newest, size)
    return found


def _logged(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pages in a write-ahead log."""
    at = LOG_HEADER
    while at + FRAME_HEADER + size <= len(data):
        yield struct.unpack(">I", data[at : at + 4])[0], data[at + FRAME_HEADER : at + FRAME_HEADER + size]
        at += FRAME_HEADER + size


def _rows(page: bytes, start: int, pages: dict[int, bytes], size: int) -> Iterator[Row]:
    """Yield the rows of a leaf that carry the mark."""
    if len(page) < size or page[start] != LEAF:
        return
    cells = struct.unpack(">H", page[start + 3 : start + 5])[0]
    for place in range(min(cells, size // 4)):
        at = start + 8 + 2 * place
        try:
            row = _row(page, struct.unpack(">H", page[at : at + 2])[0], pages, size)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError):
            continue
        if row is not None:
            yield row


def _row(page: bytes, at: int, pages: dict[int, bytes], size: int) -> Row | None:
    """Read a cell: its row, or `None` where it is none of `answers`."""
    length, at = _varint(page, at)
    rowid, at = _varint(page, at)
    payload = _payload(page, at, length, pages, size)
    head, place = _varint(payload, 0)
    types: list[int] = []
    while place < head:
        kind, place = _varint(payload, place)
        types.append(kind)
    if len(types) != SCHEMA["answers"] or payload[head : head + len(MARK)] != MARK.encode():
        return None
    values: list[Any] = []
    for kind in types:
        value, place = _value(payload, place, kind)
        values.append(value)
    return (rowid, *values[1:])


def _payload(page: bytes, at: int, length: int, pages: dict[int, bytes], size: int) -> bytes:
    """Put the parts of a row together: what is in its cell, and what overflowed."""
    most = size - 35
    if length <= most:
        return page[at : at + length]
    least = (size - 12) * 32 // 255 - 23
    here = least + (length - least) % (size - 4)
    here = here if here <= most else least
    parts, left = [page[at : at + here]], length - here
    following = struct.unpack(">I", page[at + here : at + here + 4])[0]
    while left > 0:
        more = pages.get(following, b"")
        if not more:
            raise ValueError("an overflow page is missing")
        parts.append(more[4 : 4 + min(left, size - 4)])
        left -= size - 4
        following = struct.unpack(">I", more[:4])[0]
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(9):
        byte = data[at + step]
        if step == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + step + 1
    raise ValueError("no number")


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in CONSTANTS:
        return CONSTANTS[kind], at
    if kind in INTEGER_BYTES:
        end = at + INTEGER_BYTES[kind]
        return int.from_bytes(data[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack(">d", data[at : at + 8])[0], at + 8
    if kind < 12:
        raise ValueError("a kind of value that no file has")
    end = at + (kind - 12) // 2
    if end > len(data):
        raise ValueError("cut short")
    return (data[at:end].decode() if kind % 2 else data[at:end]), end
