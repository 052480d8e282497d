"""The live view by the rules of axe-core, in both themes, with a panel and a group open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.browser.playing import PLAYER, STORY
from tests.browser.test_live_view import said, start
from tests.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
GROUPS = "plan = layered_plan(300, 60)\nawait play(record_of(plan), finished_run(plan).events, until_s=6.0)"

STACKS = "plan = each_plan(40)\nawait play(record_of(plan), finished_run(plan).events, until_s=4.0)"


def violations(jupyter: Lab, part: str = ".am-live", *, rules: int = 10, without: Iterable[str] = ()) -> list[str]:
    """Let axe-core look at the live view, or at another part of the page, to which more than these rules apply.

    Args:
        jupyter: Where.
        part: A selector.
        rules: So many rules at least must apply, else it has not looked.
        without: Rules that are not ours to keep.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    off = {rule: {"enabled": False} for rule in without}
    options: Any = {"runOnly": {"type": "tag", "values": RULES}, "rules": off}
    answer = axe.run(jupyter.page, context=part, options=options).response
    assert len(answer["passes"]) > rules  # it has looked
    nodes = [(one["id"], node) for one in answer["violations"] for node in one["nodes"]]
    return [f"{rule}: {node['html'][:200]} {node.get('failureSummary', '')}" for rule, node in nodes]


def violations_of_themes(jupyter: Lab) -> list[str]:
    """Let axe-core look at the live view in the dark theme, then in the light one, which stays."""
    found: list[str] = []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        jupyter.theme(theme)
        found += violations(jupyter)
    return found


OUTPUTS = (
    "%load_ext agent_magic\n%agents connect simulator --latency none",
    "%%agents\n## draft\nHello.\n## report\n{{ draft }}",
    "%agents plan",
    "run = %agents run\nrun.to_page('page.html')",
    "run.agents",
    "run.attempts",
    "run.texts",
    "run['draft']",
    "run.whatif(concurrency=[1, 2])",
    "run.slo()",
    "run.score('draft', grader=lambda answer, row: True)",
    "import agent_magic as am\nam.compare(run, run.forecast(concurrency=1))",
    "run.advise()",
    "%agents",
    "%agents lint",
    "%agents help",
    "%agents help run",
    "%agents doctor",
    "%agents limits",
    "%agents prices",
    "%agents runs",
    "%agents preset",
    "%agents show draft --markdown",
    "run.dashboard()",
    "run.explore()",
)
OPEN = "document.querySelectorAll('.jp-OutputArea-output details').forEach((one) => { one.open = true; })"


@pytest.mark.kernel
def test_every_output_and_page_has_no_violation(jupyter: Lab, book: str) -> None:
    """Neither light nor dark, with what is folded open. JupyterLab gives pictures no alternative text."""
    page = jupyter.page
    jupyter.play(book, OUTPUTS)
    page.locator(".am-explore img").wait_for()
    page.evaluate(OPEN)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        jupyter.theme(theme)
        assert [] == violations(jupyter, ".am-explore")
        assert [] == violations(jupyter, ".jp-OutputArea-output", rules=25, without=["image-alt"])
    jupyter.save()
    page.goto((jupyter.root / "page.html").as_uri())
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert [] == violations(jupyter, "html", rules=25)


def test_cards_and_their_panel_have_no_violation(jupyter: Lab, book: str) -> None:
    """No violation while a run goes on and a panel is open; and every card has a name."""
    page = start(jupyter, book, PLAYER, STORY)
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3")
    assert [] == violations_of_themes(jupyter)
    page.locator(".am-live .n").nth(0).click()
    page.locator(".am-detail table").wait_for()
    assert [] == violations_of_themes(jupyter)
    names = page.locator(".am-live .n").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert names[0] == "market_size · succeeded · 2.1 s · 812 tok · $0.0021 · Good."
    assert 1 == page.locator(".am-status[role=status]", has_text=" of 9 agents done").count()
    page.keyboard.press("Escape")
    page.locator(".am-stop").click()
    said(page, "finished")


def test_groups_and_their_agents_have_no_violation(jupyter: Lab, book: str) -> None:
    """A group opens by keyboard; arrow keys go from agent to agent; no violation."""
    page = start(jupyter, book, PLAYER, GROUPS)
    page.locator(".am-live .gr").first.focus()
    page.keyboard.press("Enter")
    page.locator(".am-drawer").wait_for()
    page.keyboard.press("ArrowRight")
    assert (page.locator(".am-named").text_content() or "").startswith("agent_1: ")
    assert [] == violations(jupyter)
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Agent agent_1").wait_for()
    page.keyboard.press("Escape")
    page.locator(".am-stop").click()
    said(page, "finished")


def test_stacked_cards_open_and_the_legend_explains(jupyter: Lab, book: str) -> None:
    """A stack opens its agents, a card beside it its panel; the legend is asked for; no violation."""
    page = start(jupyter, book, PLAYER, STACKS)
    assert 2 == page.locator(".am-live .n").count()
    assert page.locator(".am-legend").is_hidden()
    page.get_by_role("button", name="Legend", exact=True).click()
    assert "not needed" in page.locator(".am-legend").inner_text()
    assert [] == violations_of_themes(jupyter)
    page.get_by_role("button", name="Legend", exact=True).click()
    page.locator(".am-live .gr").nth(0).click()
    page.locator(".am-drawer .z").first.wait_for(state="attached")
    page.locator(".am-live .gr").nth(1).click()
    page.get_by_role("dialog", name="Agent report").wait_for()
    assert [] == violations_of_themes(jupyter)
    page.keyboard.press("Escape")
    page.locator(".am-stop").click()
    said(page, "finished")
