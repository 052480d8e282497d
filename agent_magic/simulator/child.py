"""Starting the simulator as a child process that cannot outlive its parent. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypedDict

ROOT = Path(__file__).resolve().parents[2]
STDERR_LINES = 12


class SimulatorError(RuntimeError):
    """The simulator could not be started.

    Attributes:
        stderr: The last lines it wrote.
    """

    def __init__(self, message: str, stderr: str = "") -> None:
        """Put the last lines of the program under the message."""
        super().__init__(f"{message}\n{stderr}".rstrip())
        self.stderr = stderr


class Simulator:
    """A running simulator; use as a context manager, or call `stop`.

    Attributes:
        url: The base URL for a client, with the secret path prefix.
        pid: The process id.
    """

    def __init__(self, process: subprocess.Popen[str], url: str, stderr: IO[str]) -> None:
        """Take over a process that has said where it listens."""
        self.url = url
        self.pid = process.pid
        self._process = process
        self._stderr = stderr

    def __repr__(self) -> str:
        """Show the process; the URL is a secret."""
        return f"<Simulator pid={self.pid} {'running' if self.running else 'stopped'}>"

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the process and wait for it; a second call does nothing.

        Args:
            timeout_s: Seconds it has to end in good order before it is killed.
        """
        _end(self._process, timeout_s)
        self._stderr.close()


class _Where(TypedDict):
    url: str
    pid: int


def start(  # noqa: PLR0913 - the options of the program, each by its name
    *,
    seed: int = 0,
    latency: str = "real",
    rpm: float | None = None,
    itpm: float | None = None,
    otpm: float | None = None,
    burst_s: float | None = None,
    unlimited: bool = False,
    script: str | os.PathLike[str] | None = None,
    port: int = 0,
    timeout_s: float = 20.0,
) -> Simulator:
    """Start a simulator in a process of its own and wait until it listens.

    It has a session of its own, so Ctrl-C in a terminal and an interrupted kernel do not reach it. It ends when this
    process ends, however that happens: its standard input closes, and it watches this process.

    Args:
        seed: Changes every text and every duration.
        latency: `none`, `fast`, `real`, a factor such as `x0.1`, or `ttft=0.3,pace=200,spread=0.4`.
        rpm: Requests per minute and model class; `None` keeps the Start tier.
        itpm: Uncached input tokens per minute.
        otpm: Output tokens per minute.
        burst_s: Seconds' worth of a given limit that may pass at once; `None` is 1 s.
        unlimited: No limits, no limit headers.
        script: A file of scripted answers.
        port: The port; 0 takes any free one.
        timeout_s: Seconds to wait for it to listen.

    Raises:
        SimulatorError: It did not start; the message has its last lines.
    """
    values = {
        "--seed": seed,
        "--latency": latency,
        "--port": port,
        "--rpm": rpm,
        "--itpm": itpm,
        "--otpm": otpm,
        "--burst": burst_s,
        "--script": None if script is None else os.fspath(script),
    }
    options = [f"{name}={value}" for name, value in values.items() if value is not None]
    return _start([*options, "--unlimited"] if unlimited else options, timeout_s)


def _start(options: list[str], timeout_s: float) -> Simulator:
    with contextlib.ExitStack() as undo:
        # A file, not a pipe: nobody reads a pipe later on, and a full one would stop the child.
        stderr = undo.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
        try:
            process = subprocess.Popen(_command(options), stderr=stderr, **_surroundings())
        except OSError as error:
            raise SimulatorError(f"The simulator cannot be started: {error}") from error
        undo.callback(_end, process, 1.0)
        where = _first_line(process, timeout_s)
        if where is None:
            raise SimulatorError(_why(process, timeout_s), _tail(stderr))
        undo.pop_all()
        return Simulator(process, where["url"], stderr)


def _command(options: list[str]) -> list[str]:
    # -P: a `json.py` in the working directory of a notebook must not be imported. The token is made by the child, so
    # that it shows in no list of processes.
    program = [sys.executable, "-P", "-m", "agent_magic.simulator"]
    return [*program, *options, "--token=auto", f"--parent-pid={os.getpid()}", "--until-stdin-closes"]


def _surroundings() -> dict[str, Any]:
    """Return the arguments of `Popen` that do not depend on the options."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    found: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "encoding": "utf-8",
        "env": {**os.environ, "PYTHONPATH": path},
    }
    if sys.platform == "win32":
        return {**found, "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {**found, "start_new_session": True}


def _first_line(process: subprocess.Popen[str], timeout_s: float) -> _Where | None:
    """Read where the child listens, or return `None` if it ended or was late."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    late = threading.Timer(timeout_s, process.kill)
    late.start()
    try:
        line = process.stdout.readline()
    finally:
        late.cancel()
    return json.loads(line) if line.startswith("{") else None


def _why(process: subprocess.Popen[str], timeout_s: float) -> str:
    _end(process, 1.0)
    return f"The simulator did not start within {timeout_s:g} s or ended early (status {process.returncode}):"


def _tail(stderr: IO[str]) -> str:
    stderr.seek(0)
    return "\n".join(stderr.read().splitlines()[-STDERR_LINES:])


def _end(process: subprocess.Popen[str], timeout_s: float) -> None:
    """End a process: its input closes and it is asked; then it is killed."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
