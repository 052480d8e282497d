"""Worker processes for long computations, which block neither the loop nor each other.

A worker starts afresh (`spawn`), since a fork would copy a kernel's sockets and locks. So it must import the function,
which fails for one of a cell; with Dask, cloudpickle sends the code. A worker with an abandoned call is killed, the
only way to stop a computation, which would break a pool of `concurrent.futures`. Messages are bytes, so a Dask worker
can pass them on unread.
"""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.signature import defined, is_async, name_of
from agent_magic.declare.user_code import hint_of, reason_of, trace_of
from agent_magic.errors import DeclarationError
from agent_magic.live.saving import Saves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from agent_magic.live.functions import Prints
    from agent_magic.record.events import Artifact


class Ran(NamedTuple):
    """The result of a call of a function."""

    value: Any = None
    error: BaseException | None = None  # without a traceback, whose frames would keep data alive
    trace: str = ""  # the user's lines only
    finished: bool = True  # False if it was abandoned, and may end later
    artifacts: tuple[Artifact, ...] = ()
    worker: str = ""  # the worker process that made the call; empty: this machine


def failed(error: BaseException) -> Ran:
    if hint := hint_of(reason_of(error)):
        error.add_note(hint)
    trace = trace_of(error)
    return Ran(error=error.with_traceback(None), trace=trace)


def called(function: Callable[..., Any], arguments: Mapping[str, Any], prints: Prints | None = None) -> Ran:
    """Call a function here, and catch every exception."""
    with Saves() as saves:
        try:
            with prints or nullcontext():
                ran = Ran(function(**arguments))
        except BaseException as error:  # noqa: BLE001 - `SystemExit` and `StopIteration` too
            ran = failed(error)
    return ran._replace(artifacts=saves.found) if saves.found else ran


IDLE_S = 20.0
"""Seconds a worker stays idle before it ends."""
KEPT_S = IDLE_S / 2
"""Idle seconds after which a worker gets no more calls: well before it ends."""
PRINTED, ENDED = b"p", b"e"
"""Prefixes of a worker's messages: prints, or a result."""
_LOADS: Callable[[bytes], Any] = cast("Any", ForkingPickler).loads
_DUMPS: Callable[[Any], bytes] = cast("Any", ForkingPickler).dumps
_SPAWN = multiprocessing.get_context("spawn")


class Worker:
    """A process that calls functions, one at a time."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ended = False
        self.idle_s = 0.0

    def call(self, packed: bytes, tell: Callable[[str], object]) -> bytes:
        if self._pipe is None:
            self._start()
        pipe = cast("Connection", self._pipe)
        try:
            pipe.send_bytes(packed)
            while (said := pipe.recv_bytes())[:1] == PRINTED:
                tell(said[1:].decode("utf-8", "surrogatepass"))
        except (EOFError, OSError):
            return pack_ran(failed(RuntimeError(self._why_it_ended())))
        self.idle_s = time.monotonic()
        return said[1:]

    def end(self) -> None:
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def serves(self) -> bool:
        process = self._process
        alive = process is not None and process.is_alive() and not self._ended
        return alive and time.monotonic() - self.idle_s < KEPT_S

    def _start(self) -> None:
        vars(sys.modules["__main__"]).setdefault("__spec__", None)  # new processes ask for it, and %reset deletes it
        # A Dask worker is a daemon, which may start no processes: they would outlive it. Ours do not.
        vars(multiprocessing.current_process())["_config"].pop("daemon", None)
        self._pipe, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True, name="agent_magic worker")
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self._process = process
        if self._ended:
            process.kill()

    def _why_it_ended(self) -> str:
        process = cast("SpawnProcess", self._process)
        process.join(timeout=1.0)
        if process.exitcode == 1 and getattr(sys.modules["__main__"], "__file__", None):
            return "The worker process did not start. A script has to run its plan under if __name__ == '__main__':"
        return f"The worker process ended with exit code {process.exitcode} before the function returned."


class Workers:
    """The idle workers of this process."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._lock = threading.Lock()

    def take(self) -> Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.serves():
                    return worker
                worker.end()
        return Worker()

    def put(self, worker: Worker) -> None:
        if worker.serves():
            with self._lock:
                self._idle.append(worker)


def check_sendable(function: Any, what: str) -> None:
    """Raise `DeclarationError`, naming `what`, for a function that another process cannot import."""
    written = defined(function)
    home, name = getattr(written, "__module__", None), getattr(written, "__qualname__", "<")
    main = sys.modules["__main__"]
    if "<" in name or (home == "__main__" and not getattr(main, "__file__", None)):
        where = "in another function" if "<" in name else "in a cell"
        message = f"{what} cannot run in another process: {name_of(function)} is written {where}."
        hint = f"Write it to a file (%%writefile steps.py), and import it: from steps import {name_of(function)}"
        raise DeclarationError(message, hint=hint)


def pack_call(function: Callable[..., Any], arguments: Mapping[str, Any], *, with_code: bool = False) -> bytes:
    """Serialize a call; `with_code` sends code that the other process cannot import."""
    dumps = _DUMPS
    if with_code:
        import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

        dumps = cast("Callable[[Any], bytes]", cast("Any", cloudpickle).dumps)
    try:
        return bytes(dumps((dumps, function, dict(arguments))))
    except Exception as error:  # noqa: BLE001 - the arguments' own code
        message = f"The call cannot be sent to a process: {reason_of(error)}."
        hint = "What belongs to this process, such as a lock or a connection, has to be made in the function."
        raise DeclarationError(message, hint=hint) from None


def unpack_ran(packed: bytes) -> Ran:
    try:
        return Ran(*_LOADS(packed))
    except Exception as error:  # noqa: BLE001 - the value's own code
        return failed(TypeError(f"what the function returned cannot be read here: {reason_of(error)}"))


def pack_ran(ran: Ran, dumps: Callable[[Any], bytes] = _DUMPS) -> bytes:
    try:
        packed = bytes(dumps(tuple(ran)))
        if ran.error is not None:
            _LOADS(packed)  # some errors can be written, and not read again
    except Exception as error:  # noqa: BLE001 - the value's own code
        if ran.error is not None:
            plain = RuntimeError(reason_of(ran.error))
            return pack_ran(Ran(error=plain, trace=ran.trace))
        why = TypeError(f"what the function returned cannot be sent back from its process: {reason_of(error)}")
        return pack_ran(Ran(error=why, trace=reason_of(why)))
    return packed


# in the worker


class _Told(io.TextIOBase):
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def write(self, text: str, /) -> int:
        if text:
            self._pipe.send_bytes(PRINTED + text.encode("utf-8", "surrogatepass"))
        return len(text)


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of a kernel goes to all of its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    told = _Told(pipe)
    with suppress(EOFError, OSError):
        while pipe.poll(IDLE_S):
            sent = pipe.recv_bytes()
            with redirect_stdout(told), redirect_stderr(told):
                ended = _ran(sent)
            pipe.send_bytes(ENDED + ended)


def _end_with_parent() -> None:
    """End this process with its parent: then no result is needed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _ran(sent: bytes) -> bytes:
    try:
        dumps, function, arguments = _LOADS(sent)
    except Exception as error:  # noqa: BLE001 - an import of the user's module
        return pack_ran(failed(error))
    if is_async(function):
        return pack_ran(called(lambda: asyncio.run(function(**arguments)), {}), dumps)
    return pack_ran(called(function, arguments), dumps)
