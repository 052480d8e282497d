"""Batches of a server with other habits than the API's, told apart by a bare server of our own."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

import agent_magic as am
from agent_magic.engine import retry
from agent_magic.errors import Overloaded, PlanError, Unreadable
from agent_magic.live import batching

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MESSAGE = {"type": "message", "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2}}


class Odd:
    """A server of batches that drops connections and tears downloads.

    Args:
        torn: How many downloads end early, between two lines or within one.
        silent: Whether the creation of a batch has no reply, though it was created.
        noise: Lines among its results that are none.
        creates: What it answers to the creation of a batch; `None` creates it.
        counts: Whether it counts what is in a batch.
    """

    def __init__(
        self,
        torn: int = 0,
        *,
        silent: bool = False,
        noise: Sequence[str] = (),
        creates: str | None = None,
        counts: bool = True,
    ) -> None:
        self.torn, self.silent, self.noise, self.creates, self.counts = torn, silent, noise, creates, counts
        self.asked = 0
        self.names: list[list[str]] = []

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        base = "/v1/messages/batches"
        return [
            web.post(base, self.create),
            web.get(base, self.recent),
            web.get(f"{base}/{{id}}", self.look),
            web.get("/elsewhere/{id}", self.results),
        ]

    def batch(self, number: int) -> dict[str, object]:
        """A batch that has ended at once, without the fields that are not needed."""
        counts = {"processing": 0, "succeeded": len(self.names[number]), "errored": 0, "canceled": 0, "expired": 0}
        return {
            "id": f"b{number}",
            "processing_status": "ended",
            "request_counts": counts if self.counts else None,
            "created_at": "2100-01-01T00:00:00Z" if number < 0 else _now(),
            "results_url": f"/elsewhere/b{number}",
        }

    async def create(self, request: web.Request) -> web.Response:
        """Create a batch, and maybe say nothing."""
        asked = await request.json()
        self.asked += 1
        if self.creates is not None:
            return web.Response(text=self.creates, content_type="application/json")
        self.names.append([one["custom_id"] for one in asked["requests"]])
        if self.silent:
            self.silent = False
            request.transport.close()
        return web.json_response(self.batch(len(self.names) - 1), headers={"retry-after-ms": "20"})

    async def recent(self, _request: web.Request) -> web.Response:
        """List all."""
        found = [self.batch(number) for number in reversed(range(len(self.names)))]
        return web.json_response({"data": found, "has_more": False, "first_id": None, "last_id": None})

    async def look(self, request: web.Request) -> web.Response:
        """Describe one."""
        return web.json_response(self.batch(int(request.match_info["id"][1:])))

    async def results(self, request: web.Request) -> web.Response:
        """Return the results, the last first, and strangers among them."""
        names = self.names[int(request.match_info["id"][1:])]
        told = [{"custom_id": one, "result": {"type": "succeeded", "message": said(one)}} for one in reversed(names)]
        told.insert(1, {"custom_id": "a-stranger", "result": {"type": "succeeded", "message": said("x")}})
        lines = [json.dumps(one) for one in told]
        if self.torn:
            self.torn -= 1
            lines = [*lines[:-1], lines[-1][:20]] if self.torn % 2 else lines[:-1]
        lines[1:1] = self.noise
        return web.Response(text="\n".join(lines))


def said(name: str) -> dict[str, object]:
    """An answer that names its request."""
    return {**MESSAGE, "model": "claude-haiku-5-5", "content": [{"type": "text", "text": name}]}


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat()


def drive(server: Odd | None, count: int = 3):
    """Run a plan by batch against a server."""
    plan = am.Plan([am.Agent("a", "Say {{ item }}", each="rows")], {"rows": list(range(count))})
    ledger = am.Ledger()

    async def main():
        app = web.Application()
        app.add_routes([] if server is None else server.routes())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            client = am.Claude(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}", api_key="x")
            return await plan.run(am.Policy(batch=True), client=client, ledger=ledger)
        finally:
            await runner.cleanup()

    try:
        return asyncio.run(main())
    finally:
        ledger.close()


def test_torn_downloads_are_read_again():
    """Results that end early, between lines or within one, are read until each request has its own."""
    server = Odd(torn=2)
    run = drive(server)
    assert [1, 1, 1] == [len(one.attempts) for one in run.record.results]
    assert server.names == [[one.text for one in run.record.results]]


def test_lines_that_are_none_hide_no_other():
    """Not JSON, no object, or nothing: each request has the result of its own line."""
    noise = ["{not json", "[1]", "null", "", '{"custom_id": null, "result": "x"}', "[" * 9_999]
    run = drive(server := Odd(noise=noise))
    assert server.names == [[one.text for one in run.record.results]]
    assert [1, 1, 1] == [len(one.attempts) for one in run.record.results]


def test_an_error_that_is_none_of_the_api_s_ends_its_request_alone():
    """A text in its place, or a message that is none: the others have their answers."""

    class Wrong(Odd):
        async def results(self, request: web.Request) -> web.Response:
            first, *rest = self.names[int(request.match_info["id"][1:])]
            told = [{"custom_id": first, "result": {"type": "errored", "error": "no"}}]
            told += [{"custom_id": one, "result": {"type": "succeeded", "message": said(one)}} for one in rest]
            return web.Response(text="\n".join(map(json.dumps, told)))

    run = drive(Wrong())
    assert ["failed", "succeeded", "succeeded"] == [one.status for one in run.record.results]
    assert "gave no reason (500, in a batch)" in str(run.record.results[0].error)


def test_a_batch_that_counts_nothing_ends():
    """Counts are no part of what tells its end."""
    assert drive(Odd(counts=False)).ok


@pytest.mark.parametrize("reply", ["{}", "<html>Sign in</html>"])
def test_a_reply_that_is_no_batch_is_not_asked_for_without_end(reply: str, monkeypatch: pytest.MonkeyPatch):
    """Each creation may have been one: it is looked for, and the retry policy decides."""
    monkeypatch.setattr(batching, "SETTLED_S", 0.1)
    run = drive(server := Odd(creates=reply))
    assert ["failed"] * 3 == [one.status for one in run.record.results]
    assert all(str(one.error).startswith("Unreadable: ") for one in run.record.results)
    assert 1 <= server.asked <= 3


def test_a_creation_without_a_reply_is_found(monkeypatch: pytest.MonkeyPatch):
    """A batch whose creation had no reply is taken from the list of recent ones, and not created again."""
    monkeypatch.setattr(batching, "SETTLED_S", 0.5)
    server = Odd(silent=True)
    run = drive(server)
    assert run.ok
    assert 1 == len(server.names)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for what is not there."""
    monkeypatch.setattr(batching, "SETTLED_S", 0.1)
    monkeypatch.setattr(batching, "LAST_LOOK_S", 0.02)
    monkeypatch.setattr(batching, "FIRST_LOOK_S", 0.02)
    monkeypatch.setattr(batching, "GATHER_S", 0.05)
    monkeypatch.setattr(retry, "FIRST_BACKOFF_S", 0.001)


