"""The live view in a real JupyterLab: seen live, replaced by the still picture, kept in the saved notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab import Lab, lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETUP = """import asyncio, time
from agent_magic.measure.metrics import summarize
from agent_magic.show.live import make_live_view
from tests.show.story import business_events, business_plan, record_of
stop, record = asyncio.Event(), record_of(business_plan())
HOSTILE = "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script>"
view = make_live_view(record, lambda *_: stop.set(), lambda agent: HOSTILE, summarize=summarize)"""
PLAY = """view.show()
began = time.monotonic()
events = [event for event in business_events() if event.at_s <= 5.1]
while not stop.is_set():
    now = min(5.2, time.monotonic() - began)
    while events and events[0].at_s <= now:
        record.add(events.pop(0))
    view.tick(time.monotonic() - began, {3: HOSTILE, 5: HOSTILE})
    await asyncio.sleep(0.1)
for event in business_events():
    if event.at_s > 5.1:
        record.add(event)
view.finish(summarize(record))
print("finished")"""


def seen_live(jupyter: Lab) -> None:
    """The graph moves, a card opens, Stop arrives."""
    page = jupyter.page
    page.wait_for_selector(".am-live .n.s-r")
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3", timeout=30_000)
    assert 9 == page.locator(".am-live .n").count()
    assert 1 == page.locator(".am-live .n.s-l").count()
    assert "ledger" in (page.locator(".am-live .am-facts").text_content() or "")
    assert page.locator(".am-live .bars .b").count() >= 5
    assert page.locator(".am-live .n.on").count() == 3
    page.locator(".am-live .n").nth(3).click()
    page.locator(".am-detail pre", has_text="onerror").wait_for()
    page.locator(".am-live .n").nth(3).press("ArrowRight")
    assert "4" == page.evaluate("document.activeElement.getAttribute('data-agent')")
    jupyter.theme("JupyterLab Dark")
    assert "rgb(17, 20, 24)" == page.locator(".am-live").evaluate("one => getComputedStyle(one).backgroundColor")
    page.get_by_role("button", name="Stop all agents").click()
    page.locator(".jp-OutputArea-output pre", has_text="finished").wait_for()


def one_still_picture(jupyter: Lab) -> None:
    """Exactly one picture is shown, it fits its place, and nothing of the widget is left."""
    picture = jupyter.page.locator(".jp-OutputArea-output img[src^='data:image/svg']")
    picture.wait_for()
    assert 1 == picture.count()
    assert 0 == jupyter.page.locator(".am-live").count()
    assert 0 == jupyter.page.get_by_text("Error displaying widget").count()
    assert picture.evaluate("one => one.offsetWidth <= one.parentElement.clientWidth + 1 && one.naturalWidth > 0")


def test_a_run_is_seen_live_and_kept(tmp_path: Path, chromium: str) -> None:
    """Live, then still, then still again from the saved notebook without a kernel; nothing from outside, no error."""
    book = tmp_path / "run.ipynb"
    write_notebook(book, [SETUP, PLAY])
    with lab(tmp_path, chromium) as jupyter:
        jupyter.open("run.ipynb")
        jupyter.run_all()
        seen_live(jupyter)
        one_still_picture(jupyter)
        assert jupyter.page.evaluate("window.harmed") is None
        jupyter.save()
        assert [] == jupyter.errors
        jupyter.page.goto("about:blank")
        jupyter.end_kernels()
        jupyter.open("run.ipynb", kernel=False)
        one_still_picture(jupyter)
        assert [] == jupyter.outside
    outputs = [output for cell in json.loads(book.read_text())["cells"] for output in cell["outputs"]]
    kept = [set(output["data"]) for output in outputs if "data" in output]
    assert [{"image/svg+xml", "text/plain"}] == kept
