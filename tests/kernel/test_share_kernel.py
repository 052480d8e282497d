"""A canary key in a real kernel: wherever something is written or shown, it is not. And sharing, as its user does."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic.simulator import child
from tests.kernels import Kernel
from tests.relay import Relay

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

CANARY = "sk-" + "ant-api03-" + "CanaryCanary0123456789xyz"
MODES = ("Plain", "Context", "Verbose", "Minimal")
FAULTS = {
    "success": "say one thing",
    "refused": "[[status:400]]",
    "no key": "[[status:401]]",
    "forbidden": "[[status:403]]",
    "busy": "[[status:429 times=9 retry_after=0]]",
    "broken": "[[status:500 times=9]]",
    "reset": "[[fault:reset times=9]]",
    "cut": "[[fault:cut times=9]]",
    "truncated": "[[fault:clean_end times=9]]",
    "json": "[[fault:broken_json times=9]]",
    "html": "[[fault:html times=9]]",
    "error event": "[[fault:error_event times=9]]",
}


class Shown:
    """Everything a kernel has shown, as the text of its messages."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.said = kernel, []

    def do(self, code: str):
        """Run a cell."""
        reply = self.kernel.do(code)
        self.said.append(json.dumps([reply.outputs, reply.ename, reply.evalue], default=str))
        return reply


