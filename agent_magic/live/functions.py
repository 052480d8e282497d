"""Runs the user's functions: tools and tasks.

The place of a function decides its access and how it can be stopped:

| where | for | a timeout, or Stop |
| --- | --- | --- |
| the loop | `async def` | cancels it |
| a separate thread | `def` | ends the wait; the thread continues, since nothing can stop it |
| the loop's thread | `main=True`: sqlite3, pyplot, widgets | raises in it; a timeout only if there are timers |
| a process | `process=True`: long computing | kills the process |
| a process at a Dask worker | the same, if requests go to workers | kills the process |

In a browser a `def` runs on the loop. The threads are ours, since the loop's pool has six on a small machine and delays
the end of the process. Calls keep the caller's context, so that a kernel can attribute the output. To give a function's
prints to its caller, `sys.stdout` and `sys.stderr`, which all threads share, look up the owner in a context variable.

A worker process starts afresh (`spawn`), since a fork would copy a kernel's sockets and locks. So it must import the
function, which fails for one of a cell; with Dask, cloudpickle sends the code. A worker with an abandoned call is
killed, the only way to stop a computation, which would break a pool of `concurrent.futures`. Messages are bytes, so a
Dask worker can pass them on unread.
"""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar, Token, copy_context
from functools import partial
from multiprocessing.reduction import ForkingPickler
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from agent_magic.declare.signature import defined, is_async, name_of
from agent_magic.declare.tool import ToolResult, error_text, result_text
from agent_magic.declare.user_code import hint_of, reason_of, run_user_code, trace_of
from agent_magic.errors import AgentMagicError, DeclarationError, Unreachable
from agent_magic.live.saving import Saves
from agent_magic.machine import in_browser, needs_processes
from agent_magic.record.events import new_tuple
from agent_magic.record.secret_scan import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from agent_magic.providers.base import Remote
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


WORKER_IDLE_S = 20.0
"""Seconds a worker stays idle before it ends."""
KEPT_S = WORKER_IDLE_S / 2
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
        while pipe.poll(WORKER_IDLE_S):
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


__all__ = ["Ran", "run_function", "tool_result"]

IDLE = "agent_magic idle"
IDLE_S = 20.0
"""Seconds a thread waits for its next call before it ends."""
_WORKERS = Workers()
"""Worker processes of this machine; any run may use idle ones."""


async def run_function(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    main: bool = False,
    process: bool = False,
    remote: Remote | None = None,
    timeout_s: float | None = None,
    prints: Callable[[str], object] | None = None,
    late: Callable[[Ran], object] | None = None,
) -> Ran:
    """Call a user function and wait for it; an exception is returned as a result.

    `process` sends function, arguments and result to another process, of the `remote` machine if any. `late` gets a
    result that arrives after the wait has ended.
    """
    sink = None if prints is None else Prints(prints)
    try:
        if process:
            work = _in_process(function, arguments, sink, remote, timeout_s)
        elif is_async(function):
            work = _on_loop(function, arguments, sink)
        elif main:
            return _on_main(function, arguments, timeout_s, sink)
        else:
            work = _in_thread(function, arguments, sink, late)
        return await (work if timeout_s is None else _within(timeout_s, work))
    finally:
        if sink is not None:
            sink.close()


def tool_result(ran: Ran, secrets: Mapping[str, str]) -> ToolResult:
    if ran.error is not None:
        return error_text(masked(reason_of(ran.error), secrets))
    told = result_text(ran.value)
    content = masked(told.content, secrets, told=False)
    return told if content == told.content else told._replace(content=content)


async def _within(timeout_s: float, work: Coroutine[Any, Any, Ran]) -> Ran:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:  # not the function's: those are results
        return _late(timeout_s, finished=False)


def _late(timeout_s: float, *, finished: bool) -> Ran:
    may = "" if finished else "; it may have finished, or finish later"
    message = f"not finished within {timeout_s:g} s{may}"
    return Ran(error=TimeoutError(message), trace=f"TimeoutError: {message}", finished=finished)


