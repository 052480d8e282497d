"""Bodies of requests and responses of any API: pass-through options, encodings, sizes, and complete JSON."""

from __future__ import annotations

import functools
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from agent_magic.errors import DeclarationError, Unreadable
from agent_magic.machine import in_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Mapping

MOST_BYTES: Final = 1 << 27
"""128,000 tokens take 50 MB, if each is a chunk."""


async def bounded(chunks: AsyncIterator[bytes], most: int = MOST_BYTES) -> AsyncIterator[bytes]:
    """Raise `Unreadable` beyond `most` decompressed bytes: a few may unpack to any number."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise Unreadable(f"The response is longer than {most >> 20} MB, as no answer is.", final=True)
        yield chunk


@contextmanager
def naming_encoding(headers: Mapping[str, str]) -> Generator[None]:
    """Raise `Unreadable` with the name of the encoding of a body that cannot be read because of it."""
    import httpx2

    try:
        yield
    except (ValueError, httpx2.DecodingError, Unreadable) as error:
        named = headers.get("content-encoding", "").lower()
        is_wrong = isinstance(error, httpx2.DecodingError)
        if in_browser() or not (
            is_wrong or not _decodable().issuperset(filter(None, map(str.strip, named.split(","))))
        ):
            raise
        why = "and cannot be decoded" if is_wrong else "which was not asked for and cannot be decoded"
        message = f"The response has the content-encoding {named[:40]!r}, {why}."
        hint = "Check the proxy or gateway: every answer would be paid and lost."
        raise Unreadable(f"{message} {hint}", final=True) from None


@functools.cache
def _decodable() -> frozenset[str]:
    """Return the encodings that the transport asks for, and can decode."""
    import httpx2

    accepts = httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport()).headers.get("accept-encoding", "")
    return frozenset({"identity", *map(str.strip, accepts.split(","))})


def with_options(found: dict[str, Any], options: dict[str, Any], called: Mapping[str, str]) -> dict[str, Any]:
    """Add pass-through options, by the API's names; raise if a field of `extra` belongs to another option."""
    extra = options.pop("extra", {})
    found |= {called.get(name, name): value for name, value in options.items()}
    for name in extra:
        if name in found:
            message = f"extra has {name!r}, and the request has that field by another option."
            raise DeclarationError(message, hint="Take it out of extra.")
    return found | extra


def is_json(body: bytes) -> bool:
    if not (body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


async def read_json(chunks: AsyncIterator[bytes]) -> bytes:
    """Return a body up to the end of its JSON object: some servers never end the response."""
    body = b""
    async for chunk in bounded(chunks):
        body += chunk
        if is_json(body):
            break
    return body