def files_with(folder: Path, secret: str) -> list[str]:
    """Name the files below a folder that hold a secret."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def relay():
    """What stands between the kernel and the stand-in, and sees what goes over the wire."""
    with child.start(latency="none", unlimited=True) as simulator, Relay(simulator.url) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(relay):
    """A kernel whose environment holds the canary, and says that the API is the relay."""
    with Kernel(ANTHROPIC_API_KEY=CANARY, ANTHROPIC_BASE_URL=relay.url) as running:
        shown = Shown(running)
        begin = (
            "%load_ext agent_magic\n%config AgentMagics.max_attempts = 2",
            "from agent_magic.engine import retry\nretry.FIRST_BACKOFF_S = 0.01",
            "import agent_magic as am, logging\nlogging.basicConfig(filename='all.log', level=logging.DEBUG)",
        )
        assert {"ok"} == {shown.do(code).status for code in begin}
        yield shown


@pytest.mark.parametrize("mode", MODES)
def test_the_canary_is_nowhere_after_failures(kernel, relay, mode):
    """Twelve ways a call ends, in every mode of tracebacks: always on the wire, in no message, traceback or frame."""
    before = len(relay.heads)
    kernel.do(f"%xmode {mode}\n%agents clear")
    for number, (_, prompt) in enumerate(FAULTS.items()):
        kernel.do(f"%%agent agent_{number}\n{prompt} {mode}")
    for number, what in enumerate(FAULTS):  # each alone: a refused key stops all others of its run
        earlier = len(relay.heads)
        once = " --max-attempts 1" if what == "busy" else ""  # else a rate limit is waited for until the deadline
        kernel.do(f"run = %agents run agent_{number} --fresh{once}")
        assert len(relay.heads) > earlier, f"{what}: nothing was sent"
        failed = kernel.do("run.raise_for_failures()")
        assert (what != "success") == ("RunFailed" in failed.ename), what
    sent = relay.heads[before:]
    assert [] == [head for head in sent if f"authorization: bearer {CANARY}".lower() not in head.lower()]
    assert "ZeroDivisionError" == kernel.do("1 / 0").ename
    for code in ("run", "run.agents.to_dict()", "run.attempts.to_dict()", "vars(run.record)", "%whos", "am.Claude()"):
        assert "ok" == kernel.do(code).status, code
    kernel.do("%agents error agent_11")
    assert [] == [text for text in kernel.said if CANARY in text]


def test_no_error_shows_a_credential_that_was_given(kernel):
    """S01: a key handed to `Claude` by hand stays out of tracebacks too, in the mode that shows every argument."""
    kernel.do("%xmode Verbose\nplan = am.Plan([am.Agent('a', 'x')])\nfrom os import environ")
    for url in ("http://127.0.0.1:1", "no url", "http://[", "ftp://127.0.0.1", "http://"):
        code = f"run = await plan.run(client=am.Claude(base_url={url!r}, api_key=environ['ANTHROPIC_API_KEY']))"
        kernel.do(code + "\nrun.raise_for_failures()")
    assert "Error" in kernel.kernel.do("1 / 0").text
    assert [] == [text for text in kernel.said if CANARY in text]


def test_only_providers_take_a_key():
    """S01: what is an argument may stand in tracebacks. `Claude` and `Chat` hide it; all else reads the environment."""
    public = [getattr(am, name) for name in am.__all__]
    asked = [one.__init__ if inspect.isclass(one) else one for one in public if callable(one)]
    taken = {(one.__qualname__, name) for one in asked for name in inspect.signature(one).parameters}
    assert {("Chat.__init__", "api_key"), ("Claude.__init__", "api_key")} == {
        one for one in taken if "key" in one[1].lower() or "token" == one[1].lower()
    }


def test_it_is_in_no_file(kernel):
    """Cassette, ledger, log, history, exported script: written after success, failure and a stop."""
    kernel.do("%agents record all.cassette.jsonl")
    kernel.do("import subprocess, sys, json\njson.dump({'cells': [], 'nbformat': 4}, open('n.ipynb', 'w'))")
    kernel.do("open('plan.json', 'w').write(run.record.plan.name)")
    kernel.do("import pickle\nfor one in (am.Claude(), run.record.plan):\n    open('x.repr', 'a').write(repr(one))")
    cell = kernel.kernel.start("%%agent slow\n[[ttft:30]]")
    kernel.kernel.wait(cell)
    cell = kernel.kernel.start("%agents run slow")
    kernel.kernel.until(cell, "running")
    kernel.kernel.interrupt(cell)
    reply = kernel.kernel.wait(cell)
    assert "KeyboardInterrupt" == reply.ename
    assert CANARY not in json.dumps(reply.outputs, default=str)
    kernel.do("%agents record cut.cassette.jsonl")
    kernel.do("%agents share shared.cassette.jsonl")
    home = kernel.kernel.home
    assert (home / "shared.cassette.jsonl").is_file()
    assert (home / "all.log").is_file()
    assert [] == files_with(home, CANARY)
    assert [] == [text for text in kernel.said if CANARY in text]


def test_a_key_in_a_prompt_is_not_written(kernel):
    """Recording and sharing refuse, name the place, and show no key; the run is still there."""
    kernel.do("%agents clear")
    kernel.do(f"%%agent leak\nIs {CANARY} a key?")
    kernel.said.pop()
    kernel.do("run = %agents run")
    kernel.said.clear()
    for verb in ("record", "share"):
        reply = kernel.do(f"%agents {verb} leak.cassette.jsonl")
        assert "UsageError" == reply.ename or "UsageError" in reply.text
        assert "'leak'" in reply.text
        assert "the value of $ANTHROPIC_API_KEY" in reply.text
        assert CANARY not in reply.text
    assert not (kernel.kernel.home / "leak.cassette.jsonl").exists()


def test_sharing_looks_at_the_saved_notebook(kernel):
    """A key in the notebook on the disk stops it; without it the stamp stays in the output and in the frames."""
    kernel.do("%agents clear")
    kernel.do("%%agent a\nsay one thing")
    kernel.do("run = %agents run")
    notebook = {"cells": [{"cell_type": "code", "source": f"k = '{CANARY}'", "outputs": []}], "nbformat": 4}
    (kernel.kernel.home / "mine.ipynb").write_text(json.dumps(notebook))
    kernel.do("In[:] = []")
    reply = kernel.do("%agents share mine.ipynb")
    assert "mine.cassette.jsonl, 'leak'" in reply.text
    assert "--last" in reply.text
    reply = kernel.do("%agents share mine.ipynb --last")
    assert "mine.ipynb, cell 1" in reply.text
    assert CANARY not in reply.text
    notebook["cells"][0]["source"] = "k = 1"
    (kernel.kernel.home / "mine.ipynb").write_text(json.dumps(notebook))
    reply = kernel.do("%agents share mine.ipynb --last")
    assert "replayed in a clean process" in reply.text
    assert "answers    simulated by the mock server" in reply.text
    stamp = kernel.do("run.agents.attrs['provenance']['cassette'], run.agents.attrs['provenance']['sha256'][:4]").text
    assert "mine.cassette.jsonl" in stamp
    assert "does not have this cell yet" in reply.text


def test_recordings_stay_in_the_project(kernel):
    """Reading and writing elsewhere needs a word of the user's."""
    for line in ("record ../x.jsonl", "replay /etc/passwd"):
        assert "leads out of the project" in kernel.do(f"%agents {line}").text
