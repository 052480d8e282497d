"""A magic that awaits, its blocking twin and Stop, in a real kernel with a toy magic."""

from __future__ import annotations

import importlib.util

import pytest
from ipykernel._version import version_info

pytestmark = pytest.mark.kernel

# Stop is promised within a second, and by so much later as the machine is slow. What hangs here hangs for ever, so
# nothing else ends these cells.
STOP_S = 1.0
SECOND_STOP_S = 0.8

RUNS_BESIDE = version_info >= (7, 4)
SHARES_CONTEXT = version_info >= (7,)

IN_DEF = "def f():\n    r = %toy {}\n    return r\nf()"

CASES = {
    "a line": ("%toy .01", "awaited"),
    "a cell": ("%%toy\n.01 .02", "awaited"),
    "without the percent sign": ("toy .01", "awaited"),
    "assigned": ("x = %toy .01\nx", "awaited"),
    "in for and if": ("for i in range(2):\n    if True:\n        r = %toy .01\nr", "awaited"),
    "in with and try": (
        "import io\nwith io.StringIO():\n    try:\n        r = %toy .01\n    finally:\n        pass\nr",
        "awaited",
    ),
    "after letters of several bytes": ("s = 'é€😀'; x = get_ipython().run_line_magic('toy', '.01')\nx", "awaited"),
    "in a comprehension": ("[get_ipython().run_line_magic('toy', '.01') for i in range(2)]", "awaited"),
    "in async def": ("async def g():\n    r = %toy .01\n    return r\nawait g()", "awaited"),
    "in def": (IN_DEF.format(".01"), "nested"),
    "in lambda": ("(lambda: get_ipython().run_line_magic('toy', '.01'))()", "nested"),
    "in def, called by async def": (
        "def f():\n    r = %toy .01\n    return r\nasync def g():\n    return f()\nawait g()",
        "nested",
    ),
    "in exec": ('exec(\'x = get_ipython().run_line_magic("toy", ".01")\')\nx', "nested"),
    "under %%time": ("%%time\n%toy .01", "nested"),
    "under %time": ("%time x = get_ipython().run_line_magic('toy', '.01')\nx", "nested"),
    "under %%capture": ("%%capture shown\nx = %toy .01", ""),
    "after %%capture": ("print(shown.stdout)\nx", "begun\n\n['slept .01', 'nested']"),
    "under run_cell": ("get_ipython().run_cell('%toy .01').result", "nested"),
    "under run_cell, the second time": (
        "for i in range(2):\n    r = get_ipython().run_cell('%toy .01').result\nr",
        "nested",
    ),
    "a script is written": ("open('script.ipy', 'w').write('r = %toy .01')", ""),
    "under %run": ("%run script.ipy\nr", "nested"),
    "autoawait is switched off": ("%autoawait off", ""),
    "with autoawait off": ("%toy .01", "nested"),
    "autoawait is switched on": ("%autoawait on", ""),
    "with autoawait on again": ("%toy .01", "awaited"),
    "left by its owner": ("%toy 0", "nested"),
    "help": ("%toy?", ""),
    "a shell line beside it": ("!echo shell\n%toy .01", "awaited"),
    "a value put in": ("seconds = .01\n%toy {seconds}", "awaited"),
    "an error is caught": ("try:\n    %toy zero\nexcept* ValueError:\n    print('caught')", "caught"),
    "after an error": ("%toy .01", "awaited"),
}


@pytest.mark.parametrize(("code", "shown"), CASES.values(), ids=CASES)
def test_every_way_to_call_it(kernel, code, shown):
    """The magic awaits where it can, nests where it cannot, and gives its value either way."""
    reply = kernel.do(code)
    assert shown in reply.text
    assert "ok" == reply.status


def test_a_syntax_error_is_shown_as_ipython_shows_it(kernel):
    """A cell with a syntax error is not rewritten, and its error points at the user's own text."""
    reply = kernel.do("%toy .01\nx = = 1")
    assert "SyntaxError" == reply.ename
    assert "x = = 1" in reply.text
    assert ".async" not in reply.text


def test_extension_used_in_the_cell_that_loads_it(fresh_kernel):
    """A cell was rewritten before it loads the extension: its own calls nest, nested cells too, the next one awaits."""
    reply = fresh_kernel.do("%load_ext toy_magic\nx = %toy .01\nprint(x)\nx = get_ipython().run_cell('%toy .01')")
    assert ("ok", 2) == (reply.status, reply.text.count("nested"))
    assert "awaited" in fresh_kernel.do("%toy .01").text


def test_callback_that_runs_a_cell(kernel):
    """A cell run by a callback on the loop, with no cell around it, nests."""
    kernel.do(
        "done = asyncio.get_running_loop().create_future()\n"
        "run = lambda: done.set_result(get_ipython().run_cell('called = %toy .01'))\n"
        "_ = asyncio.get_running_loop().call_soon(run)"
    )
    assert "nested" in kernel.do("await done\nprint(called)").text


