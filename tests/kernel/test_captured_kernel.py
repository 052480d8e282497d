"""A run inside an `Output` widget and in a button's callback: its picture is still there when it is over."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

# Of all objects, since each version of ipywidgets keeps its list of open models elsewhere; a closed one has no comm.
VIEWS = """import gc
print([bool(one.still) for one in gc.get_objects() if type(one).__name__ == 'RunWidget' and one.comm is not None])"""
WIDGET, SVG = "application/vnd.jupyter.widget-view+json", "image/svg+xml"
RUN = "get_ipython().run_line_magic('agents', 'run --fresh')"


@pytest.fixture(scope="module")
def shared() -> Iterator[Kernel]:
    """A kernel that is connected to the simulator."""
    with Kernel() as started:
        for code in ("%load_ext agent_magic", "%agents connect simulator --latency none", "import ipywidgets, os"):
            assert "ok" == started.do(code).status
        yield started


@pytest.fixture
def kernel(shared: Kernel) -> Kernel:
    """The kernel with one agent, no view and no page."""
    for code in ("%%agent a\nOne?", "ipywidgets.Widget.close_all()\nos.environ.pop('JPY_SESSION_NAME', None);"):
        assert "ok" == shared.do(code).status
    return shared


def test_a_captured_view_stays_as_its_picture(kernel: Kernel) -> None:
    """Updates do not reach an `Output` widget: a page's view stays open as the picture, a program gets it."""
    plain = kernel.do("run = %agents run")
    assert ("ok", "[]") == (plain.status, kernel.do(VIEWS).text.strip()), plain
    captured = "out = ipywidgets.Output()\nwith out:\n    run = %agents run"
    headless = kernel.do(captured)
    (picture,) = [one["data"] for kind, one in headless.outputs if kind == "display_data" and SVG in one["data"]]
    assert "1 agent in 1 layer" in picture["text/plain"]
    assert (False, "[]") == (WIDGET in str(headless.outputs), kernel.do(VIEWS).text.strip())
    kernel.do("os.environ['JPY_SESSION_NAME'] = 'n.ipynb'")
    assert WIDGET in str(kernel.do(captured).outputs)
    assert "[True]" == kernel.do(VIEWS).text.strip()


def test_a_view_of_interact_manual_stays_as_its_picture(kernel: Kernel) -> None:
    """Its button's run is displayed inside its `Output` widget, by a page that somebody has clicked in."""
    made = kernel.do(
        "from ipywidgets import interact_manual\n@interact_manual(n=(1, 3))\n"
        f"def ask(n):\n    global n_asked\n    n_asked = n\n    {RUN}\nprint(ask.widget.manual_button.comm.comm_id)"
    )
    kernel.send_comm(made.text.strip().splitlines()[-1], {"method": "custom", "content": {"event": "click"}})
    assert ("[True]", "2") == (kernel.do(VIEWS).text.strip(), kernel.do("print(n_asked)").text.strip())


def test_a_view_of_a_button_stays_as_its_picture(kernel: Kernel) -> None:
    """What a callback displays is not updated either."""
    press = f"button = ipywidgets.Button()\nbutton.on_click(lambda _: {RUN})\nprint(button.comm.comm_id)"
    comm = kernel.do(press).text.strip()
    kernel.send_comm(comm, {"method": "custom", "content": {"event": "click"}})
    assert "[True]" == kernel.do(VIEWS).text.strip()


def test_a_run_that_no_page_shows_is_told_in_lines(kernel: Kernel) -> None:
    """What is done, seconds and dollars: printed for a program that runs the cells, else in place of the text."""
    line = r"agents: 0 of 1 done · 1 running · \d\.\d s · . tokens · \$"
    kernel.do("run = %agents run")  # the first view takes its time
    kernel.do("import agent_magic.show.terminal as lines\nlines.LINE_EVERY_S = 0.3")
    kernel.do("%%agent a\nOne? [[tokens:40]] [[pace:20]]")
    for page in (False, True):
        if page:
            kernel.do("os.environ['JPY_SESSION_NAME'] = 'n.ipynb'")
        reply = kernel.do("run = %agents run --fresh")
        printed = "".join(content["text"] for kind, content in reply.outputs if kind == "stream").splitlines()
        replaced = [content["data"] for kind, content in reply.outputs if kind == "update_display_data"]
        told = [data["text/plain"] for data in replaced if WIDGET in data]
        counts = [sum(bool(re.match(line, one)) for one in some) for some in (printed, told)]
        assert 0 == counts[not page]
        assert 2 <= counts[page] <= 8
