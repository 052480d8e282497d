"""The one synchronous bridge: runs a coroutine by a blocking call where a magic cannot await.

That is inside `def`, under `%%time` and `%%capture`, and in a script.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from IPython.core import async_helpers

from agent_magic.errors import CannotNest
from agent_magic.live.interrupt import interruptible, stopped
from agent_magic.notebook.awaiting import cell_is_running

__all__ = ["run_sync"]

T = TypeVar("T")

# The first ipykernel that runs all cells in one shared `contextvars.Context`, which `nest_asyncio` cannot enter twice.
SHARED_CONTEXT = 7


def run_sync(work: Coroutine[Any, Any, T], *, message: Callable[[], str] = stopped) -> T:
    """Run a coroutine, and close it if it cannot be run; raise `CannotNest` if the loop cannot be entered again.

    Inside a running loop it runs on that one, made re-entrant by `nest_asyncio2` at this moment: connections belong to
    their loop, so a second loop would need new ones.
    """
    loop = _running_loop()
    nested = loop is not None
    if loop is None:
        loop = _idle_loop()
    else:
        problem = _obstacle(loop)
        if problem:
            work.close()
            raise CannotNest(problem)
        _make_reentrant(loop)
    task = loop.create_task(_outcome(work, message))
    try:
        result = loop.run_until_complete(task)
    finally:
        task.cancel()  # does nothing, unless an interrupt came before our handler was there
    if isinstance(result, KeyboardInterrupt):
        # Out of a task, this error would end the kernel's loop, and the kernel with it.
        raise asyncio.CancelledError(str(result)) if nested and not cell_is_running() else result
    return result


async def _outcome(work: Coroutine[Any, Any, T], message: Callable[[], str]) -> T | KeyboardInterrupt:
    """Return an interrupt instead of raising it, which would break a nested loop's track of its task."""
    try:
        return await interruptible(work, message=message)
    except KeyboardInterrupt as stop:
        return stop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _idle_loop() -> asyncio.AbstractEventLoop:
    known: Mapping[str, Any] = vars(async_helpers)
    if "get_asyncio_loop" in known:
        return known["get_asyncio_loop"]()
    return known["_asyncio_runner"].loop  # IPython 7


def _is_patched_by_other() -> bool:
    return hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2")


def _obstacle(loop: asyncio.AbstractEventLoop) -> str:
    ipykernel = sys.modules.get("ipykernel")
    if _is_patched_by_other() and (not hasattr(loop, "_nest_patched") or _major(ipykernel) >= SHARED_CONTEXT):
        cause = "nest_asyncio is applied in this kernel, and on this ipykernel it loses the cells queued behind a call"
    elif not isinstance(loop, asyncio.BaseEventLoop):
        cause = f"the running loop, {type(loop).__module__}.{type(loop).__qualname__}, cannot be entered a second time"
    else:
        return ""
    return (
        f"A blocking call cannot run here: {cause}. Put the magic on its own line of a cell, outside "
        "def, %%time and %%capture, or use `await plan.run()`."
    )


def _major(ipykernel: object) -> int:
    return int(str(getattr(ipykernel, "__version__", "0")).split(".", maxsplit=1)[0])


def _make_reentrant(loop: asyncio.AbstractEventLoop) -> None:
    if _is_patched_by_other():
        return  # by nest_asyncio, on a kernel that supports it
    importlib.import_module("nest_asyncio2").apply(loop)
