"""Responses of any API: how long to wait, whether to retry, encodings, sizes, and complete JSON."""

from __future__ import annotations

import functools
import json
import math
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from agent_magic.engine.pacing.limits import MOST
from agent_magic.errors import DeclarationError, Unreadable
from agent_magic.machine import in_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Mapping

    from httpx2 import Response

LONGEST_WAIT_S: Final = 366 * 86_400.0
"""A longer wait is a server's mistake."""
_WORTH_REPEATING = frozenset({408, 409, 425})
SIMULATED_HEADER = "x-agent-magic-simulated"


def headers_of(response: Response) -> dict[str, str]:
    """Return headers by lower-case name: each look-up in the transport's own takes a microsecond."""
    return {_lowered(name): value.decode("latin-1") for name, value in response.headers.raw}


@functools.lru_cache(maxsize=256)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()


def is_worth_repeating(status: int, headers: Mapping[str, str]) -> bool:
    """The server's own header wins over its status, as in the SDK."""
    said = should_retry(headers)
    return said or (said is None and (status >= 500 or status in _WORTH_REPEATING))


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Parse `x-should-retry`, the server's advice on retries."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def number_of(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= MOST else None  # not a number is in no range


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Parse `retry-after-ms`, or `retry-after` in seconds or as a date."""
    # A date is of the server's clock, which may be hours off, so it counts from the response's own `date`.
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return _wait_s(exact / 1000)
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    if seconds is not None:
        return _wait_s(seconds)
    then = _date(value)
    if then is None:
        return None
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    return _wait_s((then - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _wait_s(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_WAIT_S)


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
