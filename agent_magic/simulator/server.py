"""The HTTP side: routes, the guard at the door, and the record of every request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from aiohttp import web

from agent_magic.simulator.catalog import MODELS, describe, describe_all
from agent_magic.simulator.journal import Entry
from agent_magic.simulator.problem import Problem, invalid
from agent_magic.simulator.reply import whole
from agent_magic.simulator.sending import Watch, send
from agent_magic.simulator.service import MESSAGES, Exchange, Service
from agent_magic.simulator.shapes import Json
from agent_magic.simulator.wire import encode

MAX_BODY = 32 * 1024 * 1024
LOCAL_NAMES = ("127.0.0.1", "localhost")
Decide: TypeAlias = Callable[[bytes, Entry], Exchange]
HTTP_MESSAGES = {
    404: "There is nothing at this path.",
    405: "This path does not take this method.",
    413: f"The request is larger than {MAX_BODY} bytes.",
}


def application(service: Service, token: str = "") -> web.Application:
    """Return the web application.

    Args:
        service: Decides the answers.
        token: A path prefix that every request must have; empty for none.
    """
    server = _Server(service)
    prefix = f"/{token}" if token else ""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[server.guard])
    app.router.add_post(f"{prefix}{MESSAGES}", server.messages)
    app.router.add_post(f"{prefix}{MESSAGES}/count_tokens", server.count_tokens)
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
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse foreign hosts, and answer what no route takes with an error body like any other."""
        try:
            _check_host(request)
            return await handler(request)
        except web.HTTPException as found:
            problem = Problem(found.status, HTTP_MESSAGES.get(found.status, found.reason))
        except Problem as found:
            problem = found
        return await self._refuse(request, problem)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/messages`."""
        return await self._answer(
            request, MESSAGES, lambda body, entry: self._service.exchange(body, entry, time.monotonic())
        )

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/messages/count_tokens`."""
        return await self._answer(request, f"{MESSAGES}/count_tokens", self._service.count_tokens)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/models`."""
        return await self._answer(request, "/v1/models", lambda body, entry: _found(describe_all()))

    async def model(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/models/{id}`."""

        def decide(_body: bytes, _entry: Entry) -> Exchange:
            model = MODELS.get(request.match_info["id"])
            if model is None:
                raise Problem(404, f"model: {request.match_info['id']}")
            return _found(describe(model))

        return await self._answer(request, "/v1/models/{id}", decide)

    async def log(self, _request: web.Request) -> web.StreamResponse:
        """`GET /simulator/log`."""
        return _control(self._service.journal.report())

    async def reset(self, _request: web.Request) -> web.StreamResponse:
        """`POST /simulator/reset`."""
        self._service.reset(time.monotonic())
        return _control({"reset": True})

    @contextmanager
    def _recorded(self, route: str) -> Generator[Entry]:
        """Keep the record of one request, however it ends."""
        journal = self._service.journal
        entry = journal.open(route, time.monotonic())
        try:
            yield entry
        finally:
            journal.close(entry, time.monotonic())

    async def _answer(self, request: web.Request, route: str, decide: Decide) -> web.StreamResponse:
        """Record a request, decide its answer, send it."""
        with self._recorded(route) as entry:
            try:
                body = await request.read()
                _check_credentials(request)
                exchange = decide(body, entry)
            except web.HTTPRequestEntityTooLarge:
                exchange = self._service.error(Problem(413, HTTP_MESSAGES[413]), entry)
            except Problem as problem:
                exchange = self._service.error(problem, entry)
            return await self._send(request, exchange, entry)

    async def _refuse(self, request: web.Request, problem: Problem) -> web.StreamResponse:
        with self._recorded(request.path) as entry:
            return await self._send(request, self._service.error(problem, entry), entry)

    async def _send(self, request: web.Request, exchange: Exchange, entry: Entry) -> web.StreamResponse:
        service, journal = self._service, self._service.journal
        entry.status = exchange.reply.status

        def began() -> None:
            now_s = time.monotonic()
            entry.first_byte_s = journal.at(now_s)
            if exchange.visit:
                service.cache.begin(exchange.visit, now_s)

        def sent(tokens: int) -> None:
            if exchange.pool:
                exchange.pool.output_tokens.take(tokens - entry.output_tokens, time.monotonic())
            entry.output_tokens = tokens

        def done() -> None:
            entry.finished_s = journal.at(time.monotonic())

        headers = service.headers(entry, time.monotonic())
        return await send(request, exchange.reply, headers, Watch(began, sent, done, lambda: journal.in_flight))


def _check_host(request: web.Request) -> None:
    """Refuse a request that names another host: a page of the web that was pointed at this port."""
    host = request.headers.get("host", "").lower()
    name, _, port = host.partition(":")
    if name not in LOCAL_NAMES or not (port.isdigit() or host == name):
        raise Problem(403, "The simulator answers to 127.0.0.1 and localhost only.")


def _check_credentials(request: web.Request) -> None:
    """Ask for credentials of either kind, any value, and for the version of the API."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if not (request.headers.get("x-api-key") or (scheme.lower() == "bearer" and key.strip())):
        raise Problem(401, "x-api-key header is required")
    if not request.headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")


def _found(body: Json) -> Exchange:
    return Exchange(whole(200, encode(body)))


def _control(body: Json) -> web.Response:
    return web.Response(body=encode(body), content_type="application/json", headers={"x-agent-magic-simulated": "1"})
