"""One classifier over all the ways a call can fail, the silent ones too.

The SDK wraps some failures, passes others through raw, and reports some not at all. The table it was written from was
measured with anthropic 2.11.0: a reset inside a stream is a raw transport error, broken JSON a `JSONDecodeError`, an
`error` event after a 200 an `APIStatusError` with status 200, and a stream that ends early raises nothing.
"""

from __future__ import annotations

import functools
import math
import os
import re
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.template import sendable
from agent_magic.errors import CallError, Overloaded, RateLimited, Rejected, Unreachable, Unreadable
from agent_magic.providers.anthropic.limits import empty_limit, read_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from anthropic import APIConnectionError, APIStatusError
    from httpx2 import Response

    from agent_magic.providers.base import Stream

HINTS = {
    401: " Check ANTHROPIC_API_KEY.",
    402: " Look at the account's billing.",
    403: " This key may not do that: try another model, or ask the owner of the workspace.",
    404: " Check the model's name, and ANTHROPIC_BASE_URL if you set it.",
    413: " The prompt is too long for the API.",
}
"""What to do about a request that the API refuses."""
REDIRECTED = "The API never does, so the key was kept from it: check ANTHROPIC_BASE_URL, and the proxy if there is one."
CHECK = "Check the network, the proxy if there is one, and base_url (ANTHROPIC_BASE_URL)."
SPEND_LIMITS = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})
STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status an error would have had, for errors that come inside a stream after a 200."""
WORTH_REPEATING = frozenset({408, 409, 425})
EXCERPT = 200
SHORTEST_KEY = 8
"""A shorter text, such as the `test` of a local server, is no secret and would tear words apart."""
SIMULATED_HEADER = "x-agent-magic-simulated"
"""A server that makes its answers up says so in this header."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What would recolour or clear a terminal."""
LONGEST_WAIT_S = 366 * 86_400.0
"""No server means a longer one, and a message has to be read."""
_KEY = re.compile(r"sk-ant-[\w-]+|(?i:bearer)\s+\S+")


class AsCallErrors:
    """Turn whatever the SDK or its transport raises inside into one of our `CallError`s.

    Args:
        stream: What had arrived goes into the error's `partial`.
        secrets: Texts that no message may show, should a server send them back.
    """

    __slots__ = ("_secrets", "_stream")

    def __init__(self, stream: Stream | None, *, secrets: Iterable[str | None] = ()) -> None:
        self._stream, self._secrets = stream, secrets

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        stream, secrets = self._stream, tuple(secret for secret in self._secrets if secret)
        if isinstance(error, CallError):
            error.partial = error.partial or (stream.text if stream else "")
            error.args = (hide(str(error), secrets),)
        elif isinstance(error, raised_by_sdk()):
            response = getattr(error, "response", None)
            if stream is not None and response is not None:
                note_response(stream, response)
            found = classify(error, secrets)
            found.partial = stream.text if stream else ""
            raise found from None


def note_response(stream: Stream, response: Response) -> dict[str, str]:
    """Note a reply's status and rate limits. Return its headers: the transport's own take a microsecond a look."""
    headers = {_lowered(name): value.decode("latin-1") for name, value in response.headers.raw}
    stream.simulated = SIMULATED_HEADER in headers
    stream.replied(response.status_code, read_headers(headers))
    return headers


@functools.lru_cache(maxsize=256)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()


@functools.lru_cache(maxsize=1)
def raised_by_sdk() -> tuple[type[Exception], ...]:
    """Return every kind of error that a failing call can raise out of the SDK."""
    import aiohttp
    import anthropic
    import httpx2

    return (
        anthropic.AnthropicError,
        httpx2.HTTPError,
        httpx2.StreamError,
        aiohttp.ClientError,
        OSError,
        ValueError,
        RecursionError,  # JSON that is nested too deeply
    )


def classify(error: Exception, secrets: tuple[str, ...] = ()) -> CallError:
    """Say what kind of failure this is.

    Args:
        error: One of the kinds in `raised_by_sdk`.
        secrets: Texts that no message may show.
    """
    import anthropic
    import httpx2

    match error:
        case anthropic.APIStatusError():
            return _of_status(error, secrets)
        case anthropic.APIResponseValidationError():
            return Unreadable("The reply is not the API's.")
        case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            if isinstance(error, anthropic.APIConnectionError) and not _was_sent(error):
                return _no_connection(error, secrets)
            return Unreachable("The connection went silent.", sent=_was_sent(error))
        case anthropic.APIConnectionError():
            return _no_connection(error, secrets)
        case httpx2.DecodingError() | ValueError() | RecursionError():
            return Unreadable(f"The reply cannot be read: {excerpt(error, secrets)}.")
        case _:
            return Unreachable(f"The connection broke: {_root(error, secrets)}.")


