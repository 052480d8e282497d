"""The Binder image, as far as it can be judged without building it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement


@pytest.fixture
def binder(repo: Path) -> Path:
    """The folder that Binder reads instead of the project's own metadata."""
    return repo / "binder"


def requirement_lines(binder: Path) -> list[str]:
    """Return the lines that pip acts on."""
    lines = (line.split("#")[0].strip() for line in (binder / "requirements.txt").read_text().splitlines())
    return [line for line in lines if line]


def test_it_asks_for_a_python_that_the_package_supports(binder: Path, repo: Path) -> None:
    """Binder ignores `requires-python` and would take 3.10: runtime.txt names a version in its own one-line form."""
    found = re.fullmatch(r"python-3\.(\d+)\n", (binder / "runtime.txt").read_text())
    assert found
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert int(found[1]) in range(11, 15)


def test_it_installs_this_checkout(binder: Path, repo: Path) -> None:
    """One line installs the package from the checkout, with extras that exist; the others are plain requirements."""
    own, *others = requirement_lines(binder)
    found = re.fullmatch(r"\.(?:\[([\w,-]+)\])?", own)
    assert found
    extras = tomllib.loads((repo / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set((found[1] or "").split(",")) - {""} <= set(extras)
    assert {"ipykernel", "jupyterlab"} <= {Requirement(line).name for line in others}


def test_it_has_the_kernel_whose_buttons_work(binder: Path) -> None:
    """The image's kernel is at least 7.4: older ones deliver a click only after the cell."""
    (kernel,) = (Requirement(line) for line in requirement_lines(binder) if line.startswith("ipykernel"))
    assert not kernel.specifier.contains("7.3.0")
    assert kernel.specifier.contains("7.4.0")


def test_the_script_after_the_build_can_run(binder: Path) -> None:
    """The postBuild script is executable, names its interpreter, stops at the first error, and is a valid script."""
    script = binder / "postBuild"
    assert os.access(script, os.X_OK)
    first, *_ = script.read_text().splitlines()
    assert "#!/usr/bin/env bash" == first
    assert "set -euo pipefail" in script.read_text()
    bash = shutil.which("bash")
    assert bash
    assert 0 == subprocess.run([bash, "-n", str(script)], check=False).returncode


def test_nothing_else_decides_the_image(binder: Path) -> None:
    """No file that would make Binder ignore the others, such as an environment.yml or a Dockerfile."""
    assert {"postBuild", "requirements.txt", "runtime.txt"} == {path.name for path in binder.iterdir()}


@pytest.mark.slow
def test_its_steps_make_an_environment_in_which_the_gallery_runs(binder: Path, repo: Path, tmp_path: Path) -> None:
    """What the image does, in an empty environment: the requirements, `pip check`, postBuild, and a notebook."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    free = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "ANTHROPIC"))}
    env = {**free, "HOME": str(tmp_path), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    env |= {"AGENT_MAGIC_LEDGER": ":memory:", "JUPYTER_PREFER_ENV_PATH": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    notebook, made = str(repo / "notebooks" / "quickstart.ipynb"), str(tmp_path / "made.ipynb")
    steps = (
        [programs / "pip", "install", "--quiet", "-r", binder / "requirements.txt"],
        [programs / "pip", "check"],
        [binder / "postBuild"],
        [programs / "python", repo / "scripts" / "execute_notebook.py", notebook, made],
    )
    for step in steps:
        child = subprocess.run([*map(str, step)], cwd=repo, env=env, capture_output=True, text=True, check=False)
        assert 0 == child.returncode, f"{step[0]}: {child.stdout[-2000:]}{child.stderr[-2000:]}"
