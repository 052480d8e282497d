"""The built wheel, installed where the checkout is out of sight."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

import agent_magic

pytestmark = pytest.mark.slow

NOT_LOADED = ("aiohttp", "anthropic", "anywidget", "genai_prices", "ipywidgets", "numpy", "pandas", "wasmtime")
"""What `%load_ext agent_magic` leaves for later."""


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel, what it depends on, and nothing else."""

    programs: Path
    """The folder of `python` and `agent-magic`."""
    folder: Path
    """An empty folder to work in."""

    def run(self, program: str, *arguments: str) -> str:
        """Run one of the environment's programs with none of this checkout's settings; return what it printed."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        env |= {"HOME": str(self.folder), "IPYTHONDIR": str(self.folder / "ipython")}
        child = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == child.returncode, child.stdout + child.stderr
        return child.stdout


@pytest.fixture(scope="module")
def wheel(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built as `pip install` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", str(folder)]
    built = subprocess.run([*pip, str(repo)], capture_output=True, text=True, check=False)
    assert 0 == built.returncode, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    done = subprocess.run(pip, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    (folder / "work").mkdir()
    return Installed(programs, folder / "work")


def names_in(wheel: Path) -> set[str]:
    """List the files of a wheel."""
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_is_the_package_and_nothing_else(wheel: Path, repo: Path) -> None:
    """Every file of agent_magic/ is in the wheel, and besides them only the metadata."""
    package = {
        path.relative_to(repo).as_posix()
        for path in (repo / "agent_magic").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    metadata = {
        name for name in names_in(wheel) if name.startswith(f"agent_magic-{agent_magic.__version__}.dist-info/")
    }
    assert package == names_in(wheel) - metadata


def test_the_types_come_along(wheel: Path) -> None:
    """`py.typed` is in the wheel: without it type checkers ignore every annotation of an installed package."""
    assert "agent_magic/py.typed" in names_in(wheel)


def test_the_wheel_carries_the_front_end(wheel: Path) -> None:
    """The live view's script and style travel with the package."""
    static = {Path(name).suffix for name in names_in(wheel) if name.startswith("agent_magic/show/static/")}
    assert {".js", ".css"} <= static


def test_the_metadata_says_what_pip_needs(wheel: Path) -> None:
    """Version, Python floor and licence are the project's; the licence text is inside."""
    info = f"agent_magic-{agent_magic.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert b"Apache License" in archive.read(f"{info}/licenses/LICENSE")
        assert b"agent-magic = agent_magic.cli:main" in archive.read(f"{info}/entry_points.txt")
    assert agent_magic.__version__ == metadata["Version"]
    assert ">=3.11" == metadata["Requires-Python"]
    assert "Apache-2.0" == metadata["License-Expression"]


def ipython(installed: Installed, *lines: str) -> str:
    """Run lines in a plain terminal IPython and return the last line it printed."""
    code = "\n".join(lines)
    return installed.run("python", "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code).splitlines()[-1]


def test_load_ext_is_light(installed: Installed) -> None:
    """In a plain IPython, `%load_ext agent_magic` works and leaves the heavy libraries unloaded."""
    where, *modules = json.loads(
        ipython(
            installed,
            "%load_ext agent_magic",
            "import json, sys, agent_magic",
            "print(json.dumps([agent_magic.__file__, *sys.modules]))",
        )
    )
    assert installed.programs.parent in Path(where).parents
    assert set() == set(NOT_LOADED) & set(modules)
    assert "agent_magic.notebook" in modules


def test_the_magics_are_there(installed: Installed) -> None:
    """After `%load_ext agent_magic` the shell knows the line magic and the cell magic."""
    assert "True True" == ipython(
        installed,
        "%load_ext agent_magic",
        "known = get_ipython().magics_manager.magics",
        "print('agents' in known['line'], 'agent' in known['cell'])",
    )


def test_the_command_is_there(installed: Installed) -> None:
    """`agent-magic --help` answers from an installed wheel."""
    assert "agent-magic" in installed.run("agent-magic", "--help")


TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
"""What an environment has of itself."""
MARGIN = 1.1


def megabytes(folder: Path) -> float:
    """Weigh what was installed: the sizes of the files, without the environment's own tools."""
    parts = [one for one in folder.iterdir() if one.name.partition("-")[0] not in TOOLS]
    files = [file for one in parts for file in ([one] if one.is_file() else one.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def test_an_install_stays_within_its_budget(installed: Installed, wheel: Path, repo: Path) -> None:
    """Bare and with what a notebook needs, it weighs what `docs/versions.md` says, give or take a tenth more."""
    page = (repo / "docs" / "versions.md").read_text(encoding="utf-8")
    budget = [
        float(one) for one in re.findall(r'^\| `pip install "?\.(?:\[notebook\])?"?` \| (\d+) ', page, re.MULTILINE)
    ]
    (packages,) = installed.programs.parent.glob("lib/python*/site-packages")
    bare = megabytes(packages)
    installed.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[notebook]")
    whole = megabytes(packages)
    print(f"{bare:.0f} MB, {whole:.0f} MB with the notebook")
    assert 2 == len(budget)
    assert bare <= budget[0] * MARGIN, f"{bare:.0f} MB: make it lighter, or measure anew and say why"
    assert whole <= budget[1] * MARGIN, f"{whole:.0f} MB with the notebook"
