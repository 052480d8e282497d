"""The built site in Chromium: from the disk and served, light and dark, at a phone's width, its front page asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import agent_magic as am
from tests.browser.test_accessible import RULES
from tests.browser.test_ask import asked, browsing, changed, forecast, pyodide, served
from tests.house.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.slow]
__all__ = ["pyodide"]
LOOKED_AT = ("index", "tutorial/3_tools_and_tasks", "reference/errors", "gallery/index", "gallery/quickstart")
"""Pages of each kind, for what takes long."""
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, pyodide: Path) -> Path:
    """The site with Pyodide beside its pages, as `scripts/site` builds it."""
    folder = tmp_path_factory.mktemp("site") / "site"
    env = {**os.environ, "AGENT_MAGIC_PYODIDE": str(pyodide), "AGENT_MAGIC_LEDGER": ":memory:"}
    command = [sys.executable, str(ROOT / "docs" / "tools" / "build.py"), str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named 'sphinx" in done.stderr or "No module named 'myst" in done.stderr:
        pytest.skip("the packages of the docs are not here: scripts/site installs them")
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def pages(site: Path) -> Iterator[Path]:
    """Yield every page of ours."""
    for path in sorted(site.rglob("*.html")):
        if path.relative_to(site).parts[0] not in {"_static", "_sources", "pyodide", "lite"}:
            yield path


def violations(page: Page) -> list[Any]:
    """Return what axe finds wrong on the page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"runOnly": {"type": "tag", "values": RULES}}).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found]


def test_every_page_opens_from_the_disk_at_a_phones_width(site: Path, chromium: str, tmp_path: Path) -> None:
    """Without a network: no request leaves, nothing is logged as an error, nothing is wider than the screen."""
    with browsing(chromium, tmp_path / "profile") as (context, page, wrong):
        context.set_offline(True)
        page.set_viewport_size(PHONE)
        for path in pages(site):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert [] == wrong


def test_the_search_works_from_the_disk(site: Path, chromium: str, tmp_path: Path) -> None:
    """A word that stands on pages finds them, without a server."""
    with browsing(chromium, tmp_path / "profile") as (context, page, wrong):
        context.set_offline(True)
        page.goto((site / "search.html").as_uri() + "?q=budget")
        page.locator("ul.search li a").first.wait_for()
        assert 5 < page.locator("ul.search li").count()
        assert [] == [one for one in wrong if one.startswith("http")]  # excerpts of results need a server


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read_by_everybody(site: Path, chromium: str, tmp_path: Path, theme: str) -> None:
    """Axe finds nothing wrong on a page of each kind, in either theme."""
    with browsing(chromium, tmp_path / "profile") as (_, page, _):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            assert [] == violations(page), name


def test_the_front_page_answers(site: Path, chromium: str, tmp_path: Path) -> None:
    """Its picture is there without a script; asked, it says what `run.whatif` says, in the page's own theme."""
    runs = ROOT / "docs" / "runs"
    plan = am.Plan.from_json((runs / "business_plan.plan.json").read_text(encoding="utf-8"))
    run = plan.replay(runs / "business_plan.cassette.jsonl")
    assert (site / "index.html").stat().st_size < 500_000
    with served(site) as address, browsing(chromium, tmp_path / "profile") as (_, page, wrong):
        first = asked(page, f"{address}index.html")
        assert all(part in first for part in forecast(run, schedule="ready"))
        page.get_by_label("concurrency").fill("2")
        two = changed(page, first)
        assert all(part in two for part in forecast(run, concurrency=2))
        page.evaluate("document.body.dataset.theme = 'dark'")
        ground = page.locator(".am-live").first.evaluate("one => getComputedStyle(one).backgroundColor")
        assert "rgb(23, 27, 33)" == ground  # the band of the dark palette
        assert [] == violations(page)
        assert [] == [one for one in wrong if "404" not in one]  # the page has no icon


def test_it_tells_machines_what_it_says(site: Path) -> None:
    """`llms.txt` names each page of the tutorial and the how-tos, and what it leads to is there."""
    text = (site / "llms.txt").read_text(encoding="utf-8")
    for folder in ("tutorial", "how_to", "concepts"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"{folder}/{page.stem}" in text, page.name
            assert list((site / "_sources" / folder).glob(f"{page.stem}*"))
    assert (site / "llms-full.txt").stat().st_size > 100_000
