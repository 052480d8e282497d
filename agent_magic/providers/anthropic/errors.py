"""Classifies every way a call can fail, the silent ones too, and reads rate limits.

Measured with anthropic 2.11.0: a reset inside a stream is a raw transport error, broken JSON a `JSONDecodeError`, an
`error` event after a 200 an `APIStatusError` with status 200, and a stream that ends early raises nothing. Source of
limits: the vendor's page on rate limits.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import Reading
from agent_magic.errors import CallError, Rejected, Unreachable, Unreadable
from agent_magic.providers.responses import (
    SIMULATED_HEADER,
    TOO_MANY,
    broken,
    excerpt,
    headers_of,
    hide,
    no_connection,
    not_answered,
    number_of,
    raised_by_transport,
    rate_limited,
    says_too_long,
    was_sent,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anthropic import APIConnectionError, APIStatusError
    from httpx2 import Response

    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.providers.base import Stream

HINTS = {
    401: "Check ANTHROPIC_API_KEY.",
    402: "Look at the account's billing.",
    403: "This key may not do that: try another model, or ask the owner of the workspace.",
    404: "Check the model's name, and ANTHROPIC_BASE_URL if you set it.",
    413: "The prompt is too long for the API.",
    501: "Check base_url (ANTHROPIC_BASE_URL).",
    511: "The network wants a login: open any page in a browser.",
}
SHORTER = "Send a shorter prompt, lower --max-tokens, or take a model with a longer context."
REDIRECTED = (
    "The real API never does, so the key was not sent there: check ANTHROPIC_BASE_URL, and the proxy if there is one."
)
EXTRAS = "Install its extra for this cloud, such as anthropic[bedrock]."
CHECK = "Check the network, the proxy if there is one, and base_url (ANTHROPIC_BASE_URL)."
SPEND_LIMITS = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})
NOT_INCLUDED = "credits_required"
"""A 429 of a plan that does not include the model: waiting does not help."""
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
"""For errors that come inside a stream after a 200."""
CREDENTIALS = ("api_key", "auth_token", "access_token", "aws_secret_key", "aws_session_token")
"""Attributes of the SDK's clients that no message may show."""
OPEN_HEADERS = re.compile(r"x-stainless-.*|accept|content-type|user-agent|anthropic-(version|beta)", re.IGNORECASE)
"""Without secrets. All others are the user's own."""


class AsCallErrors:
    """Turns errors of the SDK or its transport into `CallError`s; received text becomes `partial`."""

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
                note_response(stream, response, words_of(getattr(error, "body", None)))
            found = classify(error, secrets)
            found.partial = stream.text if stream else ""
            raise found from None


def secrets_of(sdk: object) -> tuple[str, ...]:
    """Return a client's credentials, and the values of its added headers."""
    found = [getattr(sdk, name, None) for name in CREDENTIALS]
    headers: Mapping[str, object] = getattr(sdk, "default_headers", {})
    found += [value for name, value in headers.items() if not OPEN_HEADERS.fullmatch(name)]
    return tuple(one for one in found if isinstance(one, str))


def note_response(stream: Stream, response: Response, refusal: str = "") -> dict[str, str]:
    """Record the status and rate limits of a response; return its headers by lower-case name."""
    # Each look-up in the transport's headers takes a microsecond.
    headers = headers_of(response)
    readings = read_headers(headers)
    if response.status_code == TOO_MANY:
        readings = with_sentence(readings, refusal)
    stream.replied(response.status_code, readings, simulated=SIMULATED_HEADER in headers)
    return headers


@functools.lru_cache(maxsize=1)
def raised_by_sdk() -> tuple[type[Exception], ...]:
    import anthropic

    return (anthropic.AnthropicError, *raised_by_transport(), ImportError)  # an extra of the SDK that a cloud needs