class Said(Odd):
    """A server whose fields of a batch, and whose lines of its results, are others."""

    def __init__(self, line: Callable[[str], dict[str, object]] | None = None, **fields: object) -> None:
        super().__init__()
        self.line, self.fields = line, fields

    def routes(self) -> list[web.RouteDef]:
        """Answer the documented address of results, too."""
        return [*super().routes(), web.get("/v1/messages/batches/{id}/results", self.results)]

    def batch(self, number: int) -> dict[str, object]:
        """A batch with other fields."""
        return {**super().batch(number), **self.fields}

    async def results(self, request: web.Request) -> web.Response:
        """Results with other lines."""
        if self.line is None:
            return await super().results(request)
        return web.Response(text="\n".join(json.dumps(self.line(one)) for one in self.names[0]))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fields",
    [
        *({"created_at": one} for one in (None, "yesterday", 5)),
        *({"ended_at": one} for one in (None, "now")),
        *({"request_counts": one} for one in ({"succeeded": 3.0}, {"succeeded": "3"}, [3])),
        *({"results_url": one} for one in (None, "", 7, "http://127.0.0.1:9/results", "//127.0.0.1:9/results")),
    ],
    ids=repr,
)
def test_a_batch_is_read_whatever_its_fields_say(fields: dict[str, Any]):
    """Its id and its end are enough. Results are read from the server that has the key, wherever it says they are."""
    run = drive(Said(**fields))
    assert [(one.name, 1) for one in run.record.plan.agents] == [
        (one.name, len(one.attempts)) for one in run.record.results
    ]
    assert run.ok


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("result", [None, {}, {"type": "wow"}, {"type": None}, []], ids=repr)
def test_a_result_of_no_kind_may_be_billed(result: object):
    """Nobody says that it was not: its cost is unknown, never nothing."""
    run = drive(Said(lambda name: {"custom_id": name, "result": result}))
    assert ["failed"] * 3 == [one.status for one in run.record.results]
    assert [None] * 3 == [one.cost_usd for one in run.record.results]


