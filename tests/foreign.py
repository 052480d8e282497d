"""Environments of their own for other projects, installed as their users install them, and servers run from them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def quiet(command: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program without this checkout's settings and without a key."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "ANTHROPIC_"))
    }
    return subprocess.run(command, cwd=folder, env=kept | env, capture_output=True, text=True, check=False, timeout=400)


def install(command: list[str], folder: Path) -> None:
    """Install packages, or skip the test with the reason."""
    try:
        done = quiet(command, folder)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[-1]} could not be installed in time")
    if done.returncode:
        pytest.skip(f"{command[-1]} could not be installed: {done.stderr[-200:]}")


def python_with(folder: Path, *packages: str) -> Path:
    """Return the Python of a new environment with these packages. Where uv is there, it takes a tenth of the time."""
    uv = shutil.which("uv")
    venv.create(folder / "env", with_pip=uv is None)
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip"] if uv is None else [uv, "pip"]
    into = ["--disable-pip-version-check"] if uv is None else ["--python", str(python)]
    install([*pip, "install", "--quiet", *into, *packages], folder)
    return python


@contextmanager
def serving(command: list[str], folder: Path, port: int, path: str, **env: str) -> Iterator[str]:
    """Run a server, wait until it answers, and end it."""
    with (folder / "server.log").open("w") as log:
        child = subprocess.Popen(command, cwd=folder, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(f"http://127.0.0.1:{port}{path}", child, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()
            child.wait(30)


def wait_for(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers, with whatever status but that it is not ready."""
    until = time.monotonic() + 180
    while time.monotonic() < until and child.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                return
        except OSError:
            pass
        else:
            return
        time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]
