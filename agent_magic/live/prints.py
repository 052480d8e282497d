"""Sends a function's prints to its caller instead of a cell.

While functions run, `sys.stdout` and `sys.stderr`, which all threads and tasks share, look up the owner in a context
variable; text without one passes through.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CHARS = 200_000
"""Characters kept of one call's prints: an endless loop would fill the record and the page."""
_LOCK = threading.Lock()


class Prints:
    """Captures what this thread or task prints inside `with prints:`, and passes it to `tell` there."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell: Callable[[str], object] | None = tell
        self._left = MOST_CHARS
        self._token: Token[Prints | None] | None = None
        self._streams: tuple[_Asking, ...] = ()

    def __enter__(self) -> None:
        with _LOCK:
            out, err = sys.stdout, sys.stderr
            if type(out) is _Asking and type(err) is _Asking:  # another function runs
                out.users += 1
                err.users += 1
                self._streams = (out, err)
            else:
                self._streams = tuple(_installed(one) for one in ("stdout", "stderr") if getattr(sys, one) is not None)
        self._token = _WHOSE.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _WHOSE.reset(self._token)
        with _LOCK:
            for stream in self._streams:
                stream.users -= 1
                if not stream.users:
                    stream.leave()

    def write(self, text: str) -> None:
        if self._tell is None or not text:
            return
        if len(text) > self._left:
            text = f"{text[: self._left]}\n[more was printed; {MOST_CHARS:,} characters are kept]\n"
            self._tell, tell = None, self._tell
            tell(text)
        else:
            self._left -= len(text)
            self._tell(text)

    def close(self) -> None:
        """Stop capturing: an abandoned function may go on printing."""
        self._tell = None


_WHOSE: ContextVar[Prints | None] = ContextVar("agent_magic_prints", default=None)


class _Asking:
    """Stands for `sys.stdout` or `sys.stderr` while functions run; `users` counts them."""

    def __init__(self, name: str, stream: Any) -> None:
        self._name, self._stream, self.users = name, stream, 0

    def write(self, text: str) -> int:
        whose = _WHOSE.get()
        if whose is None:
            return self._stream.write(text)
        whose.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def leave(self) -> None:
        """Restore the original, unless other code has replaced this stream."""
        if getattr(sys, self._name) is self:
            setattr(sys, self._name, self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _installed(name: str) -> _Asking:
    stream = getattr(sys, name)
    if not isinstance(stream, _Asking):
        stream = _Asking(name, stream)
        setattr(sys, name, stream)
    stream.users += 1
    return stream
