"""The live view of a real run in a real JupyterLab: pressed, seen in both themes, asked after its end, opened again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.playing import DECLARE, LONGER, PLAYER, REAL, RUN, STORY, TELL, UNTIL_LET_GO
from tests.lab import Lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser
GROUNDS = {"JupyterLab Light": "rgb(255, 255, 255)", "JupyterLab Dark": "rgb(17, 20, 24)"}

# Which cards are changed in a second and a half, and by how much the view grows.
TOUCHED = """() => new Promise((done) => {
    const view = document.querySelector('.am-live'), seen = new Set();
    const cardOf = (node) => (node.closest ? node : node.parentElement)?.closest('.n')?.dataset.agent;
    const watch = new MutationObserver((all) => all.forEach((one) => seen.add(cardOf(one.target))));
    watch.observe(view, {subtree: true, attributes: true, childList: true, characterData: true});
    const tall = view.getBoundingClientRect().height;
    setTimeout(() => {
        watch.disconnect();
        done([[...seen].filter(Boolean).sort(), view.getBoundingClientRect().height - tall]);
    }, 1500);
})"""


def start(jupyter: Lab, book: str, *cells: str) -> Page:
    """Write a notebook, open it and run its cells."""
    jupyter.play(book, cells)
    jupyter.page.wait_for_selector(".am-live .n.s-r, .am-live .gr.s-r")
    return jupyter.page


def card(page: Page, name: str) -> Locator:
    """Find the card of an agent by what a screen reader says."""
    return page.locator(f'.am-live .n[aria-label^="{name} ·"]')


def in_state(page: Page, name: str, state: str) -> None:
    """Wait until an agent is in a state."""
    page.wait_for_selector(f'.am-live .n.s-{state}[aria-label^="{name} ·"]')


def said(page: Page, text: str) -> str:
    """Wait for a printed line and return it."""
    line = page.locator(".jp-OutputArea-output pre", has_text=text)
    line.wait_for()
    return line.text_content() or ""


FITS_OR_SCROLLS = """one => {
    const place = one.closest('.jp-OutputArea-output'), scrolls = ['auto', 'scroll'];
    return one.offsetWidth <= place.clientWidth + 1 || scrolls.includes(getComputedStyle(place).overflowX);
}"""


def one_still_picture(jupyter: Lab) -> None:
    """Exactly one picture is shown, it fits its place or is scrolled there, and nothing of the widget is left."""
    picture = jupyter.page.locator(".jp-OutputArea-output img[src^='data:image/svg']")
    picture.wait_for()
    assert 1 == picture.count()
    assert 0 == jupyter.page.locator(".am-live, .am-button").count()
    assert 0 == jupyter.page.get_by_text("Error displaying widget").count()
    assert 0 == jupyter.page.get_by_text("model not found").count()
    assert picture.evaluate("one => one.naturalWidth > 0")
    assert picture.evaluate(FITS_OR_SCROLLS)


def still_alive(jupyter: Lab) -> None:
    """The view of the run that is over stays, without buttons; no other picture is beside it."""
    jupyter.page.wait_for_selector(".am-live.am-over")
    assert 0 == jupyter.page.locator(".jp-OutputArea-output img[src^='data:image/svg']").count()
    assert 0 == jupyter.page.locator(".am-head .am-button:not(.am-asks):visible").count()


def alive_then_still(jupyter: Lab, book: str) -> None:
    """The view stays when the run is over; the saved file, opened with no kernel, has the one picture."""
    still_alive(jupyter)
    jupyter.wait_idle()
    jupyter.save()
    assert [] == jupyter.errors
    jupyter.page.goto("about:blank")
    jupyter.end_kernels()
    jupyter.open(book, kernel=False)
    one_still_picture(jupyter)


def test_buttons_steer_a_run_that_a_cell_awaits(jupyter: Lab, book: str) -> None:
    """Pause holds new agents, Resume lets them go, Retry mends a failed one, Skip leaves one out.

    When the run is over its view stays, and is asked: a click opens the answer, rendered or raw.
    """
    page = start(jupyter, book, REAL, DECLARE, LONGER, RUN, TELL)
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector(".am-live .am-paused")
    others = '.am-live .n.s-r:not([aria-label^="trip ·"])'  # a page that opens late finds `trip` under way
    page.wait_for_selector(others, state="detached")
    held = page.locator(".am-live .am-counts").inner_text()
    page.wait_for_timeout(1000)
    assert (0, held) == (page.locator(others).count(), page.locator(".am-live .am-counts").inner_text())
    page.get_by_role("button", name="Resume").click()
    in_state(page, "costs", "f")
    in_state(page, "bill", "k")
    card(page, "costs").click()
    rows = page.locator(".am-detail tbody tr")
    page.locator(".am-detail tbody tr th", has_text="3 failed").wait_for()
    assert 6 == rows.count()  # three attempts, each with its error under it
    page.get_by_role("button", name="Retry costs").click()
    page.wait_for_selector('.am-live .n:not(.s-f)[aria-label^="costs ·"]')
    page.get_by_role("button", name="Close").click()
    card(page, "trip").click()
    page.get_by_role("button", name="Skip trip").click()
    in_state(page, "trip", "k")
    statuses = said(page, "statuses")
    assert 5 == statuses.count("'succeeded'")
    assert "'trip': 'skipped'" in statuses
    still_alive(jupyter)
    page.get_by_role("button", name="Close").click()
    card(page, "hotel").click()
    answer = page.locator(".am-detail .am-marked")
    answer.wait_for()
    raw = page.locator(".am-detail pre[aria-label=answer]")
    assert (True, False) == (answer.is_visible(), raw.is_visible())
    page.get_by_role("button", name="Raw").click()
    assert (False, True) == (answer.is_visible(), raw.is_visible())
    assert 0 == page.get_by_role("button", name="Retry").count()
    page.keyboard.press("Escape")
    page.locator(".am-live .bars .b").first.hover()
    assert 1 == page.locator(".am-live .n.am-pointed").count()
    assert " to " in (page.locator(".am-live .bars .b title").first.text_content() or "")
    assert [] == jupyter.errors == jupyter.outside


def test_an_answer_is_edited_on_its_card(jupyter: Lab, book: str) -> None:
    """What does not fit is told beside the text, which stays; what fits is taken, and what depends on it is named."""
    declare = """ip = get_ipython()
