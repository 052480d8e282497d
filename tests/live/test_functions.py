"""Running the user's functions: where they run, what ends them, what they may raise, whose their prints are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import threading
import weakref
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from agent_magic.live import functions, pack_call, run_function, tool_result
from agent_magic.live.functions import MOST_CHARS, Ran, Worker, Workers, unpack_ran
from agent_magic.record import secrets_of

LONG_S = 60.0
"""Longer than any test: what waits so long has to be ended."""


def run(*given: Any, **options: Any) -> Ran:
    """Run one function on a loop of its own."""
    return asyncio.run(run_function(*given, **options))


def double(x: int) -> int:
    """Return twice as much."""
    return 2 * x


async def later(x: int) -> int:
    """Return it one step later."""
    await asyncio.sleep(0)
    return x


def raises(error: BaseException) -> None:
    """Raise it."""
    raise error


async def raises_later(error: BaseException) -> None:
    """Raise it one step later."""
    await asyncio.sleep(0)
    raise error


WAYS: list[dict[str, Any]] = [{}, {"main": True}, {"process": True}]
ERRORS = [ValueError("why"), StopIteration(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("function", [double, later, partial(double)], ids=["def", "async def", "partial"])
def test_the_value_comes_back(way, function):
    """From the loop, a thread, the main thread, a process."""
    ran = run(function, {"x": 21}, **way)
    assert (double is not function and function is later and 21) or ran.value == 42
    assert (None, "", True) == (ran.error, ran.trace, ran.finished)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_is_raised_is_a_result(error, way):
    """`StopIteration` would hang for ever in a future, `SystemExit` end the kernel, a cancelled tool the run."""
    ran = run(raises, {"error": error}, **way)
    assert (type(error), True) == (type(ran.error), ran.finished)
    assert str(error) == str(ran.error)
    assert f"test_functions.py, line {raises.__code__.co_firstlineno + 2}, in raises: raise error" in ran.trace
    assert "ran.py" not in ran.trace


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_coroutine_raises_is_a_result(error):
    """Python itself makes a `RuntimeError` of a `StopIteration` there."""
    ran = run(raises_later, {"error": error})
    kind = RuntimeError if isinstance(error, StopIteration) else type(error)
    assert kind is type(ran.error)
    assert "in raises_later" in ran.trace


def test_wrong_arguments_are_a_result():
    """Of a coroutine too, whose call fails before there is anything to await."""
    for function in (double, later):
        ran = run(function, {"y": 1})
        assert isinstance(ran.error, TypeError)
        assert "unexpected keyword argument 'y'" in ran.trace


def test_an_error_keeps_nothing_alive():
    """Its frames would hold the frames and arrays that the function had."""
    error = run(raises, {"error": ValueError("why")}).error
    assert error is not None
    assert error.__traceback__ is None


def test_a_wrapper_of_a_coroutine_is_awaited():
    """A decorator may hide that a function is async."""
    assert 3 == run(lambda x: later(x), {"x": 3}).value  # noqa: PLW0108 - hidden on purpose


# threads

NAME: ContextVar[str] = ContextVar("NAME", default="")


def test_a_lazy_object_that_raises_is_told_to_the_model():
    """Whatever is asked of it; the run goes on."""

    class Outside:
        @property
        def __class__(self):
            raise RuntimeError("outside of a context")

    for make in (Outside, lambda: weakref.proxy(type("Gone", (), {})())):
        found = tool_result(run(make, {}), {})
        assert found.is_error
        assert "The tool ran, but what it returned cannot be sent: R" in found.content


def test_threads_have_the_callers_context_and_hold_up_nothing():
    """A kernel knows by the context whose output it is; a daemon does not hold up the end of the process."""

    def look():
        return NAME.get(), threading.current_thread().daemon, threading.current_thread() is threading.main_thread()

    async def go():
        NAME.set("mine")
        return await run_function(look, {})

    assert ("mine", True, False) == asyncio.run(go()).value


def test_as_many_run_at_once_as_are_asked_for():
    """The loop's own pool has six on a small machine."""
    meeting = threading.Barrier(40)

    async def go():
        return await asyncio.gather(*(run_function(meeting.wait, {"timeout": LONG_S}) for _ in range(40)))

    assert set(range(40)) == {ran.value for ran in asyncio.run(go())}


