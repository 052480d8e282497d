"""Addresses and keys, checked before anything is sent, and the transport: aiohttp, or in a browser the page's `fetch`.

A server closes old connections. If a used one ends without a byte of a response, the request crossed that on its way:
it was not processed, and is sent again at once on another connection. After more than `STALE_S` the server may have
worked on it: that is a failure, as on a new connection. Source: RFC 9110, 9.2.2, and RFC 9112, 9.3.1.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
import time
import warnings
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_magic.errors import DeclarationError
from agent_magic.machine import in_browser
from agent_magic.providers.responses import of_aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator

    from aiohttp import ClientSession
    from httpx2 import AsyncBaseTransport, AsyncByteStream, AsyncClient, Request, Response

T = TypeVar("T")
CONNECT_S = 10.0
BLOCKED_S = 120.0
"""How long user code may block the event loop before a connection counts as silent."""
SERVED: dict[str, AsyncBaseTransport] = {}
"""Servers inside this process, by address: the mock server in a browser."""
STALE_S: Final = 2.0
"""A kept connection that was closed shows it within a round trip."""
GIVEN_UP: Final = 408
"""What some servers write before they close an idle connection. Source: RFC 9110, 15.5.9."""
ERROR_S: Final = 1.0
ERROR_BYTES: Final = 65_536
"""Seconds and bytes of an error's body: the status is enough, and some gateways never end it."""
MOST_HEADER: Final = 1 << 20
"""Bytes of one header, of which aiohttp takes 8 kB: the answer behind a longer one is paid for."""
ENCODED: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_kept: ContextVar[bool] = ContextVar("kept", default=False)
"""True if the latest request of this task used a kept connection."""
_is_ours: ContextVar[bool] = ContextVar("is_ours", default=False)
"""True while this task sends a request of ours through a user's client."""


def http_client(address: str) -> AsyncClient:
    # It follows no redirects: they would be handed the prompt and the key.
    import anthropic

    inside = SERVED.get(address.rstrip("/"))
    if inside is not None:
        return anthropic.DefaultAsyncHttpxClient(transport=inside, follow_redirects=False)
    if in_browser():
        return anthropic.DefaultAsyncHttpxClient(follow_redirects=False)
    return _reopening_client()(trust_env=not is_loopback(address), follow_redirects=False)


@functools.lru_cache(maxsize=1)
def _reopening_client() -> type[AsyncClient]:
    import anthropic
    import httpx2

    class Reopening(httpx2.AsyncBaseTransport):
        """Repeats a request on a stale connection, and reads the bodies of errors."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def handle_async_request(self, request: Request) -> Response:
            _open_session(self._inner)
            while True:
                _kept.set(False)
                began_s = time.monotonic()
                try:
                    response = await self._inner.handle_async_request(request)
                    response.stream = _arrived_stream()(response.stream)
                    if not _is_stale(request, began_s, closed=response.status_code == GIVEN_UP):
                        return await _whole_if_error(response)
                    await response.aclose()  # said of the idle connection, before this request
                except httpx2.TransportError as error:
                    if not _is_stale(request, began_s, closed=_is_unanswered(error)):
                        raise

        async def aclose(self) -> None:
            await self._inner.aclose()

    class ReopeningClient(anthropic.DefaultAioHttpClient):
        def _init_transport(self, *args: Any, **options: Any) -> AsyncBaseTransport:
            return Reopening(super()._init_transport(*args, **options))

        def _init_proxy_transport(self, *args: Any, **options: Any) -> AsyncBaseTransport:
            return Reopening(super()._init_proxy_transport(*args, **options))

    return cast("type[AsyncClient]", ReopeningClient)


@functools.lru_cache(maxsize=1)
def _arrived_stream() -> Callable[[Any], AsyncByteStream]:
    import httpx2

    class Arrived(httpx2.AsyncByteStream):
        """Reads the bytes received before a response broke, which may hold a whole answer: aiohttp raises first."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._inner:
                    yield chunk
            except httpx2.TransportError:
                if rest := _left_in(self._inner):
                    yield rest
                raise

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Arrived


def _left_in(stream: Any) -> bytes:
    content = getattr(getattr(stream, "_aiohttp_response", None), "content", None)
    if content is None or (error := content.exception()) is None:
        return b""
    content.set_exception(None)
    rest = content.read_nowait()
    content.set_exception(error)
    return cast("bytes", rest)


def _reading_heads_apart(session: ClientSession) -> ClientSession:
    """Parse a response's head before its body: a fault of the body would lose both."""
    from aiohttp.client_proto import ResponseHandler

    class Handler(ResponseHandler):
        def data_received(self, data: bytes) -> None:
            end = data.find(b"\r\n\r\n") + 4
            if 4 <= end < len(data):
                super().data_received(data[:end])
                data = data[end:]
            super().data_received(data)

    made_by_transport: Any = session
    made_by_transport._max_field_size = MOST_HEADER  # noqa: SLF001 - no argument of the transport says it
    connector: Any = session.connector
    if isinstance(made := getattr(connector, "_factory", None), functools.partial):
        connector._factory = functools.partial(Handler, **made.keywords)  # noqa: SLF001 - no public way to parse
    return session


def _open_session(transport: Any) -> None:
    if transport.client is None:
        transport.client = _reading_heads_apart(_traced(transport.get_client()))


def _is_stale(request: Request, began_s: float, *, closed: bool) -> bool:
    # A batch that was created without a reply is looked for in the list: twice would be paid twice.
    creates = request.method == "POST" and request.url.path.endswith("/batches")
    return closed and _kept.get() and time.monotonic() - began_s < STALE_S and not creates


