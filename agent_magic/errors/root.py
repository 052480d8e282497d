"""The root of the tree, and the words that its messages share."""

from __future__ import annotations

import difflib
import linecache
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or an empty string. What is no text is near to none."""
    words = [one for one in known if isinstance(one, str)]
    near = difflib.get_close_matches(word, words, n=1) if isinstance(word, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def shown_value(value: object) -> str:
    """Return a value as a message shows it: on one line, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


_MOST_LINES = 15
"""No error is longer on the screen."""
_LONGEST_LINE = 500
_LONGEST_VALUE = 80


def shown_message(error: BaseException, most: int = _MOST_LINES) -> str:
    """Return an error's message, its middle left out where it has more than `most` lines."""
    lines = [line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " …" for line in str(error).splitlines()]
    if len(lines) > most:
        keep = most - 3
        lines = [*lines[:keep], f"  … {len(lines) - keep - 2} more lines …", *lines[-2:]]
    return "\n".join(lines)


def shorten_path(names: Sequence[str], most: int = 10) -> str:
    """Write a path as `a -> b -> c`, its middle left out where it has more than `most` steps."""
    if len(names) > most:
        names = [*names[: most - 2], f"({len(names) - most + 1} more)", *names[-1:]]
    return " -> ".join(names)


class AgentMagicError(Exception):
    """The root of the tree: catch this to catch all of them. Each passes between processes as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in a cell: the message, and the user's line. The frames in here say nothing."""
        message = f"{type(self).__name__}: {shown_message(self, _MOST_LINES - 2)}"
        place = _users_line(self.__traceback__)
        return [message, "", place] if place else [message]


def _rebuilt(kind: type[AgentMagicError], args: tuple[Any, ...]) -> AgentMagicError:
    """Make an error again from its message; `__init__` would take what the message was made of."""
    return kind.__new__(kind, *args)


def _users_line(trace: TracebackType | None) -> str:
    """Return the innermost line outside this package, and outside the libraries beneath it."""
    here, found = str(Path(__file__).parent.parent) + os.sep, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(here):
            break
        line = linecache.getline(name, trace.tb_lineno).strip()
        found = f"----> {trace.tb_lineno} {line}" if line else found
        trace = trace.tb_next
    return found
