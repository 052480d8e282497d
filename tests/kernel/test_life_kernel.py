"""What people do in two notebooks on one ledger, drawn at random; and three laws that hold whatever they do.

* Nothing is sent that was not asked for: a request leaves only in a cell that runs agents, and only for text that is
  declared there; without --fresh no text is paid a second time.
* Nothing bought is lost: a new notebook gets from the ledger what was answered once, whatever came after.
* Every name in `%agents list` is of a cell that exists, or is marked.

The many sequences run in shells of this process, where Stop is a real signal that comes while the server holds a
request. A few run in real kernels, where runs go on in the background, cells are edited under way, and kernels are
killed.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from ipykernel._version import version_info
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from agent_magic.notebook import unload
from tests.kernels import Kernel

NAMES = ("red", "green", "blue")
TEXTS = ("one", "two", "three", "about {{ red }}", "not {{ green }}")
MODEL = "claude-haiku-5-5"
PATIENCE_S = 60.0


class Api:
    """A server of the Messages API on loopback that counts what it is asked and what it answered.

    Attributes:
        asked: The texts of all requests.
        answered: Those that got their answer.
        at_next: Called with the next request for `held`, which waits until `go_on` is set and then gets no answer.
        held: What such a request has in its text.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered: Counter[str] = Counter()
        self.at_next: Callable[[], None] | None = None
        self.held, self.go_on = "", threading.Event()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
                """Say nothing."""

            def do_GET(self) -> None:
                """Offer no models."""
                self._send(
                    404, b'{"type":"error","error":{"type":"not_found_error","message":"no"}}', "application/json"
                )

            def do_POST(self) -> None:
                """Answer with a short stream."""
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if "count_tokens" in self.path:
                    self._send(200, b'{"input_tokens": 5}', "application/json")
                    return
                content = body["messages"][0]["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                api.asked.append(text)
                if api.at_next is not None and api.held in text:
                    called, api.at_next = api.at_next, None
                    called()
                    assert api.go_on.wait(PATIENCE_S)
                    self.close_connection = True
                    return
                api.answered[text] += 1
                self._send(200, _stream(f"on {text}"), "text/event-stream")

            def _send(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold(self, text: str) -> threading.Event:
        """Hold the next request for a text; return what is set once it is there."""
        here = threading.Event()
        self.held, self.at_next = text, here.set
        self.go_on.clear()
        return here

    def close(self) -> None:
        """End it."""
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def _stream(text: str) -> bytes:
    usage = {"input_tokens": 5, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


class Notebook:
    """A notebook with cells that have ids, in a shell of its own, as JupyterLab drives one.

    Attributes:
        cells: By id, the agent's name and text, as the cell was run last.
        deleted: The ids of deleted cells that the kernel has not heard of.
        shown: What the last cell showed.
    """

    def __init__(self, number: int, api: Api) -> None:
        self.number, self.api, self.messages = number, api, count()
        self.cells: dict[str, tuple[str, str]] = {}
        self.deleted: list[str] = []
        self.shown, self.shells = "", list[Any]()
        self.start()

    def start(self) -> None:
        """Start a kernel. An earlier one is left as it is, as after a kill."""
        InteractiveShell.clear_instance()
        self.shell: Any = InteractiveShell()
        self.shells.append(self.shell)
        self.shell.history_manager.enabled = False
        self.run("%load_ext agent_magic")
        self.run(f"%agents connect {self.api.url}")

    def stop(self) -> None:
        """End every kernel that it had."""
        while self.shells:
            unload(self.shells.pop())

    def run(self, code: str, cell: str | None = None) -> bool:
        """Run a cell; return whether it had no error."""
        metadata = {"cellId": cell or f"other {self.number}", "deletedCells": self.deleted}
        header = {"msg_id": f"{self.number} {next(self.messages)}", "session": "s"}
        self.shell.get_parent = lambda: {"header": header, "metadata": metadata}
        self.deleted = []
        with capture_output() as captured:
            done = self.shell.run_cell(code)
        self.shown = captured.stdout + captured.stderr
        return done.success

    @property
    def texts(self) -> dict[str, str]:
        """The prompts that are declared, by name."""
        magics = next(one for one in self.shell.configurables if type(one).__name__ == "AgentMagics")
        return {one.name: one.prompt for one in magics.session.registry().agents}

    @property
    def rendered(self) -> Counter[str]:
        """What a run may ask: the texts with the answers they use, as the server gives them, and for how many agents.

        Two agents with one text get an answer each.
        """
        found = [_rendered(text, self.texts) for text in self.texts.values()]
        return Counter(text for text in found if text is not None)


def _rendered(text: str, texts: dict[str, str], depth: int = 4) -> str | None:
    """Return a prompt with the answers of the agents it names; `None` if one is not declared."""
    for name in NAMES:
        if f"{{{{ {name} }}}}" in text:
            inner = _rendered(texts[name], texts, depth - 1) if name in texts and depth else None
            if inner is None:
                return None
            text = text.replace(f"{{{{ {name} }}}}", f"on {inner}")
    return text


DECLARING = ("declare", "rename", "edit")
LOOKS = ("plan", "advise", "whatif --concurrency 1,2", "last", "lint", "runs", "ledger", "show red", "log")
VERBS = [
    *DECLARING,
    *DECLARING,
    "delete",
    "overwrite",
    "drop",
    *("run", "run", "fresh", "resume", "stop", "ask"),
    "look",
    "reload",
    "unload",
    "restart",
    "kill",
]
STEPS = st.tuples(
    st.sampled_from(VERBS),
    st.integers(0, 1),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
    st.sampled_from(LOOKS),
)
REFUSED = ("declare", 0, "2", "green", "not {{ green }}", "plan")
"""It waits for itself."""

REFUSED = ("declare", 0, "2", "green", "not {{ green }}", "plan")
"""It waits for itself."""


@pytest.fixture
def api() -> Iterator[Api]:
    """A server."""
    made = Api()
    yield made
    made.close()


def declare(notebook: Notebook, what: str, cell: str, name: str, text: str, *, asks: bool = False) -> None:
    """Write a cell and run it; rename or edit what it had. One that is refused is a cell as before."""
    before = notebook.cells.get(cell, (name, text))
    name = before[0] if what == "edit" else name
    text = before[1] if what == "rename" else text
    notebook.run(f"%%agent {name} --model {MODEL}{' --run' if asks else ''}\n{text}", cell)
    if text == notebook.texts.get(name):
        notebook.cells[cell] = name, text


RUNS = {"run": "run --yes", "fresh": "run --yes --fresh", "resume": "resume", "stop": "run --concurrency 1"}


def act(notebook: Notebook, what: str, cell: str, name: str, text: str, look: str = "plan") -> Counter[str]:
    """Do one thing; return the texts that may be asked by it, and how often."""
    if what in RUNS:
        return run(notebook, what)
    if what in DECLARING:
        declare(notebook, what, cell, name, text)
    elif what == "ask":
        declare(notebook, "declare", cell, name, text, asks=True)
        return notebook.rendered
    elif what == "delete" and notebook.cells.pop(cell, None):
        notebook.deleted.append(cell)
    elif what == "overwrite":
        notebook.run("x = 1", cell)
        notebook.cells.pop(cell, None)
    elif what in {"drop", "look"}:
        notebook.run(f"%agents drop {name}" if what == "drop" else f"%agents {look}")
    elif what in {"reload", "unload"}:
        reload(notebook, what)
    elif what in {"restart", "kill"}:
        if what == "restart":
            notebook.stop()
        notebook.start()
    return Counter()


def run(notebook: Notebook, what: str) -> Counter[str]:
    """Run what is declared; Stop is the signal that the button sends, while a request is under way."""
    may, api = notebook.rendered, notebook.api
    if what == "stop":
        api.go_on.clear()
        api.at_next = lambda: os.kill(os.getpid(), signal.SIGINT)
    notebook.run(f"run = %agents {RUNS[what]}")
    api.at_next = None
    api.go_on.set()
    return may


def reload(notebook: Notebook, what: str) -> None:
    """Reload, which changes nothing; or unload, load and connect again."""
    before = notebook.texts
    notebook.run("%reload_ext agent_magic" if what == "reload" else "%unload_ext agent_magic\n%load_ext agent_magic")
    assert notebook.texts == (before if what == "reload" else {})
    if what == "unload":
        notebook.run(f"%agents connect {notebook.api.url}")


@pytest.fixture
def desk(tmp_path_factory, monkeypatch) -> Path:
    """A folder with a ledger, and a key of nobody's."""
    folder: Path = tmp_path_factory.mktemp("life")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AGENT_MAGIC_LEDGER", str(folder / "l.sqlite"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    return folder


def test_a_morning_of_two_notebooks(api, desk):
    """What is asked, and how often: once for each text, whatever is reloaded, renamed and restarted; --fresh again."""
    first, second = (Notebook(number, api) for number in range(2))
    try:
        act(first, "declare", "1", "red", "one")
        act(first, "run", "1", "red", "one")
        assert ["one"] == api.asked
        act(first, "reload", "1", "red", "one")
        act(first, "rename", "1", "green", "one")
        assert {"green": "one"} == first.texts
        act(first, "run", "1", "red", "one")
        act(second, "declare", "1", "red", "one")
        act(second, "run", "1", "red", "one")
        act(first, "restart", "1", "red", "one")
        act(first, "resume", "1", "red", "one")
        assert ["one"] == api.asked
        act(second, "fresh", "1", "red", "one")
        assert ["one", "one"] == api.asked
        act(second, "edit", "1", "red", "two")
        act(second, "stop", "1", "red", "two")
        assert "stopped: 0 of 1 agents had finished" in second.shown
        act(second, "run", "1", "red", "two")
        act(second, "run", "1", "red", "two")
        assert ["one", "one", "two", "two"] == api.asked
        act(second, "delete", "1", "red", "two")
        act(second, "look", "1", "red", "two", "list")
        assert "cell deleted" in second.shown
    finally:
        first.stop()
        second.stop()


# Not shrunk: that would take many minutes, and the steps are read quickly.
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.lists(STEPS, min_size=6, max_size=16))
@example([("declare", 0, "2", "red", "one", "plan"), ("overwrite", 0, "2", "red", "one", "plan"), REFUSED])
def test_what_people_do_holds_three_laws(api, tmp_path_factory, steps):
    """Two notebooks, one ledger; each step is checked when it is done."""
    folder: Path = tmp_path_factory.mktemp("life")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AGENT_MAGIC_LEDGER", str(folder / "l.sqlite"))
        patch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
        api.asked.clear()
        api.answered.clear()
        notebooks = [Notebook(number, api) for number in range(2)]
        try:
            for what, which, cell, name, text, look in steps:
                before, bought = len(api.asked), Counter(api.answered)
                may = act(notebooks[which], what, cell, name, text, look)
                new = Counter(api.asked[before:])
                assert new <= (may if what == "fresh" else may - bought), (what, new)
                check_list(notebooks[which])
            check_nothing_is_lost(api, notebooks)
        finally:
            for notebook in notebooks:
                notebook.stop()


@pytest.fixture
def kernels(api, tmp_path) -> Iterator[Callable[[], Kernel]]:
    """Starts kernels with one ledger, connected to the server."""
    started = list[Kernel]()

    def start() -> Kernel:
        kernel = Kernel(AGENT_MAGIC_LEDGER=str(tmp_path / "l.sqlite"), ANTHROPIC_API_KEY="key-of-a-test")
        started.append(kernel)
        assert "ok" == kernel.do(f"%load_ext agent_magic\n%agents connect {api.url}").status
        return kernel

    yield start
    api.go_on.set()
    for one in started:
        one.kill()


def write(kernel: Kernel, **texts: str) -> str:
    """Run a cell for each agent; return what the last one showed."""
    shown = [kernel.do(f"%%agent {name} --model {MODEL}\n{text}") for name, text in texts.items()]
    assert {"ok"} == {one.status for one in shown}
    return shown[-1].text


@pytest.mark.kernel
@pytest.mark.slow
def test_a_run_in_the_background_is_edited_reloaded_and_stopped(api, kernels):
    """The run under way keeps the old text, the one after it takes the new; no answer is bought twice."""
    kernel, there = kernels(), api.hold("two")
    write(kernel, red="one", green="two", blue="three")
    assert "ok" == kernel.do("%agents start --concurrency 1").status
    assert there.wait(PATIENCE_S)
    assert "the run under way keeps the old green" in write(kernel, green="not two")
    assert "1 run under way" in kernel.do("%reload_ext agent_magic").text
    kernel.do("%agents stop")
    api.go_on.set()
    assert ["one", "two"] == api.asked
    assert "ok" == kernel.do("run = %agents run").status
    assert Counter(["one", "two", "not two", "three"]) == Counter(api.asked)
    assert "ledger" in kernel.do("print(run.agents.source.tolist()[0])").text


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.skipif(version_info < (7, 0), reason="this ipykernel has no subshells")
def test_a_reload_in_a_subshell_and_after_a_failed_cell_loses_nothing(api, kernels):
    """One line says what is kept, the run under way among it, which ends as if nothing had happened."""
    kernel, there = kernels(), api.hold("one")
    write(kernel, red="one")
    assert "error" == kernel.do("%%agent green --bogus\ntwo").status
    cell = kernel.start("run = %agents run")
    assert there.wait(PATIENCE_S)
    reloaded = kernel.wait(kernel.start_beside("%reload_ext agent_magic"))
    (line,) = reloaded.text.splitlines()
    assert ("ok", True) == (reloaded.status, "1 agent, 1 run under way" in line), line
    waiting = kernel.start_beside("same = %agents wait")
    api.go_on.set()
    assert "ok" == kernel.wait(waiting).status
    assert "ok" == kernel.wait(cell).status
    assert "['red'] True" == kernel.do("print(run.agents.agent.tolist(), run is same)").text.strip()
    assert {"one": 1} == api.answered  # the request that was held got no answer


@pytest.mark.kernel
@pytest.mark.slow
def test_stop_in_a_cell_keeps_what_was_answered(api, kernels):
    """Stop is an interrupt; the next run, here or in another notebook, asks only for the rest."""
    first, second, there = kernels(), kernels(), api.hold("two")
    write(first, red="one", green="two")
    write(second, green="one", blue="two")
    cell = first.start("run = %agents run --concurrency 1")
    assert there.wait(PATIENCE_S)
    first.interrupt(cell)
    reply = first.wait(cell)
    api.go_on.set()
    assert ("KeyboardInterrupt", True) == (reply.ename, "1 of 2 agents had finished and are kept" in reply.text)
    assert "ok" == second.do("run = %agents run").status
    assert ["one", "two", "two"] == api.asked
    assert "ok" == first.do("run = %agents run").status
    assert "['ledger', 'ledger']" in first.do("print(run.agents.source.tolist())").text
    assert 3 == len(api.asked)


@pytest.mark.kernel
@pytest.mark.slow
def test_a_kernel_that_is_killed_loses_nothing_it_bought(api, kernels):
    """Its run does not run for ever, its lease is free, and the new kernel asks what was not answered."""
    first, there = kernels(), api.hold("two")
    write(first, red="one", green="two")
    first.start("run = %agents run --concurrency 1")
    assert there.wait(PATIENCE_S)
    first.kill()
    api.go_on.set()
    second = kernels()
    assert "lost" in second.do("%agents runs").text
    write(second, red="one", green="two")
    assert "ok" == second.do("run = %agents run").status
    assert ["one", "two", "two"] == api.asked
    assert "['ledger', 'live']" in second.do("print(run.agents.source.tolist())").text


WAITS_FOR_THE_LEDGER = """
import asyncio
magics = next(one for one in get_ipython().configurables if type(one).__name__ == "AgentMagics")
while magics.session.running[0].held_by(0) != "ledger":
    await asyncio.sleep(0.01)
"""


@pytest.mark.kernel
@pytest.mark.slow
def test_two_kernels_that_ask_the_same_at_once_buy_it_once(api, kernels):
    """The second waits for the first, which is no time of the API; when the first is stopped, it asks itself."""
    first, second, there = kernels(), kernels(), api.hold("one")
    write(first, red="one")
    write(second, green="one")
    asking = first.start("run = %agents run")
    assert there.wait(PATIENCE_S)
    assert "ok" == second.do("%agents start").status
    assert "ok" == second.do(WAITS_FOR_THE_LEDGER).status
    first.interrupt(asking)
    assert "KeyboardInterrupt" == first.wait(asking).ename
    assert "ok" == second.do("run = %agents wait").status
    api.go_on.set()
    assert ["one", "one"] == api.asked
    shown = second.do("print(run.agents.source.tolist(), run.attempts.held_by.tolist(), run.attempts.queued_s[0] > 0)")
    assert "['live'] ['ledger'] True" in shown.text


def check_list(notebook: Notebook) -> None:
    """Every name that is listed is of a cell that declares it, or marked as one whose cell is deleted or changed."""
    notebook.run("%agents list")
    rows = {name for name in NAMES if re.search(rf"^ *{name}\b", notebook.shown, re.MULTILINE)}
    words = " ".join(notebook.shown.split())
    told = re.findall(r"%agents drop ([\w ]+) removes what they declared", words)
    marked = {name for names in told for name in names.split()}
    existing = {name for name, _ in notebook.cells.values()}
    assert rows | {*notebook.texts} <= existing | marked, notebook.shown


def check_nothing_is_lost(api: Api, notebooks: list[Notebook]) -> None:
    """A new notebook that asks all that was answered asks nobody."""
    reader, before = Notebook(2, api), len(api.asked)
    notebooks.append(reader)
    for number, text in enumerate(api.answered):
        assert reader.run(f"%%agent a{number} --model {MODEL}\n{text}", f"c{number}")
    if api.answered:
        assert reader.run("run = %agents run"), reader.shown
        assert {"ledger"} == set(reader.shell.user_ns["run"].agents["source"])
    assert before == len(api.asked)
