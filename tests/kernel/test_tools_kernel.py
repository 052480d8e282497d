"""Tools in a real kernel: what is run again while a conversation goes on."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel
LOOK = """import threading
import agent_magic as am
begun, go_on, seen = threading.Event(), threading.Event(), []

def look():
    'Look.'
    begun.set()
    go_on.wait(60)
    seen.append('{}')
    return 'seen'"""
AGENT = "%%agent a --tools look\n{} question [[tool:look]]"
ASKED = "print([one.request.prompt.split()[0] for one in run['a'].attempts], seen)"
LOAD = "@am.task\ndef load():\n    return '{}'"


def test_a_cell_that_is_run_again_in_the_middle_of_a_loop_counts_in_the_next_run() -> None:
    """Agent, tool and task: a conversation goes on as it began, since signed turns allow no other; then they count."""
    with Kernel() as kernel:
        for cell in ("%load_ext agent_magic", "%agents connect simulator --latency none", LOOK.format("old")):
            assert "ok" == kernel.do(cell).status
        kernel.do(LOAD.format("old"))
        kernel.do(AGENT.format("Old"))
        assert "ok" == kernel.do("%agents start").status
        kernel.do("begun.wait(60)")
        assert "ok" == kernel.do(AGENT.format("New")).status
        kernel.do("def look():\n    'Look.'\n    seen.append('new')\n    return 'seen'")
        kernel.do(LOAD.format("new"))
        kernel.do("go_on.set()")
        kernel.do("run = %agents wait")
        assert "['Old', 'Old'] ['old']" == kernel.do(ASKED).text.strip()
        assert "old" == kernel.do("print(run['load'].value)").text.strip()
        kernel.do("run = %agents run")
        assert "['New', 'New'] ['old', 'new']" == kernel.do(ASKED).text.strip()
        assert "new" == kernel.do("print(run['load'].value)").text.strip()
