"""Servers of tools at an address: a real one, and ones that break in every way."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_magic import McpServer
from agent_magic.api import Agent, Claude, Plan, Run
from agent_magic.declare import ToolResult, tools_of
from agent_magic.errors import AgentMagicError, DeclarationError
from agent_magic.live import run_function, tool_result
from agent_magic.live.mcp import server, transports
from agent_magic.simulator import start
from tests.live.mcp_web import ABOUT, ECHO, Asked, Web

pytest.importorskip("mcp", reason="the package mcp is optional")
SHOP = Path(__file__).with_name("mcp_shop.py")
KEY = "a-key-of-no-known-shape-4711"
HEADERS = {"Authorization": f"Bearer {KEY}"}


def call(web: McpServer, tool: str = "echo", **arguments: Any) -> ToolResult:
    """Call a tool as a run does, on a loop of its own."""
    one = web.tools[tool]
    assert one.function is not None
    return tool_result(asyncio.run(run_function(one.function, arguments, timeout_s=one.timeout_s)), {})


def calls(web: McpServer, number: int) -> list[Any]:
    """Call a tool so often at once."""

    async def go() -> list[Any]:
        function = web.tools["echo"].function
        assert function is not None
        return await asyncio.gather(*(run_function(function, {"text": str(one)}) for one in range(number)))

    return [ran.value for ran in asyncio.run(go())]


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no server that restarts."""
    monkeypatch.setattr(server, "REOPEN_AFTER_S", (0.0,))


