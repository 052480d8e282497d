"""What people do in two notebooks on one ledger, drawn at random; and three laws that hold whatever they do.

* Nothing is sent that was not asked for: a request leaves only in a cell that runs agents, and only for text that is
  declared there; without --fresh no text is paid a second time.
* Nothing bought is lost: what was answered once is in the ledger, whatever came after.
* Every name in `%agents list` is of a cell that exists, or is marked.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

import agent_magic as am
from agent_magic.notebook.extension import load, unload

NAMES = ("red", "green", "blue")
TEXTS = ("one", "two", "three")
MODEL = "claude-haiku-5-5"


class Api:
    """A server of the Messages API on loopback that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
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

    def close(self) -> None:
        """End it."""
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
    """A notebook with cells that have ids, in a shell of its own, as JupyterLab drives one."""

    def __init__(self, number: int, api: Api) -> None:
        self.number, self.api, self.messages = number, api, count()
        self.cells: dict[str, tuple[str, str]] = {}  # by id: the agent's name and text, as the cell was run last
        self.deleted: list[str] = []
        self.gone: set[str] = set()
        self.start()

    def start(self) -> None:
        """Start the kernel."""
        InteractiveShell.clear_instance()
        self.shell: Any = InteractiveShell()
        self.shell.history_manager.enabled = False
        load(self.shell)
        self.declared: dict[str, str] = {}  # by name: the cell
        self.run(f"%agents connect {self.api.url}")

    def stop(self) -> None:
        """Stop the kernel."""
        unload(self.shell)

    def run(self, code: str, cell: str | None = None) -> Any:
        """Run a cell; return its result."""
        metadata = {"cellId": cell or f"other {self.number}", "deletedCells": self.deleted}
        header = {"msg_id": f"{self.number} {next(self.messages)}", "session": "s"}
        self.shell.get_parent = lambda: {"header": header, "metadata": metadata}
        self.deleted = []
        return self.shell.run_cell(code)

    @property
    def session(self) -> Any:
        """What its extension knows."""
        return next(one for one in self.shell.configurables if type(one).__name__ == "AgentMagics").session

    @property
    def texts(self) -> dict[str, str]:
        """The prompts that are declared, by name."""
        return {one.name: one.prompt for one in self.session.registry().agents}


STEPS = st.tuples(
    st.sampled_from(
        ["declare", "rename", "edit", "delete", "run", "run", "fresh", "reload", "restart", "list", "resume"]
    ),
    st.integers(0, 1),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
)


@pytest.fixture
def api() -> Iterator[Api]:
    """A server."""
    made = Api()
    yield made
    made.close()


def act(notebook: Notebook, what: str, cell: str, name: str, text: str) -> set[str]:
    """Do one thing; return the texts that may be asked by it."""
    if what in {"declare", "rename", "edit"}:
        before = notebook.cells.get(cell, (name, text))
        name = before[0] if what == "edit" else name
        text = before[1] if what == "rename" else text
        assert notebook.run(f"%%agent {name} --model {MODEL}\n{text}", cell).success
        notebook.cells[cell] = name, text
        notebook.gone.discard(cell)
    elif what == "delete" and cell in notebook.cells:
        del notebook.cells[cell]
        notebook.deleted.append(cell)
        notebook.gone.add(cell)
    elif what in {"run", "fresh"}:
        may = set(notebook.texts.values())
        notebook.run("run = %agents run --yes" + (" --fresh" if what == "fresh" else ""))
        return may
    elif what == "resume":
        may = set(notebook.texts.values())
        notebook.run("run = %agents resume")
        return may
    elif what == "reload":
        before_texts = notebook.texts
        notebook.run("%reload_ext agent_magic")
        assert before_texts == notebook.texts
    elif what == "restart":
        notebook.stop()
        notebook.start()
    elif what == "list":
        notebook.run("%agents list")
    return set()


def test_a_morning_of_two_notebooks(api, tmp_path, monkeypatch):
    """What is asked, and how often: once for each text, whatever is reloaded, renamed and restarted; --fresh again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_MAGIC_LEDGER", str(tmp_path / "l.sqlite"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
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
        act(second, "run", "1", "red", "two")
        act(second, "run", "1", "red", "two")
        assert ["one", "one", "two"] == api.asked
    finally:
        first.stop()
        second.stop()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_what_people_do_holds_three_laws(api, tmp_path_factory, steps):
    """Two notebooks, one ledger; each step is checked when it is done."""
    folder: Path = tmp_path_factory.mktemp("life")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AGENT_MAGIC_LEDGER", str(folder / "l.sqlite"))
        patch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
        api.asked.clear()
        notebooks = [Notebook(number, api) for number in range(2)]
        try:
            paid: Counter[str] = Counter()
            for what, which, cell, name, text in steps:
                notebook = notebooks[which]
                before = len(api.asked)
                may = act(notebook, what, cell, name, text)
                new = api.asked[before:]
                assert set(new) <= may, (what, new)
                if what != "fresh":
                    assert not [one for one in new if paid[one]], (what, new)
                paid.update(new)
                for notebook in notebooks:
                    check_list(notebook)
            bought = am.Ledger(folder / "l.sqlite")
            assert len({*paid}) <= len(bought)
            bought.close()
        finally:
            for notebook in notebooks:
                notebook.stop()


def check_list(notebook: Notebook) -> None:
    """Every declared name is of a cell that exists, or of one that is deleted and will be marked."""
    known = {name for name, _ in notebook.cells.values()}
    marked = set(notebook.session.registry().of_cells({*notebook.session.deleted, *notebook.deleted}))
    assert set(notebook.texts) <= known | marked
