"""A server of the Model Context Protocol as a process here, which ends with its session and with us."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from errno import ENOENT
from typing import Any

from agent_magic.declare.user_code import reason_of
from agent_magic.declare.validation import listed, must_be
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.live import guarded
from agent_magic.record.secret_scan import masked, secrets_of

MOST_LINES = 5
"""Lines of a failed server's output that its error quotes."""


class Process:
    """Starts a server and talks over its standard input and output; `env` names variables to pass on."""

    reopens = False
    open_s = 60.0  # `npx` downloads it first
    secrets: Mapping[str, str] = {}

    def __init__(self, name: str, command: object, env: str | Iterable[str]) -> None:
        given: Any = shlex.split(command) if isinstance(command, str) else command
        words: list[Any] = [*given] if isinstance(given, list | tuple) else []
        if not words or not all(isinstance(one, str) for one in words):
            raise must_be(f"command of the MCP server {name!r}", "a program and its arguments", command)
        if "://" in words[0]:
            hint = f"Write: McpServer({name!r}, url=...)."
            raise DeclarationError(f"The command of the MCP server {name!r} is an address.", hint=hint)
        self.words, self.ignored = shlex.join(words), ""
        self._command = tuple(words)
        self._env = {one: os.environ[one] for one in listed(env) if one in os.environ}
        self._said: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said, self._listening():
            try:
                program, *arguments = _guarded(self._command)
                how = StdioServerParameters(command=program, args=arguments, env=self._env)
                async with stdio_client(how, errlog=said) as streams:
                    yield streams
            except Exception:
                said.seek(0)
                self._said = [line.rstrip() for line in said.readlines() if line.strip()][-MOST_LINES:]
                raise

    def refusal(self, error: BaseException) -> str:
        why = f"did not start within {self.open_s:g} s" if isinstance(error, TimeoutError) else "did not start"
        reason = "" if isinstance(error, TimeoutError) else f": {reason_of(error)}"
        quoted = masked("\n".join(f"  {line}" for line in self._said), secrets_of(os.environ))
        return "\n".join([f"{why} ({shown_value(self.words)}){reason}", *([quoted] if quoted else [])])

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Capture the library's prints about lines that are no messages: they contain paths of this machine."""
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


def _guarded(command: Sequence[str]) -> tuple[str, ...]:
    if os.name == "nt":
        return tuple(command)
    if shutil.which(command[0]) is None and not os.path.lexists(command[0]):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
    return (sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), *command)
