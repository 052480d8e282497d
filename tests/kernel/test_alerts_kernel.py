"""A run that an alert has paused, in a real kernel, over real HTTP to the mock server."""

from __future__ import annotations

import pytest
from ipykernel._version import version_info

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel
RUNS_BESIDE = version_info >= (7, 4)


@pytest.fixture(scope="module")
def kernel():
    """A kernel with the extension, connected to a stand-in API."""
    with Kernel() as started:
        assert "ok" == started.do("%load_ext agent_magic").status
        assert "ok" == started.do("%agents connect simulator --latency none").status
        assert "ok" == started.do("%agents alert errors > 10% --on-alert pause").status
        yield started


@pytest.fixture
def paused(kernel, request):
    """The cell of a run that an alert has paused, and all that it has said by then."""
    kernel.do("%agents clear")
    kernel.do(f"rows = [f'{request.node.name} {{one}} [[status:400 times=1]]' for one in range(30)]")
    kernel.do("%%agent one --each rows\nSay {{ item }}.")
    cell = kernel.start("run = %agents run --concurrency 2")
    kernel.until(cell, "starts.")
    return cell


def words(reply):
    """What a cell has printed, whatever the line breaks."""
    return " ".join(reply.text.split())


@pytest.mark.skipif(not RUNS_BESIDE, reason="this ipykernel delivers comm messages after the cell")
def test_resume_in_the_picture_continues_the_cell(kernel, paused):
    """What the line says of a page is true: the button is heard while the cell waits."""
    (view,) = [data for kind, one in kernel.drawn(paused) for name, data in one["data"].items() if "widget" in name]
    kernel.send_comm(view["model_id"], {"method": "custom", "content": {"cmd": "resume"}})
    assert "30 failed" in words(kernel.wait(paused))


def test_a_cell_that_an_alert_pauses_says_so_and_what_goes_on(kernel, paused):
    """An interrupt ends it, and `%agents resume` goes on: the cell that waits leaves no other room to type that."""
    kernel.interrupt(paused)
    said = words(kernel.wait(paused))
    assert "note: paused by the alert errors" in said
    assert "Interrupt the kernel, and %agents resume goes on with what is left." in said
    kernel.do("%agents alert off")
    assert "ok" == kernel.do("run = %agents resume --yes").status
    assert "False" == kernel.do("print(run.record.cut)").text.strip()