def test_a_timeout_ends_the_wait_and_says_that_the_function_may_go_on():
    """Nothing stops a thread: its effect may still come."""
    go_on, ended = threading.Event(), threading.Event()

    def slow():
        go_on.wait(LONG_S)
        ended.set()

    ran = run(slow, {}, timeout_s=0.01)
    assert (TimeoutError, False) == (type(ran.error), ran.finished)
    assert "not finished within 0.01 s; it may have finished, or finish later" == str(ran.error)
    go_on.set()
    assert ended.wait(LONG_S), "its loop is closed by now, and nobody minds"


def test_a_functions_own_timeout_error_is_its_own():
    """`finished` tells them apart."""
    ran = run(raises, {"error": TimeoutError("mine")}, timeout_s=LONG_S)
    assert ("mine", True) == (str(ran.error), ran.finished)


def test_cancelling_the_caller_ends_the_wait_at_once():
    """For a thread, which goes on, and for a coroutine, which is cancelled."""
    begun, go_on = threading.Event(), threading.Event()
    cut: list[bool] = []

    def slow():
        begun.set()
        go_on.wait(LONG_S)

    async def waits():
        begun.set()
        try:
            await asyncio.sleep(LONG_S)
        finally:
            cut.append(True)

    async def go(function):
        begun.clear()
        task = asyncio.ensure_future(run_function(function, {}))
        await asyncio.to_thread(begun.wait, LONG_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go(slow))
    asyncio.run(go(waits))
    go_on.set()
    assert [True] == cut


def test_a_coroutine_cannot_swallow_what_is_meant_for_the_run():
    """Neither a cancellation nor a timeout."""

    async def deaf():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)
        return "as if nothing had happened"

    async def go():
        task = asyncio.ensure_future(run_function(deaf, {}))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(go())
    assert run(deaf, {}, timeout_s=0.01).finished is False


# the main thread


def test_main_means_the_thread_of_the_loop():
    """A `sqlite3` connection of the notebook works there, and in no other thread."""
    connection = sqlite3.connect(":memory:")

    def count():
        return connection.execute("select 1").fetchone()

    assert isinstance(run(count, {}).error, sqlite3.ProgrammingError)
    assert (1,) == run(count, {}, main=True).value
    connection.close()


def test_stop_reaches_a_function_on_the_main_thread():
    """It raises in the function, and cancels the task that waits; a function cannot swallow it."""
    reached: list[str] = []

    def busy():
        try:
            signal.raise_signal(signal.SIGINT)
            for _ in range(10**9):
                pass
        except KeyboardInterrupt:
            reached.append("in the function")

    async def go():
        with pytest.raises(asyncio.CancelledError):
            await run_function(busy, {}, main=True)
        reached.append("the task")
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()

    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        asyncio.run(go())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ["in the function", "the task"] == reached


def forever():
    """Compute without an end."""
    while True:
        pass


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="the operating system has no alarm")
def test_a_timeout_reaches_a_function_on_the_main_thread():
    """By an alarm, which is put back; one that the user has set is left alone."""
    ran = run(forever, {}, main=True, timeout_s=0.05)
    assert (TimeoutError, True) == (type(ran.error), ran.finished)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)

    def own(*_):
        pass

    before = signal.signal(signal.SIGALRM, own)
    try:
        assert 42 == run(double, {"x": 21}, main=True, timeout_s=0.01).value
        assert signal.getsignal(signal.SIGALRM) is own
    finally:
        signal.signal(signal.SIGALRM, before)


# processes


def which() -> int:
    """Return the number of the process."""
    print("from process", os.getpid())
    return os.getpid()


def says_and_computes() -> None:
    """Say that it has begun, and compute without an end."""
    print("begun")
    forever()


def dies() -> None:
    """Die."""
    os._exit(7)


