"""Classification of failed responses by status, code and words, after a 200 too; and rate limits.

Servers differ in statuses: a too long prompt is a 400, a 413 or a 500. `x-ratelimit-*` headers come for `requests` and
`tokens`; a reset is a duration such as `6m0s` or `250ms`, until the limit is fully replenished. Source: the vendors'
pages on rate limits.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.engine.pacing.limits import Reading
from agent_magic.errors import CallError, Refused, Rejected
from agent_magic.providers.responses import (
    TOO_MANY,
    error_of_body,
    excerpt,
    fields_of,
    not_answered,
    number_of,
    rate_limited,
    says_too_long,
    words_of,
)
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.record.request import Request

HINTS = {
    401: "Check the key: am.Chat(api_key=...), or --key-env of %agents connect chat.",
    402: "Look at the account's billing.",
    403: "This key may not do that: try another model, or ask the owner of the account.",
    404: "Check the model's name, and that base_url is the address that /chat/completions is added to.",
    405: "Check that base_url is the address that /chat/completions is added to.",
    413: "Send a shorter prompt.",
    501: "Check that base_url is the address that /chat/completions is added to.",
    511: "The network wants a login: open any page in a browser.",
}
NO_KEY = "No key was given; if the server wants one: am.Chat(api_key=...)."
REDIRECTED = "The key was not sent there: check base_url, and the proxy if there is one."
CHECK = "Check that the server runs, the network, the proxy if there is one, and base_url."
SHORTER = "Send a shorter prompt, lower --max-tokens, or give the server a longer context."
STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "server_error": 500,
    "overloaded_error": 503,
    "timeout_error": 504,
}
"""For errors that come after a 200."""
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
FILTERED = frozenset({"content_filter", "content_policy_violation"})
_N = r"(\d[\d,]*)"
_CONTEXT = re.compile(
    rf"context (?:length|size|window)[^.\d]{{0,30}}{_N}|{_N} (?:tokens? )?(?:context|maximum)", re.IGNORECASE
)
_PROMPT = re.compile(rf"{_N} (?:tokens? )?in the (?:messages|prompt)|{_N} input tokens", re.IGNORECASE)
_WHOLE = re.compile(
    rf"(?:resulted in|request \(|request has|prompt \(|prompt contains|prompt has|requested(?: about)?) ?{_N} ?tokens?",
    re.IGNORECASE,
)
"""Tokens of the prompt; if not given, of prompt and answer."""


class Told(NamedTuple):
    """An error body: message, code and type, its own status, tokens of the prompt and of the context."""

    message: str
    words: frozenset[str] = frozenset()
    status: int | None = None
    prompt: int | None = None
    context: int | None = None


def read_error(body: Any) -> Told:
    """Read `{"error": {...}}`, or one of the forms that other servers write."""
    outer, found = error_of_body(body)
    inner = fields_of(found)
    text = words_of(body)
    given = [one.get(name) for one in (inner, outer) for name in ("code", "type", "status")]
    numbers = [int(one) for one in given if isinstance(one, int | str) and re.fullmatch(r"[345]\d\d", str(one))]
    words = frozenset(one.lower() for one in given if isinstance(one, str) and not one.isdigit())
    context = _count(inner.get("n_ctx")) or _first(_CONTEXT, text)
    prompt = _count(inner.get("n_prompt_tokens")) or _first(_PROMPT, text) or _first(_WHOLE, text)
    return Told(text, words, next(iter(numbers), None), prompt, context)


def read_body(text: str) -> Told:
    try:
        return read_error(json.loads(text))
    except (ValueError, RecursionError):
        return read_error(text or {})


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return None if found is None else int(next(filter(None, found.groups())).replace(",", ""))


def error_of(
    told: Told, status: int, headers: Mapping[str, str], request: Request, secrets: tuple[str, ...], *, has_key: bool
) -> CallError:
    """Return the error of a response; after a 200 the body's status counts."""
    message = excerpt(told.message, secrets)
    if 300 <= status < 400:
        return Rejected(f"The server redirects the request ({status}). {REDIRECTED}", status=status)
    if status < 400:
        known = (STATUS_OF_CODE[word] for word in sorted(told.words) if word in STATUS_OF_CODE)
        status = told.status or next(known, 500)
    if told.words & FILTERED:
        return Refused(f"The server's filter refused this: {message} ({status}).", category="content_filter")
    if says_too_long(" ".join([told.message, *told.words])) and status != TOO_MANY:
        return Rejected(f"{_lengths(told, request)} {SHORTER} The server says: {message} ({status}).", status=status)
    if status == TOO_MANY:
        spent = "The account's quota is used up" if told.words & SPENT else ""
        limit = named_limit(told.message, headers)
        return rate_limited(message, headers, limit, spent=spent, said_s=wait_said_s(told.message))
    if "invalid_api_key" in told.words or (status >= 400 and not has_key and "no_db_connection" in told.words):
        status = 401
    hint = NO_KEY if status in {401, 403} and not has_key else HINTS.get(status, "")
    return not_answered(message, status, headers, hint)


