"""A notebook that is saved while its cells run, as a front end with autosave does: valid, small, and without a key."""

from __future__ import annotations

import asyncio
import gc
import json
import sys

import nbclient
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbconvert import HTMLExporter

from agent_magic.simulator import child
from tests.kernel.test_share_kernel import CANARY, files_with
from tests.kernels import Kernel
from tests.relay import Relay

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # nbclient's sockets, left open
]
AGENTS = 100
EVERY_S = 0.2
CELLS = [
    "%load_ext agent_magic",
    f"for n in range({AGENTS}):\n    get_ipython().run_cell_magic('agent', f'a{{n}}', f'[[ttft:0.2]] Question {{n}}?')",
    "run = %agents run --concurrency 8 --yes",
    "run.agents.head()",
    "%agents show a1",
    "run.explore()",
    "run.timeline()",
    "%%agent broken\n[[status:400]] [[fault:reset times=9]]",
    "failed = %agents run broken",
    "%xmode Verbose\nfailed.raise_for_failures()",
]
RUN = 2


def manager_of(folder):
    """Make the manager of a kernel of this Python."""
    spec = folder / "specs" / "tested" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "tested", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(folder / "specs")], ensure_native_kernel=False)
    return AsyncKernelManager(kernel_name="tested", kernel_spec_manager=specs)


async def run_and_save(notebook, path, folder, env):
    """Execute a notebook and save it again and again, widget state and all. Returns the sizes while cells ran."""
    client = nbclient.NotebookClient(
        notebook,
        km=manager_of(folder),
        timeout=120,
        iopub_timeout=120,
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    running, sizes = asyncio.create_task(client.async_execute(env=env)), []
    while not running.done():
        client.set_widgets_metadata()
        nbformat.write(notebook, path)
        nbformat.validate(nbformat.read(path, as_version=4))
        if notebook.cells[RUN].outputs and notebook.cells[RUN].execution_count is not None:
            sizes.append(path.stat().st_size)
        await asyncio.wait({running}, timeout=EVERY_S)
    await running
    client.set_widgets_metadata()
    nbformat.write(notebook, path)
    return sizes


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of an executed notebook, its text, its sizes along the way, and the heads of its requests."""
    folder = tmp_path_factory.mktemp("home")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in CELLS])
    with child.start(latency="none", unlimited=True) as simulator, Relay(simulator.url) as relay:
        env = Kernel.environment(
            folder, ANTHROPIC_API_KEY=CANARY, ANTHROPIC_BASE_URL=relay.url, JPY_SESSION_NAME=str(folder / "n.ipynb")
        )
        sizes = asyncio.run(run_and_save(notebook, folder / "n.ipynb", folder, env))
        heads = relay.heads
    gc.collect()  # nbclient's sockets, here where their warnings are expected
    return folder, notebook, sizes, heads


def test_it_is_small_and_valid_at_every_moment(saved):
    """F27: saved every 0.2 s while 100 agents run: always valid, and at most 100 KB for the run's cell."""
    _, notebook, sizes, _ = saved
    assert len(sizes) >= 5
    assert max(sizes) > 0
    outputs = notebook.cells[RUN].outputs
    assert not [one for one in outputs if one.output_type == "error"], outputs
    print(f"run cell {len(json.dumps(outputs)):,} bytes, largest notebook {max(sizes):,} bytes, {len(sizes)} saves")
    assert len(json.dumps(outputs)) <= 120_000  # colours stand at each shape, for viewers that strip styles


def test_the_last_picture_needs_no_kernel(saved):
    """F27: what stays in the cell is a still picture with its text, no widget that nobody drives any more.

    Below it stands what happened, with the answers folded in, which open without a kernel.
    """
    _, notebook, _, _ = saved
    shown, below = [one for one in notebook.cells[RUN].outputs if one.output_type == "display_data"]
    assert {"text/html", "text/plain"} == set(below.data)
    assert f"{AGENTS} agents" in shown.data["text/plain"]
    assert shown.data["image/svg+xml"].startswith("<svg"), list(shown.data)
    assert "application/vnd.jupyter.widget-view+json" not in shown.data


def test_the_key_is_nowhere_in_it(saved):
    """S02: it went over the wire each time; it is in no cell, output, widget state, traceback, HTML page or file."""
    folder, notebook, _, heads = saved
    asked = [head for head in heads if "/v1/messages" in head]
    assert len(asked) > AGENTS
    assert [] == [head for head in asked if CANARY.lower() not in head.lower()]
    errors = [one for cell in notebook.cells for one in cell.outputs if one.output_type == "error"]
    assert ["RunFailed"] == [one.ename for one in errors]
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert state
    assert CANARY not in json.dumps(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "data:image/svg+xml;base64," in page
    assert CANARY not in page
    assert (folder / "n.ipynb").stat().st_size
    assert [] == files_with(folder, CANARY)


TOOL = """import agent_magic as am
sent = []

@am.tool(ask=True)
def send_mail(to: str) -> str:
    'Send.'
    sent.append(to)
    return 'ok'"""
ASKING = [
    "%load_ext agent_magic\n%agents connect simulator --latency none",
    TOOL,
    """%%agent a --tools send_mail\nWrite. [[tool:send_mail {"to": "anna"}]]""",
    "%%agent b --ask\nWrite.",
    "run = %agents run",
    "print([one.status for one in run.record.results], sent)",
]


async def executed(notebook, folder, env):
    """Execute a notebook as a program does."""
    client = nbclient.NotebookClient(notebook, km=manager_of(folder), timeout=120, iopub_timeout=120)
    await client.async_execute(env=env)


@pytest.mark.parametrize("of_notebook", [True, False], ids=["a notebook's kernel", "its own"])
def test_a_program_that_runs_the_cells_is_not_waited_for(tmp_path, of_notebook):
    """Neither nbclient nor papermill passes a question on: denied at once and said, a tool's call and an answer."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in ASKING])
    env = Kernel.environment(tmp_path, **({"JPY_SESSION_NAME": "n.ipynb"} if of_notebook else {}))
    asyncio.run(executed(notebook, tmp_path, env))
    gc.collect()  # nbclient's sockets, here where their warnings are expected
    *_, ran, told = notebook.cells
    shown = " ".join("".join(one.get("text", "") for one in ran.outputs).split())
    assert "Denied, since nobody could be asked: a (send_mail), the answer of b." in shown
    said = "".join(one.text for one in told.outputs)  # a slow kernel sends a line in parts
    assert "['succeeded', 'failed'] []\n" == said
