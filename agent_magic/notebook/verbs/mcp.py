"""Servers of tools on this machine."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from typing import TYPE_CHECKING

from agent_magic.declare.units import plural
from agent_magic.errors import shown_value
from agent_magic.live.mcp import CALL_S, McpServer
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.front_end import say

if TYPE_CHECKING:
    from argparse import Namespace

MOST_TOOLS = 20
"""So many tools of a server are listed."""


def _options(parser: Parser) -> None:
    parser.add_argument("--env", default="", metavar="A,B", help="Variables of the environment that it gets.")
    parser.add_argument(
        "--timeout", type=float, default=CALL_S, metavar="SECONDS", help="Until a call is given up: 300."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="What it is called: --tools NAME.*")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="The program, its arguments.")


async def _mcp(ctx: CommandContext, given: Namespace) -> None:
    servers = ctx.session.servers
    if given.command:
        # In a thread: a server that has to be downloaded takes long to start, and Stop must be heard.
        server = await asyncio.to_thread(McpServer, given.name, given.command, env=given.env, timeout=given.timeout)
        ctx.session.add_server(server)
    elif given.name and given.name not in servers:
        say(f"There is no MCP server {given.name!r}. Start it: %agents mcp {given.name} COMMAND")
        return
    say("\n".join(_lines(servers[one]) for one in ([given.name] if given.name else servers)) or "No MCP server runs.")


def _lines(server: McpServer) -> str:
    if server.has_ended:
        return f"{server.name}: has ended. Start it again: %agents mcp {server.name} {shlex.join(server.command)}"
    shown = [*server.tools.items()][:MOST_TOOLS]
    width = max((len(name) for name, _ in shown), default=0)
    tools = [f"  {name:<{width}}  {tool.description.partition(chr(10))[0]}".rstrip() for name, tool in shown]
    count = len(server.tools)
    if count > MOST_TOOLS:
        names = ",".join(f"{server.name}.{name}" for name, _ in shown[:2])
        tools.append(f"  and {count - MOST_TOOLS:,} more. Each is sent with every request, and models choose worse")
        tools.append(f"  among many: --tools {names} takes those that are needed.")
    head = f"{server.name}: {plural(count, 'tool')}. --tools {server.name}.* takes all."
    if not count:
        head = f"{server.name}: no tools. It runs, and has none to call."
    said = shown_value(server.ignored) if server.ignored else ""
    odd = [f"  note: it prints what is no message of the protocol, which is ignored: {said}"] if said else []
    return "\n".join([head, *tools, *odd])


VERBS = {
    "mcp": Verb(
        "Start a server of tools that speaks the Model Context Protocol, or list its tools.",
        _options,
        _mcp,
        examples=(
            "%agents mcp files npx -y @modelcontextprotocol/server-filesystem .",
            "%agents mcp --env GITHUB_TOKEN github github-mcp-server stdio",
            "%agents mcp    # what runs",
            "%%agent librarian --tools files.*    # or files.read_file",
        ),
        waits=True,
    ),
}
