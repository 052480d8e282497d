"""The HTTP server: routes, checks, the journal, and responses sent on schedule."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from aiohttp import web

from agent_magic.simulator.batches import MOST_BYTES
from agent_magic.simulator.batches import PATH as BATCHES
from agent_magic.simulator.errors import ApiError, invalid
from agent_magic.simulator.journal import Entry
from agent_magic.simulator.json_types import Json
from agent_magic.simulator.models import MODELS, describe, describe_all
from agent_magic.simulator.response import Ending, encode, whole
from agent_magic.simulator.service import MESSAGES, SIMULATED, Exchange, Service

LINES = 100
"""How many results are written at once."""
MAX_BODY = 32 * 1024 * 1024
LOCAL_NAMES = ("127.0.0.1", "localhost")
FLUSH_S = 0.03
FLUSH_PER_STREAM_S = 0.000_2
HTTP_MESSAGES = {
    404: "Not found.",
    405: "Method not allowed.",
    413: f"The request is larger than {MAX_BODY} bytes.",
}
Decide: TypeAlias = Callable[[bytes, Entry], Exchange]
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def application(service: Service, token: str = "") -> web.Application:
    """Return the web application.

    Args:
        service: Decides the responses.
        token: The required path prefix; empty for none.
    """
    server = _Server(service)
    prefix = f"/{token}" if token else ""
    app = web.Application(client_max_size=MOST_BYTES, middlewares=[server.guard])
    app.router.add_post(f"{prefix}{MESSAGES}", server.messages)
    app.router.add_post(f"{prefix}{MESSAGES}/count_tokens", server.count_tokens)
    app.router.add_post(f"{prefix}{BATCHES}", server.create_batch)
    app.router.add_get(f"{prefix}{BATCHES}", server.list_batches)
    app.router.add_get(f"{prefix}{BATCHES}/{{id}}", server.batch)
    app.router.add_post(f"{prefix}{BATCHES}/{{id}}/cancel", server.cancel_batch)
    app.router.add_get(f"{prefix}{BATCHES}/{{id}}/results", server.results)
    app.router.add_get(f"{prefix}/v1/models", server.models)
    app.router.add_get(f"{prefix}/v1/models/{{id}}", server.model)
    app.router.add_get(f"{prefix}/simulator/log", server.log)
    app.router.add_post(f"{prefix}/simulator/reset", server.reset)
    return app


class _Server:
    """The handlers of one application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject foreign hosts; give unknown routes an error body like any other."""
        try:
            _check_host(request)
            return await handler(request)
        except web.HTTPException as found:
            error = ApiError(found.status, HTTP_MESSAGES.get(found.status, found.reason))
        except ApiError as found:
            error = found
        with self._recorded(request.path) as entry:
            return await self._send(request, self._service.error(error, entry), entry)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Handle `POST /v1/messages`."""
        exchange = self._service.exchange
        return await self._respond(request, MESSAGES, lambda body, entry: exchange(body, entry, time.monotonic()))

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """Handle `POST /v1/messages/count_tokens`."""
        return await self._respond(request, f"{MESSAGES}/count_tokens", self._service.count_tokens)

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        """Handle `POST /v1/messages/batches`."""
        create = self._service.batches.create
        return await self._respond(
            request, BATCHES, lambda body, _entry: _looked_at(*create(body, time.monotonic())), most=MOST_BYTES
        )

    async def list_batches(self, request: web.Request) -> web.StreamResponse:
        """Handle `GET /v1/messages/batches`."""
        limit, after = request.query.get("limit", "20"), request.query.get("after_id")
        most = int(limit) if limit.isdigit() else 20
        found = self._service.batches.list
        return await self._respond(request, BATCHES, lambda _body, _entry: _found(found(most, after, time.monotonic())))

    async def batch(self, request: web.Request) -> web.StreamResponse:
        """Handle `GET /v1/messages/batches/{id}`."""
        id_, look = request.match_info["id"], self._service.batches.look
        return await self._respond(
            request, f"{BATCHES}/{{id}}", lambda _body, _entry: _looked_at(*look(id_, time.monotonic()))
        )

    async def cancel_batch(self, request: web.Request) -> web.StreamResponse:
        """Handle `POST /v1/messages/batches/{id}/cancel`."""
        id_, cancel = request.match_info["id"], self._service.batches.cancel
        return await self._respond(
            request, f"{BATCHES}/{{id}}/cancel", lambda _body, _entry: _found(cancel(id_, time.monotonic()))
        )

    async def results(self, request: web.Request) -> web.StreamResponse:
        """Handle `GET /v1/messages/batches/{id}/results`."""
        with self._recorded(f"{BATCHES}/{{id}}/results") as entry:
            _check_credentials(request)
            lines = self._service.batches.results(request.match_info["id"], time.monotonic())
            response = web.StreamResponse(headers=self._service.headers(entry, time.monotonic()))
            response.content_type = "application/x-jsonl"
            await response.prepare(request)
            while part := b"".join(islice(lines, LINES)):
                await response.write(part)
            await response.write_eof()
            entry.status, entry.finished_s = 200, self._service.journal.at(time.monotonic())
            return response

    async def models(self, request: web.Request) -> web.StreamResponse:
        """Handle `GET /v1/models`."""
        return await self._respond(request, "/v1/models", lambda body, entry: _found(describe_all()))

    async def model(self, request: web.Request) -> web.StreamResponse:
        """Handle `GET /v1/models/{id}`."""

        def decide(_body: bytes, _entry: Entry) -> Exchange:
            model = MODELS.get(request.match_info["id"])
            if model is None:
                raise ApiError(404, f"model: {request.match_info['id']}")
            return _found(describe(model))

        return await self._respond(request, "/v1/models/{id}", decide)

    async def log(self, _request: web.Request) -> web.StreamResponse:
        """Handle `GET /simulator/log`."""
        return _control({**self._service.journal.report(), "batches": self._service.batches.report()})

    async def reset(self, _request: web.Request) -> web.StreamResponse:
        """Handle `POST /simulator/reset`."""
        self._service.reset(time.monotonic())
        return _control({"reset": True})

    @contextmanager
    def _recorded(self, route: str) -> Generator[Entry]:
        """Open the journal entry of a request, and close it however the request ends."""
        journal = self._service.journal
        entry = journal.open(route, time.monotonic())
        try:
            yield entry
        finally:
            journal.close(entry, time.monotonic())

    async def _respond(
        self, request: web.Request, route: str, decide: Decide, *, most: int = MAX_BODY
    ) -> web.StreamResponse:
        """Record a request, decide its response, and send it."""
        with self._recorded(route) as entry:
            try:
                body = await request.read()
                _check_length(body, most)
                _check_credentials(request)
                exchange = decide(body, entry)
            except web.HTTPRequestEntityTooLarge:
                exchange = self._service.error(ApiError(413, HTTP_MESSAGES[413]), entry)
            except ApiError as error:
                exchange = self._service.error(error, entry)
            return await self._send(request, exchange, entry)

    async def _send(self, request: web.Request, exchange: Exchange, entry: Entry) -> web.StreamResponse:
        entry.status = exchange.response.status
        headers = {**self._service.headers(entry, time.monotonic()), **dict(exchange.response.headers)}
        return await _Sending(self._service, exchange, entry).send(request, headers)