async def _on_loop(function: Callable[..., Any], arguments: Mapping[str, Any], prints: Prints | None) -> Ran:
    """Await an `async def`: cancelled by us it was stopped, by itself it has failed."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    with Saves() as saves:
        try:
            with prints or nullcontext():
                ran = new_tuple(Ran, (await function(**arguments), None, "", True, (), ""))
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > before:
                raise
            ran = failed(error)
        else:
            if task is not None and task.cancelling() > before:  # it has swallowed our exception
                raise asyncio.CancelledError
    return ran._replace(artifacts=saves.found) if saves.found else ran


async def _in_thread(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    prints: Prints | None,
    late: Callable[[Ran], object] | None,
) -> Ran:
    """Call a function in a thread, and await a returned coroutine: it may wrap an `async def`."""
    ran = await _threaded(lambda: called(function, arguments, prints), name_of(function), late)
    if is_coroutine(ran.value):
        return await _on_loop(lambda: ran.value, {}, prints)
    return ran


def is_coroutine(value: object) -> bool:
    """Return whether a result is to be awaited, without asking a lazy object for its class."""
    return type(value) is CoroutineType


async def _threaded(work: Callable[[], Ran], name: str, late: Callable[[Ran], object] | None = None) -> Ran:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Ran] = loop.create_future()
    context = copy_context()

    def deliver(ran: Ran) -> None:
        if not future.done():
            future.set_result(ran)
        elif late is not None:
            late(ran)

    def run() -> None:
        ran = context.run(work)
        if future.cancelled():  # the loop may be closed by now
            deliver(ran)
            return
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(deliver, ran)

    try:
        in_thread(run, f"agent_magic {name}")
    except RuntimeError as error:  # the machine has no more threads
        return failed(error)
    return await future


async def _in_process(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    prints: Prints | None,
    remote: Remote | None,
    timeout_s: float | None,
) -> Ran:
    """Call a function in another process; pickling runs user code, so it happens in a thread."""
    name, tell = name_of(function), prints.write if prints is not None else partial(print, end="")

    def pack() -> Ran:
        if remote is None:
            needs_processes(f"{name} with process=True", "Leave that out, and it runs in the page itself.")
            check_sendable(function, name)
        return Ran(pack_call(function, arguments, with_code=remote is not None))

    packed = await _threaded(lambda: _result(pack), name)
    if packed.error is not None:
        return packed
    try:
        if remote is None:
            ended, worker = await call_packed(packed.value, tell), ""
        else:
            job: Any = cast("Any", ForkingPickler).dumps(partial(call_packed, packed.value, timeout_s=timeout_s))
            ended, worker = await remote.run(bytes(job), tell)
    except AgentMagicError as error:  # the worker was lost, or there is none
        return failed(error)._replace(finished=not (isinstance(error, Unreachable) and error.sent))
    return (await _threaded(lambda: unpack_ran(ended), name))._replace(worker=worker)


async def call_packed(packed: bytes, tell: Callable[[str], object], *, timeout_s: float | None = None) -> bytes:
    """Make a call from `pack_call` in a process here; a timeout or cancelling kills the process."""
    # It has a timeout since a remote caller may be gone.
    worker = _WORKERS.take()
    try:
        async with asyncio.timeout(timeout_s):
            ran = await _threaded(lambda: Ran(worker.call(packed, tell)), "process")
    except BaseException:
        worker.end()
        raise
    _WORKERS.put(worker)
    return pack_ran(ran) if ran.error is not None else ran.value


def _result(work: Callable[[], Ran]) -> Ran:
    try:
        return work()
    except AgentMagicError as error:
        return failed(error)


# the loop's own thread


class _TimeUp(BaseException):
    """Raised in a function when its time is up."""


def _on_main(
    function: Callable[..., Any], arguments: Mapping[str, Any], timeout_s: float | None, prints: Prints | None
) -> Ran:
    """Call a function here; Stop raises in it, and cancels the waiting task."""

    def stopped(error: BaseException) -> AgentMagicError:
        return AgentMagicError(reason_of(error))  # never: all errors are results

    ran = Ran()
    with _Alarm(timeout_s) as alarm:
        ran = run_user_code(lambda: called(function, arguments, prints), stopped)
    return _late(timeout_s, finished=True) if alarm.rang and timeout_s is not None else ran


class _Alarm:
    """Raises in the main thread's code when its time is up, if the system has such a signal."""

    def __init__(self, after_s: float | None) -> None:
        self._after_s, self.rang, self._armed = after_s, False, False

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        if self._after_s is not None and in_main and hasattr(signal, "setitimer"):
            self._armed = signal.getsignal(signal.SIGALRM) == signal.SIG_DFL  # else it is in use
            if self._armed:
                signal.signal(signal.SIGALRM, self._ring)
                signal.setitimer(signal.ITIMER_REAL, self._after_s)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self._armed:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return isinstance(error, _TimeUp)  # it came between the function's end and here

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if self._armed:
            self.rang = True
            raise _TimeUp


def in_thread(work: Callable[[], object], name: str) -> None:
    """Call a function, which must not raise, in an idle or new thread, or here if there are no threads."""
    if in_browser():
        work()
        return
    try:
        taken = _IDLE.pop()
    except IndexError:
        taken = _Thread()
        taken.thread.start()
    taken.thread.name = name
    taken.calls.put(work)


class _Thread:
    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=IDLE, daemon=True)

    def _serve(self) -> None:
        while True:
            try:
                work = self.calls.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    _IDLE.remove(self)
                except ValueError:  # it was taken this moment: the call is on its way
                    continue
                return
            work()
            del work  # its objects would live until the next call
            self.thread.name = IDLE
            _IDLE.append(self)


_IDLE: list[_Thread] = []
"""Idle threads, the most recent last. Each operation is atomic in the interpreter, so it needs no lock."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # a fork has none of them
