"""What came of a call of a function of the user's, and the place where all that it raises is caught."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.user_code import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.live.prints import Prints


class Ran(NamedTuple):
    """What came of a call of a function.

    Attributes:
        value: What it returned.
        error: What it raised; `None` if it returned. Its traceback is taken off: the frames hold data alive.
        trace: The traceback as text, the user's lines only; empty without an error.
        finished: Whether it has ended. Otherwise nobody waits for it any more, and it may end later.
    """

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    finished: bool = True


def failed(error: BaseException) -> Ran:
    """Return what came of a call that raised."""
    trace = trace_of(error)
    return Ran(error=error.with_traceback(None), trace=trace)


def called(function: Callable[..., Any], arguments: Mapping[str, Any], prints: Prints | None = None) -> Ran:
    """Call a function here and now. Whatever it raises is caught: most of it must not leave a thread or a task."""
    try:
        with prints or nullcontext():
            return Ran(function(**arguments))
    except BaseException as error:  # noqa: BLE001 - `SystemExit` and `StopIteration` too
        return failed(error)
