"""Start the mock server as a child process that cannot outlive its parent. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from agent_magic.simulator.models import parse_latency

ROOT = Path(__file__).resolve().parents[2]
STDERR_LINES = 12
WRONG_ARGUMENT = 2
LEAST_FACTOR = 0.001
"""Responses take some milliseconds even with `--latency none`."""


class SimulatorError(RuntimeError):
    """The mock server did not start; the message has its last lines of output."""


class Simulator:
    """A running mock server: a context manager, or call `stop`.

    Attributes:
        url: The base URL for a client, with the secret path prefix.
        pid: The process id.
        time_factor: Its duration relative to a real model.
    """

    def __init__(self, process: subprocess.Popen[str], url: str, stderr: IO[str], time_factor: float = 1.0) -> None:
        self.url, self.time_factor = url, time_factor
        self.pid = process.pid
        self._process = process
        self._stderr = stderr

    def __repr__(self) -> str:
        return f"<Simulator pid={self.pid} {'running' if self.running else 'stopped'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop the process and wait for it. Idempotent."""
        _end(self._process, timeout_s)
        self._stderr.close()


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
    slips: str | None = None,
    batch: str | None = None,
    slots: int | None = None,
    shared_rate: float | None = None,
    cap: float | None = None,
    prompt_rate: float | None = None,
    port: int = 0,
    timeout_s: float = 20.0,
) -> Simulator:
    """Start a mock server as a child process, and wait until it listens.

    It has its own session, so Ctrl-C in a terminal and a kernel interrupt do not reach it. It ends with this process,
    even after a crash: its standard input closes, and it watches this process.

    Args:
        seed: Changes every text and every duration.
        latency: `none`, `fast`, `real`, a factor such as `x0.1`, or `ttft=0.3,pace=200,spread=0.4`.
        rpm: Requests per minute and model class; None: the Start tier.
        itpm: Uncached input tokens per minute.
        otpm: Output tokens per minute.
        burst_s: Seconds' worth of a given limit that may pass at once; None: 1 s.
        unlimited: No limits, no limit headers.
        script: A file of scripted responses.
        slips: Rate of choices other than the prompt suggests, by model family, such as `haiku=0.2,opus=0.02`; default
            0.08. The rate is invented, so that a trial has something to find.
        batch: Timing of batches in seconds, such as `takes=2,hidden=0.5` (404 at first); also `expires` and `poll`. The
            default duration is 10 s.
        slots: Maximum number of concurrent requests, as on a self-hosted server; others wait. None: unlimited.
        shared_rate: Tokens per second shared by all active answers; None: each has its own pace.
        cap: With `shared_rate`: maximum tokens per second of one answer.
        prompt_rate: With `shared_rate`: input tokens per second read by an otherwise idle server, in the shared time;
            None: a prompt is read within the time to the first token.
        port: The port; 0: any free one.
        timeout_s: Seconds to wait for it to listen.

    Raises:
        SimulatorError: It did not start; the message says which argument is wrong, or has its last lines of output.
    """
    values = {"seed": seed, "latency": latency, "port": port, "rpm": rpm, "itpm": itpm, "otpm": otpm}
    values |= {"burst_s": burst_s, "unlimited": unlimited, "script": script, "slips": slips, "batch": batch}
    values |= {"slots": slots, "shared_rate": shared_rate, "cap": cap, "prompt_rate": prompt_rate}
    return _start(words_of(values), timeout_s, factor_of(latency))


def words_of(values: Mapping[str, object]) -> list[str]:
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    return [
        "--unlimited" if name == "unlimited" else f"--{name.removesuffix('_s').replace('_', '-')}={value}"
        for name, value in given.items()
    ]


def factor_of(spec: str) -> float:
    """Return the duration of a latency spec relative to a real model."""
    try:
        return max(parse_latency(str(spec)).factor, LEAST_FACTOR)
    except ValueError:
        return 1.0  # the program reports its error


def _start(options: list[str], timeout_s: float, time_factor: float) -> Simulator:
    # -P: a `json.py` in the working directory of a notebook must not be imported. The token is drawn by the child, so
    # that it shows in no list of processes.
    command = [sys.executable, "-P", "-m", "agent_magic.simulator", *options]
    command += ["--token=auto", f"--parent-pid={os.getpid()}", "--until-stdin-closes"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with contextlib.ExitStack() as undo:
        # A file, not a pipe: a pipe is not read later on, and a full one would stop the child.
        stderr = undo.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=sys.platform != "win32",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise SimulatorError(f"The simulator did not start: {error}") from error
        undo.callback(_end, process, 1.0)
        url = _first_line(process, timeout_s).get("url")
        if url is None:
            _end(process, 1.0)
            stderr.seek(0)
            lines = stderr.read().splitlines()[-STDERR_LINES:]
            if process.returncode == WRONG_ARGUMENT and lines:
                raise SimulatorError("The simulator did not start: " + lines[-1].rpartition("error: ")[2])
            why = f"within {timeout_s:g} s or ended early (status {process.returncode}):"
            raise SimulatorError("\n".join([f"The simulator did not start {why}", *lines]))
        undo.pop_all()
        return Simulator(process, url, stderr, time_factor)


def _first_line(process: subprocess.Popen[str], timeout_s: float) -> dict[str, str]:
    """Read the child's first line; empty if it ended or timed out."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    late = threading.Timer(timeout_s, process.kill)
    late.start()
    try:
        line = process.stdout.readline()
    finally:
        late.cancel()
    return json.loads(line) if line.startswith("{") else {}


def _end(process: subprocess.Popen[str], timeout_s: float) -> None:
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
