"""A run inside an `Output` widget and in a button's callback: its picture is still there when it is over."""

from __future__ import annotations

import re

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

# Of all objects, since each version of ipywidgets keeps its list of open models elsewhere; a closed one has no comm.
VIEWS = """import gc
print([bool(one.still) for one in gc.get_objects() if type(one).__name__ == 'RunWidget' and one.comm is not None])"""
RUN = "get_ipython().run_line_magic('agents', 'run --fresh')"


@pytest.fixture
def kernel():
    """A kernel with one agent, connected to the simulator."""
    with Kernel() as started:
        for code in ("%load_ext agent_magic", "%agents connect simulator --latency none", "%%agent a\nOne?"):
            assert "ok" == started.do(code).status
        yield started


@pytest.mark.parametrize(
    ("cell", "views"),
    [
        ("import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    run = %agents run", "[True]"),
        ("run = %agents run", "[]"),
    ],
)
def test_a_captured_view_stays_as_its_picture(kernel: Kernel, cell: str, views: str) -> None:
    """Updates do not reach an `Output` widget, so its view stays open with the picture; others are replaced."""
    reply = kernel.do(cell)
    assert ("ok", views) == (reply.status, kernel.do(VIEWS).text.strip()), reply


def test_a_view_of_a_button_stays_as_its_picture(kernel: Kernel) -> None:
    """What a callback displays is not updated either."""
    press = (
        f"import ipywidgets\nbutton = ipywidgets.Button()\nbutton.on_click(lambda _: {RUN})\nprint(button.comm.comm_id)"
    )
    comm = kernel.do(press).text.strip()
    kernel.send_comm(comm, {"method": "custom", "content": {"event": "click"}})
    assert "[True]" == kernel.do(VIEWS).text.strip()


def test_a_run_that_no_page_shows_is_told_in_lines(kernel: Kernel) -> None:
    """What is done, seconds and dollars: printed for a program that runs the cells, else in place of the text."""
    widget, line = (
        "application/vnd.jupyter.widget-view+json",
        r"agents: 0 of 1 done · 1 running · \d\.\d s · . tokens · \$",
    )
    kernel.do("run = %agents run")  # the first view takes its time
    kernel.do("import os, agent_magic.show.terminal as lines\nlines.LINE_EVERY_S = 0.3")
    kernel.do("%%agent a\nOne? [[tokens:40]] [[pace:20]]")
    for page in (False, True):
        if page:
            kernel.do("os.environ['JPY_SESSION_NAME'] = 'n.ipynb'")
        reply = kernel.do("run = %agents run --fresh")
        printed = "".join(content["text"] for kind, content in reply.outputs if kind == "stream").splitlines()
        replaced = [content["data"] for kind, content in reply.outputs if kind == "update_display_data"]
        told = [data["text/plain"] for data in replaced if widget in data]
        counts = [sum(bool(re.match(line, one)) for one in some) for some in (printed, told)]
        assert 0 == counts[not page]
        assert 2 <= counts[page] <= 8
