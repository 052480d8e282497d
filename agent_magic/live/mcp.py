"""Servers of tools that speak the Model Context Protocol, each a process of its own on this machine.

```
%agents mcp files npx -y @modelcontextprotocol/server-filesystem .
%%agent librarian --tools files.*
```

A session has to be closed by the task that opened it, whichever cell or run asks for that. So each server has one task
that owns it, on a loop in a thread of its own: it opens the session, waits until it is to end, and closes it. Calls
come from other loops. The process ends with the server, and the server with this process, killed or not.

What a server prints beside its messages is ignored, and said in `%agents mcp`. Where it says that its tools are others
now, the next plan has those; a plan that is frozen keeps its own.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from errno import ENOENT
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Self, cast

from agent_magic.declare.pictures import PDF, pdf, picture_of
from agent_magic.declare.tool import Tool
from agent_magic.declare.user_code import reason_of
from agent_magic.declare.validation import check_name, check_positive, listed, must_be
from agent_magic.errors import AgentMagicError, DeclarationError, shown_value
from agent_magic.live import guarded
from agent_magic.machine import needs_processes
from agent_magic.record.secret_scan import masked, secrets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.content import Attachment

OPEN_S = 60.0
"""How long a server may take to start: `npx` loads it first."""
CLOSE_S = 5.0
CALL_S = 300.0
"""How long a call may take where nobody says so: one that hangs would hold its run up for ever."""
MOST_LINES = 5
"""The lines of what a server that failed has said which its error quotes."""
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class McpError(Exception):
    """A server says that a call failed. The model is told what it says."""


class McpServer:
    """A server of tools in a process of its own: `McpServer("files", "npx -y server-filesystem .")`.

    It is started here, and ends with `close`, or with this process. `with McpServer(...) as files:` works too. Give it
    to `tools=` of an agent for all of its tools, or `files.tools["read"]` for one.

    Args:
        name: What it is called: the model sees its tools as `NAME_TOOL`.
        command: The program and its arguments.
        env: The names of variables of the environment that it gets, such as a token; no others but `PATH` and the like.
        timeout: Seconds until a call is given up.

    Attributes:
        tools: Its tools, by their names there.
        ignored: The first line of its output that is no message of the protocol; empty where there is none.

    Raises:
        AgentMagicError: It did not start, or the package `mcp` is not installed.
    """

    def __init__(
        self, name: str, command: str | Sequence[str], *, env: str | Iterable[str] = (), timeout: float = CALL_S
    ) -> None:
        needs_processes("An MCP server", "Give the agent functions of Python: --tools NAME.")
        check_name(name, "an MCP server")
        check_positive(f"timeout of the MCP server {name!r}", timeout, error=DeclarationError)
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not words or not all(isinstance(one, str) for one in words):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise must_be(f"command of the MCP server {name!r}", "a program and its arguments", command)
        self.name, self.command = name, tuple(words)
        self.tools: Mapping[str, Tool] = MappingProxyType({})
        self.ignored = ""
        self._timeout_s = timeout
        self._env = {one: os.environ[one] for one in listed(env) if one in os.environ}
        self._loop = asyncio.new_event_loop()
        self._end, self._listens = asyncio.Event(), asyncio.Event()
        self._session: Any = None
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(opened,), name=f"agent_magic mcp {name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        try:
            opened.result(OPEN_S)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise AgentMagicError(f"The MCP server {name!r} did not start within {OPEN_S:g} s.") from None
            raise

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}: {', '.join(self.tools) or 'no tools'})"

    @property
    def has_ended(self) -> bool:
        """Whether nobody is there to call any more."""
        return self._session is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and its process."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(CLOSE_S)

    # in the server's own thread

    def _stop(self) -> None:
        self._end.set()
        self._listens.set()

    def _serve(self, opened: Future[None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._own(opened))
        self._session = None

    async def _own(self, opened: Future[None]) -> None:
        """Open the session, wait, and close it: all in one task."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said, self._listening():
            try:
                from mcp import ClientSession, StdioServerParameters
                from mcp.client.stdio import stdio_client

                program, *arguments = _guarded(self.command)
                how = StdioServerParameters(command=program, args=arguments, env=self._env)
                async with (
                    stdio_client(how, errlog=said) as streams,
                    ClientSession(*streams, message_handler=self._told) as session,
                ):
                    await session.initialize()
                    self.tools = MappingProxyType(await self._listed(session))
                    self._session = session
                    opened.set_result(None)
                    while not self._end.is_set():
                        await self._listens.wait()
                        self._listens.clear()
                        await self._list_again(session)
            except Exception as error:  # noqa: BLE001 - a library's, the system's or the server's
                self._session = None
                if not opened.done():
                    opened.set_exception(self._failed(error, said))

    async def _told(self, message: Any) -> None:
        """Take in what the server says of itself. To ask back from here would wait for ever: its owner does."""
        if type(message).__name__ == "ToolListChangedNotification":
            self._listens.set()

    async def _list_again(self, session: Any) -> None:
        from mcp import MCPError

        if not self._end.is_set():
            with suppress(MCPError):  # it has ended: calls say so
                self.tools = MappingProxyType(await self._listed(session))

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Keep what its library would print of lines that are no message, with paths of this machine."""
        own = threading.get_ident()

        def is_other(record: logging.LogRecord) -> bool:
            if record.thread != own:
                return True
            wrong: Any = record.exc_info[1] if record.exc_info else None
            first: Any = wrong.errors()[0]["input"] if hasattr(wrong, "errors") else ""
            self.ignored = self.ignored or str(first).strip()
            return False

        logger = logging.getLogger("mcp.client.stdio")
        logger.addFilter(is_other)
        try:
            yield
        finally:
            logger.removeFilter(is_other)

    async def _listed(self, session: Any) -> dict[str, Tool]:
        from mcp.types import PaginatedRequestParams

        found: dict[str, Tool] = {}
        cursor: str | None = None
        while True:
            page: Any = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            said = cast("dict[str, Any]", page.model_dump(by_alias=True))  # the protocol's own names
            found |= {str(told["name"]): self._tool(told) for told in said["tools"]}
            cursor = said.get("nextCursor")
            if not cursor:
                return found

    def _tool(self, told: Mapping[str, Any]) -> Tool:
        """Return a tool as the server describes it. One that only reads is `safe` to be called once more."""
        there = str(told["name"])
        hints: Mapping[str, Any] = told.get("annotations") or {}

        async def call(**arguments: Any) -> str | list[str | Attachment]:
            return await self._call(there, arguments)

        return Tool(
            _NO_NAME.sub("_", f"{self.name}_{there}")[:64],
            str(told.get("description") or ""),
            json.dumps(told.get("inputSchema") or {"type": "object"}, ensure_ascii=False, separators=(",", ":")),
            call,
            safe=bool(hints.get("readOnlyHint") or hints.get("idempotentHint")),
            timeout_s=self._timeout_s,
        )

    # from any other

    async def _call(self, there: str, arguments: dict[str, Any]) -> str | list[str | Attachment]:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        again = f"Start it again: %agents mcp {self.name} {shlex.join(self.command)}"
        if self._session is None:
            raise McpError(f"The MCP server {self.name!r} has ended. {again}")
        asked = asyncio.run_coroutine_threadsafe(self._session.call_tool(there, arguments), self._loop)
        try:
            answer = cast("dict[str, Any]", (await asyncio.wrap_future(asked)).model_dump(by_alias=True))
        except MCPError as error:
            if error.error.code != CONNECTION_CLOSED:
                raise
            self._session = None
            raise McpError(
                f"The MCP server {self.name!r} ended during the call, which may have happened. {again}"
            ) from None
        parts = [_part_of(block) for block in answer.get("content") or ()]
        text = "\n".join(map(str, parts))
        if not text and answer.get("structuredContent") is not None:
            text = json.dumps(answer["structuredContent"], ensure_ascii=False)
        if answer.get("isError"):
            raise McpError(text or "the server says no more than that it failed")
        return text if all(isinstance(one, str) for one in parts) else parts

    def _failed(self, error: BaseException, said: IO[str]) -> AgentMagicError:
        """Say why a server did not start."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "mcp":
            return AgentMagicError("MCP servers need the package mcp: pip install 'agent-magic[mcp]'")
        said.seek(0)
        lines = [line.rstrip() for line in said.readlines() if line.strip()][-MOST_LINES:]
        quoted = masked("\n".join(f"  {line}" for line in lines), secrets_of(os.environ))
        what = f"The MCP server {self.name!r} did not start ({shown_value(shlex.join(self.command))}):"
        return AgentMagicError("\n".join([f"{what} {reason_of(error)}", *([quoted] if lines else [])]))


def _guarded(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that ends with this process.

    Raises:
        FileNotFoundError: There is no such program.
    """
    if os.name == "nt":
        return tuple(command)
    if shutil.which(command[0]) is None and not os.path.lexists(command[0]):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
    return (sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), *command)


def _part_of(block: Mapping[str, Any]) -> str | Attachment:
    """Return a content block as a text, a picture or a PDF. What is none of them is named."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    found: Any = block.get("resource") or block
    held = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if isinstance(held.get("text"), str):
        return str(held["text"])
    media_type = str(held.get("mimeType") or "")
    why = media_type or held.get("uri") or "no text"
    title = str(held.get("uri") or "").rpartition("/")[2] or f"of {media_type}"
    data = held.get("blob") or (held.get("data") if block.get("type") == "image" else None)
    try:
        if isinstance(data, str) and media_type.startswith("image/"):
            return picture_of(base64.b64decode(data, validate=True), title)
        if isinstance(data, str) and media_type == PDF:
            return pdf(base64.b64decode(data, validate=True), title=title)
    except (ValueError, DeclarationError) as error:
        why = f"{media_type}; {error if isinstance(error, DeclarationError) else 'its data is no base64'}"
    return f"({block.get('type', 'something')} left out: {why})"
