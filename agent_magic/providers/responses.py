"""Responses of any API: how long to wait, whether to retry, encodings, sizes, counts, ends; and failed connections."""

from __future__ import annotations

import base64
import functools
import json
import math
import os
import re
import ssl
from codecs import BOM_UTF8
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.values import sendable
from agent_magic.engine.pacing.limits import MOST
from agent_magic.errors import DeclarationError, Overloaded, RateLimited, Rejected, Truncated, Unreachable, Unreadable
from agent_magic.machine import in_browser
from agent_magic.record.answer import TOOL_USE
from agent_magic.record.secret_scan import masked
from agent_magic.record.secret_scan import secrets_of as secrets_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from httpx2 import Request, Response

    from agent_magic.declare.content import Attachment
    from agent_magic.errors import CallError


LONGEST_WAIT_S: Final = 366 * 86_400.0
"""A longer wait is a server's mistake."""
_WORTH_REPEATING = frozenset({408, 409, 425})
_LASTING = frozenset({501, 505, 506, 510, 511, 526})
"""Another try cannot help: a missing feature, a network that wants a login, an invalid certificate."""
TOO_MANY: Final = 429
NOT_OFFERED: Final = frozenset({404, 405, 501})
"""Statuses of a server without such an endpoint."""
UNPROCESSABLE: Final = frozenset({400, 422, 501})
"""Statuses of a server that does not know a field."""
EVENTS: Final = "text/event-stream"
PAGE: Final = "text/html"
SIMULATED_HEADER = "x-agent-magic-simulated"
compact_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def headers_of(response: Response) -> dict[str, str]:
    """Return headers by lower-case name: each look-up in the transport's own takes a microsecond."""
    return {_lowered(name): value.decode("latin-1") for name, value in response.headers.raw}


@functools.lru_cache(maxsize=256)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()


def is_worth_repeating(status: int, headers: Mapping[str, str]) -> bool:
    """The server's own header wins over its status, as in the SDK."""
    said = should_retry(headers)
    helps = status in _WORTH_REPEATING or (status >= 500 and status not in _LASTING)
    return said or (said is None and helps)


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
    """Parse `retry-after-ms`, or `retry-after` in seconds, as a date, or as a Unix time."""
    # A time is of the server's clock, which may be hours off, so it counts from the response's own `date`.
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return _wait_s(exact / 1000)
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    now_s = (_date(headers.get("date", "")) or datetime.now(UTC)).timestamp()
    if seconds is not None:
        return _wait_s(seconds - now_s if abs(seconds - now_s) < LONGEST_WAIT_S else seconds)
    then = _date(value)
    return None if then is None else _wait_s(then.timestamp() - now_s)


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


DRAIN_S: Final = 0.25
"""How long a complete response may take to end, so that its connection can be reused."""
ENDING_S: Final = 2.0
"""How long the last counts may take after the reason why the model stopped."""
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
    except (ValueError, httpx2.DecodingError, Unreadable, Truncated) as error:
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


MOST_TOKENS: Final = 10_000_000
"""Ten times the longest context: a larger number is no count."""


def count_of(said: Any, most: int = MOST_TOKENS) -> int | None:
    """Return a count of tokens; `None` if it is none. JSON knows no integers: 7.0 is 7."""
    if type(said) is float and said.is_integer():
        said = int(said)
    return said if type(said) is int and 0 <= said <= most else None


ENDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(["stop", "eos", "eos_token", "complete"], "end_turn"),
    **dict.fromkeys(["length", "model_length", "max_tokens"], "max_tokens"),
    **dict.fromkeys(["tool_calls", "tool_call", "function_call"], TOOL_USE),
    **dict.fromkeys(["content_filter", "sensitive", "safety", "recitation", "blocklist", "spii"], "refusal"),
    **dict.fromkeys(["prohibited_content", "error_toxic"], "refusal"),
}
"""Reasons for the end of an answer by the words of other vendors; further words are passed on unchanged.

Source: the pages of OpenAI, Mistral, Cohere, Google and Zhipu on their APIs.
"""
ABANDONED: Final = frozenset(
    {"error", "abort", "timeout", "network_error", "insufficient_system_resource", "malformed_function_call"}
)
"""Words in the place of a reason if the server failed in the middle of an answer.

Source: the pages of OpenRouter, vLLM, Cohere, Zhipu, DeepSeek and Google on their APIs.
"""


def end_of(said: object) -> str | None:
    """Return why an answer ended, or raise `Overloaded` if the server gave it up."""
    reason = word(said)
    if reason and reason.lower() in ABANDONED:
        raise Overloaded(f"The server abandoned the answer ({reason}).", status=500)
    return None if not reason else ENDS.get(reason.lower(), reason)