def _is_unanswered(error: BaseException) -> bool:
    import aiohttp

    cause = error.__cause__
    if isinstance(cause, aiohttp.ServerDisconnectedError):
        return isinstance(cause.message, str)  # else the received part of the head
    return isinstance(cause, aiohttp.ClientOSError | ConnectionError)


async def _whole_if_error(response: Response) -> Response:
    """Read the body of an error."""
    if response.headers.get("content-encoding", "").lower() == "x-gzip":  # the same: RFC 9110, 8.4.1.3
        response.headers["content-encoding"] = "gzip"
    return response if response.is_success else await _with_error_read(response)


async def _with_error_read(response: Response) -> Response:
    import httpx2

    told = bytearray()
    try:
        async with asyncio.timeout(ERROR_S):
            async for chunk in response.aiter_bytes():
                told += chunk
                if len(told) >= ERROR_BYTES:
                    break
    except (TimeoutError, httpx2.HTTPError, *of_aiohttp("ClientError"), OSError):
        pass  # the status and headers are here, and say whether and when to try again
    finally:
        await response.aclose()
    named = response.headers.get("content-encoding", "")
    if named and "\ufffd" in told.decode("utf-8", "replace"):
        told = bytearray(f"its reason has the content-encoding {named[:40]!r}, which cannot be decoded".encode())
    headers = [(name, value) for name, value in response.headers.raw if name.lower().decode("latin-1") not in ENCODED]
    return httpx2.Response(response.status_code, headers=headers, content=bytes(told), extensions=response.extensions)


@contextmanager
def bounding_errors(sdk: Any) -> Generator[None]:
    """Read the bodies of errors by the same rule with a user's client."""
    hooks: list[Any] | None = getattr(getattr(sdk, "_client", None), "event_hooks", {}).get("response")
    if hooks is not None and _read_error not in hooks:
        hooks.append(_read_error)
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)


async def _read_error(response: Response) -> None:
    import httpx2

    if _is_ours.get() and response.is_error:
        apart = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream)
        read = await _with_error_read(apart)
        response.headers, response.stream = read.headers, httpx2.ByteStream(read.content)


def _traced(session: ClientSession) -> ClientSession:
    import aiohttp

    async def reused(*_: object) -> None:
        _kept.set(True)

    traces = aiohttp.TraceConfig()
    traces.on_connection_reuseconn.append(reused)
    traces.freeze()
    session.trace_configs.append(traces)
    return session


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, where no proxy of the environment applies."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class PerLoop(Generic[T]):
    """One client per event loop, closed when its last user there is done."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make, self._close = make, close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._users: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def here(self) -> T:
        return self._clients[asyncio.get_running_loop()]

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        if not _is_loaded("anthropic"):  # takes seconds, in which the loop should hear a stop
            await asyncio.to_thread(importlib.import_module, "anthropic")
        if loop not in self._clients:
            self._clients[loop] = self._make()
        self._users[loop] = self._users.get(loop, 0) + 1
        try:
            with _large_bodies():
                yield
        finally:
            self._users[loop] -= 1
            if not self._users[loop]:
                await self._close(self._clients.pop(loop))


def _is_loaded(name: str) -> bool:
    """Return whether a module is completely imported: importing it during another import would block."""
    return not getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", name not in sys.modules)


@contextmanager
def _large_bodies() -> Generator[None]:
    """Let prompts beyond 1 MB be sent even if warnings are errors: the transport warns of each."""
    # The user's filters are as they were afterwards. `warnings.catch_warnings` would also take back changes by
    # other cells while a run awaits.
    mark = object()  # so that the filter is equal to no other, which would be replaced, and removed with it
    message = f"Sending a large body(?#{id(mark)})"
    warnings.filterwarnings("ignore", message, ResourceWarning)
    ours: Any = warnings.filters[0]
    try:
        yield
    finally:
        if ours in warnings.filters:
            cast("list[Any]", warnings.filters).remove(ours)


@functools.lru_cache(maxsize=16)
def timeout_of(seconds: float) -> Any:
    """Return a timeout longer than the attempt's deadline, which the engine enforces."""
    # The transport's clocks run on while user code blocks the loop, and would discard data that has arrived
    # meanwhile.
    import httpx2

    return httpx2.Timeout(seconds + BLOCKED_S, connect=min(CONNECT_S, seconds))


QUOTES = frozenset("\"'`")


class Hidden:
    """A text that tracebacks do not show, even with all attributes."""

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "'…'"

    def reveal(self) -> str | None:
        return self._text


def check_key(key: object, name: str) -> None:
    """Raise `DeclarationError`, without showing it, for a key that no header can hold, or copied wrongly."""
    hint = "The usual cause is a line break at its end: strip it."
    if key is None:
        return
    if not isinstance(key, str):
        what = "not a string"
    elif not key:
        what = "empty"
    elif not key.isascii() or not key.isprintable():
        what = "not one line of plain characters"
    elif key[0] in QUOTES or key[-1] in QUOTES:
        what, hint = "in quotation marks", "Remove them: they became part of the key."
    elif " " in key:
        what, hint = "more than one word: it has a blank in it", "Copy the key again, without the text around it."
    else:
        return
    raise DeclarationError(f"The key in {name} is {what}.", hint=hint)


def checked_url(url: object, name: str, hint: str) -> str:
    """Return the address of a server, or raise with the `hint`."""
    shown = without_credentials(url) if isinstance(url, str) else type(url).__name__
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = bool(parts.hostname) and parts.scheme in {"http", "https"} and (parts.port or 1) > 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or not isinstance(url, str) or not url.isprintable() or " " in url:
        raise DeclarationError(f"{name}={shown!r} is not the address of a server.", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise DeclarationError(f"{name}={shown!r} holds a user name or a password.", hint="Give a key by api_key=.")
    return url


def without_credentials(url: str) -> str:
    start, mark, rest = url.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2]}"
