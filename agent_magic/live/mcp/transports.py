"""How messages reach a server of the Model Context Protocol: a process here, or an address (streamable HTTP).

For an address, the package `mcp` ends a whole session if one request fails in the network. So a failed request never
leaves `_Client.send`: it becomes the protocol's error answer to that request.

| code | the request | then |
| --- | --- | --- |
| `UNSENT` | was never sent: no connection | the session is opened again, and the request repeated once |
| `LOST` | the server does not know the session | the same |
| `CUT` | was sent, and its answer did not arrive whole | it may have happened: the call says so |
| `REFUSED` | an HTTP status such as 401, or an answer too long | the call says so |

Headers go to the origin of the address only. No message, log or repr has a header, a query, or a part of the path that
looks like a key.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from errno import ENOENT
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from agent_magic.declare.user_code import reason_of
from agent_magic.declare.validation import listed, must_be
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.live.mcp import guarded
from agent_magic.providers.responses import SHORTEST_SECRET, excerpt, root_of
from agent_magic.providers.transport import Hidden, checked_url, is_loopback
from agent_magic.record.secret_scan import SHORTEST_RANDOM, is_random, masked, secrets_of

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Request, Response


MOST_LINES = 5
"""Lines of a failed server's output that its error quotes."""


class Process:
    """Starts a server and talks over its standard input and output; `env` names variables to pass on."""

    reopens = False
    open_s = 60.0  # `npx` downloads it first
    secrets: Mapping[str, str] = {}

    def __init__(self, name: str, command: object, env: str | Iterable[str]) -> None:
        given: Any = shlex.split(command) if isinstance(command, str) else command
        words: list[Any] = [*given] if isinstance(given, list | tuple) else []
        if not words or not all(isinstance(one, str) for one in words):
            raise must_be(f"command of the MCP server {name!r}", "a program and its arguments", command)
        if "://" in words[0]:
            hint = f"Write: McpServer({name!r}, url=...)."
            raise DeclarationError(f"The command of the MCP server {name!r} is an address.", hint=hint)
        self.words, self.ignored = shlex.join(words), ""
        self._command = tuple(words)
        self._env = {one: os.environ[one] for one in listed(env) if one in os.environ}
        self._said: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said, self._listening():
            try:
                program, *arguments = _guarded(self._command)
                how = StdioServerParameters(command=program, args=arguments, env=self._env)
                async with stdio_client(how, errlog=said) as streams:
                    yield streams
            except Exception:
                said.seek(0)
                self._said = [line.rstrip() for line in said.readlines() if line.strip()][-MOST_LINES:]
                raise

    def refusal(self, error: BaseException) -> str:
        why = f"did not start within {self.open_s:g} s" if isinstance(error, TimeoutError) else "did not start"
        reason = "" if isinstance(error, TimeoutError) else f": {reason_of(error)}"
        quoted = masked("\n".join(f"  {line}" for line in self._said), secrets_of(os.environ))
        return "\n".join([f"{why} ({shown_value(self.words)}){reason}", *([quoted] if quoted else [])])

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Capture the library's prints about lines that are no messages: they contain paths of this machine."""
        own = threading.get_ident()

        def is_other(record: logging.LogRecord) -> bool:
            if record.thread != own:
                return True
            wrong: Any = record.exc_info[1] if record.exc_info else None
            first: Any = wrong.errors()[0]["input"] if hasattr(wrong, "errors") else ""
            self.ignored = self.ignored or str(first).strip()
            return False

        logger = logging.getLogger("mcp.client.stdio")
        logger.addFilter(is_other)
        try:
            yield
        finally:
            logger.removeFilter(is_other)


def _guarded(command: Sequence[str]) -> tuple[str, ...]:
    if os.name == "nt":
        return tuple(command)
    if shutil.which(command[0]) is None and not os.path.lexists(command[0]):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
    return (sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), *command)


