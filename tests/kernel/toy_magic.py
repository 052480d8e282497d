"""A toy magic, `%toy`, on the pieces that make a magic await.

The words of its line are agents that run concurrently: a number sleeps so many seconds, `hang` waits for ever and tells
when it is cancelled, `stuck` hangs in its clean-up too. A line that begins with `0` is left to the blocking twin. The
value is what they returned, with the way it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_magic.notebook import AwaitRewriter, run_sync
from agent_magic.notebook.awaiting import awaited

LOG: list[str] = []
COMMS: list[Any] = []
LOOPS: list[asyncio.AbstractEventLoop] = []


async def agent(word: str) -> str:
    """Do what a word says."""
    try:
        if word in {"hang", "stuck"}:
            await asyncio.Event().wait()
        await asyncio.sleep(float(word))
    except asyncio.CancelledError:
        LOG.append(f"{word} cancelled")
        if word == "stuck":
            print("cleaning up", flush=True)
            await asyncio.Event().wait()
        raise
    return f"slept {word}"


async def work(words: str) -> list[str]:
    """Run the words of a line as agents."""
    print("begun", flush=True)
    LOOPS.append(asyncio.get_running_loop())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(agent(word), name=f"agent {word}") for word in words.split()]
    return [f"cancelled {task.get_name()}" if task.cancelled() else task.result() for task in tasks]


def message() -> str:
    """Say more lines than are shown."""
    return f"toy stopped after {len(LOG)} cancellations.\nsecond line\nthird line\nfourth line"


async def toy_async(line: str, cell: str = "") -> list[str]:
    """Run the agents, awaited."""
    return [*await awaited(work(cell or line), message=message), "awaited"]


def toy(line: str, cell: str = "") -> list[str]:
    """Run the agents, blocking."""
    return [*run_sync(work(cell or line), message=message), "nested"]


def agents_left() -> list[str]:
    """Return the names of the agents that still run."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("agent")]


def heard(word: str) -> None:
    """Log what a click says, and cancel the agents."""
    LOG.append(f"comm {word}")
    for task in asyncio.all_tasks():
        if task.get_name().startswith("agent"):
            task.cancel()


def open_comm() -> str:
    """Open a comm of the kernel's, as a widget does, whose messages cancel the agents."""
    from comm import create_comm

    comm = create_comm(target_name="toy")
    comm.on_msg(lambda message: heard(message["content"]["data"]["say"]))
    COMMS.append(comm)
    return comm.comm_id


def wants(_: str, line: str | None) -> bool:
    """Leave lines that begin with `0` as they are."""
    return line is None or not line.startswith("0")


def rewriter(ip: Any) -> AwaitRewriter:
    """Return the rewriter of the toy."""
    return AwaitRewriter(ip, frozenset({"toy"}), wants)


def load_ipython_extension(ip: Any) -> None:
    """Register the toy."""
    twins: dict[str, Callable[..., Any]] = {"toy": toy, "toy.async": toy_async}
    for name, function in twins.items():
        ip.register_magic_function(function, "line", name)
        ip.register_magic_function(function, "cell", name)
    rewriter(ip).install()


def unload_ipython_extension(ip: Any) -> None:
    """Stop rewriting; the magics stay."""
    rewriter(ip).uninstall()
