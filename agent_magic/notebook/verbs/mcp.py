"""Tool servers: processes of this machine and addresses."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.units import plural
from agent_magic.errors import shown_value
from agent_magic.live.mcp import CALL_S, McpServer
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.front_end import say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

MOST_TOOLS = 20


def _options(parser: Parser) -> None:
    parser.add_argument("--env", default="", metavar="A,B", help="Variables of the environment that a process gets.")
    parser.add_argument("--key-env", metavar="VARIABLE", help="For a URL: the environment variable with its key.")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="For a URL: another header, and the environment variable with its value.",
    )
    parser.add_argument("--timeout", type=float, default=CALL_S, metavar="SECONDS", help="Timeout of a call: 300.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="Its name: --tools NAME.*")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND | URL", help="The program and its arguments, or the URL."
    )


async def _mcp(ctx: CommandContext, given: Namespace) -> None:
    servers = ctx.session.servers
    if given.command:
        # In a thread: a server that has to be downloaded takes long to start, and Stop must be heard.
        server = await asyncio.to_thread(_started, given)
        ctx.session.add_server(server)
    elif given.name and given.name not in servers:
        say(f"There is no MCP server {given.name!r}. Start it: %agents mcp {given.name} COMMAND, or URL")
        return
    say("\n".join(_lines(servers[one]) for one in ([given.name] if given.name else servers)) or "No MCP server runs.")


def _started(given: Namespace) -> McpServer:
    url, *rest = given.command
    headers = _headers(given.key_env, given.header)
    if "://" not in url:
        if headers:
            raise UsageError("--key-env and --header are for a URL. A process gets variables by --env A,B.")
        return McpServer(given.name, given.command, env=given.env, timeout=given.timeout)
    if rest:
        raise UsageError(f"{shown_value(' '.join(rest))} stands behind the URL. Options come before the name.")
    return McpServer(given.name, url=url, headers=headers, env=given.env, timeout=given.timeout)


def _headers(key: str | None, others: Sequence[str]) -> dict[str, str]:
    """Return headers with values from the environment, since a cell is saved with its text."""
    found = {} if key is None else {"Authorization": f"Bearer {_variable(key, '--key-env')}"}
    for other in others:
        name, _, variable = other.partition("=")
        found[name] = _variable(variable, f"--header {name}=VARIABLE" if variable else "--header NAME=VARIABLE")
    return found


def _variable(name: str, option: str) -> str:
    if value := os.environ.get(name, ""):
        return value
    what = f"No variable {name!r} is set" if name.isidentifier() else f"{option} takes the name of a variable"
    raise UsageError(f"{what}. Set it: os.environ['NAME'] = getpass.getpass(), then give NAME.")


def _lines(server: McpServer) -> str:
    if server.has_ended:
        return f"{server.name}: has ended. {server.again}"
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
    odd = [f"  note: it prints lines that are no messages of the protocol (ignored): {said}"] if said else []
    if server.unlisted:
        odd.append(f"  note: its tools have changed and could not be listed again: {server.unlisted}")
    return "\n".join([head, *tools, *odd])


VERBS = {
    "mcp": Verb(
        "Start a tool server that speaks the Model Context Protocol, connect to one at a URL, or list its tools.",
        _options,
        _mcp,
        examples=(
            "%agents mcp files npx -y @modelcontextprotocol/server-filesystem .",
            "%agents mcp --env GITHUB_TOKEN github github-mcp-server stdio",
            "%agents mcp --key-env CRM_KEY crm https://crm.example/mcp    # sent as Authorization: Bearer ...",
            "%agents mcp --header X-Api-Key=CRM_KEY crm https://crm.example/mcp",
            "%agents mcp    # what runs",
            "%%agent librarian --tools files.*    # or files.read_file",
        ),
        waits=True,
    ),
}
