"""The same magic, its blocking twin and Ctrl-C in a terminal IPython."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel

CASES = {
    "a line": ("%toy .01", "awaited"),
    "assigned": ("x = %toy .01", ""),
    "the value": ("x", "awaited"),
    "a cell": ("%%toy\n.01 .02", "awaited"),
    "in def": ("f = lambda: get_ipython().run_line_magic('toy', '.01')", ""),
    "called": ("f()", "nested"),
    "called under await": ("async def g():\n    return f()", ""),
    "awaited": ("await g()", "nested"),
    "under %%time": ("%%time\n%toy .01", "nested"),
    "under run_cell": ("get_ipython().run_cell('%toy .01').result", "nested"),
    "on one loop": ("await asyncio.sleep(0, asyncio.get_running_loop() is toy_magic.LOOPS[-1])", "True"),
    "with autoawait off": ("%autoawait off", ""),
    "and then": ("%toy .01", "nested"),
    "with autoawait on": ("%autoawait on", ""),
    "and after that": ("%toy .01", "awaited"),
}


@pytest.mark.parametrize(("code", "shown"), CASES.values(), ids=CASES)
def test_every_way_to_call_it(terminal, code, shown):
    """In a terminal too the magic awaits where it can, nests where it cannot, and all runs on IPython's own loop."""
    assert shown in terminal.do(code)


@pytest.mark.parametrize(
    "code", ["%toy hang", "%%time\n%toy hang", "await g('hang')"], ids=["awaited", "nested", "deep"]
)
def test_ctrl_c_ends_what_waits_for_ever(terminal, code):
    """Ctrl-C cancels the agents, shows the message, leaves no task and no handler, and the next cell works."""
    terminal.do("async def g(line):\n    return (lambda: get_ipython().run_line_magic('toy', line))()")
    terminal.start(code)
    terminal.until("begun")
    terminal.interrupt()
    shown = terminal.wait()
    assert "KeyboardInterrupt: toy stopped after" in shown
    assert "Traceback" not in shown
    assert "default_int_handler" in terminal.do("signal.getsignal(signal.SIGINT)")
    assert "[]" in terminal.do("await asyncio.sleep(0, toy_magic.agents_left())")
    assert "awaited" in terminal.do("%toy .01")


def test_second_ctrl_c_ends_a_cell_that_hangs_in_its_cleanup(terminal):
    """The second Ctrl-C gives the prompt back though the clean-up hangs."""
    terminal.start("%toy stuck")
    terminal.until("begun")
    terminal.interrupt()
    terminal.until("cleaning up")
    terminal.interrupt()
    assert "KeyboardInterrupt: toy stopped after" in terminal.wait()
    assert "awaited" in terminal.do("%toy .01")
