"""A real kernel, driven as a front end drives it.

    with Kernel() as kernel:
        reply = kernel.do("1 + 1")

Whatever waits, waits for a message; nothing sleeps.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parent.parent
# The toy extension stands alone: IPython 7 brings a package named `tests` of its own.
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "kernel"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one cell.

    Attributes:
        status: `ok`, `error` or `aborted`.
        ename: The name of the error, an empty string without one.
        evalue: Its message.
        text: Everything the cell showed, as plain text, in order.
        outputs: The messages behind it, as `(type, content)`.
        seconds: From sending the cell, or from interrupting it, to its reply.
    """

    status: str
    ename: str
    evalue: str
    text: str
    outputs: tuple[tuple[str, dict[str, Any]], ...]
    seconds: float


@dataclass(slots=True)
class _Cell:
    """The messages about one cell so far."""

    since: float
    outputs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    content: dict[str, Any] | None = None
    replied: float = 0.0
    idle: bool = False

    @property
    def text(self) -> str:
        return "".join(_text_of(kind, content) for kind, content in self.outputs)

    def reply(self) -> Reply:
        content = self.content or {}
        return Reply(
            status=content.get("status", ""),
            ename=content.get("ename", ""),
            evalue=content.get("evalue", ""),
            text=self.text,
            outputs=tuple(self.outputs),
            seconds=self.replied - self.since,
        )


def _text_of(kind: str, content: dict[str, Any]) -> str:
    if kind == "stream":
        return content["text"]
    if kind == "error":
        return "\n".join(content["traceback"]) + "\n"
    if kind in {"execute_result", "display_data", "update_display_data"}:
        return content["data"].get("text/plain", "") + "\n"
    return ""


class Kernel:
    """A kernel of the Python that runs the tests, alone in a folder of its own."""

    def __init__(self, **env: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-", ignore_cleanup_errors=True)
        self.home = Path(self._folder.name)
        self._manager = KernelManager(kernel_name="tested", kernel_spec_manager=self._specs())
        try:
            self._client = self._begin(self.environment(self.home, **env))
        except RuntimeError:  # its ports were chosen before it began, and another program may have taken one since
            self._manager = KernelManager(kernel_name="tested", kernel_spec_manager=self._manager.kernel_spec_manager)
            self._client = self._begin(self.environment(self.home, **env))
        self._cells: dict[str, _Cell] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _specs(self) -> KernelSpecManager:
        spec = self.home / "specs" / "tested" / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": "tested", "language": "python"}))
        return KernelSpecManager(kernel_dirs=[str(spec.parent.parent)], ensure_native_kernel=False)

    def _begin(self, env: dict[str, str]) -> BlockingKernelClient:
        """Start the process, and wait until it answers."""
        self._manager.start_kernel(env=env, cwd=self._folder.name)
        client: BlockingKernelClient = self._manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
        except RuntimeError:
            client.stop_channels()
            self._manager.shutdown_kernel(now=True)
            raise
        return client

    @staticmethod
    def environment(home: Path, **extra: str) -> dict[str, str]:
        """Return the environment of a kernel that lives in this folder alone."""
        apart = {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": PATH}
        free = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
        return {**free, **apart, **extra}

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return self._manager.is_alive()

    def start(self, code: str, *, allow_stdin: bool = True) -> str:
        """Send a cell and return its id at once."""
        cell = self._client.execute(code, allow_stdin=allow_stdin)
        self._cells[cell] = _Cell(time.monotonic())
        return cell

    def start_beside(self, code: str) -> str:
        """Send a cell to a new subshell, which does not wait for the cell that runs; return its id at once."""
        session = self._client.session
        self._client.control_channel.send(session.msg("create_subshell_request", {}))
        made = self._client.get_control_msg(timeout=PATIENCE_S)["content"]
        asked = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = session.msg("execute_request", asked)
        message["header"]["subshell_id"] = made["subshell_id"]
        cell = message["header"]["msg_id"]
        self._cells[cell] = _Cell(time.monotonic())
        self._client.shell_channel.send(message)
        return cell

    def wait(self, cell: str) -> Reply:
        """Wait until a cell has its reply and all its output has arrived."""
        entry = self._cells[cell]
        self._pump(lambda: entry.content is not None and entry.idle)
        reply = entry.reply()
        if reply.status == "error":
            self._settle()
        return reply

    def drawn(self, cell: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what a cell has displayed so far, and displayed again, also since its reply."""
        return [(kind, content) for kind, content in self._cells[cell].outputs if kind.endswith("display_data")]

    def do(self, code: str) -> Reply:
        """Run a cell to its end."""
        return self.wait(self.start(code))

    def slack_s(self) -> float:
        """Measure what ten cells that do nothing take: by so much a busy machine may be late."""
        return sum(self.do("").seconds for _ in range(10))

    def until(self, cell: str, text: str) -> None:
        """Wait until a cell has shown a text."""
        entry = self._cells[cell]
        self._pump(lambda: text in entry.text or entry.content is not None)
        assert text in entry.text, f"{text!r} was not shown: {entry.reply()}"

    def asked(self, answer: str | None) -> str:
        """Wait for a question of a cell and return it, answered but for `None`."""
        question = self._client.get_stdin_msg(timeout=PATIENCE_S)["content"]["prompt"]
        if answer is not None:
            self._client.input(answer)
        return question

    def interrupt(self, *cells: str) -> None:
        """Press Stop. The seconds of the cells named count from here."""
        for cell in cells:
            self._cells[cell].since = time.monotonic()
        self._manager.interrupt_kernel()

    def send_comm(self, comm_id: str, data: dict[str, Any]) -> None:
        """Send a message to a comm, as a click on a widget does."""
        session = self._client.session
        self._client.shell_channel.send(session.msg("comm_msg", {"comm_id": comm_id, "data": data}))

    def kill(self) -> None:
        """End the kernel at once, with all it holds."""
        self._client.stop_channels()
        if self._manager.has_kernel:
            self._manager.shutdown_kernel(now=True)
        self._folder.cleanup()

    def _settle(self) -> None:
        """Wait until the kernel no longer aborts the cells queued behind an error: a user's next cell comes later.

        Only a cell can tell. On ipykernel 7 the word to stop aborting takes a way of its own to the main thread, and a
        message of another kind may overtake it.
        """
        status = "aborted"
        while status == "aborted":
            asked = self._client.execute("", silent=True)
            entry = self._cells[asked] = _Cell(time.monotonic())
            self._pump(lambda entry=entry: entry.content is not None)
            status = entry.reply().status

    def _pump(self, done: Any) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            if not self.is_alive:
                raise AssertionError("The kernel died.")
            if time.monotonic() > end:
                raise AssertionError(f"Nothing came for {PATIENCE_S:g} s: {[c.reply() for c in self._cells.values()]}")
            self._take_output()
            self._take_reply()

    def _take_output(self) -> None:
        try:
            message = self._client.get_iopub_msg(timeout=0.02)
        except queue.Empty:
            return
        entry = self._cells.get(message["parent_header"].get("msg_id"))
        if entry is None:
            return
        entry.outputs.append((message["msg_type"], message["content"]))
        entry.idle |= message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"

    def _take_reply(self) -> None:
        try:
            message = self._client.get_shell_msg(timeout=0)
        except queue.Empty:
            return
        entry = self._cells.get(message["parent_header"].get("msg_id"))
        if entry is not None:
            entry.content, entry.replied = message["content"], time.monotonic()
