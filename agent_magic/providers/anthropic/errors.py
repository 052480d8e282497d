"""Classifies every way a call can fail, the silent ones too.

The SDK wraps some failures, passes others through raw, and reports some not at all. Measured with anthropic 2.11.0: a
reset inside a stream is a raw transport error, broken JSON a `JSONDecodeError`, an `error` event after a 200 an
`APIStatusError` with status 200, and a stream that ends early raises nothing.

A server is not trusted with its words: messages are cut, lose their control characters, and never show a key or the
value of a header that the user has added.
"""

from __future__ import annotations

import functools
import os
import re
import ssl
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.serialization import sendable
from agent_magic.errors import CallError, Overloaded, RateLimited, Rejected, Unreachable, Unreadable
from agent_magic.machine import in_browser
from agent_magic.providers.anthropic.limits import empty_limit, named_limit, read_headers, retry_after_s, with_sentence
from agent_magic.record.secret_scan import masked
from agent_magic.record.secret_scan import secrets_of as secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
EXTRAS = "Install its extra for this cloud, such as anthropic[bedrock]."
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
TOO_MANY = 429
WORTH_REPEATING = frozenset({408, 409, 425})
EXCERPT = 200
SHORTEST_SECRET = 8
"""A shorter text, such as the `test` of a local server, is no secret and would tear words apart."""
ENVIRONMENT_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
CREDENTIALS = ("api_key", "auth_token", "access_token", "aws_secret_key", "aws_session_token")
"""Where the clients of the SDK, each for its cloud, keep what no message may show."""
OPEN_HEADERS = re.compile(r"x-stainless-.*|accept|content-type|user-agent|anthropic-(version|beta)", re.IGNORECASE)
"""Headers whose values are no secrets. All others are the user's own."""
SIMULATED_HEADER = "x-agent-magic-simulated"
"""A mock server says so in this header."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What would recolour or clear a terminal."""
_KEY = re.compile(r"sk-ant-[\w-]+|(?i:bearer)\s+\S+")


class AsCallErrors:
    """Turns whatever the SDK or its transport raises inside into one of our `CallError`s.

    Args:
        stream: What had arrived goes into the error's `partial`.
        sdk: The client that was used. No message shows its credentials or the values of its own headers.
    """

    __slots__ = ("_sdk", "_stream")

    def __init__(self, stream: Stream | None, sdk: object) -> None:
        self._stream, self._sdk = stream, sdk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        stream, secrets = self._stream, secrets_of(self._sdk)
        if isinstance(error, CallError):
            error.partial = error.partial or (stream.text if stream else "")
            error.args = (hide(str(error), secrets),)
        elif isinstance(error, raised_by_sdk()):
            response = getattr(error, "response", None)
            if stream is not None and response is not None:
                note_response(stream, response, _message(getattr(error, "body", None)))
            found = classify(error, secrets)
            found.partial = stream.text if stream else ""
            raise found from None


def secrets_of(sdk: object) -> tuple[str, ...]:
    """Return the texts that no message may show: credentials of a client, and the values of headers added to it."""
    found = [getattr(sdk, name, None) for name in CREDENTIALS]
    headers: Mapping[str, object] = getattr(sdk, "default_headers", {})
    found += [value for name, value in headers.items() if not OPEN_HEADERS.fullmatch(name)]
    return tuple(one for one in found if isinstance(one, str))


def note_response(stream: Stream, response: Response, refusal: str = "") -> dict[str, str]:
    """Record the status of a response and what it says of rate limits.

    Returns:
        The headers by lower-case name: the transport's own take a microsecond a look.
    """
    headers = {_lowered(name): value.decode("latin-1") for name, value in response.headers.raw}
    readings = read_headers(headers)
    if response.status_code == TOO_MANY:
        readings = with_sentence(readings, refusal)
    stream.replied(response.status_code, readings, simulated=SIMULATED_HEADER in headers)
    return headers


@functools.lru_cache(maxsize=256)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()


@functools.lru_cache(maxsize=1)
def raised_by_sdk() -> tuple[type[Exception], ...]:
    """Return every kind of error that a failing call can raise out of the SDK."""
    import anthropic
    import httpx2

    return (
        anthropic.AnthropicError,
        httpx2.HTTPError,
        httpx2.StreamError,
        *_of_aiohttp("ClientError"),
        OSError,
        ValueError,
        RecursionError,  # JSON that is nested too deeply
        ImportError,  # an extra of the SDK that a cloud needs
    )


@functools.cache
def _of_aiohttp(*names: str) -> tuple[type[Exception], ...]:
    """Return classes of errors of aiohttp, the usual transport; none in a browser, which has no sockets for it."""
    if in_browser():
        return ()
    import aiohttp

    return tuple(getattr(aiohttp, name) for name in names)


