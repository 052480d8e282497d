"""The mock server without process or socket, for Python in a browser: an HTTP client transport that calls it."""

from __future__ import annotations

import argparse
import re
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, Self

import httpx2

from agent_magic.simulator.api import ApiError
from agent_magic.simulator.child import SimulatorError, factor_of, words_of
from agent_magic.simulator.options import make_parser, settings_of
from agent_magic.simulator.response import Ending, Response
from agent_magic.simulator.routes import HTTP_MESSAGES, ROUTES, Asked, Sending, decide, forever
from agent_magic.simulator.service import Entry, Service

_PATHS = {path: re.compile(path.replace("{id}", "([^/]+)")) for _, path in ROUTES}


class InsideSimulator:
    """A mock server in this process: a context manager, or call `stop`.

    Attributes:
        url: The base URL for a client that uses `transport`.
        transport: Carries requests of the SDK's client to the server.
        time_factor: Its duration relative to a real model.
        running: True if it accepts requests.
    """

    def __init__(self, service: Service, time_factor: float = 1.0) -> None:
        self.time_factor = time_factor
        self.url = f"http://localhost/{secrets.token_urlsafe(8)}"
        self.transport = _Transport(service, len(httpx2.URL(self.url).path))
        self.running = True

    def __repr__(self) -> str:
        return f"<Simulator in this process, {'running' if self.running else 'stopped'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self, timeout_s: float = 0.0) -> None:
        """Refuse all further requests. Idempotent."""
        del timeout_s
        self.running = self.transport.is_open = False


def start(**options: Any) -> InsideSimulator:
    options.pop("timeout_s", None)
    try:
        given = make_parser(exit_on_error=False).parse_args(words_of(options))
    except argparse.ArgumentError as error:
        raise SimulatorError(f"The simulator did not start: {error}") from None
    factor = factor_of(options.get("latency", "real"))
    return InsideSimulator(Service(settings_of(given), time.monotonic()), factor)


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, service: Service, prefix: int) -> None:
        self._service, self._prefix = service, prefix
        self.is_open = True

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response when it begins."""
        if not self.is_open:
            raise httpx2.ConnectError("The mock server was stopped.", request=request)
        body, path = await request.aread(), request.url.path[self._prefix :]
        route, named = next(((one, found) for one, at in _PATHS.items() if (found := at.fullmatch(path))), (path, None))
        journal, now_s = self._service.journal, time.monotonic()
        entry = journal.open(route, now_s)
        try:
            asked = Asked(body, named[1] if named and named.groups() else "", dict(request.url.params))
            if (request.method, route) in ROUTES:
                exchange = decide(self._service, request.method, route, asked, request.headers, entry, now_s)
            else:
                status = 405 if route in _PATHS else 404
                exchange = self._service.error(ApiError(status, HTTP_MESSAGES[status]), entry)
            planned, entry.status = exchange.response, exchange.response.status
            headers = {**self._service.headers(entry, now_s), **dict(planned.headers)}
            sending = Sending(self._service, exchange, entry)
            try:
                await sending.first()
            except BaseException:
                sending.close()
                raise
        except BaseException:
            journal.close(entry, time.monotonic())
            raise
        if planned.ending is Ending.RESET:
            sending.finished()
            sending.close()
            journal.close(entry, time.monotonic())
            raise httpx2.ReadError("Connection reset by peer", request=request)
        sending.began()
        headers["content-type"] = planned.content_type
        return httpx2.Response(planned.status, headers=headers, stream=_Body(self._service, sending, planned, entry))


class _Body(httpx2.AsyncByteStream):
    def __init__(self, service: Service, sending: Sending, planned: Response, entry: Entry) -> None:
        self._journal, self._sending, self._planned, self._entry = service.journal, sending, planned, entry
        self._is_closed = False

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        ending = self._planned.ending
        async for part, is_last in self._sending.parts():
            if is_last and ending is not Ending.STALL:
                self._sending.finished()
            yield part
        if ending is Ending.CUT:
            raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
        if ending is not Ending.CLEAN:
            await forever()

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._sending.close()
            self._journal.close(self._entry, time.monotonic())