def test_cells_queued_behind_it_all_run_in_order(kernel):
    """Run All: the cells behind an awaited and a nested call wait for them and then run, in order."""
    cells = [kernel.start(code) for code in ("order = []", "%toy .2\norder.append(1)", "order.append(2)")]
    cells += [kernel.start(f"{IN_DEF.format('.2')}\norder.append(3)"), kernel.start("order.append(4)")]
    cells += [kernel.start("await asyncio.sleep(0, order)")]
    replies = [kernel.wait(cell) for cell in cells]
    assert ["ok"] * 6 == [reply.status for reply in replies]
    assert "[1, 2, 3, 4]\n" == replies[-1].text


@pytest.mark.parametrize("code", ["%toy hang .01 hang", IN_DEF.format("hang .01 hang")], ids=["awaited", "nested"])
def test_stop_ends_what_waits_for_ever(kernel, code):
    """One interrupt of an idle loop cancels every agent, leaves no task and no handler, and the next cell works."""
    handler = kernel.do("toy_magic.LOG.clear()\nsignal.getsignal(signal.SIGINT)").text
    cell = kernel.start(code)
    kernel.until(cell, "begun")
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert ("error", "KeyboardInterrupt") == (reply.status, reply.ename)
    assert reply.seconds <= STOP_S + kernel.slack_s()
    assert "[]\n" == kernel.do("toy_magic.agents_left()").text
    assert "2\n" == kernel.do("toy_magic.LOG.count('hang cancelled')").text
    assert handler == kernel.do("signal.getsignal(signal.SIGINT)").text
    assert "awaited" in kernel.do("%toy .01").text


def test_what_a_stopped_cell_shows(kernel):
    """A stopped cell shows three lines of its message at most, and no frame of a loop."""
    cell = kernel.start("%toy hang")
    kernel.until(cell, "begun")
    kernel.interrupt(cell)
    shown = kernel.wait(cell).text.splitlines()
    assert "begun" == shown[0]
    assert shown[1].startswith("KeyboardInterrupt: toy stopped after")
    assert ["second line", "third line"] == shown[2:]


def test_cells_queued_behind_a_stopped_one_are_aborted(kernel):
    """Stop stops Run All too."""
    cell = kernel.start("%toy hang")
    queued = kernel.start("1")
    kernel.until(cell, "begun")
    kernel.interrupt(cell)
    assert ["error", "aborted"] == [kernel.wait(cell).status, kernel.wait(queued).status]


@pytest.mark.parametrize("code", ["%toy stuck", IN_DEF.format("stuck")], ids=["awaited", "nested"])
def test_second_stop_ends_a_cell_that_hangs_in_its_cleanup(fresh_kernel, code):
    """The second interrupt ends the cell at once though the clean-up hangs, and the next cell works."""
    fresh_kernel.do("%load_ext toy_magic")
    cell = fresh_kernel.start(code)
    fresh_kernel.until(cell, "begun")
    fresh_kernel.interrupt(cell)
    fresh_kernel.until(cell, "cleaning up")
    fresh_kernel.interrupt(cell)
    reply = fresh_kernel.wait(cell)
    assert "KeyboardInterrupt" == reply.ename
    assert reply.seconds <= SECOND_STOP_S + fresh_kernel.slack_s()
    assert "awaited" in fresh_kernel.do("%toy .01").text


@pytest.mark.parametrize(
    "body",
    ["    return await asyncio.create_task(g())", "    return await asyncio.gather(g(), g())"],
    ids=["task", "gather"],
)
@pytest.mark.parametrize("form", ["r = %toy hang", "r = (lambda: get_ipython().run_line_magic('toy', 'hang'))()"])
def test_stop_of_a_task_that_the_cell_started(kernel, body, form):
    """Stop in a task of the cell's own ends the cell and not the kernel, which a `KeyboardInterrupt` there would."""
    cell = kernel.start(f"async def g():\n    {form}\n    return r\nasync def h():\n{body}\nawait h()")
    kernel.until(cell, "begun\nbegun" if "gather" in body and "lambda" not in form else "begun")
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert ("error", "CancelledError") == (reply.status, reply.ename)
    assert "[]\n" == kernel.do("toy_magic.agents_left()").text


def test_a_timeout_around_it_is_a_timeout(kernel):
    """A cancellation that is not Stop's reaches the work and comes back as what it is."""
    code = "async with asyncio.timeout(.01):\n    %toy hang"
    assert "TimeoutError" == kernel.do(f"toy_magic.LOG.clear()\n{code}").ename
    assert "['hang cancelled'] []\n" == kernel.do("print(toy_magic.LOG, toy_magic.agents_left())").text