def classify(error: Exception, secrets: tuple[str, ...] = ()) -> CallError:
    """Classify a failure of a kind in `raised_by_sdk`; no message shows `secrets`."""
    import anthropic
    import httpx2

    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, secrets)
    match error:
        case anthropic.APIResponseValidationError():
            return Unreadable("The response is not the API's.")
        case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            if isinstance(error, anthropic.APIConnectionError) and not was_sent(error):
                return _no_connection(error, secrets)
            return Unreachable("The connection went silent.", sent=was_sent(error))
        case anthropic.APIConnectionError():
            return _no_connection(error, secrets)
        case ImportError() | anthropic.AnthropicError():
            hint = EXTRAS if isinstance(error, ImportError) else ""
            return Rejected(f"The SDK cannot send this: {excerpt(error, secrets)}. {hint}".strip(), status=None)
        case _:
            return broken(error, secrets)


def _of_status(error: APIStatusError, secrets: tuple[str, ...]) -> CallError:
    kind = str(getattr(error, "type", None) or "")
    status = error.status_code
    if 300 <= status < 400:
        return Rejected(f"The server redirects the request ({status}). {REDIRECTED}", status=status)
    if status < 400:  # an `error` event inside a stream keeps the 200 it came after
        status = STATUS_OF_TYPE.get(kind, 500)
    headers = error.response.headers
    message = excerpt(words_of(error.body), secrets)
    if status == TOO_MANY:
        code, limit = getattr(error, "error_code", None), _limit_of(error, headers)
        spent = "The spend limit of the account is reached" if code in SPEND_LIMITS else ""
        never = "Try another model, or look at the account's billing" if code == NOT_INCLUDED else ""
        return rate_limited(message, headers, limit, spent=spent, never=never)
    if status != 413 and says_too_long(words_of(error.body)):
        # A proxy may report it as a 500, which would be sent again in vain.
        return Rejected(f"{message} ({status}). {SHORTER}", status=status)
    return not_answered(message, status, headers, HINTS.get(status, ""))


def _limit_of(error: APIStatusError, headers: Mapping[str, str]) -> str | None:
    """Return the limit named by a 429. `ramp` limits a sharp rise."""
    if getattr(error, "error_code", None) == "ramp_limit_exceeded":
        return "ramp"
    return named_limit(words_of(error.body)) or empty_limit(headers)


def _no_connection(error: APIConnectionError, secrets: tuple[str, ...]) -> Unreachable:
    import anthropic

    is_late = isinstance(error, anthropic.APITimeoutError)
    return no_connection(error, error.request, secrets, check=CHECK, is_late=is_late)


PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final[list[tuple[Dimension, str, str]]] = [
    (kind, f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining") for kind, name in HEADER_OF.items()
]
_KIND_OF: Final[dict[str, Dimension]] = {name.replace("-", " "): kind for kind, name in HEADER_OF.items()}
_WORDS: Final = "|".join(_KIND_OF)
_SENTENCE = re.compile(
    rf"(?P<number>[\d,]+) (?P<per>{_WORDS}) per minute|number of (?P<over>{_WORDS}) has exceeded",
    re.IGNORECASE,
)
"""Such as `This request would exceed your organization's rate limit of 30,000 input tokens per minute`."""


def named_limit(sentence: str) -> Dimension | None:
    found = _SENTENCE.search(sentence)
    if found is None:
        return None
    return _KIND_OF[(found["per"] or found["over"]).lower()]


def with_sentence(readings: Readings, sentence: str) -> Readings:
    """Add the limit in the message of a 429, if the headers do not have it."""
    found, name = _SENTENCE.search(sentence), named_limit(sentence)
    number = number_of((found["number"] or "").replace(",", "")) if found else None
    return readings if name is None or not number else {name: Reading(number), **readings}


def empty_limit(headers: Mapping[str, str]) -> Dimension | None:
    return next((name for name, header in HEADER_OF.items() if headers.get(f"{PREFIX}{header}-remaining") == "0"), None)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Read limits from headers; invalid values are ignored."""
    found: dict[Dimension, Reading] = {}
    for kind, limit_name, remaining_name in _NAMES:
        if limit := number_of(headers.get(limit_name)):
            remaining = number_of(headers.get(remaining_name))
            found[kind] = Reading(limit, remaining if remaining is None else min(remaining, limit))
    return found