@pytest.mark.usefixtures("quick")
def test_results_under_other_names_are_not_bought_again():
    """The batch is ours, as its creation said: it is billed, and another one would be, too."""
    server = Said(lambda name: {"custom_id": name.upper(), "result": {"type": "succeeded", "message": said(name)}})
    run = drive(server)
    assert (1, 1) == (server.asked, len(server.names))
    assert all("lack this request" in str(one.error) for one in run.record.results)
    assert [None] * 3 == [one.cost_usd for one in run.record.results]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("status", "creations"), [(500, 3), (502, 3), (529, 3), (400, 1), (413, 1)])
def test_a_batch_that_cannot_be_created_costs_nothing_and_is_tried_by_policy(status: int, creations: int):
    """Where it is not on the list of batches it was never created; the error is told."""

    class Refusing(Odd):
        async def create(self, request: web.Request) -> web.Response:
            self.asked += 1
            return web.json_response({"error": {"message": "the words"}}, status=status)

    run = drive(server := Refusing())
    assert creations == server.asked
    assert all("the words" in str(one.error) for one in run.record.results)
    assert [0.0] * 3 == [one.cost_usd for one in run.record.results]


@pytest.mark.usefixtures("quick")
def test_a_list_of_batches_without_an_end_is_left():
    """A server that ignores the page it is asked for sends the first one for ever."""

    class Endless(Odd):
        async def recent(self, _request: web.Request) -> web.Response:
            batch = {**super().batch(-1), "id": "old"} if self.names else {}
            data = [{"id": "old", "processing_status": "ended", "created_at": "2100-01-01T00:00:00Z", **batch}]
            return web.json_response({"data": data, "has_more": True, "first_id": "old", "last_id": "old"})

    assert drive(Endless()).ok


@pytest.mark.usefixtures("quick")
def test_results_that_cannot_be_read_say_why():
    """The batch is billed, and stays open for the next run."""

    class Failing(Odd):
        async def results(self, request: web.Request) -> web.Response:
            return web.json_response({"error": {"message": "the words"}}, status=500)

    run = drive(Failing())
    assert all("cannot be read: the words (500)" in str(one.error) for one in run.record.results)


def test_a_page_in_place_of_a_list_is_told_in_words():
    """No error of the SDK's own reaches a person."""

    class Page(Odd):
        async def recent(self, _request: web.Request) -> web.Response:
            return web.Response(text="<html>Sign in</html>", content_type="text/html")

    with pytest.raises(Unreadable, match="Check base_url"):
        drive(Page())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("failures", "looks"), [(2, 3), (9, 3)])
def test_a_busy_server_is_asked_again_before_the_first_batch(failures, looks, monkeypatch):
    """A moment's failure ends no run; one that lasts does, and nothing was sent."""

    class Busy(Odd):
        looked = 0

        async def recent(self, request: web.Request) -> web.Response:
            self.looked += 1
            if self.looked <= failures:
                return web.json_response({"error": {"message": "busy"}}, status=529)
            return await super().recent(request)

    monkeypatch.setattr(batching, "CHECK_PAUSES_S", (0.0, 0.0))
    server = Busy()
    if failures < looks:
        assert drive(server).ok
    else:
        with pytest.raises(Overloaded, match="busy"):
            drive(server)
        assert (looks, []) == (server.looked, server.names)


def test_a_server_without_batches():
    """A server that knows no batches is told apart before anything is sent."""
    with pytest.raises(PlanError, match="has no batches, so nothing was sent"):
        drive(None)