class Difficult(Exception):
    """Can be written, and not read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def difficult() -> None:
    """Raise it."""
    raise Difficult(1, 2)


def unsendable() -> Any:
    """Return what cannot be sent."""
    return lambda: 1


def test_a_process_is_another_one_and_serves_the_next_call():
    """Its prints come here; its imports are done once."""
    said: list[str] = []

    async def go():
        return [await run_function(which, {}, process=True, prints=said.append) for _ in range(2)]

    first, second = (ran.value for ran in asyncio.run(go()))
    assert first == second != os.getpid()
    assert f"from process {first}\n" * 2 == "".join(said)


def test_a_process_starts_after_a_reset(monkeypatch):
    """`%reset` deletes names of `__main__` that a new process asks for."""
    monkeypatch.delattr(sys.modules["__main__"], "__spec__", raising=False)
    monkeypatch.setattr(functions, "_WORKERS", Workers())
    assert os.getpid() != asyncio.run(run_function(os.getpid, {}, process=True)).value


def test_a_timeout_kills_the_process_and_no_other():
    """It is the only way to stop a computation. The next call gets another process."""

    async def go():
        one, other = await asyncio.gather(
            run_function(forever, {}, process=True, timeout_s=1.0), run_function(which, {}, process=True)
        )
        return one, other, await run_function(which, {}, process=True)

    one, other, third = asyncio.run(go())
    assert (TimeoutError, False) == (type(one.error), one.finished)
    assert other.value == third.value


def test_cancelling_the_caller_kills_the_process():
    """Nothing goes on computing for nobody."""
    worker, begun = Worker(), threading.Event()
    packed = pack_call(says_and_computes, {})
    thread = threading.Thread(target=worker.call, args=(packed, lambda _: begun.set()), daemon=True)
    thread.start()
    assert begun.wait(LONG_S)
    worker.end()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_an_idle_worker_that_has_ended_is_not_taken():
    """It ends by itself after a while."""
    workers, worker = Workers(), Worker()
    assert 42 == unpack_ran(worker.call(pack_call(double, {"x": 21}), print)).value
    workers.put(worker)
    assert worker is workers.take()
    workers.put(worker)
    worker.end()
    assert worker is not workers.take()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (dies, "ended with exit code 7 before the function returned"),
        (difficult, "RuntimeError: Difficult: 1 and 2"),
        (unsendable, "what the function returned cannot be sent back from its process"),
        (lambda: 1, "cannot run in another process: <lambda> is written in another function. Write it to a file"),
    ],
    ids=["dies", "difficult", "unsendable", "lambda"],
)
def test_what_goes_wrong_around_a_process_is_a_result(function, message):
    """And says what to do."""
    ran = run(function, {}, process=True)
    assert ran.error is not None
    assert message in f"{type(ran.error).__name__}: {ran.error}"


def test_what_cannot_be_sent_to_a_process_is_a_result():
    """Such as a lock, or a connection."""
    ran = run(double, {"x": threading.Lock()}, process=True)
    assert "cannot be sent to a process" in str(ran.error)


def test_a_function_of_a_notebook_is_refused_for_processes(monkeypatch):
    """Another process cannot import it: the message says where to write it."""
    monkeypatch.setattr(double, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    ran = run(double, {"x": 1}, process=True)
    assert "double is written in a cell. Write it to a file (%%writefile steps.py), and import it" in str(ran.error)


# prints


def test_prints_go_to_whoever_runs_the_function(capsys):
    """Two functions at once, and somebody else beside them: each has its own."""
    meeting, said = threading.Barrier(2), {"a": [], "b": []}
    before = sys.stdout, sys.stderr

    def talks(name):
        meeting.wait(LONG_S)
        print("this is", name)
        print("and this", file=sys.stderr, flush=True)
        sys.stdout.writelines(["x", "y"])

    async def talks_too():
        print("async")
        await asyncio.sleep(0)
        print("again")

    async def go():
        other: list[str] = []
        runs = [run_function(talks, {"name": name}, prints=said[name].append) for name in said]
        tasks = [asyncio.ensure_future(one) for one in [*runs, run_function(talks_too, {}, prints=other.append)]]
        await asyncio.sleep(0)
        print("of the cell")
        assert sys.stdout.isatty() is before[0].isatty(), "all else is asked of the stream itself"
        await asyncio.gather(*tasks)
        return other

    assert "async\nagain\n" == "".join(asyncio.run(go()))
    assert {name: f"this is {name}\nand this\nxy" for name in said} == {
        name: "".join(parts) for name, parts in said.items()
    }
    assert ("of the cell\n", "") == capsys.readouterr()
    assert before == (sys.stdout, sys.stderr)


def test_prints_of_a_function_that_was_given_up_go_nowhere(capsys):
    """Not into the cell that runs then."""
    go_on, ended, said = threading.Event(), threading.Event(), []

    def slow():
        print("in time")
        go_on.wait(LONG_S)
        print("too late")
        ended.set()

    run(slow, {}, prints=said.append, timeout_s=0.05)
    go_on.set()
    assert ended.wait(LONG_S)
    assert "in time\n" == "".join(said)
    assert ("", "") == capsys.readouterr()


def test_a_flood_of_prints_is_cut_and_says_so():
    """A loop that prints for hours would fill the record."""
    said: list[str] = []

    def floods():
        for _ in range(1000):
            print("x" * 1000)

    run(floods, {}, prints=said.append)
    text = "".join(said)
    assert text.endswith(f"[more was printed; {MOST_CHARS:,} characters are kept]\n")
    assert len(text) < MOST_CHARS + 100


def test_without_a_taker_prints_stay_where_they_are(capsys):
    """Streams are touched only where prints are wanted."""
    run(print, {"end": "as ever"})
    assert "as ever" == capsys.readouterr().out


def test_who_took_the_stream_meanwhile_keeps_it(capsys):
    """`redirect_stdout` of a user ends after the function, or before; the stream is back in the end."""
    begun, go_on, said, before = threading.Event(), threading.Event(), [], sys.stdout

    def talks():
        begun.set()
        go_on.wait(LONG_S)
        print("said")

    async def go():
        task = asyncio.ensure_future(run_function(talks, {}, prints=said.append))
        await asyncio.to_thread(begun.wait, LONG_S)
        with contextlib.redirect_stdout(None):
            go_on.set()
            await task
        await run_function(print, {"end": "again"}, prints=said.append)

    asyncio.run(go())
    assert "again" == said[-1]
    assert sys.stdout is before


# what the model is told


def test_a_model_is_told_errors_without_secrets(monkeypatch):
    """Type and message, with what looks like a key or has the value of a secret variable masked."""
    monkeypatch.setenv("SHOP_PASSWORD", "correct-horse-9")
    error = ValueError("login with correct-horse-9 and " + "sk-" + "ant-api03-" + "a" * 20 + " failed")
    found = tool_result(run(raises, {"error": error}), secrets_of(os.environ))
    assert found.is_error
    assert "ValueError: login with [the value of $SHOP_PASSWORD] and [an Anthropic key] failed" == found.content


def test_a_model_is_told_results():
    """As `result_text` writes them."""
    assert ("42", False, 2, ()) == tool_result(run(double, {"x": 21}), {})


def test_no_key_goes_out_in_a_result():
    """A tool that lists the environment returns it too."""
    key = "sk-" + "ant-api03-" + "b" * 20
    found = tool_result(Ran({"HOME": "/root", "ANTHROPIC_API_KEY": key}), {})
    assert '{"HOME": "/root", "ANTHROPIC_API_KEY": "[an Anthropic key]"}' == found.content
    assert not found.is_error


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("postgres://me:" + "pw@host/db", "[a URL with a password]host/db"),
        ({"auth": "Bea" + "rer abc12345"}, '{"auth": "[a bearer token]"}'),
        ({"x-api-key": "abcdefgh" * 3}, '{"x-api-key": "[a header with a key]"}'),
        ("log in with hunter2-x", "log in with [the value of $SHOP_TOKEN]"),
        ("def log_in(password=PASSWORD): ...", "def log_in(password=PASSWORD): ..."),
    ],
)
def test_no_secret_goes_out_in_a_result(value, content):
    """By its shape, or as the value of a variable that is called one; other text is data and stays."""
    found = tool_result(Ran(value), {"hunter2-x": "SHOP_TOKEN"})
    assert content == found.content
