"""Servers of tools in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_magic import McpServer
from agent_magic.declare import ToolResult, tools_of
from agent_magic.declare.tool import Toolbox
from agent_magic.errors import AgentMagicError, DeclarationError, InvalidArguments
from agent_magic.live import run_function, tool_result

pytest.importorskip("mcp", reason="the package mcp is optional")
SHOP = [sys.executable, str(Path(__file__).with_name("mcp_shop.py"))]
ODD = [sys.executable, str(Path(__file__).with_name("mcp_odd.py"))]


@pytest.fixture(scope="module")
def shop():
    """A server that runs; it has two variables less than this process."""
    before = {name: os.environ.get(name) for name in ("SHOP_TOKEN", "SHOP_OTHER")}
    os.environ |= {"SHOP_TOKEN": "given", "SHOP_OTHER": "not given"}
    try:
        server = McpServer("shop", SHOP, env="SHOP_TOKEN")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    with server:
        yield server


def call(shop: McpServer, tool: str, **arguments: Any) -> ToolResult:
    """Call a tool as a run does, on a loop of its own."""
    function = shop.tools[tool].function
    assert function is not None
    return tool_result(asyncio.run(run_function(function, arguments)), {})


def test_its_tools_are_tools(shop):
    """Named by server and tool, in letters that the API takes, with the server's own schema."""
    assert isinstance(shop, Toolbox)
    found = {one.name: one for one in tools_of("shop.*", {"shop": shop})}
    assert ["shop_price", "shop_fail", "shop_who_is", "shop_picture", "shop_scraps"] == list(found)
    price = found["shop_price"].definition()
    assert "Return the price of an item." == price["description"]
    assert ["item", "number"] == list(price["input_schema"]["properties"])
    assert "strict" not in price
    assert [True, False] == [shop.tools[name].safe for name in ("price", "fail")], "one only reads"
    assert ["shop_who_is"] == [one.name for one in tools_of("shop.who.is", {"shop": shop})]
    assert 5 == len(tools_of([shop]))
    with pytest.raises(DeclarationError, match=r"Did you mean 'shop\.price'"):
        tools_of("shop.prise", {"shop": shop})


def test_calls_come_from_any_loop(shop):
    """Each of these runs on another one; the session belongs to a loop of its own."""
    assert ("tea: 6 EUR", False, 10, ()) == call(shop, "price", item="tea", number=2)


def test_pictures_of_a_server_are_pictures(shop):
    """In an image block or as a file; what is no picture, and what no model hears, is named."""
    (picture,) = call(shop, "picture").files
    assert ("image/png", 1, 1) == (picture.media_type, picture.width, picture.height)
    found = call(shop, "scraps")
    assert [picture.sha256] == [one.sha256 for one in found.files]
    *told, dot = json.loads(found.content)
    assert "(image left out: image/png; 'of image/png' is no picture" in told[0]["text"]
    assert "(audio left out: audio/wav)" == told[1]["text"]
    assert ("image", picture.sha256) == (dot["type"], dot["source"]["data"])


def test_calls_run_at_once(shop):
    """From one run, on its loop."""

    async def go():
        function = shop.tools["price"].function
        return await asyncio.gather(*(run_function(function, {"item": str(one)}) for one in range(20)))

    assert [f"{one}: 3 EUR" for one in range(20)] == [ran.value for ran in asyncio.run(go())]


def test_what_the_server_says_went_wrong_is_told(shop):
    """A failure, an argument that it refuses; text that is no JSON does not reach it."""
    assert call(shop, "fail", why="no tea").is_error
    refused = call(shop, "price")
    assert refused.is_error
    assert "item" in refused.content
    with pytest.raises(InvalidArguments, match="INVALID_JSON"):
        shop.tools["price"].arguments('{"item": "te')


def test_it_gets_the_variables_that_are_named_and_no_others(shop):
    """A token is nobody's business that was not given it."""
    content = call(shop, "who.is").content
    assert '"token":"given"' in content.replace(" ", "").replace("\n", "")
    assert "not given" not in content


