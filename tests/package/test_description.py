"""What the package index shows: the description and the links, as a build makes them and as the index renders them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
import readme_renderer.markdown
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import agent_magic
from tests.house.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "https://git.invalid/someone/agent_magic"
TAG = f"v{agent_magic.__version__}"


@pytest.fixture(params=["", ADDRESS, ADDRESS + "/"], ids=["no address", "an address", "with a slash"])
def repository(request: Any) -> str:
    """What the owner wrote as the address of the repository."""
    return request.param


@pytest.fixture
def metadata(repository: str, tmp_path: Path) -> Any:
    """The metadata that a build makes, with that address in `pyproject.toml`."""
    for name in ("README.md", "LICENSE", "hatch_build.py", "agent_magic/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    written["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"] = repository
    return ProjectMetadata(str(tmp_path), PluginManager(), written).core


class Shown(HTMLParser):
    """The links and pictures of a rendered description."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where a link leads and what a picture shows."""
        found = dict(attrs)
        if tag == "a":
            self.links.append(found.get("href") or "")
        if tag == "img":
            self.pictures.append(found.get("src") or "")


def test_the_index_shows_every_picture_and_link(metadata: Any, repository: str) -> None:
    """Each is a whole address of the version that is built; without an address of the project there is none."""
    rendered = readme_renderer.markdown.render(metadata.readme)
    assert "text/markdown" == metadata.readme_content_type
    assert rendered
    shown, source = Shown(rendered), (ROOT / "README.md").read_text(encoding="utf-8")
    own = [one for one in re.findall(r"\]\(([^)]+)\)", source) if not one.startswith("http")]
    raw, blob = f"{ADDRESS}/raw/{TAG}/", f"{ADDRESS}/blob/{TAG}/"
    found = [one.removeprefix(raw) for one in shown.pictures] + [one.removeprefix(blob) for one in shown.links]
    assert (sorted(own) if repository else []) == sorted(one for one in found if not one.startswith(("http", "#")))
    assert [] == re.findall(r"\]\((?!https?:)[^)]+\)", metadata.readme)


def test_every_link_of_the_project_comes_from_one_address(metadata: Any, repository: str) -> None:
    """The owner writes it once; the links lead to files that are there."""
    urls = metadata.urls
    assert ({"Repository", "Documentation", "Changelog", "Issues"} if repository else set()) == set(urls)
    assert {True} >= {one.startswith(ADDRESS) for one in urls.values()}
    paths = [one.partition("/main/")[2] for one in urls.values() if "/main/" in one]
    assert [] == [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("[a](docs/x.md#y) [b](https://z.invalid)", f"[a]({ADDRESS}/blob/v1/docs/x.md#y) [b](https://z.invalid)"),
        ("![A run, seen: live](docs/a_(1.svg)", f"![A run, seen: live]({ADDRESS}/raw/v1/docs/a_(1.svg)"),
        ("[![a](b.svg)](c)", f"[![a]({ADDRESS}/raw/v1/b.svg)]({ADDRESS}/blob/v1/c)"),
        ("`x[1](2)` [up](#top) [m](mailto:a@b.invalid)", "`x[1](2)` [up](#top) [m](mailto:a@b.invalid)"),
        ('run["a"] (b) and ![](https://z.invalid/a.png)', 'run["a"] (b) and ![](https://z.invalid/a.png)'),
    ],
)
def test_what_is_whole_already_stays(line: str, made: str) -> None:
    """Only links and pictures of this repository change: no code, no anchor, no address of another."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert made == build.description(line, ADDRESS, "v1")