UNSENT: Final = -39_001
LOST: Final = -39_002
CUT: Final = -39_003
REFUSED: Final = -39_004
CONNECT_S = 10.0
END_S = 2.0
"""Seconds to wait for the answer to the end of a session."""
LISTEN_EVERY_S = 0.5
"""Seconds between two requests for events: a server may say `retry: 0` and close the stream each time."""
MOST_BYTES = 64_000_000
"""Maximum size of one message."""
BAD = HTTPStatus.BAD_REQUEST
MOST_ERROR_BYTES = 20_000
_LOGGERS = (
    "mcp.client.streamable_http",
    "httpx2",
    *(f"httpcore2.{one}" for one in ("connection", "http11", "proxy")),
)
_SESSION = "mcp-session-id"


class Http:
    """Connects to a server at an address, with these headers; see `Transport`."""

    reopens = True
    ignored = ""

    def __init__(self, name: str, url: object, headers: Mapping[str, str], timeout_s: float) -> None:
        hint = f"Write: McpServer({name!r}, url='https://crm.example/mcp', headers={{'Authorization': ...}})."
        self._url = Hidden(checked_url(url, "url", hint))
        self._headers = {key: Hidden(value) for key, value in _checked(name, headers).items()}
        parts = urlsplit(str(url))
        path = ["…" if is_random(one, SHORTEST_RANDOM) else one for one in parts.path.split("/")]
        self.words = f"{parts.scheme}://{parts.netloc}{'/'.join(path)}"
        self.open_s = min(60.0, timeout_s)
        values = [*headers.values(), *(word for value in headers.values() for word in value.split())]
        values += [value for _, value in parse_qsl(parts.query)]
        values += [one for one in parts.path.split("/") if is_random(one, SHORTEST_RANDOM)]
        self._secrets = Hidden("\n".join(one for one in values if len(one) >= SHORTEST_SECRET))

    @property
    def secrets(self) -> Mapping[str, str]:
        return dict.fromkeys((self._secrets.reveal() or "").split("\n"), "[key]") if self._secrets.reveal() else {}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        from mcp.client.streamable_http import streamable_http_client

        url = self._url.reveal() or ""
        headers = {key: value.reveal() or "" for key, value in self._headers.items()}
        client: AsyncClient = _client()(headers=headers, trust_env=not is_loopback(url), follow_redirects=False)
        with _quiet():
            async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MOST_BYTES) as both:
                yield both

    def refusal(self, error: BaseException) -> str:
        from mcp import MCPError

        if isinstance(error, TimeoutError):
            return f"did not answer within {self.open_s:g} s ({self.words}). Look at its address and its log."
        what = str(error) if isinstance(error, MCPError) else reason_of(error)
        hint = next((hint for status, hint in _HINTS.items() if f"{status.value} {status.phrase}" in what), "")
        return f"did not open a session ({self.words}): {excerpt(what)}. {hint}".rstrip()


_HINTS = {
    HTTPStatus.UNAUTHORIZED: "Give it a key: headers={'Authorization': ...}, or --key-env NAME.",
    HTTPStatus.FORBIDDEN: "The key may not use it, or the server allows other hosts only.",
    HTTPStatus.NOT_FOUND: "Look at the path: it often ends in /mcp.",
    HTTPStatus.METHOD_NOT_ALLOWED: "Look at the path: it often ends in /mcp. The older SSE transport is not supported.",
}


def _checked(name: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers; raise `DeclarationError`, without a value, if one cannot be sent."""
    for key, value in headers.items():
        what = f"The header {shown_value(key)} of the MCP server {name!r}"
        if not isinstance(key, str) or not key.isascii() or not key.replace("-", "").replace("_", "").isalnum():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(f"{what} has no name of letters, digits and hyphens.")
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(f"{what} is not a text, but of type {type(value).__name__}.")
        if not value or not value.isascii() or not value.isprintable() or value != value.strip():
            hint = "Mostly a line break at its end is the cause: strip it."
            raise DeclarationError(f"{what} is not one line of plain characters.", hint=hint)
    return headers


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress libraries' logs of this thread's requests: they show whole addresses and tracebacks."""
    own = threading.get_ident()

    def is_other(record: logging.LogRecord) -> bool:
        return record.thread != own

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other)


