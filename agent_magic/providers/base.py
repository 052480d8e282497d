"""The seam to whoever answers: one small interface, so that a test double is a few lines and nothing is patched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agent_magic.declare.template import sendable
from agent_magic.engine.pacing.limits import NO_READINGS

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.request import Request


class Watch(Protocol):
    """Whoever is told how an answer arrives."""

    def replied(self, stream: Stream) -> None:
        """Take in that the reply has begun, an error too."""
        ...

    def opened(self, stream: Stream) -> None:
        """Take in that the answer itself has begun, before its first token."""
        ...

    def first_token(self, stream: Stream) -> None:
        """Take in that the first token came."""
        ...


class Stream:
    """What has arrived of one answer so far. The client writes, the live view reads.

    Args:
        watch: Who is told.
        agent: Whose answer it is.
        number: Of which attempt.

    Attributes:
        parts: The pieces of text, in order.
        usage: What is known of the tokens before the end.
        status_code: The HTTP status, once there is one.
        readings: What the reply says of the rate limits, once it has begun.
        simulated: Whether the reply says that it is made up.
        answer: The complete reply, from the moment its `stop_reason` is here.
    """

    __slots__ = (
        "_characters",
        "_counted",
        "_silent",
        "_watch",
        "agent",
        "answer",
        "number",
        "parts",
        "readings",
        "simulated",
        "status_code",
        "usage",
    )

    def __init__(self, watch: Watch | None = None, agent: int = 0, number: int = 1) -> None:
        self._watch, self.agent, self.number = watch, agent, number
        self._silent = watch is not None
        self._characters = self._counted = 0
        self.readings: Readings = NO_READINGS
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
        if self._silent:
            self.began()
        self.parts.append(text)

    def replied(self, status_code: int, readings: Readings = NO_READINGS) -> None:
        """Record that the reply has begun, an error too, and what it says of the rate limits."""
        self.status_code, self.readings = status_code, readings
        if self._watch is not None:
            self._watch.replied(self)

    def opened(self) -> None:
        """Take in that the answer itself has begun, before its first token."""
        if self._watch is not None:
            self._watch.opened(self)

    def began(self) -> None:
        """Take in that the first token came, of text or of what is none."""
        if self._silent and self._watch is not None:
            self._watch.first_token(self)
            self._silent = False

    def arrived(self, _now: float = 0.0) -> int:
        """Return how many characters of text there are by now. Each piece is counted once, when somebody asks."""
        parts = self.parts
        if self._counted < len(parts):
            self._characters += sum(map(len, parts[self._counted :]))
            self._counted = len(parts)
        return self._characters

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