def test_a_real_server_is_like_one_on_this_machine():
    """Its tools, results, pictures, failures, calls at once; its key goes with every request."""
    with subprocess.Popen([sys.executable, str(SHOP), "http"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            with pytest.raises(AgentMagicError, match=r"401 Unauthorized: who are you\?\. Give it a key: headers="):
                McpServer("shop", url=url)
            with McpServer("shop", url=url, headers=HEADERS) as shop:
                names = ["shop_price", "shop_fail", "shop_who_is", "shop_picture", "shop_scraps"]
                assert names == [one.name for one in tools_of("shop.*", {"shop": shop})]
                assert [True, False] == [shop.tools[name].safe for name in ("price", "fail")]
                assert "tea: 6 EUR" == call(shop, "price", item="tea", number=2).content
                assert "image/png" == call(shop, "picture").files[0].media_type
                assert call(shop, "fail", why="no tea").is_error
                assert "McpServer('shop': price, fail, who.is, picture, scraps)" == repr(shop)
            assert not shop._thread.is_alive()
            assert "'shop' has ended. Start it again: %agents mcp shop http://127" in call(shop, "price").content
        finally:
            process.kill()


def test_what_checks_results_is_loaded_before_the_first_call(monkeypatch: pytest.MonkeyPatch):
    """`mcp` would import it within the call, which takes seconds of its time."""
    checker = "jsonschema.validators"
    for tool, is_loaded in ((ECHO, False), (ECHO | {"outputSchema": {"type": "object"}}, True)):
        monkeypatch.delitem(sys.modules, checker, raising=False)
        tools: Any = lambda asked, tool=tool: asked.result(tools=[tool])  # noqa: E731
        with Web({"tools/list": tools}) as web, McpServer("web", url=web.url):
            assert is_loaded == (checker in sys.modules)


def lost(status: int, body: str = "Session not found") -> Callable[[Asked], None]:
    """Know no session until it is opened again."""

    def answer(asked: Asked) -> None:
        if asked.server.count("initialize") < 2:
            asked.reply(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": body}}), status)
        else:
            asked.text("here again")

    return answer


@pytest.mark.parametrize(("status", "body"), [(404, "Session not found"), (400, "Bad Request: No valid session ID")])
def test_a_lost_session_is_opened_again(status: int, body: str):
    """Calls that lose it together open one; each is repeated, for the server has done nothing. Many answer 400."""
    with Web({"tools/call": lost(status, body)}) as web, McpServer("web", url=web.url) as found:
        assert ["here again"] * 12 == calls(found, 12)
        assert 2 == web.count("initialize")
        assert 2 == web.count("tools/list"), "its tools may be others now"


def test_a_session_that_is_always_lost_is_no_loop():
    """One more try for each call."""
    refuse: Any = lambda asked: asked.reply(status=404)  # noqa: E731
    with Web({"tools/call": refuse}) as web, McpServer("web", url=web.url) as found:
        assert "did not take the call: the server does not know the session" in call(found).content
        assert [2, 2] == [web.count("initialize"), web.count("tools/call")]


def test_calls_in_flight_end_in_their_own_session():
    """One call loses the session while another of it is under way: that one is not cut."""
    goes, under_way = threading.Event(), threading.Event()

    def answer(asked: Asked) -> None:
        if asked.message["params"]["arguments"]["text"] == "0":
            under_way.set()
            goes.wait()
            asked.text("slow")
        else:
            under_way.wait()
            lost(404)(asked)
            if asked.server.count("tools/call") > 2:
                goes.set()

    with Web({"tools/call": answer}) as web, McpServer("web", url=web.url) as found:
        assert ["slow", "here again"] == calls(found, 2)


@pytest.mark.usefixtures("_at_once")
def test_a_server_that_is_gone_is_reached_again_when_it_is_back():
    """Meanwhile calls say that there is no connection."""
    with Web() as web, McpServer("web", url=web.url) as found:
        port = web.server_port
        assert "1" == call(found, text="1").content
        web.__exit__()
        gone = call(found, text="2")
        assert gone.is_error
        assert f"'web' did not open a session (http://127.0.0.1:{port}/mcp): no connection: " in gone.content
        assert not found.has_ended
        with Web(port=port) as back:
            assert "3" == call(found, text="3").content
            assert ["initialize", "notifications/initialized", "tools/list", "tools/call"] == [
                method for method, _ in back.seen if method not in {"GET", "DELETE"}
            ]


CUT = "The connection to the MCP server 'web' broke during the call, which may have happened"
CUTS: dict[str, Callable[[Asked], None]] = {
    "a stream without an answer": lambda asked: asked.events(": hello\n\n"),
    "half an event": lambda asked: asked.events('data: {"jsonrpc": "2.0", "id": '),
    "half a body": lambda asked: asked.reply('{"jsonrpc": "2.0"', length="5000", connection="close"),
    "nothing at all": lambda asked: setattr(asked, "close_connection", True),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_call_that_is_cut_may_have_happened_and_is_not_repeated(cut: str):
    """The session goes on."""

    def answer(asked: Asked) -> None:
        asked.text("whole") if asked.message["params"]["arguments"].get("text") else CUTS[cut](asked)

    with Web({"tools/call": answer}) as web, McpServer("web", url=web.url) as found:
        told = call(found)
        assert told.is_error
        assert f"McpError: {CUT}" == told.content
        assert 1 == web.count("tools/call")
        assert "whole" == call(found, text="more").content
        assert 1 == web.count("initialize")


def test_a_cut_stream_with_event_numbers_is_resumed():
    """The answer comes on the next connection, and the call is sent once."""

    def resumed(asked: Asked) -> None:
        if asked.headers.get("last-event-id") != "7":
            asked.reply(status=405)
            return
        answer = {"jsonrpc": "2.0", "id": 0, "result": {"content": [{"type": "text", "text": "late"}]}}
        asked.events(f"id: 8\ndata: {json.dumps(answer)}\n\n")

    cut: Any = lambda asked: asked.events("id: 7\nretry: 1\ndata: \n\n")  # noqa: E731
    with Web({"tools/call": cut, "GET": resumed}) as web, McpServer("web", url=web.url) as found:
        assert "late" == call(found).content
        assert 1 == web.count("tools/call")


WRONG: dict[str, tuple[Callable[[Asked], None], str]] = {
    "garbage": (lambda asked: asked.reply('{"jsonrpc'), "sent an invalid message"),
    "another shape": (lambda asked: asked.reply('[1, {"a": null}]'), "sent an invalid message"),
    "a garbage event": (lambda asked: asked.events("data: {no\n\n"), "sent an invalid message"),
    "a page": (lambda asked: asked.reply("<h1>Hi</h1>", kind="text/html"), "Unexpected content type: text/html"),
    "nothing": (lambda asked: asked.reply(status=202), "202 Accepted"),
    "an error": (lambda asked: asked.reply("<h1>Boom</h1>", 500, "text/html"), "it answers 500 Internal Server Error"),
    "a number nobody knows": (lambda asked: asked.reply(status=799), "it answers 799"),
    "its own error": (
        lambda asked: asked.reply('{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no tea"}}', 400),
        "it answers 400 Bad Request: no tea",
    ),
    "no key any more": (lambda asked: asked.reply(status=401), "did not take the call: it answers 401 Unauthorized"),
    "too much": (lambda asked: asked.text("x" * 5000), "its answer has more than 2,000 bytes"),
    "too large an event": (
        lambda asked: asked.events(f"data: {json.dumps({'x': 'y' * 5000})}\n\n"),
        "broke during the call",
    ),
    "deep": (lambda asked: asked.reply("[" * 1500, 400), "it answers 400 Bad Request"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_answers_that_are_none_are_failures_of_that_call(wrong: str, monkeypatch: pytest.MonkeyPatch, caplog):
    """It says which; the next call works, and nothing is logged."""
    monkeypatch.setattr(transports, "MOST_BYTES", 2_000)
    answer, said = WRONG[wrong]

    def respond(asked: Asked) -> None:
        asked.text("well") if asked.message["params"]["arguments"].get("text") else answer(asked)

    with Web({"tools/call": respond}) as web, McpServer("web", url=web.url) as found:
        told = call(found)
        assert told.is_error
        assert said in told.content
        assert "well" == call(found, text="more").content
        assert 1 == web.count("initialize")
    assert [] == [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"initialize": lambda asked: asked.reply(status=404)}, r"404 Not Found\. Look at the path: it often ends"),
        ({"initialize": lambda asked: asked.reply(status=405)}, r"405 .*The older SSE transport is not supported"),
        ({"initialize": lambda asked: asked.reply(status=403)}, r"403 Forbidden\. The key may not use it"),
        ({"initialize": lambda asked: asked.reply("hi", kind="text/html")}, "Unexpected content type"),
        ({"initialize": lambda asked: asked.wait()}, r"did not answer within 0\.3 s"),
        ({"tools/list": lambda asked: asked.wait()}, r"did not answer within 0\.3 s"),
        ({"initialize": lambda asked: asked.result(protocolVersion="1066-10-14")}, "did not open a session"),
        ({"initialize": lambda asked: asked.reply('{"jsonrpc')}, "did not open a session"),
        ({"tools/list": lambda asked: asked.result(tools=[{"name": 7}])}, "did not open a session"),
    ],
    ids=["404", "405", "403", "a page", "silent", "silent list", "old", "garbage", "no tools"],
)
def test_why_no_session_was_opened_is_told(says: Any, message: str):
    """With what to look at. No thread is left."""
    before = threading.active_count()
    with Web(says) as web:
        with pytest.raises(AgentMagicError, match=message) as caught:
            McpServer("web", url=web.url, timeout=0.3)
        assert len(str(caught.value)) < 500
    assert not [one for one in threading.enumerate() if one.name == "agent_magic mcp web"], before


def test_nobody_listens_at_the_address():
    """It is said at once, with the address."""
    with Web() as web:
        url = web.url
    with pytest.raises(AgentMagicError, match=rf"'web' did not open a session \({url}\): no connection: .+"):
        McpServer("web", url=url)


def test_a_call_that_is_never_answered_is_given_up_and_closing_waits_for_nobody():
    """The server is told that it may stop."""
    told = threading.Event()

    def cancelled(asked: Asked) -> None:
        told.set()
        asked.reply(status=202)

    says: Any = {
        "tools/call": lambda asked: asked.wait(),
        "DELETE": lambda asked: asked.wait(),
        "notifications/cancelled": cancelled,
    }
    with Web(says) as web:
        with McpServer("web", url=web.url) as found:
            function = found.tools["echo"].function
            assert function is not None
            ran = asyncio.run(run_function(function, {}, timeout_s=0.2))
            assert "not finished within 0.2 s" in tool_result(ran, {}).content
            assert told.wait(30)
        assert not found._thread.is_alive()


def test_headers_go_to_no_other_host():
    """A redirect elsewhere is not followed, and named; one on the same host is."""
    with Web() as other:
        away: Any = lambda asked: asked.reply(status=307, location=other.url)  # noqa: E731
        with Web({"initialize": away}) as web, pytest.raises(AgentMagicError, match=r"Redirect to .* not followed"):
            McpServer("web", url=web.url, headers=HEADERS)
        with Web({"tools/call": away}) as web, McpServer("web", url=web.url, headers=HEADERS) as found:
            assert "not followed" in call(found).content
        assert [] == other.seen

    def moved(asked: Asked) -> None:
        if asked.path == "/mcp":
            asked.reply(status=308, location="/mcp/")
        else:
            asked.text("moved")

    with Web({"tools/call": moved}) as web, McpServer("web", url=web.url, headers=HEADERS) as found:
        assert "moved" == call(found).content
        assert {f"Bearer {KEY}"} == {headers["Authorization"] for _, headers in web.seen}


def test_a_server_that_asks_to_be_asked_at_once_is_not_asked_in_a_loop():
    """It closes its stream of events each time, and says `retry: 0`."""
    says: Any = {"GET": lambda asked: asked.events("id: 1\nretry: 0\ndata: \n\n")}
    began = time.monotonic()
    with Web(says) as web, McpServer("web", url=web.url) as found:
        while web.count("GET") < 2:
            assert "x" == call(found, text="x").content
        asked, took_s = web.count("GET"), time.monotonic() - began
    assert asked <= 2 + took_s / transports.LISTEN_EVERY_S


def test_tools_that_are_others_now_count_in_the_next_plan():
    """The server says so in its stream of events; it tells again with each list, and is not asked in a loop."""
    changed = f"data: {json.dumps({'jsonrpc': '2.0', 'method': 'notifications/tools/list_changed'})}\n\n"

    def listen(asked: Asked) -> None:
        asked.events(changed)

    def tools(asked: Asked) -> None:
        late = [{**ECHO, "name": "late"}] if asked.server.count("tools/list") > 1 else []
        asked.result(tools=[ECHO, *late])

    with Web({"GET": listen, "tools/list": tools}) as web, McpServer("web", url=web.url) as found:
        frozen = tools_of([found]) if "late" not in found.tools else []
        while "late" not in found.tools:
            call(found)
        assert [one.name for one in frozen] in ([], ["web_echo"])
        assert ["web_echo", "web_late"] == [one.name for one in tools_of("web.*", {"web": found})]


def test_a_list_that_fails_later_keeps_the_tools_and_is_told():
    """It is garbage from the second time on."""
    changed = f"data: {json.dumps({'jsonrpc': '2.0', 'method': 'notifications/tools/list_changed'})}\n\n"

    def tools(asked: Asked) -> None:
        asked.result(tools=[ECHO]) if asked.server.count("tools/list") < 2 else asked.reply("{")

    says: Any = {"GET": lambda asked: asked.events(changed), "tools/list": tools}
    with Web(says) as web, McpServer("web", url=web.url) as found:
        while not found.unlisted:
            assert "x" == call(found, text="x").content
        assert "sent an invalid message" in found.unlisted
        assert ["echo"] == [*found.tools]


def test_a_list_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A page always has another one."""
    monkeypatch.setattr(server, "MOST_LISTED", 50)

    def tools(asked: Asked) -> None:
        number = asked.server.count("tools/list")
        asked.result(tools=[{**ECHO, "name": f"t{number}"}], nextCursor=str(number))

    with Web({"tools/list": tools}) as web, pytest.raises(AgentMagicError, match="lists more than 50 tools"):
        McpServer("web", url=web.url)


def repeats(asked: Asked) -> None:
    """Repeat the key wherever it can be put."""
    key = asked.headers["Authorization"].partition(" ")[2]
    coded = base64.b64encode(f"x{key}".encode()).decode()
    if asked.message["method"] == "tools/list":
        asked.result(tools=[{**ECHO, "description": f"For {key}", "inputSchema": {"type": "object", "title": key}}])
    elif not asked.message["params"]["arguments"].get("text"):
        asked.reply(f"no {key} {coded}", 500, "text/html")
    else:
        asked.result(content=[{"type": "text", "text": f"{key} {coded}"}], structuredContent={key: [key]})


def test_headers_appear_nowhere(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    """In no tool, result, error, repr, log, frame, page or recording, whatever the server repeats."""
    caplog.set_level(logging.DEBUG)
    url_key = "q8Zr2Lw0Xb5Tn1Vy7Kd3"
    with (
        start(latency="none", unlimited=True) as simulator,
        Web({"tools/list": repeats, "tools/call": repeats}) as web,
        McpServer("web", url=f"{web.url}/{url_key}/x?api_key={url_key}", headers=HEADERS) as found,
    ):
        plan = Plan([Agent("a", '[[tool:web_echo {"text": "x"}]] [[tool:web_echo {}]]', tools=[found])])
        run: Run = asyncio.run(plan.run(client=Claude(base_url=simulator.url, api_key="any")))
        told = [call(found).content, call(found, text="x").content, repr(found), found.again, str(vars(found))]
        told += [repr(found.tools), str(vars(found._transport)), found.tools["echo"].description]
        assert 2 == len(run.tool_calls)
        run.save(tmp_path / "run.cassette.jsonl")
        told += [
            run.tool_calls.to_json(),
            run.attempts.to_json(),
            run.agents.to_json(),
            repr(run),
            str(run._repr_mimebundle_()),
        ]
        told += [(tmp_path / "run.cassette.jsonl").read_text(), json.dumps(plan.to_dict())]
        assert told[1].startswith("[key] ")
    told += [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    with pytest.raises(AgentMagicError) as caught:
        McpServer("web", url=f"{web.url}/{url_key}?api_key={url_key}", headers=HEADERS)
    told.append(str(caught.value))
    coded = base64.b64encode(f"x{KEY}".encode()).decode()[4:-4]
    for one in told:
        assert KEY not in one
        assert url_key not in one
        assert coded not in one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "crm.example/mcp"}, "url='crm.example/mcp' is not the address of a server"),
        ({"url": "ftp://crm.example"}, "is not the address"),
        ({"url": "http://me:secret@crm.example"}, "url='http://crm.example' holds a user name or a password"),
        ({"url": "http://crm.example", "command": "x"}, "has an address: it takes no command and no env"),
        ({"url": "http://crm.example", "env": "TOKEN"}, "has an address: it takes no command and no env"),
        ({"command": "x", "headers": HEADERS}, "Headers are for an MCP server at an address"),
        ({"command": "http://crm.example"}, r"is an address\. Write: McpServer\('crm', url=\.\.\.\)"),
        ({"url": "http://crm.example", "headers": {"X": "secret\n"}}, "header 'X' .* is not one line of plain char"),
        ({"url": "http://crm.example", "headers": {"X": "se\u00e9cret"}}, "is not one line of plain characters"),
        ({"url": "http://crm.example", "headers": {"X": ""}}, "is not one line of plain characters"),
        ({"url": "http://crm.example", "headers": {"X": 5}}, "is not a text, but of type int"),
        ({"url": "http://crm.example", "headers": {"X\r\nY": "secret"}}, "has no name of letters"),
    ],
)
def test_wrong_arguments_connect_to_nothing(arguments: Any, message: str):
    """They are refused at once; a value of a header is not in the error."""
    with pytest.raises(DeclarationError, match=message) as caught:
        McpServer("crm", **arguments)
    assert "cret" not in str(caught.value)


def test_a_session_number_that_no_header_can_hold_is_refused():
    """A hostile one."""

    def answer(asked: Asked) -> None:
        asked.reply(
            json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": ABOUT}), mcp_session_id="\xe9\x01"
        )

    with Web({"initialize": answer}) as web, pytest.raises(AgentMagicError, match="did not open a session"):
        McpServer("web", url=web.url, timeout=5)
