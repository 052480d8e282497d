"""The seam to whoever answers: one small interface, so that a test double is a few lines and nothing is patched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agent_magic.declare.template import sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.request import Request


class Stream:
    """What has arrived of one answer so far. The client writes, the live view reads.

    Attributes:
        parts: The pieces of text, in order.
        usage: What is known of the tokens before the end.
        status_code: The HTTP status, once there is one.
        headers: The headers of the reply, once it has begun.
        simulated: Whether the reply says that it is made up.
        answer: The complete reply, from the moment its `stop_reason` is here.
    """

    __slots__ = (
        "_on_first",
        "_on_open",
        "_on_reply",
        "answer",
        "headers",
        "parts",
        "simulated",
        "status_code",
        "usage",
    )

    def __init__(
        self,
        on_first: Callable[[], None],
        on_reply: Callable[[], None] | None = None,
        on_open: Callable[[], None] | None = None,
    ) -> None:
        self._on_open = on_open
        self._on_first: Callable[[], None] | None = on_first
        self._on_reply = on_reply
        self.headers: Mapping[str, str] = {}
        self.parts: list[str] = []
        self.usage: Usage | None = None
        self.status_code: int | None = None
        self.simulated = False
        self.answer: Answer | None = None

    def add(self, text: str) -> None:
        """Take in a piece of text.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the SDK does not check
            raise TypeError(f"a piece of text is {text!r}")
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        self.parts.append(text)

    def replied(self, status_code: int, headers: Mapping[str, str]) -> None:
        """Take in that the reply has begun, an error too."""
        self.status_code, self.headers = status_code, headers
        if self._on_reply is not None:
            self._on_reply()

    def opened(self) -> None:
        """Take in that the answer itself has begun, before its first token."""
        if self._on_open is not None:
            self._on_open()

    def began(self) -> None:
        """Take in that the first token came, where it is not text."""
        if self._on_first is not None:
            self._on_first()
            self._on_first = None

    @property
    def text(self) -> str:
        """All of it, without lone surrogates, which no file could hold."""
        return sendable("".join(self.parts))

    def tail(self, most: int = 80) -> str:
        """The last characters."""
        return sendable("".join(self.parts[-12:])[-most:])


class Client(Protocol):
    """Whoever answers requests."""

    @property
    def endpoint(self) -> str:
        """Where requests go, without credentials. Part of the key under which answers are kept."""
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Hold connections for as long as a run lasts.

        Raises:
            NotConnected: There is no key.
        """
        ...

    async def call(self, request: Request, stream: Stream) -> Answer:
        """Ask once. No retries here.

        Raises:
            CallError: The attempt failed.
        """
        ...

    async def count_tokens(self, request: Request) -> int:
        """Return the input tokens of a request without sending it to a model.

        Raises:
            CallError: The count could not be had.
        """
        ...
