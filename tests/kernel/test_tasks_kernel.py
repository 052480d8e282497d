"""Tasks in a real kernel: they cannot end it, Stop ends them, and what they print is in no other cell."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

TASKS = """\
import sqlite3, sys, time
import agent_magic as am
connection = sqlite3.connect(":memory:")
stream = sys.stdout
"""
LEAVES = """\
@am.task
def leaves():
    print("before it leaves")
    sys.exit(3)
"""
ON_MAIN = """\
@am.task(main=True)
def counts():
    print("printed by a task")
    return connection.execute("select 41 + 1").fetchone()[0]
"""
HANGS = """\
@am.task(main={main})
def hangs():
    stream.write("working")    # past those who keep what is printed
    stream.flush()
    while True:
        time.sleep(0.01)    # an interrupt just before a long one would be heard after it
"""
SAYS = """\
@am.task
def says():
    time.sleep(0.3)
    print("said in the background")
    return 1
"""


@pytest.fixture(scope="module")
def shared():
    """A kernel with the extension and a simulated API."""
    with Kernel() as started:
        for code in ("%load_ext agent_magic", "%agents connect simulator --latency none", TASKS):
            assert "ok" == started.do(code).status
        yield started


@pytest.fixture
def kernel(shared):
    """The kernel with nothing declared."""
    assert "ok" == shared.do("%agents clear").status
    return shared


def test_a_task_that_exits_is_a_failed_step(kernel):
    """The kernel lives, and says what was raised."""
    assert "ok" == kernel.do(LEAVES).status
    kernel.do("run = %agents run")
    assert "SystemExit" in kernel.do("print(run['leaves'].error)").text
    assert "2" == kernel.do("1 + 1").text.strip()


def test_a_task_on_the_main_thread_uses_what_the_notebook_has(kernel):
    """A `sqlite3` connection works there. Its prints are kept with it, and stand in no cell."""
    assert "ok" == kernel.do(ON_MAIN).status
    assert "printed by a task" not in kernel.do("run = %agents run").text
    assert "42" in kernel.do("print(run['counts'].value)").text
    assert "True" in kernel.do("print(sys.stdout is stream)").text


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("main", [True, False], ids=["main thread", "own thread"])
def test_stop_ends_a_task_that_hangs(kernel, main, times):
    """In the function itself on the main thread, the wait for it elsewhere; a second Stop makes nothing worse."""
    assert "ok" == kernel.do(HANGS.format(main=main)).status
    cell = kernel.start("run = %agents run")
    kernel.until(cell, "working")
    for _ in range(times):
        kernel.interrupt(cell)
    assert "KeyboardInterrupt" == kernel.wait(cell).ename
    assert "2" == kernel.do("1 + 1").text.strip()


def test_a_run_in_the_background_prints_into_no_other_cell(kernel):
    """Not into the one that runs meanwhile."""
    assert "ok" == kernel.do(SAYS).status
    kernel.do("%agents start")
    meanwhile = kernel.do("for _ in range(20):\n    await __import__('asyncio').sleep(0.05)\nprint('mine')").text
    assert "mine" in meanwhile
    assert "said in the background" not in meanwhile + kernel.do("%agents wait").text


def test_a_function_of_a_cell_cannot_go_to_a_process(kernel):
    """The step fails with what to write instead."""
    kernel.do("@am.task(process=True)\ndef heavy():\n    return 1")
    kernel.do("run = %agents run")
    assert "heavy is written in a cell. Write it to a file" in kernel.do("print(run['heavy'].error)").text


def test_a_task_may_ask(kernel):
    """In its own thread, where the loop goes on; where nobody can answer, the step fails and says so."""
    kernel.do("@am.task\ndef asks():\n    return input('How many? ')")
    cell = kernel.start("run = %agents run")
    assert "How many? " == kernel.asked("3")
    kernel.wait(cell)
    assert "3" == kernel.do("print(run['asks'].value)").text.strip()
    kernel.wait(kernel.start("run = %agents run", allow_stdin=False))
    assert "StdinNotImplementedError" in kernel.do("print(run['asks'].error)").text


LOOKS = """\
import locale, random
import numpy as np

def state():
    drawn = np.random.get_state()
    drawn = random.getstate(), drawn[0], drawn[1].tolist(), drawn[2:]
    return drawn, sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL)

@am.task
def in_a_thread():
    return state() == before

@am.task(main=True)
def in_the_kernel():
    return state() == before
"""


def test_a_run_leaves_the_state_of_the_process_as_it_was(kernel):
    """Random numbers of Python and NumPy, recursion limit and locale, while a run goes on and behind it."""
    assert "ok" == kernel.do(LOOKS).status
    kernel.do("%%agent a\nAfter {{ in_a_thread }} and {{ in_the_kernel }}, say hi.")
    kernel.do("random.seed(7); np.random.seed(7); sys.setrecursionlimit(2345); before = state()")
    for command in ("plan", "run", "run --fresh"):
        kernel.do(f"shown = %agents {command}")
        assert "True" in kernel.do("print(state() == before)").text, command
        if command != "plan":
            kernel.do("run = %agents last")
            assert "True True" in kernel.do("print(run['in_a_thread'].value, run['in_the_kernel'].value)").text


def test_a_run_is_waited_for_from_a_thread(kernel):
    """`%agents wait` in a thread of the notebook's waits for a run that a cell began."""
    kernel.do("%agents connect simulator --latency x1")
    kernel.do("%%agent a\n[[ttft:2]] [[tokens:5]] Say hi.")
    kernel.do("%agents start")
    kernel.do("from concurrent.futures import ThreadPoolExecutor\nask = get_ipython().run_line_magic")
    kernel.do("waiting = ThreadPoolExecutor(1).submit(ask, 'agents', 'wait')")
    said = kernel.do("import asyncio\nrun = await asyncio.wrap_future(waiting)\nprint(run.ok)")
    assert "True" in said.text, said.text