def is_there(pid: int) -> bool:
    """Return whether a process of this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_ends_when_it_is_closed_and_calls_say_so():
    """Its process too, whichever thread closes it; closing twice is fine."""
    server = McpServer("shop", SHOP)
    pid = int(call(server, "who.is").content.partition('"pid":')[2].partition(",")[0])
    assert is_there(pid)
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join()
    server.close()
    assert not is_there(pid)
    assert "The MCP server 'shop' has ended. Start it again" in call(server, "price", item="tea").content


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([*SHOP, "broken"], ["did not start", "  the shop opens", r"  no goods: \[an Anthropic key\]"]),
        ("no-such-program-anywhere", ["did not start", "No such file or directory"]),
    ],
    ids=["broken", "missing"],
)
def test_why_it_did_not_start_is_told(command, said):
    """With what it said last, its secrets masked."""
    with pytest.raises(AgentMagicError, match="(?s)" + ".*".join(said)):
        McpServer("shop", command)


@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        ("my shop", SHOP, "name of an MCP server"),
        ("shop", "", "must be a program and its arguments, got ''"),
        ("shop", [1], r"must be a program and its arguments, got \[1\]"),
    ],
)
def test_wrong_arguments_start_nothing(name, command, message):
    """They are refused at once."""
    with pytest.raises(DeclarationError, match=message):
        McpServer(name, command)


def test_without_the_package_the_error_names_it(monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(AgentMagicError, match=r"pip install 'agent-magic\[mcp\]'"):
        McpServer("shop", SHOP)


def test_a_server_that_dies_in_a_call_says_so_and_how_to_start_it():
    """The call fails, may have happened, and the ones behind it too."""
    with McpServer("odd", [*ODD, "dies"]) as odd:
        first, second = call(odd, "echo"), call(odd, "echo")
        assert odd.has_ended
    again = r"Start it again: %agents mcp odd .*mcp_odd.py dies"
    assert first.is_error
    assert re.search(f"ended during the call, which may have happened. {again}", first.content)
    assert re.search(f"'odd' has ended. {again}", second.content)


def test_a_call_that_hangs_is_given_up():
    """Nobody waits for ever."""
    with McpServer("odd", [*ODD, "deaf"], timeout=0.2) as odd:
        tool = odd.tools["echo"]
        assert tool.function is not None
        ran = asyncio.run(run_function(tool.function, {}, timeout_s=tool.timeout_s))
        assert "not finished within 0.2 s" in str(ran.error)
    with McpServer("odd", [*ODD, "plain"]) as odd:
        assert 300 == odd.tools["echo"].timeout_s
    with pytest.raises(DeclarationError, match="timeout of the MCP server 'odd' must be"):
        McpServer("odd", ODD, timeout=0)


def test_what_a_server_prints_beside_its_messages_is_no_output_of_ours(caplog):
    """Many print a greeting. Its library would write a traceback for each line."""
    with McpServer("odd", [*ODD, "chatty"]) as odd:
        assert call(odd, "echo").content.isdigit()
        assert "listening on port 3000 ..." == odd.ignored
    assert [] == caplog.records


def test_tools_that_are_others_now_count_in_the_next_plan():
    """A plan that is frozen keeps those it has."""
    with McpServer("odd", [*ODD, "changes"]) as odd:
        frozen = tools_of([odd])
        assert call(odd, "echo").content.isdigit()
        while "late" not in odd.tools:  # the server tells, and is asked then
            call(odd, "echo")
        assert ["odd_echo"] == [one.name for one in frozen]
        assert ["odd_echo", "odd_late"] == [one.name for one in tools_of("odd.*", {"odd": odd})]


KILLED = """
import sys
from agent_magic.live.mcp import McpServer
odd = McpServer("odd", sys.argv[1:] + ["deaf"])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_server_ends_with_a_process_that_is_killed():
    """One that waits for something else never sees that its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *ODD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert "ready\n" == owner.stdout.readline()
        there = psutil.Process(owner.pid).children(recursive=True)
        assert any("deaf" in " ".join(one.cmdline()) for one in there)
        owner.kill()
    _, left = psutil.wait_procs(there, timeout=30)
    assert [] == left
