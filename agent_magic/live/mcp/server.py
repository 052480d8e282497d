"""A server of the Model Context Protocol: its sessions, its tools, calls of them."""

from __future__ import annotations

import asyncio
import atexit
import base64
import importlib
import json
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from agent_magic.declare.tool import Tool
from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.validation import check_name, check_positive, must_be
from agent_magic.declare.values import PDF, pdf, picture_of
from agent_magic.errors import AgentMagicError, DeclarationError, did_you_mean, shown_value
from agent_magic.live.mcp.transports import Http, Process, code_of, has_ended, was_not_received, why
from agent_magic.machine import needs_processes
from agent_magic.record.secret_scan import replaced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from agent_magic.declare.content import Attachment

T = TypeVar("T")
CALL_S = 300.0
"""Seconds a call may take: a hanging one would block its run forever."""
CLOSE_S = 5.0
LIST_EVERY_S = 1.0
"""Seconds between two lists: a server may report a change with each."""
MOST_LISTED = 10_000
MOST_SHOWN = 12
READ_S = 30.0
"""Seconds a resource or prompt may take to read: that blocks the kernel's loop."""
REOPEN_AFTER_S = (0.5, 2.0)
"""Seconds between attempts to reopen a lost session: a server needs a moment to restart."""
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class McpError(Exception):
    """A failure that a server reports; its message goes to the model."""


class Transport(Protocol):
    """Carries messages to a server and back; `words` has no secrets, `ignored` is the first line of other output."""

    words: str
    open_s: float
    reopens: bool
    ignored: str

    @property
    def secrets(self) -> Mapping[str, str]:
        """Texts to hide, and what stands in their place."""
        ...

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Connect and yield the two streams of messages; disconnect at the end of the block."""
        ...

    def refusal(self, error: BaseException) -> str:
        """Return why no session was opened, to follow the server's name."""
        ...