def _lengths(told: Told, request: Request) -> str:
    about = sum(map(len, request.texts())) // CHARS_PER_TOKEN
    prompt = f"about {about:,}" if told.prompt is None else f"{told.prompt:,}"
    takes = "fewer" if told.context is None else f"{told.context:,}"
    return f"The prompt has {prompt} tokens, and the model's context {takes}, with the answer."


PREFIX: Final = "x-ratelimit-"
KINDS: Final[Mapping[str, Dimension]] = {"requests": "requests", "tokens": "input"}
"""A limit of tokens includes answers; it is kept as one of input, and each response corrects the rest."""
MINUTE_S: Final = 60.0
LONGER_S: Final = (3_600.0, 86_400.0)
"""Limits of these periods cannot be kept per minute. Their rest may be used at once."""
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AGAIN = re.compile(r"(?:try|retry)[^.]{0,40}? in ((?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s*)+)", re.IGNORECASE)
"""Such as `Please try again in 6m0s.`"""
_NAMED = re.compile(r"\b(?P<requests>requests per|rpm|rpd)\b|\b(?P<tokens>tokens per|tpm|tpd)\b", re.IGNORECASE)


def duration_s(text: str) -> float | None:
    """Parse `1s`, `6m0s`, `1h2m3.5s`, `250ms`, or plain seconds."""
    found = _DURATION.findall(text)
    if found and "".join(number + unit for number, unit in found) == re.sub(r"\s", "", text):
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    return number_of(text)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Read limits from headers; invalid values are ignored."""
    found: dict[Dimension, Reading] = {}
    for name, kind in KINDS.items():
        limit, left = (number_of(headers.get(f"{PREFIX}{what}-{name}")) for what in ("limit", "remaining"))
        if not limit:
            continue
        left = left if left is None else min(left, limit)
        if _is_per_minute(limit, left, duration_s(headers.get(f"{PREFIX}reset-{name}", ""))):
            found[kind] = Reading(limit, left)
    return found


def _is_per_minute(limit: float, left: float | None, reset_s: float | None) -> bool:
    """Return whether a limit is per minute, unless the reset time contradicts that."""
    if reset_s is None:
        return True
    if reset_s > MINUTE_S + 1:
        return False
    used = 0.0 if left is None else limit - left
    period_s = reset_s * limit / used if used else MINUTE_S
    return not any(0.9 * one < period_s < 1.1 * one for one in LONGER_S)


def wait_said_s(sentence: str) -> float | None:
    found = _AGAIN.search(sentence)
    return None if found is None else duration_s(found[1].strip())


def named_limit(sentence: str, headers: Mapping[str, str]) -> Dimension | None:
    found = _NAMED.search(sentence)
    if found is not None:
        return KINDS["requests" if found["requests"] else "tokens"]
    return next((kind for name, kind in KINDS.items() if headers.get(f"{PREFIX}remaining-{name}") == "0"), None)
