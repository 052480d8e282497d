"""Environments of their own for other projects, installed as their users install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
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