ip.run_cell_magic("agent", "writer", "Write. [[tokens:60]] [[pace:40]]")
ip.user_ns["loud"] = lambda answer: None if answer.isupper() else "small letters"
ip.run_cell_magic("agent", "title --check loud", "A title for {{ writer }} [[text:BEES]]")
ip.run_cell_magic("agent", "cover", "A cover for {{ title }} [[tokens:20]]")"""
    page = jupyter.play(book, [REAL, declare, RUN])
    still_alive(jupyter)
    card(page, "title").click()
    page.get_by_role("button", name="Edit the answer of title").click()
    field = page.locator(".am-detail textarea.am-edit")
    field.wait_for()
    assert "BEES" == field.input_value()
    field.fill("small")
    page.get_by_role("button", name="Use this text").click()
    page.locator(".am-detail .am-edited.am-error").wait_for()
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Edit the answer of title").click()
    field.wait_for()
    assert "small" == field.input_value()
    field.fill("BEES DANCE")
    page.get_by_role("button", name="Use this text").click()
    told = page.locator(".am-detail .am-edited.am-said")
    told.wait_for()
    assert "asks again what depends on it: cover" in told.inner_text()
    assert 0 == field.count()
    assert [] == jupyter.errors == jupyter.outside


@pytest.mark.parametrize("command", ["run = %agents run", "%agents start"])
def test_a_page_that_is_loaded_again_gets_the_picture(jupyter: Lab, book: str, command: str) -> None:
    """Saved in the middle of a run, as autosave does, and loaded again: it ends as it would have, as does the file."""
    page = start(jupyter, book, REAL, DECLARE, UNTIL_LET_GO, f"{command} --concurrency 3")
    in_state(page, "hotel", "s")
    jupyter.save()
    jupyter.open(book, kernel=False)
    if command.endswith("start"):  # the kernel is free to answer, so the view goes on
        in_state(page, "trip", "r")
    let_go = jupyter.root / "let_go"
    let_go.touch()
    page.locator(".am-live.am-over", has_text="4 of 6 done").wait_for()
    let_go.unlink()  # the folder is that of the other case, too
    still_alive(jupyter)
    jupyter.wait_idle()
    jupyter.save()
    (shown,) = json.loads((jupyter.root / book).read_text())["cells"][-1]["outputs"]
    assert {"image/svg+xml", "text/plain"} == set(shown["data"])
    assert "5 agents and 1 task in 4 layers" in "".join(shown["data"]["text/plain"])


def test_a_stopped_run_is_still_and_stays_so_without_a_kernel(jupyter: Lab, book: str) -> None:
    """Stop by click; the saved file has one picture and one text, and shows it when opened with no kernel.

    So does the open page when its kernel ends.
    """
    page = start(jupyter, book, REAL, DECLARE, LONGER, RUN)
    page.wait_for_selector(".am-live .am-meter b:not(:empty)")
    assert 4 == page.locator(".am-live .am-meter").count()
    for theme, ground in GROUNDS.items():
        jupyter.theme(theme)
        assert ground == page.locator(".am-live").evaluate("one => getComputedStyle(one).backgroundColor")
    page.get_by_role("button", name="Stop all agents").click()
    still_alive(jupyter)
    jupyter.wait_idle()
    jupyter.save()
    assert [] == jupyter.errors
    jupyter.end_kernels()
    page.wait_for_selector(".am-live", state="detached")
    page.locator(".jp-OutputArea-output svg[viewBox]").wait_for()
    page.goto("about:blank")
    jupyter.open(book, kernel=False)
    one_still_picture(jupyter)
    assert [] == jupyter.outside
    outputs = [out for cell in json.loads((jupyter.root / book).read_text())["cells"] for out in cell["outputs"]]
    kept = [set(output["data"]) for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert [{"image/svg+xml", "text/plain"}] == kept
    (svg,) = [
        "".join(output["data"]["image/svg+xml"]) for output in outputs if "image/svg+xml" in output.get("data", {})
    ]
    assert "am-fig am-dark" in svg  # as the page, where that is not as the system


def test_the_keyboard_alone_is_enough(jupyter: Lab, book: str) -> None:
    """Tab, arrows, Enter, Escape: open a card, press its button, come back, stop the run. Keys stay with the view."""
    page = start(jupyter, book, PLAYER, STORY, "print(pressed)")
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3")
    page.locator(".am-asks").focus()
    page.keyboard.press("Tab")
    assert "0" == page.evaluate("document.activeElement.getAttribute('data-agent')")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert "7" == page.evaluate("document.activeElement.getAttribute('data-agent')")
    assert "2.6px" == page.locator(".n:focus .c").evaluate("one => getComputedStyle(one).strokeWidth")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Agent review_ops").wait_for()
    page.get_by_role("button", name="Skip review_ops").wait_for()
    page.keyboard.press("Tab")
    assert "skip" == page.evaluate("document.activeElement.dataset.verb")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert "7" == page.evaluate("document.activeElement.getAttribute('data-agent')")
    assert 0 == page.locator(".am-detail:visible").count()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.classList.contains('am-asks')")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.classList.contains('am-stop')")
    page.keyboard.press("Enter")
    assert "[('skip', 'review_ops'), ('stop', None)]" == said(page, "('stop', None)").strip()


KILL = "import os\ndef press(verb, agent): os.kill(os.getpid(), 9)"


def test_a_killed_kernel_leaves_no_broken_view(jupyter: Lab, book: str) -> None:
    """The view says that nothing more comes; the saved notebook has a line in place of a view without a kernel."""
    page = start(jupyter, book, PLAYER, KILL, STORY)
    page.get_by_role("button", name="Pause").click()
    page.locator(".am-left", has_text="the kernel has ended").wait_for()
    assert page.locator(".am-stop").is_disabled()
    page.locator(".jp-Dialog button", has_text="Ok").click()
    jupyter.save()
    page.goto("about:blank")
    jupyter.end_kernels()
    jupyter.open(book)
    assert "business_plan: 9 agents in 4 layers, running" == said(page, "business_plan: 9 agents").strip()
    assert 0 == page.get_by_text("Error displaying widget").count()
    assert [] == jupyter.outside


CUT = """() => [...document.querySelectorAll('.am-line, .am-facts, .am-meter, .am-buttons')]
    .filter((one) => one.scrollWidth > one.clientWidth || one.getBoundingClientRect().right >
        document.querySelector('.am-live').getBoundingClientRect().right).map((one) => one.className)"""


# All the facts that a header can have: what was served before counts for no concurrency, so here nothing was.
PRICED = """served = business_events
business_events = lambda: [event for event in served() if getattr(event, 'agent', 0) != 2]"""


@pytest.mark.parametrize("width", [1300, 1220, 900])
def test_the_header_is_whole(jupyter: Lab, book: str, width: int) -> None:
    """Counts, time left, facts, meters and buttons are there to their ends, in a wide page and in a narrow one."""
    jupyter.page.set_viewport_size({"width": width, "height": 1000})
    page = start(jupyter, book, PLAYER, PRICED, STORY)
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3")
    assert "concurrent" in page.locator(".am-facts").inner_text()
    assert "ends in 4–6 s" == page.locator(".am-left").inner_text()
    assert "0.8 s ↗" == page.locator(".am-meter b").last.inner_text()
    assert "input at 86 % of the limit" == page.locator(".am-health b").inner_text()
    assert [] == page.evaluate(CUT)
    page.locator(".am-stop").click()
    said(page, "finished")
    page.set_viewport_size({"width": 1300, "height": 1000})


def test_nothing_moves_where_motion_is_not_wanted(jupyter: Lab, book: str) -> None:
    """`prefers-reduced-motion` stops what breathes; the numbers go on. Only what changes is changed in the page."""
    page = start(jupyter, book, PLAYER, STORY)
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3")
    going = page.locator(".am-live .g.go").first
    assert "am-breathe" == going.evaluate("one => getComputedStyle(one).animationName")
    page.emulate_media(reduced_motion="reduce")
    assert "none" == going.evaluate("one => getComputedStyle(one).animationName")
    page.emulate_media(reduced_motion="no-preference")
    under_way = [["3", "5", "6"], 0]  # and no jump
    assert any(under_way == page.evaluate(TOUCHED) for _ in range(5))  # where the page is slow, not at once
    page.locator(".am-stop").click()
    said(page, "finished")
