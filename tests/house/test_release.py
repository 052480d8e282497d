"""What a release needs beside the code: workflows whose actions cannot change under us, and files that agree."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

import agent_magic
from tests.house.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_was_read(path: Path) -> None:
    """Every action is pinned by its hash with its version beside it, and rights are named, never the default."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert [] == [one for one in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # (v\d[\w.]*|release/v1)", one)]
    assert re.search(r"^permissions:", text, re.MULTILINE)
    assert "secrets." not in text


def test_only_the_step_that_publishes_may() -> None:
    """The right to publish stands in one job, which builds nothing and waits for the environment `release`."""
    build, _, publish = (ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8").partition("\n  publish:\n")
    assert "id-token" not in build
    assert "environment: release" in publish
    assert "run:" not in publish


def test_the_citation_is_of_this_version() -> None:
    """`CITATION.cff` names the version and the licence of the package."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
    assert f"version: {agent_magic.__version__}\n" in text
    assert f"license: {licence}\n" in text


def test_the_changelog_says_what_a_release_is() -> None:
    """The newest entry is of this version, and short enough to be read; what comes next stands above it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, unreleased, newest, *_ = re.split(r"^## ", text, flags=re.MULTILINE)
    assert unreleased.startswith("Unreleased\n")
    assert newest.startswith(f"{agent_magic.__version__} ")
    assert len(newest.split()) <= 800


def test_tested_versions_are_the_promised_ones() -> None:
    """A classifier is a promise: the newest Python among them is the one that `test-versions newest` prefers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minors = [int(found[1]) for one in project["classifiers"] if (found := re.fullmatch(r".*:: 3\.(\d+)", one))]
    found = re.search(
        r"BASE_PYTHON=\$\(find_minor (\d+)[ \d]*\)", (ROOT / "scripts/test-versions").read_text(encoding="utf-8")
    )
    assert found
    assert max(minors) == int(found[1])
    assert "Typing :: Typed" in project["classifiers"]
    assert (ROOT / "agent_magic" / "py.typed").exists()


def test_what_work_on_it_needs_is_no_extra_of_it() -> None:
    """Who installs the package is offered no tools of its tests: those are groups; each script names what there is."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = set(found["project"]["optional-dependencies"]), set(found["dependency-groups"])
    assert {"dev", "docs", "lite", "test"} == groups
    assert set() == extras & groups
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "scripts").iterdir() if path.is_file()]
    named = {
        name
        for text in scripts
        for used in re.findall(r"^use_python ([\w,]+)", text, re.MULTILINE)
        for name in used.split(",")
    }
    assert named
    assert set() == named - extras - groups
