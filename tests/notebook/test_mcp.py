"""`%agents mcp`: servers of tools in a notebook."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook.magics import AgentMagics

pytest.importorskip("mcp", reason="the package mcp is optional")
SHOP = shlex.join([sys.executable, str(Path(__file__).parents[1] / "live" / "mcp_shop.py")])


@pytest.fixture
def magics():
    """A notebook."""
    made = AgentMagics(InteractiveShell())
    yield made
    made.session.close()


def command(magics, line):
    """Run a command as a cell does."""
    asyncio.run(magics.agents_async(line))


def test_a_server_is_started_and_its_tools_are_named(magics, capsys):
    """`--tools NAME.*` takes all, `--tools NAME.TOOL` one; a server of the same name takes the place of the other."""
    command(magics, f"mcp shop {SHOP}")
    assert (
        "shop: 5 tools. --tools shop.* takes all.\n  price    Return the price of an item.\n" in capsys.readouterr().out
    )
    first = magics.session.servers["shop"]
    magics.agent("clerk --tools shop.*", "What is tea?\n")
    magics.agent("other --tools shop.price", "What is tea?\n")
    clerk, other = magics.session.plan(magics.shell.user_ns, defaults={}).agents
    assert ["shop_price", "shop_fail", "shop_who_is", "shop_picture", "shop_scraps"] == [
        one.name for one in clerk.tools
    ]
    assert ["shop_price"] == [one.name for one in other.tools]
    command(magics, f"mcp shop {SHOP}")
    assert first is not magics.session.servers["shop"]
    assert not first._thread.is_alive()
    capsys.readouterr()
    command(magics, "mcp")
    assert capsys.readouterr().out.startswith("shop: 5 tools.")
    magics.session.close()
    assert not magics.session.servers["shop"]._thread.is_alive()


def test_what_does_not_run_is_said(magics, capsys):
    """Nothing runs, nothing of that name, nothing that starts."""
    command(magics, "mcp")
    assert "No MCP server runs.\n" == capsys.readouterr().out
    command(magics, "mcp shop")
    assert "There is no MCP server 'shop'. Start it: %agents mcp shop COMMAND\n" == capsys.readouterr().out
    with pytest.raises(UsageError, match="did not start"):
        command(magics, "mcp shop no-such-program-anywhere")
    with pytest.raises(UsageError, match=r"'shop\.price' is not defined"):
        magics.agent("clerk --tools shop.price", "What is tea?\n")


ODD = shlex.join([sys.executable, str(Path(__file__).parents[1] / "live" / "mcp_odd.py")])


def test_a_server_of_five_hundred_tools_is_listed_in_short(magics, capsys):
    """The list and the card name the first; what many cost is said."""
    command(magics, f"mcp odd {ODD} many")
    said = capsys.readouterr().out
    assert said.startswith("odd: 500 tools. --tools odd.* takes all.\n  t0   The tool t0.\n")
    assert "\n  and 480 more. Each is sent with every request, and models choose worse\n" in said
    assert 23 == len(said.splitlines())
    magics.agent("clerk --tools odd.*", "What is tea?\n")
    assert "tools odd_t0, odd_t1, " in (card := capsys.readouterr().out)
    assert "odd_t11 and 488 more" in card


def test_a_server_that_has_ended_or_says_odd_things_is_told(magics, capsys):
    """The list says it, with the command to start it again."""
    command(magics, f"mcp odd {ODD} chatty")
    ignored = "  note: it prints what is no message of the protocol, which is ignored: 'listening on port 3000 ...'\n"
    assert capsys.readouterr().out.endswith(ignored)
    magics.session.servers["odd"].close()
    command(magics, "mcp")
    assert f"odd: has ended. Start it again: %agents mcp odd {ODD} chatty\n" == capsys.readouterr().out
