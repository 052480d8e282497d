"""The command line of the mock server. It ends on a signal, at the end of its input, or with its parent."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeAlias

from aiohttp import web

from agent_magic.simulator.api import ApiError, Json
from agent_magic.simulator.batches import MOST_BYTES
from agent_magic.simulator.options import HOST, make_parser, settings_of
from agent_magic.simulator.response import Ending, Response, encode
from agent_magic.simulator.routes import (
    HTTP_MESSAGES,
    LINES_TYPE,
    RESULTS,
    ROUTES,
    Asked,
    Sending,
    check_credentials,
    decide,
    forever,
)
from agent_magic.simulator.service import SIMULATED, Entry, Exchange, Service

BACKLOG = 2048
POLL_S = 0.5


def main(argv: list[str] | None = None) -> int:
    """Return 1 if the port is taken."""
    options = make_parser().parse_args(argv)
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        sys.stderr.write(f"simulator: cannot listen on {HOST}:{options.port}: {error.strerror or error}\n")
        return 1
    except KeyboardInterrupt:  # Before the signal handlers were in place.
        return 0
    return 0


async def _serve(options: argparse.Namespace) -> None:
    service = Service(settings_of(options), time.monotonic())
    # A lost connection cancels its handler, so an abandoned stream is noticed immediately, not at the next write.
    runner = web.AppRunner(
        application(service, options.token or ""), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, options.port, backlog=BACKLOG)
        await site.start()
        port = runner.addresses[0][1]
        prefix = f"/{options.token}" if options.token else ""
        sys.stdout.write(json.dumps({"url": f"http://{HOST}:{port}{prefix}", "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        stop, loop, parent = asyncio.Event(), asyncio.get_running_loop(), options.parent_pid
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(stop.set))
        if options.until_stdin_closes:
            _at_stdin_end(lambda: loop.call_soon_threadsafe(stop.set))
        while not stop.is_set() and (parent is None or _alive(parent)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), None if parent is None else POLL_S)
    finally:
        await runner.cleanup()


def _at_stdin_end(stop: Callable[[], object]) -> None:
    # A thread works for pipes, terminals, files and on Windows. It reads the descriptor, because a thread that
    # blocks in `sys.stdin` would hold its lock when the interpreter exits.

    def read() -> None:
        with contextlib.suppress(OSError):  # Closed or never opened.
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # The loop is closed already.
            stop()

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _alive(pid: int) -> bool:
    if sys.platform != "win32":  # Signal 0 would end the process there; standard input tells on Windows.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
    return True


LINES = 100
LOCAL_NAMES = ("127.0.0.1", "localhost")
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def application(service: Service, token: str = "") -> web.Application:
    server = _Server(service)
    prefix = f"/{token}" if token else ""
    app = web.Application(client_max_size=MOST_BYTES, middlewares=[server.guard])
    for method, path in ROUTES:
        answer = server.results if path == RESULTS else partial(server.respond, method, path)
        app.router.add_route(method, f"{prefix}{path}", answer)
    app.router.add_get(f"{prefix}/simulator/log", server.log)
    app.router.add_post(f"{prefix}/simulator/reset", server.reset)
    return app


class _Server:
    def __init__(self, service: Service) -> None:
        self._service = service

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject foreign hosts; return unknown routes as API errors."""
        try:
            _check_host(request)
            return await handler(request)
        except web.HTTPException as found:
            error = ApiError(found.status, HTTP_MESSAGES.get(found.status, found.reason))
        except ApiError as found:
            error = found
        with self._recorded(request.path) as entry:
            return await self._send(request, self._service.error(error, entry), entry)

    async def respond(self, method: str, path: str, request: web.Request) -> web.StreamResponse:
        with self._recorded(path) as entry:
            try:
                asked = Asked(await request.read(), request.match_info.get("id", ""), request.query)
                exchange = decide(self._service, method, path, asked, request.headers, entry, time.monotonic())
            except web.HTTPRequestEntityTooLarge:
                exchange = self._service.error(ApiError(413, HTTP_MESSAGES[413]), entry)
            return await self._send(request, exchange, entry)

    async def results(self, request: web.Request) -> web.StreamResponse:
        """A batch may be larger than memory."""
        with self._recorded(RESULTS) as entry:
            check_credentials(request.headers)
            lines = self._service.batches.results(request.match_info["id"], time.monotonic())
            response = web.StreamResponse(headers=self._service.headers(entry, time.monotonic()))
            response.content_type = LINES_TYPE
            await response.prepare(request)
            while part := b"".join(islice(lines, LINES)):
                await response.write(part)
            await response.write_eof()
            entry.status, entry.finished_s = 200, self._service.journal.at(time.monotonic())
            return response

    async def log(self, _request: web.Request) -> web.StreamResponse:
        return _control({**self._service.journal.report(), "batches": self._service.batches.report()})

    async def reset(self, _request: web.Request) -> web.StreamResponse:
        self._service.reset(time.monotonic())
        return _control({"reset": True})

    @contextmanager
    def _recorded(self, route: str) -> Generator[Entry]:
        journal = self._service.journal
        entry = journal.open(route, time.monotonic())
        try:
            yield entry
        finally:
            journal.close(entry, time.monotonic())

    async def _send(self, request: web.Request, exchange: Exchange, entry: Entry) -> web.StreamResponse:
        """Send a response; it is cancelled if the client disconnects or a fault closes the connection."""
        planned = exchange.response
        entry.status = planned.status
        sending = Sending(self._service, exchange, entry)
        headers = {**self._service.headers(entry, time.monotonic()), **dict(planned.headers)}
        response = web.StreamResponse(status=planned.status, headers=headers)
        response.headers["content-type"] = planned.content_type
        response.content_length = planned.length
        try:
            return await self._write(request, planned, sending, response)
        finally:
            sending.close()

    async def _write(
        self, request: web.Request, planned: Response, sending: Sending, response: web.StreamResponse
    ) -> web.StreamResponse:
        await sending.first()
        if planned.ending is Ending.RESET:
            sending.finished()
            if request.transport is not None:
                plug = request.transport.get_extra_info("socket")
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                request.transport.abort()
            await forever()
        await response.prepare(request)
        sending.began()
        rest = b""
        async for part, is_last in sending.parts():
            if is_last:
                rest = part
            else:
                await response.write(part)
        if planned.ending is Ending.CLEAN:
            sending.finished()
            await response.write_eof(rest)
            return response
        await response.write(rest)
        if planned.ending is Ending.CUT:
            sending.finished()
            _cut(request, chunked=planned.length is None)
        await forever()
        return response


def _cut(request: web.Request, *, chunked: bool) -> None:
    """Close the connection inside the body, in an unfinished chunk."""
    if request.transport is None:
        return
    if chunked:
        request.transport.write(b"400\r\nevent: content_block_delta\nda")
    request.transport.close()


def _check_host(request: web.Request) -> None:
    """Reject another host name, against DNS rebinding by a web page."""
    host = request.headers.get("host", "").lower()
    name, _, port = host.partition(":")
    if name not in LOCAL_NAMES or not (port.isdigit() or host == name):
        raise ApiError(403, "The mock server responds to 127.0.0.1 and localhost only.")


def _control(body: Json) -> web.Response:
    return web.Response(body=encode(body), content_type="application/json", headers=SIMULATED)