def with_own_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blocks in which each call has an id of its own: results go back by it.

    Some servers send a call again, whole or in part, under the id that it has. It is called once.
    """
    kept: list[dict[str, Any]] = []
    calls: dict[str, list[dict[str, Any]]] = {}
    free = (name for name in map("call_{}".format, count()) if all(one.get("id") != name for one in blocks))
    for one in blocks:
        if one.get("type") == TOOL_USE:
            given: Any = one.get("id")
            is_named = isinstance(given, str) and bool(given)
            alike = calls.setdefault(given, []) if is_named else []
            again = next((each for each in alike if _is_again(each, one)), None)
            if again is not None:
                again["input"] = again.get("input") or one.get("input")
                continue
            if alike or not is_named:
                one["id"] = next(free)
            alike.append(one)
        kept.append(one)
    return kept


def _is_again(one: dict[str, Any], other: dict[str, Any]) -> bool:
    given, asked = one.get("input"), other.get("input")
    return one.get("name") == other.get("name") and (given == asked or not given or not asked)


class Opening:
    """Keeps what a response sent before its first event: it may be a whole answer, an error, or a page."""

    def __init__(self) -> None:
        self._pieces: list[bytes] | None = []

    def over(self) -> None:
        self._pieces = None

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces or ())

    async def read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks up to the end of an answer in one piece: some servers never end the response."""
        async for chunk in bounded(chunks):
            if self._pieces is None:
                yield chunk
                continue
            self._pieces.append(chunk if self._pieces else chunk.removeprefix(BOM_UTF8))
            yield self._pieces[-1]
            if self._pieces and is_json(self.body):
                return


def in_base64(one: Attachment) -> str:
    """Raise `DeclarationError` if a recording left out its bytes."""
    if not one.data:
        hint = "Run the cell that reads it, and declare its agent again."
        raise DeclarationError(f"The bytes of {one.label} are not here.", hint=hint)
    return base64.b64encode(one.data).decode()


def rate_limited(
    message: str,
    headers: Mapping[str, str],
    limit: str | None,
    *,
    spent: str = "",
    never: str = "",
    said_s: float | None = None,
) -> RateLimited:
    """Return the error of a 429, with the wait in its headers or else in its message, `said_s`.

    `spent` names a quota that is used up, `never` the reason if no wait can help.
    """
    again, wait_s = should_retry(headers), retry_after_s(headers)
    final = again is None and bool(spent)
    hint = spent if final else never or "Lower --concurrency, or raise the limit"
    if again is False:
        hint = "The server says that this request should not be sent again (x-should-retry: false)"
    return RateLimited(
        f"{message} (429). {hint}.",
        retry_after_s=said_s if wait_s is None else wait_s,
        limit=limit,
        final=final,
        again=again is not False and not never,
    )


def not_answered(message: str, status: int, headers: Mapping[str, str], hint: str) -> Overloaded | Rejected:
    """Return the error of any other status, by whether to send the request again."""
    if is_worth_repeating(status, headers):
        return Overloaded(f"{message} ({status})", status=status, retry_after_s=retry_after_s(headers))
    return Rejected(f"{message} ({status}). {hint}".rstrip(), status=status)


def is_json(body: bytes) -> bool:
    if not (body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


EXCERPT = 200
SHORTEST_SECRET = 8
"""A shorter text, such as the `test` of a local server, is no secret: masking it would tear words apart."""
ENVIRONMENT_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""These could recolour or clear a terminal."""
_KEY = re.compile(r"sk-ant-[\w-]+|(?i:bearer)\s+\S+")


def excerpt(what: object, secrets: tuple[str, ...] = ()) -> str:
    text = hide(sendable(" ".join(_CONTROL.sub(" ", str(what)).split())), secrets)
    return (text[: EXCERPT - 1] + "…" if len(text) > EXCERPT else text).rstrip(".")


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Replace keys with `[key]`, and mask other probable secrets."""
    known = [os.environ.get(name, "") for name in ENVIRONMENT_KEYS]
    for secret in sorted({*secrets, *known}, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[key]")
    return masked(_KEY.sub("[key]", text), secrets_in(os.environ))


_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


def fields_of(value: object) -> dict[str, Any]:
    """Return a JSON object; empty if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def error_of_body(body: object) -> tuple[dict[str, Any], object]:
    """Return the fields of an error's body, and the error in it: `{"error": {...}}`, or a form of other servers."""
    several = cast("list[object]", body) if isinstance(body, list) else []
    first = several[0] if several else cast("object", body)
    outer = fields_of(first)
    return outer, outer.get("error") or outer.get("detail") or outer or first


def words_of(body: Any) -> str:
    """Return the message of an error: of `{"error": {"message": ...}}`, another form, a page, or plain text."""
    outer, found = error_of_body(body)
    inner = fields_of(found)
    said = cast("object", inner.get("message") or inner.get("error") or outer.get("message") or found)
    text = said if isinstance(said, str) else "" if not said else json.dumps(said, ensure_ascii=False, default=str)
    if text.lstrip()[:1] != "<":
        return text or "The server gave no reason"
    if text.lstrip()[:5] == "<?xml":
        return " ".join(_TAG.sub(" ", text).split())
    title = " ".join(found[1].split()) if (found := _TITLE.search(text)) else ""
    return f"a web page came in place of an answer: {title}" if title else "a web page came in place of an answer"


def word(said: object) -> str | None:
    """Sanitise a short API string such as `stop_reason`: one line, cut if too long."""
    if said is None or (isinstance(said, str) and len(said) < EXCERPT and said.isprintable()):
        return said
    return excerpt(said)


_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window|limit)|(?:prompt|input) is too long|exceed_context_size", re.IGNORECASE
)


