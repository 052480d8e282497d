"""No output of ours scrolls where scroll bars are visible, as on Linux and Windows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab import write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = (
    "%load_ext agent_magic\n%agents connect simulator --latency fast",
    "%%agents\n"  # noqa: ISC004 - one cell
    "## python\nWhich Python web framework, and why?\n"
    "## rust\nWhich Rust web framework, and why?\n"
    "## compare\nCompare {{ python }} with {{ rust }}.",
    "plan = %agents plan",
    "run = %agents run",
    "run.agents",
    "run.timeline()",
    "run.whatif(concurrency=[1, 2, 4])",
    "run.explore()",
)
SIZES = {"1280 x 800": (1280, 800), "1600 x 1000": (1600, 1000), "150 % zoom": (853, 533)}
SCROLLED = """() => [...document.querySelectorAll('.jp-OutputArea-output, .am-live, .am-scroll, .am-explore')]
  .filter((one) => one.querySelector('[class*="am-"]') || one.matches('[class*="am-"]'))
  .map((one) => [one, getComputedStyle(one)])
  .map(([one, style]) => [one, one.offsetWidth - one.clientWidth - parseFloat(style.borderLeftWidth)
    - parseFloat(style.borderRightWidth), one.offsetHeight - one.clientHeight - parseFloat(style.borderTopWidth)
    - parseFloat(style.borderBottomWidth)])
  .filter(([one, wide, high]) => wide >= 1 || high >= 1)
  .map(([one, wide, high]) => `${one.className}: bars of ${wide} and ${high} px`)
"""
CUT = """() => [...document.querySelectorAll('.am-live .am-scroll')].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => `${one.scrollWidth} px in ${one.clientWidth}`)
"""
"""Pictures that are wider than their place. Their scroll bars are hidden, so nothing but this tells."""


def test_no_output_scrolls(jupyter: Lab, book: str) -> None:
    """The plan, the live picture while and after it ran, frames, charts and controls: at three sizes of a page."""
    write_notebook(jupyter.root / book, CELLS)
    jupyter.open(book)
    page = jupyter.page
    jupyter.run_all()
    page.wait_for_selector(".am-live .n.s-s")
    while_it_runs = page.evaluate(SCROLLED)
    page.locator(".am-explore img").wait_for()
    jupyter.wait_idle()
    found = {"running": while_it_runs, **scrolled(page)}
    page.set_viewport_size({"width": 1300, "height": 1000})
    assert {name: [] for name in found} == found


def scrolled(page: Page) -> dict[str, list[str]]:
    """Return which outputs scroll, and which pictures are cut, by the size of the page."""
    found: dict[str, list[str]] = {}
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)  # the page lays itself out anew in its next frames
        found[name] = page.evaluate(SCROLLED) + (page.evaluate(CUT) if "zoom" not in name else [])
        if shots := os.environ.get("AGENT_MAGIC_SCREENSHOTS"):
            for at, kind in enumerate((".am-live", ".am-explore")):
                page.locator(kind).first.scroll_into_view_if_needed()
                page.screenshot(path=Path(shots) / f"scrolling-{name.replace(' ', '')}-{at}.png")
    return found