class McpServer:
    """A tool server: `McpServer("files", "npx -y server-filesystem .")`, or `McpServer("crm", url="https://...")`.

    It starts here, and ends with `close` or with this process. `with McpServer(...) as files:` works too. Pass it to
    `tools=` of an agent for all of its tools, or `files.tools["read"]` for one.

    Args:
        name: Its name: the model sees its tools as `NAME_TOOL`.
        command: The program and its arguments, for a server in a separate process.
        url: Its address, for a server of streamable HTTP.
        headers: Headers of each request to the address, such as `{"Authorization": f"Bearer {key}"}`. No message, frame
            or recording shows their values.
        env: Names of environment variables to pass on to the process, such as a token; otherwise only `PATH` and the
            like.
        timeout: Timeout of a call in seconds.

    Attributes:
        tools: Its tools, by their names on the server.
        unlisted: Why the tools could not be listed again when they changed; empty if they could.

    Raises:
        AgentMagicError: It did not start, or the package `mcp` is not installed.
    """

    def __init__(
        self,
        name: str,
        command: str | Sequence[str] | None = None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        env: str | Iterable[str] = (),
        timeout: float = CALL_S,
    ) -> None:
        needs_processes("An MCP server", "Give the agent functions of Python: --tools NAME.")
        check_name(name, "an MCP server")
        check_positive(f"timeout of the MCP server {name!r}", timeout, error=DeclarationError)
        self._transport = _transport(name, command, url, headers, env, timeout)
        self.name = name
        self.tools: Mapping[str, Tool] = MappingProxyType({})
        self.unlisted = ""
        self._timeout_s = timeout
        self._loop = asyncio.new_event_loop()
        self._end, self._changed, self._opens = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._current: _Session | None = None
        self._has_result_schemas = False
        self._sessions: set[_Session] = set()
        self._thread = threading.Thread(target=self._serve, name=f"agent_magic mcp {name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        try:
            asyncio.run_coroutine_threadsafe(self._opened(), self._loop).result()
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise self._failed(error) from None
            raise

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}: {', '.join(self.tools) or 'no tools'})"

    @property
    def has_ended(self) -> bool:
        """True if no more calls can be made."""
        lost = self._current is None or self._current.session is None
        return not self._thread.is_alive() or (lost and not self._transport.reopens)

    @property
    def ignored(self) -> str:
        """The first line of its output that is no message of the protocol, if any."""
        return self._transport.ignored

    @property
    def again(self) -> str:
        """The hint how to start it again."""
        return f"Start it again: %agents mcp {self.name} {self._transport.words}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, and its process, if any."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it ends at this moment
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(2 * CLOSE_S)

    def resource(self, name: str) -> str | list[str | Attachment]:
        """Read a resource now: `values={"doc": crm.resource("doc")}` and `attach="doc"` send it.

        Args:
            name: Its name or title on the server, or its URI.

        Returns:
            Its text, or a list of texts, pictures and PDFs.

        Raises:
            DeclarationError: The server has no such resource, or its content cannot be sent.
            AgentMagicError: It cannot be read now.
        """
        return self._now(self._resource(name), f"resource {name!r}")

    def prompt(self, name: str, /, **arguments: str) -> str | list[str | Attachment]:
        """Read a prompt now: `review = crm.prompt("review", customer="Ada")`, and `{{ review }}` in an agent's prompt.

        Its text is data: `{{ names }}` in it are sent as they are.

        Args:
            name: Its name or title on the server.
            **arguments: Texts for its arguments.

        Returns:
            The text of its messages, or a list of texts, pictures and PDFs.

        Raises:
            DeclarationError: The server has no such prompt, or the arguments are wrong.
            AgentMagicError: It cannot be read now.
        """
        return self._now(self._prompt(name, arguments), f"prompt {name!r}")

    def prompt_with(self, name: str, values: Mapping[str, Any]) -> str | list[str | Attachment]:
        """Read a prompt now, with the values that have its arguments' names; see `prompt`.

        Args:
            name: Its name or title on the server.
            values: Values by name, such as a notebook's variables: texts, and numbers, which become texts.
        """
        return self._now(self._prompt(name, values, every=False), f"prompt {name!r}")

    def _now(self, work: Coroutine[Any, Any, T], what: str) -> T:
        if self.has_ended:
            work.close()
            raise AgentMagicError(f"The MCP server {self.name!r} has ended. {self.again}")
        within_s = min(READ_S, self._timeout_s)
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)

        def failed(error: BaseException) -> AgentMagicError:
            asked.cancel()
            if isinstance(error, TimeoutError):
                return AgentMagicError(f"The MCP server {self.name!r} did not answer within {within_s:g} s: {what}.")
            return AgentMagicError(f"The {what} of the MCP server {self.name!r} cannot be read: {self._said(error)}")

        return run_user_code(lambda: asked.result(within_s), failed)

    # in the server's own thread

    async def _resource(self, name: str) -> str | list[str | Attachment]:
        uri = name if "://" in name else await self._uri_of(name)
        answer = await self._asked(lambda session: session.read_resource(uri))
        parts: list[str | Attachment] = []
        for one in answer.get("contents") or ():
            part = part_of({"type": "resource", "resource": one})
            if isinstance(part, str) and not isinstance(one.get("text"), str):
                raise DeclarationError(f"The resource {name!r} of the MCP server {self.name!r} cannot be sent: {part}.")
            parts.append(part)
        texts = [one for one in parts if isinstance(one, str)]
        if not parts or (len(texts) == len(parts) and not "".join(texts).strip()):
            raise DeclarationError(f"The resource {name!r} of the MCP server {self.name!r} is empty.")
        return "\n".join(texts) if len(texts) == len(parts) else parts

    async def _prompt(self, name: str, given: Mapping[str, Any], *, every: bool = True) -> str | list[str | Attachment]:
        listed = await self._offered("list_prompts", "prompts")
        found = next((one for one in listed if name in {one["name"], one.get("title")}), None)
        if found is None:
            raise self._lacks("prompt", name, [str(one["name"]) for one in listed])
        known = {str(one["name"]): bool(one.get("required")) for one in found.get("arguments") or ()}
        what = f"The prompt {name!r} of the MCP server {self.name!r}"
        takes = f"It takes: {', '.join(known)}." if known else "It takes no arguments."
        arguments = dict(given) if every else {one: _plain(given[one]) for one in known if one in given}
        for argument, value in arguments.items():
            if argument not in known:
                near = did_you_mean(argument, known)
                raise DeclarationError(f"{what} takes no argument {argument!r}.{near}", hint=takes)
            if not isinstance(value, str):
                raise must_be(f"argument {argument!r} of the prompt {name!r}", "a text", value)
        if lacking := [one for one, required in known.items() if required and one not in arguments]:
            raise DeclarationError(f"{what} needs the argument {lacking[0]!r}.", hint=takes)
        own = str(found["name"])
        answer = await self._asked(lambda session: session.get_prompt(own, arguments))
        parts = [part_of(one["content"]) for one in answer.get("messages") or ()]
        texts = [one for one in parts if isinstance(one, str)]
        if not parts or (len(texts) == len(parts) and not "".join(texts).strip()):
            raise DeclarationError(f"{what} is empty.")
        return "\n\n".join(texts) if len(texts) == len(parts) else parts

    async def _uri_of(self, name: str) -> str:
        listed = await self._offered("list_resources", "resources")
        found = {str(one["uri"]) for one in listed if name in {one["name"], one.get("title")}}
        if len(found) == 1:
            return found.pop()
        if found:
            each = ", ".join(sorted(found))
            message = f"The MCP server {self.name!r} has {len(found)} resources {name!r}: {each}."
            raise DeclarationError(message, hint="Name one by its URI.")
        templates = await self._offered("list_resource_templates", "resourceTemplates")
        patterns = [f"{one['uriTemplate']} (fill it in)" for one in templates]
        raise self._lacks("resource", name, [str(one["name"]) for one in listed], patterns)

    async def _offered(self, method: str, key: str) -> list[dict[str, Any]]:
        from mcp.types import METHOD_NOT_FOUND

        try:
            return await self._all(self._asked, method, key)
        except Exception as error:
            if code_of(error) != METHOD_NOT_FOUND:
                raise
            return []

    def _lacks(self, kind: str, name: str, known: Sequence[str], more: Sequence[str] = ()) -> DeclarationError:
        shown = [*known[:MOST_SHOWN], *more[:MOST_SHOWN]]
        rest = len(known) + len(more) - len(shown)
        has = f"It has: {', '.join(shown)}{f' and {rest} more' if rest else ''}." if shown else f"It has no {kind}s."
        message = f"The MCP server {self.name!r} has no {kind} {shown_value(name)}.{did_you_mean(name, known)}"
        return DeclarationError(message, hint=has)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._own())

    async def _own(self) -> None:
        listing = asyncio.create_task(self._list_again())
        await self._end.wait()
        listing.cancel()
        for session in self._sessions:
            session.leave(now=True)
        if self._sessions:
            await asyncio.wait([one.task for one in self._sessions], timeout=CLOSE_S)

    async def _opened(self) -> _Session:
        session = _Session(self._transport, self._told)
        self._sessions.add(session)
        session.task.add_done_callback(lambda _: self._sessions.discard(session))
        try:
            async with asyncio.timeout(self._transport.open_s):
                await session.opened
                self.tools = MappingProxyType(await self._listed(session))
            if self._has_result_schemas:  # else `mcp` imports this in the first call, and blocks the loop for seconds
                await asyncio.to_thread(importlib.import_module, "jsonschema.validators")
        except BaseException:
            session.task.cancel()
            raise
        self._current = session
        return session

    async def _told(self, message: Any) -> None:
        """Note a changed list; another task asks for it, since a request from here would deadlock."""
        if type(message).__name__ == "ToolListChangedNotification":
            self._changed.set()

    async def _list_again(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            session = self._current
            if session is not None and session.session is not None:
                try:
                    async with asyncio.timeout(self._timeout_s):
                        self.tools, self.unlisted = MappingProxyType(await self._listed(session)), ""
                except Exception as error:  # noqa: BLE001 - an error of a library or the server
                    self.unlisted = self._said(error)
            await asyncio.sleep(LIST_EVERY_S)

    async def _listed(self, session: _Session) -> dict[str, Tool]:
        told = await self._all(partial(self._exchange, session), "list_tools", "tools")
        self._has_result_schemas = any(one.get("outputSchema") for one in told)
        return {str(one["name"]): self._tool(one) for one in told}

    async def _all(self, ask: _Ask, method: str, key: str) -> list[dict[str, Any]]:
        from mcp.types import PaginatedRequestParams

        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            params = PaginatedRequestParams(cursor=cursor)
            said = await ask(lambda session, params=params: getattr(session, method)(params=params))
            found += said[key]
            cursor = said.get("nextCursor")
            if not cursor:
                return found
            if len(found) > MOST_LISTED:
                raise McpError(f"it lists more than {MOST_LISTED:,} {key}")

    def _tool(self, told: Mapping[str, Any]) -> Tool:
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

    async def _asked(self, send: _Send) -> dict[str, Any]:
        session = self._current
        if session is None or session.session is None:
            session = await self._reopened(session)
        try:
            return await self._exchange(session, send)
        except Exception as error:
            if has_ended(error) and not self._transport.reopens:
                session.leave(now=True)
            if not (was_not_received(error) and self._transport.reopens):
                raise
            session = await self._reopened(session)
        return await self._exchange(session, send)

    async def _reopened(self, lost: _Session | None) -> _Session:
        """Return the session in place of a lost one: one for all calls that lost it."""
        if not self._transport.reopens:
            raise McpError(f"The MCP server {self.name!r} has ended. {self.again}")
        async with self._opens:
            if self._current is not None and self._current is not lost and self._current.session is not None:
                return self._current
            if lost is not None:
                lost.leave()
            waits_s = [*REOPEN_AFTER_S]
            while True:
                try:
                    return await self._opened()
                except Exception as error:  # noqa: BLE001 - a library's, the system's or the server's
                    if not waits_s or not was_not_received(error):
                        raise McpError(str(self._failed(error))) from None
                await asyncio.sleep(waits_s.pop(0))

    async def _exchange(self, session: _Session, send: _Send) -> dict[str, Any]:
        answer = await session.exchange(send)
        return _without(answer.model_dump(by_alias=True), self._transport.secrets)

    # from any other

    async def _call(self, there: str, arguments: dict[str, Any]) -> str | list[str | Attachment]:
        answer = await self.request(lambda session: session.call_tool(there, arguments))
        parts = [part_of(block) for block in answer.get("content") or ()]
        text = "\n".join(map(str, parts))
        if not text and answer.get("structuredContent") is not None:
            text = json.dumps(answer["structuredContent"], ensure_ascii=False)
        if answer.get("isError"):
            raise McpError(text or "it failed, and the server gives no reason")
        return text if all(isinstance(one, str) for one in parts) else parts

    async def request(self, send: _Send) -> dict[str, Any]:
        """Send a request from any loop and return the answer by the protocol's own names.

        Args:
            send: Calls a method of the session of the package `mcp`.

        Raises:
            McpError: It failed, or the server has ended.
        """
        if self.has_ended:
            raise McpError(f"The MCP server {self.name!r} has ended. {self.again}")
        asked = asyncio.run_coroutine_threadsafe(self._asked(send), self._loop)
        try:
            return await asyncio.wrap_future(asked)
        except McpError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of a library or the server
            raise McpError(self._said(error)) from None

    def _said(self, error: BaseException) -> str:
        if has_ended(error) and not self._transport.reopens:
            return f"The MCP server {self.name!r} ended during the call, which may have happened. {self.again}"
        return replaced(why(error, self.name), self._transport.secrets)

    def _failed(self, error: BaseException) -> AgentMagicError:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "mcp":
            return AgentMagicError("MCP servers need the package mcp: pip install 'agent-magic[mcp]'")
        said = f"The MCP server {self.name!r} {self._transport.refusal(error)}"
        return AgentMagicError(replaced(said, self._transport.secrets))


class _Session:
    def __init__(self, transport: Transport, told: Any) -> None:
        self.session: Any = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls, self._leaves, self._end = 0, False, asyncio.Event()
        self.task = asyncio.create_task(self._hold(transport, told))

    async def _hold(self, transport: Transport, told: Any) -> None:
        try:
            from mcp import ClientSession

            async with transport.open() as streams, ClientSession(*streams, message_handler=told) as session:
                await session.initialize()
                self.session = session
                if not self.opened.done():
                    self.opened.set_result(None)
                await self._end.wait()
        except Exception as error:  # noqa: BLE001 - a library's, the system's or the server's
            if not self.opened.done():
                self.opened.set_exception(error)
        finally:
            self.session = None

    async def exchange(self, send: _Send) -> Any:
        """Send a request and return the answer; raise `MCPError` if the session has ended."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        if self.session is None:
            raise MCPError(CONNECTION_CLOSED, "the session has ended")
        self._calls += 1
        try:
            return await send(self.session)
        finally:
            self._calls -= 1
            self._leave_if_idle()

    def leave(self, *, now: bool = False) -> None:
        self._leaves = True
        if now:
            self.session = None
            self._end.set()
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._leaves and not self._calls:
            self._end.set()


_Ask = Callable[["_Send"], Awaitable[dict[str, Any]]]
_Send = Callable[[Any], Awaitable[Any]]
"""Calls a method of a session of the package `mcp`."""


def _transport(
    name: str,
    command: object,
    url: str | None,
    headers: Mapping[str, str] | None,
    env: str | Iterable[str],
    timeout_s: float,
) -> Transport:
    if url is None:
        if headers:
            raise DeclarationError(
                f"Headers are for an MCP server at an address, and {name!r} is a process.", hint="Give it env=."
            )
        return Process(name, "" if command is None else command, env)
    if command is not None or env:
        raise DeclarationError(f"The MCP server {name!r} has an address: it takes no command and no env.")
    return Http(name, url, headers or {}, timeout_s)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def _without(value: Any, secrets: Mapping[str, str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, str):
        return replaced(value, secrets)
    if isinstance(value, dict):
        return {
            replaced(str(key), secrets): _without(one, secrets) for key, one in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_without(one, secrets) for one in cast("list[Any]", value)]
    return value


def part_of(block: Mapping[str, Any]) -> str | Attachment:
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
