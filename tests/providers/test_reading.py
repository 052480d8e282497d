"""Streams are read as the JSON they came as; where that is not possible, the SDK's objects tell the same."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic, AsyncStream
from anthropic.resources import AsyncMessages
from anthropic.types import RawMessageStopEvent

from agent_magic import Claude
from agent_magic.live import Driver
from agent_magic.providers.anthropic.stream import plain
from tests.providers.test_claude import ANSWERS, FAULTS, KEY, ONCE, meet, one, within
from tests.providers.wire import BEGIN, OPEN, REASON, STOP, TEXT, WHOLE, reply, serving, tasks_left, until


class OfAnotherKind:
    """A client that is none of the SDK's, but has its messages."""

    def __init__(self, sdk):
        self.messages, self.base_url = sdk.messages, sdk.base_url

    def with_options(self, **_):
        """Return itself."""
        return self


class OwnStream(AsyncStream):
    """A stream of a user's own."""


class OwnMessages(AsyncMessages):
    """Messages of a user's own, that say something more and stream in their own way."""

    async def create(self, **body):
        """Ask, and say something more."""
        made = await super().create(**body, extra_headers={"x-mine": "1"})
        return OwnStream(cast_to=made._cast_to, response=made.response, client=self._client)


class OwnClient(AsyncAnthropic):
    """A client of a user's own."""

    @property
    def messages(self):
        """Messages of its own."""
        return OwnMessages(self)


def others(answer, dress):
    """Ask a server through a client of one's own."""

    async def work():
        async with serving(answer) as server, OwnClient(api_key=KEY, base_url=server.url, max_retries=0) as sdk:
            driver = Driver(one(timeout_s=60.0), ONCE, Claude(client=dress(sdk)))
            await driver.drive()
            await until(lambda: not tasks_left())
        return driver.record, server

    return within(work())


@pytest.mark.parametrize("dress", [OfAnotherKind, lambda sdk: sdk], ids=["another kind", "overridden"])
@pytest.mark.parametrize("answer", [*(row[0] for row in FAULTS.values()), *(row[0] for row in ANSWERS.values())])
def test_every_client_tells_the_same(answer, dress):
    """Whatever the server sends, an attempt comes out of a user's own client as it comes out of ours."""
    expected, _ = meet(answer, one(timeout_s=60.0))
    found, _ = others(answer, dress)
    (ours,), (theirs,) = expected["a"].attempts, found["a"].attempts
    for what in ("kind", "partial", "usage", "status_code", "source"):
        assert getattr(ours, what) == getattr(theirs, what)
    assert (expected["a"].text, expected["a"].answer) == (found["a"].text, found["a"].answer)


def test_an_overridden_create_is_what_is_called():
    """A user who overrides `messages.create` sees every request of ours go through it."""
    record, server = others(reply(WHOLE), lambda sdk: sdk)
    assert ("hello world", "1") == (record["a"].text, server.heads[0]["x-mine"])


def read(made, sdk):
    """Read a stream to its end; return the events."""

    async def work():
        return [event async for event in plain(made, sdk)]

    return work()


@pytest.mark.parametrize(("watched", "kind"), [(False, dict), (True, RawMessageStopEvent)])
def test_a_stream_that_a_tracer_watches_keeps_the_objects_of_the_sdk(watched, kind):
    """Without a tracer nobody needs the SDK's objects; with one, its span is made of them."""
    seen = []

    class Observer:
        """What the SDK's tracer is to a stream."""

        def begin(self):
            """Take no note."""

        def item(self, item):
            """Take an event in."""
            seen.append(item)

        def end(self, how, error=None):
            """Take no note."""

    async def work():
        body = reply(BEGIN + OPEN + TEXT + REASON + STOP)
        async with serving(body) as server, AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as sdk:
            made = await sdk.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
            )
            if watched:
                made.response.stream.stream_observer = Observer()
            found = await read(made, sdk)
            await until(lambda: not tasks_left())
            return found

    found = within(work())
    assert kind is type(found[-1])
    assert (found if watched else []) == seen
