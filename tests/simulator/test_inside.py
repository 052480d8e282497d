"""The mock server in this process answers the real SDK as the one behind a socket does."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from agent_magic.simulator import SimulatorError, inside

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agent_magic.simulator.inside import InsideSimulator


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


def sdk(server: InsideSimulator) -> anthropic.AsyncAnthropic:
    """The SDK's client, as it is, but for what carries its requests."""
    carrier = anthropic.DefaultAsyncHttpxClient(transport=server.transport)
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="any", http_client=carrier, max_retries=0)


def ask(prompt: str) -> dict[str, Any]:
    """A request."""
    return {"model": "claude-haiku-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": prompt}]}


@awaited
async def test_it_answers_as_the_process_does(talk):
    """Whole answers, streams and counts are those of a server with the same seed."""
    body = ask("Name a colour. [[tokens:20]]")
    with inside.start(latency="none", unlimited=True) as server:
        async with sdk(server) as client:
            whole = await client.messages.create(**body)
            async with client.messages.stream(**body) as stream:
                streamed = await stream.get_final_text()
            del body["max_tokens"]
            counted = await client.messages.count_tokens(**body)
    there = talk.post({**body, "max_tokens": 100}).body
    assert there["content"][0]["text"] == whole.content[0].text == streamed  # pyright: ignore[reportAttributeAccessIssue]
    assert counted.input_tokens == there["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("[[status:529 times=9]]", anthropic.InternalServerError),
        ("[[fault:reset]]", anthropic.APIConnectionError),
        ("[[fault:cut]]", httpx2.RemoteProtocolError),
    ],
)
@awaited
async def test_faults_arrive_as_over_a_socket(prompt, error):
    """An error has its status, a reset is a broken connection, a cut stream breaks while it is read."""
    with inside.start(latency="none") as server:
        async with sdk(server) as client:
            with pytest.raises(error):
                async for _ in await client.messages.create(**ask(prompt), stream=True):
                    pass


@awaited
async def test_the_journal_knows_who_is_gone():
    """Every request is closed in the journal; one that was left early counts as aborted."""
    with inside.start(latency="none") as server:
        async with sdk(server) as client:
            stream = await client.messages.create(**ask("[[fault:stall]]"), stream=True)
            await stream.close()
            await client.messages.create(**ask("Hi."))
        report = server.transport._service.journal.report()
    assert (0, 1, 1) == (report["in_flight"], report["finished"], report["aborted"])


@awaited
async def test_what_is_stopped_or_unknown_is_refused():
    """Another path is 404, another method 405, a missing key 401; after `stop` nobody is there."""
    with inside.start() as server:
        async with httpx2.AsyncClient(transport=server.transport, base_url=server.url) as client:
            wanted = [("GET", "/v1/nothing"), ("GET", "/v1/messages"), ("POST", "/v1/messages")]
            found = [(await client.request(*one)).status_code for one in wanted]
            server.stop()
            with pytest.raises(httpx2.ConnectError):
                await client.get("/v1/models")
    assert [404, 405, 401] == found


def test_wrong_options_are_said():
    """A wrong option is an error with the words of the program."""
    with pytest.raises(SimulatorError, match="latency 'wrong' is unknown"):
        inside.start(latency="wrong")
