"""A run inside an `Output` widget and in a button's callback: its picture is still there when it is over."""

from __future__ import annotations

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
