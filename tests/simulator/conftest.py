"""A simulator for all tests of this room, and ways to talk to one: through the real SDK, and as bare HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from agent_magic.simulator import Simulator, start

MODEL = "claude-haiku-5-5"
PATIENCE_S = 60.0
HEADERS = {"x-api-key": "test", "anthropic-version": "2026-10-21"}


@dataclass(frozen=True)
class Answer:
    """A bare HTTP response."""

    status: int
    headers: dict[str, str]
    body: Any


def request(url: str, method: str, path: str, *, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Send one request without the SDK; a body that is not bytes is sent as JSON."""
    where = urlsplit(url)
    assert where.hostname
    link = http.client.HTTPConnection(where.hostname, where.port, timeout=PATIENCE_S)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        link.request(method, where.path + path, data, HEADERS if headers is None else headers)
        response = link.getresponse()
        raw = response.read()
        kind = response.headers.get_content_type()
        known = {key.lower(): value for key, value in response.headers.items()}
        return Answer(response.status, known, json.loads(raw) if kind == "application/json" else raw)
    finally:
        link.close()


def ask(prompt: str, **more: Any) -> dict[str, Any]:
    """A message request with one user message."""
    return {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": prompt}], **more}


class Talk:
    """Ways to talk to one simulator."""

    def __init__(self, url: str) -> None:
        self.url = url

    def sdk(
        self, do: Callable[[AsyncAnthropic], Awaitable[Any]], *, timeout_s: float = PATIENCE_S, **options: Any
    ) -> Any:
        """Run something with a real client on a loop of its own."""

        async def run() -> Any:
            plain = DefaultAsyncHttpxClient(trust_env=False, verify=False)
            given = {"api_key": "test", **options}
            async with AsyncAnthropic(
                max_retries=0, base_url=self.url, timeout=timeout_s, http_client=plain, **given
            ) as client:
                return await do(client)

        return asyncio.run(run())

    def create(self, prompt: str, *, timeout_s: float = PATIENCE_S, **more: Any) -> Any:
        """Ask for a message, whole."""
        return self.sdk(lambda client: client.messages.create(**ask(prompt, **more)), timeout_s=timeout_s)

    def stream(self, prompt: str, *, timeout_s: float = PATIENCE_S, **more: Any) -> Any:
        """Ask for a message as a stream, and return it when it is complete."""

        async def do(client: AsyncAnthropic) -> Any:
            async with client.messages.stream(**ask(prompt, **more)) as stream:
                return await stream.get_final_message()

        return self.sdk(do, timeout_s=timeout_s)

    def post(self, body: Any, *, path: str = "/v1/messages", headers: dict[str, str] | None = None) -> Answer:
        """Post without the SDK."""
        return request(self.url, "POST", path, body=body, headers=headers)

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Answer:
        """Get without the SDK."""
        return request(self.url, "GET", path, headers=headers)

    def log(self) -> dict[str, Any]:
        """Read the journal."""
        return self.get("/simulator/log").body

    def reset(self) -> None:
        """Put the simulator back to its start."""
        assert self.post(None, path="/simulator/reset").status == 200


@pytest.fixture(scope="session")
def shared() -> Iterator[Simulator]:
    """One simulator for all tests that need nothing special: no delays, no limits."""
    with start(latency="none", unlimited=True) as simulator:
        yield simulator


@pytest.fixture
def talk(shared: Simulator) -> Talk:
    """The shared simulator, as if it had just started."""
    found = Talk(shared.url)
    until_s = time.monotonic() + PATIENCE_S
    while found.log()["in_flight"] and time.monotonic() < until_s:  # who has left an earlier test is noticed later
        pass
    found.reset()
    return found


@pytest.fixture
def started() -> Iterator[Callable[..., Talk]]:
    """Start simulators with options of the test's own; they are stopped at its end."""
    running: list[Simulator] = []

    def begin(**options: Any) -> Talk:
        running.append(start(**options))
        return Talk(running[-1].url)

    yield begin
    for simulator in running:
        simulator.stop()