@functools.lru_cache(maxsize=1)
def _client() -> type[AsyncClient]:
    import httpx2

    class Client(httpx2.AsyncClient):
        _listened_s = -LISTEN_EVERY_S

        async def send(self, request: Request, **options: Any) -> Response:
            # A call may take its time, and a stream of events may be silent: callers have their own timeouts.
            end_s = END_S if request.method == "DELETE" else None
            limits = httpx2.Timeout(end_s, connect=min(CONNECT_S, end_s or CONNECT_S))
            request.extensions = {**request.extensions, "timeout": limits.as_dict()}
            if request.method == "GET":
                wait_s = self._listened_s + LISTEN_EVERY_S - time.monotonic()
                self._listened_s = time.monotonic() + max(0.0, wait_s)
                await asyncio.sleep(max(0.0, wait_s))
            if request.method != "POST":
                return await super().send(request, **options)
            return await self._answered(request, options)

        async def _answered(self, request: Request, options: Mapping[str, Any]) -> Response:
            try:
                response = await super().send(request, **options)
                kind = response.headers.get("content-type", "").lower()
                if not (response.status_code >= BAD or (response.is_success and kind.startswith("application/json"))):
                    return response  # a stream of events, which may last; a redirect; nothing
                try:
                    return await _whole(request, response)
                finally:
                    await response.aclose()
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
                return _failure(request, UNSENT, f"no connection: {root_of(error, ())}")
            except (httpx2.RequestError, httpx2.StreamError) as error:
                return _failure(request, CUT, root_of(error, ()))

    return Client


async def _whole(request: Request, response: Response) -> Response:
    import httpx2

    is_error = response.status_code >= BAD
    most = MOST_ERROR_BYTES if is_error else MOST_BYTES
    found = bytearray()
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) > most:
            if not is_error:
                return _failure(request, REFUSED, f"its answer has more than {most:,} bytes")
            break
    if is_error:
        return _refused(request, response.status_code, bytes(found))
    kept = {key: response.headers[key] for key in ("content-type", _SESSION) if key in response.headers}
    return httpx2.Response(response.status_code, headers=kept, content=bytes(found), request=request)


def _refused(request: Request, status: int, body: bytes) -> Response:
    message = _message_in(body)
    is_unknown = status == HTTPStatus.NOT_FOUND or (
        status == BAD and "session" in body.decode("utf-8", "replace").lower()
    )  # 404 by the protocol; many servers answer 400
    if is_unknown and _SESSION in request.headers:
        return _failure(request, LOST, "the server does not know the session")
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    said = message or excerpt(body.decode("utf-8", "replace"))
    return _failure(request, REFUSED, f"it answers {status} {phrase}".rstrip() + (f": {said}" if said else ""))


def _message_in(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
        return str(cast("dict[str, Any]", found["error"])["message"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""


def _failure(request: Request, code: int, message: str) -> Response:
    """Return the protocol's error answer; the package adds the request's id."""
    import httpx2

    content = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=content, request=request)


def code_of(error: BaseException) -> int:
    from mcp import MCPError

    return error.error.code if isinstance(error, MCPError) else 0


def was_not_received(error: BaseException) -> bool:
    return code_of(error) in {UNSENT, LOST}


def has_ended(error: BaseException) -> bool:
    from mcp.types import CONNECTION_CLOSED

    return code_of(error) in {CONNECTION_CLOSED, CUT}


def why(error: BaseException, name: str) -> str:
    from mcp.types import PARSE_ERROR

    code, server = code_of(error), f"MCP server {name!r}"
    if has_ended(error):
        return f"The connection to the {server} broke during the call, which may have happened."
    if code == PARSE_ERROR:
        return f"The {server} sent an invalid message. The call may have happened."
    if code in {UNSENT, LOST, REFUSED}:
        return f"The {server} did not take the call: {error}"
    return str(error) if code else reason_of(error)
