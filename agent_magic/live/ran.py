"""The result of a call of a user function, and the place where its exceptions are caught."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.user_code import hint_of, reason_of, trace_of
from agent_magic.live.saving import Saves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.live.prints import Prints
    from agent_magic.record.events import Artifact


class Ran(NamedTuple):
    """The result of a call of a function.

    Attributes:
        value: Its return value.
        error: Its exception; None: it returned. The traceback is removed, since its frames keep data alive.
        trace: The traceback as text, the user's lines only; empty without an error.
        finished: True if it has ended. Otherwise it was abandoned, and may end later.
        artifacts: The files it has saved.
        worker: The worker process that made the call; empty: this machine.
    """

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    finished: bool = True
    artifacts: tuple[Artifact, ...] = ()
    worker: str = ""


def failed(error: BaseException) -> Ran:
    """Return the result of a call that raised."""
    if hint := hint_of(reason_of(error)):
        error.add_note(hint)
    trace = trace_of(error)
    return Ran(error=error.with_traceback(None), trace=trace)


def called(function: Callable[..., Any], arguments: Mapping[str, Any], prints: Prints | None = None) -> Ran:
    """Call a function here. Every exception is caught: most must not leave a thread or a task."""
    with Saves() as saves:
        try:
            with prints or nullcontext():
                ran = Ran(function(**arguments))
        except BaseException as error:  # noqa: BLE001 - `SystemExit` and `StopIteration` too
            ran = failed(error)
    return ran._replace(artifacts=saves.found) if saves.found else ran
