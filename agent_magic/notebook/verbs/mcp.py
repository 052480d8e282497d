"""Servers of tools on this machine."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from agent_magic.declare.units import plural
from agent_magic.live.mcp import McpServer
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.front_end import say

if TYPE_CHECKING:
    from argparse import Namespace


def _options(parser: Parser) -> None:
    parser.add_argument("--env", default="", metavar="A,B", help="Variables of the environment that it gets.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="What it is called: --tools NAME.*")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="The program, its arguments.")


async def _mcp(ctx: CommandContext, given: Namespace) -> None:
    servers = ctx.session.servers
    if given.command:
        # In a thread: a server that has to be downloaded takes long to start, and Stop must be heard.
        server = await asyncio.to_thread(McpServer, given.name, given.command, env=given.env)
        ctx.session.add_server(server)
    elif given.name and given.name not in servers:
        say(f"There is no MCP server {given.name!r}. Start it: %agents mcp {given.name} COMMAND")
        return
    say("\n".join(_lines(servers[one]) for one in ([given.name] if given.name else servers)) or "No MCP server runs.")


def _lines(server: McpServer) -> str:
    width = max(map(len, server.tools), default=0)
    tools = [f"  {name:<{width}}  {tool.description.partition(chr(10))[0]}" for name, tool in server.tools.items()]
    return "\n".join([f"{server.name}: {plural(len(tools), 'tool')}. --tools {server.name}.* takes all.", *tools])


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