def classify(error: Exception, secrets: tuple[str, ...] = ()) -> CallError:
    """Say what kind of failure this is.

    Args:
        error: One of the kinds in `raised_by_sdk`.
        secrets: Texts that no message may show.
    """
    import anthropic
    import httpx2

    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, secrets)
    match error:
        case anthropic.APIResponseValidationError():
            return Unreadable("The response is not the API's.")
        case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            if isinstance(error, anthropic.APIConnectionError) and not _was_sent(error):
                return _no_connection(error, secrets)
            return Unreachable("The connection went silent.", sent=_was_sent(error))
        case anthropic.APIConnectionError():
            return _no_connection(error, secrets)
        case httpx2.DecodingError() | ValueError() | RecursionError():
            return Unreadable(f"The response cannot be read: {excerpt(error, secrets)}.")
        case ImportError() | anthropic.AnthropicError():
            hint = EXTRAS if isinstance(error, ImportError) else ""
            return Rejected(f"The SDK cannot send this: {excerpt(error, secrets)}. {hint}".strip(), status=None)
        case _:
            return Unreachable(f"The connection broke: {_root(error, secrets)}.")


def excerpt(what: object, secrets: tuple[str, ...] = ()) -> str:
    """Write the beginning of a text on one line, without keys."""
    text = hide(sendable(" ".join(_CONTROL.sub(" ", str(what)).split())), secrets)
    return (text[: EXCERPT - 1] + "…" if len(text) > EXCERPT else text).rstrip(".")


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Put `[key]` where a key stands: one of these, or of the environment. What else looks like a secret is masked."""
    known = [os.environ.get(name, "") for name in ENVIRONMENT_KEYS]
    for secret in sorted({*secrets, *known}, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[key]")
    return masked(_KEY.sub("[key]", text), secrets_in(os.environ))


def word(said: object) -> str | None:
    """Read a word of the API's, such as a `stop_reason`: on one line and short, whatever a server sends."""
    if said is None or (isinstance(said, str) and len(said) < EXCERPT and said.isprintable()):
        return said
    return excerpt(said)


def _of_status(error: APIStatusError, secrets: tuple[str, ...]) -> CallError:
    kind = str(getattr(error, "type", None) or "")
    status = error.status_code
    if 300 <= status < 400:
        return Rejected(f"The server redirects the request ({status}). {REDIRECTED}", status=status)
    if status < 400:  # an `error` event inside a stream keeps the 200 it came after
        status = STATUS_OF_TYPE.get(kind, 500)
    headers = error.response.headers
    message = excerpt(_message(error.body), secrets)
    if status == TOO_MANY:
        final = getattr(error, "error_code", None) in SPEND_LIMITS
        hint = "The spend limit of the account is reached" if final else "Lower --concurrency, or raise the limit"
        return RateLimited(
            f"{message} (429). {hint}.",
            retry_after_s=retry_after_s(headers),
            limit=_limit_of(error, headers),
            final=final,
        )
    if is_worth_repeating(status, headers):
        return Overloaded(f"{message} ({status})", status=status, retry_after_s=retry_after_s(headers))
    return Rejected(f"{message} ({status}).{HINTS.get(status, '')}", status=status)


def is_worth_repeating(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether another try may help: the server's own word counts more than its status, as in the SDK."""
    said = headers.get("x-should-retry")
    return said == "true" or (said != "false" and (status >= 500 or status in WORTH_REPEATING))


def _limit_of(error: APIStatusError, headers: Mapping[str, str]) -> str | None:
    """Name the limit of a 429. `ramp` is the one on a sharp rise."""
    if getattr(error, "error_code", None) == "ramp_limit_exceeded":
        return "ramp"
    return named_limit(_message(error.body)) or empty_limit(headers)


def _message(body: Any) -> str:
    """Return the API's own sentence out of the body of an error, or else whatever there is."""
    inner: Any = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    message: Any = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else None
    text = str(message or cast("object", body) or "The server gave no reason")
    return "a web page came in place of an answer" if text.lstrip()[:1] == "<" else text


def _no_connection(error: APIConnectionError, secrets: tuple[str, ...]) -> Unreachable:
    """Say to whom there is no connection, why, and what to look at."""
    import anthropic

    links = list(_links(error))
    port = f":{error.request.url.port}" if error.request.url.port else ""
    where = excerpt(f"{error.request.url.host}{port}", secrets)
    why = "nobody answered" if isinstance(error, anthropic.APITimeoutError) else _root(error, secrets)
    if any(isinstance(link, _of_aiohttp("ClientProxyConnectionError")) for link in links):
        why = f"the proxy cannot be reached: {why}"
    for link in links:
        if isinstance(link, _of_aiohttp("ClientHttpProxyError")):
            why = f"the proxy says {getattr(link, 'status', '')} {why}"
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
    import httpx2

    unsent = _of_aiohttp("ClientConnectorError", "ConnectionTimeoutError", "ClientHttpProxyError")
    broken = _of_aiohttp("ClientError")
    outer = inner = False
    for link in _links(error):
        if isinstance(link, unsent):
            return False
        inner = inner or isinstance(link, broken)
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