@functools.cache
def of_aiohttp(*names: str) -> tuple[type[Exception], ...]:
    """Return the errors of aiohttp; none in a browser, which has no sockets for it."""
    if in_browser():
        return ()
    import aiohttp

    return tuple(getattr(aiohttp, name) for name in names)


def no_connection(
    error: Exception, request: Request, secrets: tuple[str, ...], *, check: str, is_late: bool
) -> Unreachable:
    """Name the address, the reason and things to check, without `secrets`."""
    links = list(_links(error))
    port = f":{request.url.port}" if request.url.port else ""
    where = excerpt(f"{request.url.host}{port}", secrets)
    why = "nobody answered" if is_late else root_of(error, secrets)
    if any(isinstance(link, of_aiohttp("ClientProxyConnectionError")) for link in links):
        why = f"the proxy cannot be reached: {why}"
    for link in links:
        if isinstance(link, of_aiohttp("ClientHttpProxyError")):
            why = f"the proxy says {getattr(link, 'status', '')} {why}"
    sent = was_sent(error)
    return Unreachable(f"No {'reply from' if sent else 'connection to'} {where}: {why}. {check}", sent=sent)


def _links(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def was_sent(error: BaseException) -> bool:
    """Return whether any part may have arrived."""
    # The SDK's transport also calls a connection that breaks while writing a `ConnectError`; aiohttp's error
    # beneath it is exact.
    import httpx2

    unsent = of_aiohttp("ClientConnectorError", "ConnectionTimeoutError", "ClientHttpProxyError")
    broken = of_aiohttp("ClientError")
    outer = inner = False
    for link in _links(error):
        if isinstance(link, unsent):
            return False
        inner = inner or isinstance(link, broken)
        outer = outer or isinstance(link, httpx2.ConnectError | httpx2.ConnectTimeout)
    return inner or not outer


def root_of(error: BaseException, secrets: tuple[str, ...]) -> str:
    *_, error = _links(error)
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        # the transport's own words repeat the address; numbers below 0 are those of a look-up of a name
        return os.strerror(error.errno) if error.errno > 0 else excerpt(error.strerror)
    said = getattr(error, "message", "")  # `str` of the transport's own begins with an invented status, 400
    if not isinstance(said, str):  # the headers of a reply without its body, which may hold anything
        return "the connection closed before the reply began"
    lines = str(said or error).strip().splitlines()  # behind the first are bytes of the reply
    return excerpt(lines[0].removesuffix(":") if lines else "", secrets) or type(error).__name__


def unreadable(error: Exception, secrets: tuple[str, ...]) -> CallError:
    if isinstance(error, UnicodeDecodeError) and error.reason == "unexpected end of data":
        return Truncated("The stream ended before the answer did (in the middle of a letter).")
    return Unreadable(f"The response cannot be read: {excerpt(error, secrets)}.")


def says_too_long(said: str) -> bool:
    return _TOO_LONG.search(said) is not None and "rate" not in said.lower().split()


def raised_by_transport() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError, *of_aiohttp("ClientError"), OSError, ValueError, RecursionError)


def broken(error: Exception, secrets: tuple[str, ...]) -> CallError:
    import httpx2

    match error:
        case httpx2.TimeoutException() | TimeoutError():
            return Unreachable("The connection went silent.")
        case httpx2.DecodingError() | ValueError() | RecursionError():
            return unreadable(error, secrets)
        case _:
            return Unreachable(f"The connection broke: {root_of(error, secrets)}.")
