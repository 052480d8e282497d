"""Connection failures: whether there was a connection, its failure, and things to check."""

from __future__ import annotations

import functools
import os
import re
import ssl
from typing import TYPE_CHECKING

from agent_magic.declare.values import sendable
from agent_magic.errors import Truncated, Unreachable, Unreadable
from agent_magic.machine import in_browser
from agent_magic.record.secret_scan import masked
from agent_magic.record.secret_scan import secrets_of as secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from httpx2 import Request

    from agent_magic.errors import CallError

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
    return excerpt(said or error, secrets) or type(error).__name__


def unreadable(error: Exception, secrets: tuple[str, ...]) -> CallError:
    if isinstance(error, UnicodeDecodeError) and error.reason == "unexpected end of data":
        return Truncated("The stream ended before the answer did (in the middle of a letter).")
    return Unreadable(f"The response cannot be read: {excerpt(error, secrets)}.")


def says_too_long(said: str) -> bool:
    return _TOO_LONG.search(said) is not None and "rate" not in said.lower().split()