class _Sending:
    """A response that is being sent. Times of its frames count from its creation."""

    def __init__(self, service: Service, exchange: Exchange, entry: Entry) -> None:
        self._cache, self._journal = service.cache, service.journal
        self._exchange, self._entry = exchange, entry
        self._start_s = time.monotonic()

    async def send(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Send the response, with its faults.

        Raises:
            asyncio.CancelledError: The client disconnected, or a fault closed the connection.
        """
        planned = self._exchange.response
        response = web.StreamResponse(status=planned.status, headers=headers)
        response.headers["content-type"] = planned.content_type
        response.content_length = planned.length
        if planned.ending is Ending.HANG:
            await _forever()
        await _sleep_until(self._start_s + planned.frames[0].at_s)
        if planned.ending is Ending.RESET:
            self._finished()
            await _reset(request)
        await response.prepare(request)
        self._began()
        rest = await self._write_frames(response)
        if planned.ending is Ending.CLEAN:
            self._finished()
            await response.write_eof(rest)
            return response
        await response.write(rest)
        if planned.ending is Ending.CUT:
            self._finished()
            _cut(request, chunked=planned.length is None)
        await _forever()
        return response

    async def _write_frames(self, response: web.StreamResponse) -> bytes:
        """Write all frames but the last due ones, and return those, to be sent with the ending.

        Frames that are due together are one write. A stream is written at most every 30 ms, less often when many are
        open: 1,000 streams are 5,000 writes a second, not 50,000.
        """
        frames, place = self._exchange.response.frames, 0
        while True:
            due, first = time.monotonic() - self._start_s, place
            while place < len(frames) and frames[place].at_s <= due:
                place += 1
            data = b"".join([frame.data for frame in frames[first:place]])
            if place > first:
                self._sent(frames[place - 1].tokens)
            if place == len(frames):
                return data
            if data:
                await response.write(data)
            gap_s = max(FLUSH_S, self._journal.in_flight * FLUSH_PER_STREAM_S)
            await _sleep_until(max(self._start_s + frames[place].at_s, time.monotonic() + gap_s))

    def _began(self) -> None:
        now_s = time.monotonic()
        self._entry.first_byte_s = self._journal.at(now_s)
        if self._exchange.lookup:
            self._cache.begin(self._exchange.lookup, now_s)

    def _sent(self, tokens: int) -> None:
        """Record the output so far, and take it from the limit."""
        if self._exchange.pool:
            self._exchange.pool.output_tokens.take(tokens - self._entry.output_tokens, time.monotonic())
        self._entry.output_tokens = tokens

    def _finished(self) -> None:
        self._entry.finished_s = self._journal.at(time.monotonic())


async def _sleep_until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)


async def _forever() -> None:
    """Wait until a lost connection cancels the handler."""
    await asyncio.get_running_loop().create_future()


def _cut(request: web.Request, *, chunked: bool) -> None:
    """Close the connection in the middle of the body, inside an unfinished chunk."""
    if request.transport is None:
        return
    if chunked:
        request.transport.write(b"400\r\nevent: content_block_delta\nda")
    request.transport.close()


async def _reset(request: web.Request) -> None:
    """Reset the connection."""
    if request.transport is not None:
        plug = request.transport.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    await _forever()


def _check_host(request: web.Request) -> None:
    """Reject a request to another host name: DNS rebinding by a web page."""
    host = request.headers.get("host", "").lower()
    name, _, port = host.partition(":")
    if name not in LOCAL_NAMES or not (port.isdigit() or host == name):
        raise ApiError(403, "The mock server responds to 127.0.0.1 and localhost only.")


def _check_length(body: bytes, most: int) -> None:
    if len(body) > most:
        raise ApiError(413, HTTP_MESSAGES[413])


def _check_credentials(request: web.Request) -> None:
    """Require any credentials and the API version."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if not (request.headers.get("x-api-key") or (scheme.lower() == "bearer" and key.strip())):
        raise ApiError(401, "x-api-key header is required")
    if not request.headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")


def _found(body: Json) -> Exchange:
    return Exchange(whole(200, encode(body)))


def _looked_at(body: Json, again_s: float | None) -> Exchange:
    """Return a batch, and say when to look again."""
    found = _found(body)
    wait = () if again_s is None else (("retry-after-ms", str(round(1000 * again_s))),)
    return replace(found, response=replace(found.response, headers=wait))


def _control(body: Json) -> web.Response:
    return web.Response(body=encode(body), content_type="application/json", headers=SIMULATED)