def excerpt(what: object, secrets: tuple[str, ...] = ()) -> str:
    """Write the beginning of a text on one line, without keys."""
    text = hide(sendable(" ".join(_CONTROL.sub(" ", str(what)).split())), secrets)
    return (text[: EXCERPT - 1] + "…" if len(text) > EXCERPT else text).rstrip(".")


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Put `[key]` where a key stands: one of these, one of the environment's, or what looks like one."""
    known = [os.environ.get(name, "") for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")]
    for secret in (*secrets, *known):
        if len(secret) >= SHORTEST_KEY:
            text = text.replace(secret, "[key]")
    return _KEY.sub("[key]", text)


def _of_status(error: APIStatusError, secrets: tuple[str, ...]) -> CallError:
    kind = str(getattr(error, "type", None) or "")
    status = error.status_code
    if 300 <= status < 400:
        return Rejected(f"The server wants to send the request elsewhere ({status}). {REDIRECTED}", status=status)
    if status < 400:  # an `error` event inside a stream keeps the 200 it came after
        status = STATUS_OF_TYPE.get(kind, 500)
    headers = error.response.headers
    message = excerpt(_message(error), secrets)
    if status == 429:
        final = getattr(error, "error_code", None) in SPEND_LIMITS
        hint = "The spend limit of the account is reached" if final else "Lower --concurrency, or raise the limit"
        return RateLimited(
            f"{message} (429). {hint}.",
            retry_after_s=retry_after_s(headers),
            limit=_limit_of(error, headers),
            final=final,
        )
    if _is_worth_repeating(status, headers):
        return Overloaded(f"{message} ({status})", status=status, retry_after_s=retry_after_s(headers))
    return Rejected(f"{message} ({status}).{HINTS.get(status, '')}", status=status)


def _is_worth_repeating(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether another try may help: the server's own word counts more than its status, as in the SDK."""
    said = headers.get("x-should-retry")
    return said == "true" or (said != "false" and (status >= 500 or status in WORTH_REPEATING))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `retry-after-ms`, or `retry-after` in seconds or as a date; `None` where neither makes sense."""
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return _wait_s(exact / 1000)
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    if seconds is not None:
        return _wait_s(seconds)
    try:
        then = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return _wait_s((then - datetime.now(UTC)).total_seconds()) if then.tzinfo else None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _wait_s(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_WAIT_S)


def _limit_of(error: APIStatusError, headers: Mapping[str, str]) -> str | None:
    """Name the limit of a 429. `ramp` is the one on a sharp rise."""
    if getattr(error, "error_code", None) == "ramp_limit_exceeded":
        return "ramp"
    return empty_limit(headers)


def _message(error: APIStatusError) -> str:
    """Take the API's own sentence out of the body, or else whatever there is."""
    body: Any = error.body
    inner: Any = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    message: Any = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else None
    text = str(message or cast("object", body) or "The server gave no reason")
    return "a web page came in place of an answer" if text.lstrip()[:1] == "<" else text


def _no_connection(error: APIConnectionError, secrets: tuple[str, ...]) -> Unreachable:
    """Say to whom there is no connection, why, and what to look at."""
    import aiohttp
    import anthropic

    links = list(_links(error))
    port = f":{error.request.url.port}" if error.request.url.port else ""
    where = excerpt(f"{error.request.url.host}{port}", secrets)
    why = "nobody answered" if isinstance(error, anthropic.APITimeoutError) else _root(error, secrets)
    if any(isinstance(link, aiohttp.ClientProxyConnectionError) for link in links):
        why = f"the proxy cannot be reached: {why}"
    for link in links:
        if isinstance(link, aiohttp.ClientHttpProxyError):
            why = f"the proxy says {link.status} {why}"
    sent = _was_sent(error)
    return Unreachable(f"No {'reply from' if sent else 'connection to'} {where}: {why}. {CHECK}", sent=sent)


def _links(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, the root last."""
    while error is not None:
        yield error
        error = error.__cause__


def _was_sent(error: BaseException) -> bool:
    """Tell whether anything of a request can have arrived: not where no connection was made, nor a proxy made one.

    The SDK's transport calls a connection that breaks while it is written to a `ConnectError`, too; what aiohttp says
    beneath it is exact.
    """
    import aiohttp
    import httpx2

    outer = inner = False
    for link in _links(error):
        if isinstance(
            link, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
        ):
            return False
        inner = inner or isinstance(link, aiohttp.ClientError)
        outer = outer or isinstance(link, httpx2.ConnectError | httpx2.ConnectTimeout)
    return inner or not outer


def _root(error: BaseException, secrets: tuple[str, ...]) -> str:
    """Say what began an error."""
    *_, error = _links(error)
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        # the transport's own words repeat the address; numbers below 0 are those of a look-up of a name
        return os.strerror(error.errno) if error.errno > 0 else excerpt(error.strerror)
    # `str` of the transport's own begins with a status that nobody has sent, 400
    return excerpt(getattr(error, "message", None) or error, secrets) or type(error).__name__
