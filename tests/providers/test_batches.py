"""Batches of a server with other habits than the API's, told apart by a bare server of our own."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

import agent_magic as am
from agent_magic.errors import PlanError
from agent_magic.live import batching

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def test_a_server_without_batches():
    """A server that knows no batches is told apart before anything is sent."""
    with pytest.raises(PlanError, match="has no batches, so nothing was sent"):
        drive(None)