@pytest.mark.skipif(not RUNS_BESIDE, reason="this ipykernel delivers comm messages after the cell")
def test_comm_messages_arrive_during_an_awaited_cell(kernel):
    """A click reaches the kernel while the cell awaits, before the cell ends."""
    comm_id = kernel.do("toy_magic.LOG.clear()\nprint(toy_magic.open_comm())").text.strip()
    cell = kernel.start("%toy hang")
    kernel.until(cell, "begun")
    kernel.send_comm(comm_id, {"say": "stop"})
    assert "['cancelled agent hang', 'awaited']" in kernel.wait(cell).text
    assert "comm stop" in kernel.do("toy_magic.LOG").text


@pytest.mark.skipif(not SHARES_CONTEXT, reason="this ipykernel shows prints in the cell that runs now")
def test_background_task_prints_to_its_own_cell(kernel):
    """What a task prints after its cell has ended is shown in its own cell, while another one runs."""
    first = kernel.start(
        "go = asyncio.Event()\n"
        "async def later():\n    await go.wait()\n    print('from the task', flush=True)\n"
        "task = asyncio.create_task(later())"
    )
    assert "ok" == kernel.wait(first).status
    second = kernel.do("go.set()\nawait task")
    kernel.until(first, "from the task")
    assert "from the task" not in second.text


def test_loading_twice_and_unloading(fresh_kernel):
    """However often it is loaded there is one hook; unloaded, it rewrites nothing more, and can be loaded again."""
    count = "sum(type(hook).__name__ == 'AwaitRewriter' for hook in get_ipython().input_transformers_post)"
    fresh_kernel.do("%load_ext toy_magic\nimport toy_magic\ntoy_magic.load_ipython_extension(get_ipython())")
    fresh_kernel.do("%reload_ext toy_magic")
    assert "1\n" == fresh_kernel.do(count).text
    assert "awaited" in fresh_kernel.do("%toy .01").text
    fresh_kernel.do("%unload_ext toy_magic")
    assert "0\n" == fresh_kernel.do(count).text
    assert "nested" in fresh_kernel.do("%toy .01").text
    fresh_kernel.do("%load_ext toy_magic")
    assert "awaited" in fresh_kernel.do("%toy .01").text


APPLY = "import nest_asyncio\nnest_asyncio.apply()"
# What `nest_asyncio.apply()` leaves behind to be recognised by.
MARK = "import asyncio\nasyncio._nest_patched = True\nasyncio.get_running_loop().__class__._nest_patched = True"
REAL = importlib.util.find_spec("nest_asyncio") is not None


@pytest.mark.parametrize(
    "patch", [pytest.param(APPLY, marks=pytest.mark.skipif(not REAL, reason="not installed")), MARK]
)
@pytest.mark.skipif(not SHARES_CONTEXT, reason="nest_asyncio works on this ipykernel")
def test_blocking_call_is_refused_where_nest_asyncio_is_applied(fresh_kernel, patch):
    """Under the user's own nest_asyncio awaiting goes on; the blocking form says what to do instead."""
    fresh_kernel.do(f"%load_ext toy_magic\n{patch}")
    cells = [fresh_kernel.start("%toy .1"), fresh_kernel.start("'behind it'")]
    awaited, behind = map(fresh_kernel.wait, cells)
    assert "awaited" in awaited.text
    assert "behind it" in behind.text
    refused = fresh_kernel.do(IN_DEF.format(".01"))
    assert "CannotNest" == refused.ename
    assert "on its own line of a cell" in refused.evalue
    assert "never awaited" not in refused.text


@pytest.mark.skipif(SHARES_CONTEXT or not REAL, reason="nest_asyncio loses cells on this ipykernel, or is not there")
def test_blocking_call_uses_the_nest_asyncio_of_an_old_kernel(fresh_kernel):
    """On an ipykernel where the user's own nest_asyncio works, both forms and Stop work with it."""
    fresh_kernel.do(f"%load_ext toy_magic\n{APPLY}\nimport toy_magic")
    cells = [fresh_kernel.start(code) for code in ("%toy .1", IN_DEF.format(".1"), "'behind it'")]
    replies = [fresh_kernel.wait(cell).text for cell in cells]
    assert [True] * 3 == [word in text for word, text in zip(("awaited", "nested", "behind"), replies, strict=True)]
    cell = fresh_kernel.start(IN_DEF.format("hang"))
    fresh_kernel.until(cell, "begun")
    fresh_kernel.interrupt(cell)
    assert "KeyboardInterrupt" == fresh_kernel.wait(cell).ename
    assert "[]\n" == fresh_kernel.do("toy_magic.agents_left()").text
