"""A person's nod in a real JupyterLab: by mouse and keyboard, in two tabs, never by accident."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_accessible import violations_of_themes
from tests.browser.test_hostile import PAYLOADS
from tests.browser.test_live_view import said
from tests.lab import Lab, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOOL = """%load_ext agent_magic
%agents connect simulator --seed 3
import agent_magic as am
sent = []
@am.tool(ask=True)
def send_mail(to: str, text: str, copies: list[str] = []) -> str:
    '''Send a mail.'''
    sent.append((to, text))
    return "sent"
ip = get_ipython()
def declare(name, prompt, line=""):
    ip.run_cell_magic("agent", f"{name} {line}", prompt)"""
MAIL = (
    '[[tool:send_mail {"to": "anna@example.com", "text": "Dear Anna,\\nthe figures are here.", "copies": ["b", "c"]}]]'
)
ONE = f"declare('analyst', {f'Write it. {MAIL}'!r}, '--tools send_mail')"
ANSWER = "declare('report', 'Say it. [[tokens:9]]', '--ask')"
RUN = "run = %agents run"
TELL = "print('sent', sent, {one.name: (one.status, one.text) for one in run.record.results})"
SETTLED_MS = 1000


def asked(jupyter: Lab, book: str, *cells: str) -> Page:
    """Open a notebook, run its cells, and wait for the first question."""
    jupyter.play(book, [TOOL, *cells])
    jupyter.page.locator(".am-ask .am-agree:enabled").first.wait_for()
    return jupyter.page


def test_what_would_happen_is_shown_and_approved(jupyter: Lab, book: str) -> None:
    """The bar names agent and tool and has every argument; Approve runs it; axe finds nothing wrong."""
    page = asked(jupyter, book, ONE, RUN, TELL)
    assert "analyst wants to call send_mail" == page.locator(".am-ask h4").inner_text()
    rows = page.locator(".am-would tr")
    assert ["to", "text", "copies"] == rows.locator("th").all_inner_texts()
    assert "Dear Anna,\nthe figures are here." == rows.nth(1).locator("td").inner_text()
    assert "0 of 1 done · 1 waits for you" == page.locator(".am-counts").inner_text()
    assert "" == page.locator(".am-left").inner_text()
    assert "waits for your answer" in page.locator(".am-health").inner_text()
    assert [] == violations_of_themes(jupyter)
    page.get_by_role("button", name="Approve", exact=True).click()
    page.locator(".am-ask").wait_for(state="hidden")
    assert "anna@example.com" in said(page, "sent [")
    assert [] == jupyter.errors == jupyter.outside


def test_the_keyboard_alone_edits(jupyter: Lab, book: str) -> None:
    """Tab and Enter reach every way on; Escape leaves the edit; what is no use is said; the changed text runs."""
    page = asked(jupyter, book, ONE, RUN, TELL)
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert page.locator(".am-ask").is_visible()  # a key that was meant for the notebook agrees to nothing
    page.get_by_role("button", name="Edit", exact=True).focus()
    page.keyboard.press("Enter")
    assert "anna@example.com" in page.locator(".am-edit").input_value()
    page.keyboard.press("Escape")
    assert "Edit" == page.evaluate("document.activeElement.textContent")
    assert page.locator(".am-ask").is_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+a")
    page.keyboard.type('{"to": 1}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".am-ask .am-error").wait_for()
    page.locator(".am-edit").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type('{"to": "bert", "text": "x"}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "('bert', 'x')" in said(page, "sent [")
    assert [] == jupyter.errors


def test_an_answer_and_a_call_wait_in_turn(jupyter: Lab, book: str) -> None:
    """Several questions queue: one is shown, with how many there are; a click too soon after one is none for the next.

    What is denied tells its reason.
    """
    page = asked(jupyter, book, ONE, ANSWER, RUN, TELL)
    page.locator(".am-asked", has_text="1 of 2 questions").wait_for()
    first = page.locator(".am-ask h4").inner_text()
    page.get_by_label("Reason for denying").fill("not now")
    page.get_by_role("button", name="Deny", exact=True).dblclick()
    page.locator(".am-asked", has_text="questions").wait_for(state="detached")
    page.wait_for_function("(first) => document.querySelector('.am-ask h4').textContent !== first", arg=first)
    page.locator(".am-ask .am-agree:enabled").first.wait_for()  # it is still there
    page.get_by_role("button", name="Deny", exact=True).click()
    assert "sent [] " in said(page, "sent [")
    assert [] == jupyter.errors


def test_two_tabs_show_the_same(jupyter: Lab, book: str) -> None:
    """A second view of the output has the question too; the first answer counts and closes both."""
    page = asked(jupyter, book, ONE, RUN, TELL)
    page.evaluate(
        "() => { const notebook = jupyterapp.shell.currentWidget.content;"
        " notebook.activeCellIndex = notebook.widgets.length - 2; }"
    )
    jupyter.command("notebook:create-output-view")
    page.wait_for_function("() => document.querySelectorAll('.am-ask:not([hidden]) .am-agree:enabled').length > 1")
    page.get_by_role("button", name="Deny", exact=True).last.click()
    page.wait_for_function("() => !document.querySelector('.am-ask:not([hidden])')")
    assert "sent [] " in said(page, "sent [")


def test_a_stop_takes_the_question_away(jupyter: Lab, book: str) -> None:
    """After Stop there is nothing to agree to."""
    page = asked(jupyter, book, ONE, RUN)
    page.get_by_role("button", name="Stop all agents", exact=True).click()
    page.locator(".am-ask").wait_for(state="hidden")
    page.wait_for_selector(".am-live.am-over")
    assert [] == jupyter.errors


def test_commands_answer_a_run_in_the_background(jupyter: Lab, book: str) -> None:
    """`%agents pending`, `approve` and `deny` do without the picture."""
    waits = "import asyncio\nwhile not mags.desks[0].open: await asyncio.sleep(0.1)"
    find = "mags = next(one for one in ip.configurables if type(one).__name__ == 'AgentMagics').session"
    write_notebook(
        jupyter.root / book,
        [
            TOOL,
            ONE,
            find,
            "%agents start",
            waits,
            "%agents pending",
            "%agents approve analyst",
            "run = %agents wait",
            TELL,
        ],
    )
    jupyter.open(book)
    jupyter.run_all()
    assert "anna@example.com" in said(jupyter.page, "sent [")
    assert 1 == jupyter.page.locator(".jp-OutputArea-output pre", has_text="analyst wants to call send_mail").count()


def test_hostile_arguments_are_text(jupyter: Lab, book: str) -> None:
    """Thirty hostile texts as names and values of arguments, and as answers: nothing runs, nothing is fetched."""
    show = f"""PAYLOADS = {PAYLOADS!r}
from agent_magic.show.live import make_live_view
from agent_magic.live.people import Question
from agent_magic.record.display import visible
from tests.show.story import *
import json, asyncio
view = make_live_view(record_of(business_plan()), print, decide=lambda number, verdict: PAYLOADS[number])
view.show()
arguments = json.dumps(dict.fromkeys(PAYLOADS, PAYLOADS))
for number, text in enumerate(PAYLOADS):
    view.ask({{number + 100: Question("call", text, text, arguments, 5.0)}})
    await asyncio.sleep(0.05)
    view.face.send({{"fault": {{"number": number + 100, "text": visible(text)}}}})
    view.ask({{number + 200: Question("answer", text, "", text, 5.0)}})
    await asyncio.sleep(0.05)
view.ask({{1: Question("call", PAYLOADS[-1], "x", arguments, 5.0)}})
print("shown all")"""
    page = jupyter.play(book, [show])
    said(page, "shown all")
    page.locator(".am-would tr").nth(len(PAYLOADS) - 1).wait_for()
    assert page.evaluate("window.harmed") is None
    assert (
        0 == page.locator(".am-ask script, .am-ask iframe, .am-ask img, .am-ask a, .am-ask svg, .am-ask form").count()
    )
    shown = page.locator(".am-would td").first.inner_text()
    assert "\\u202e" in json.dumps(shown) or "\\\\u202e" in shown
    assert "\u202e" not in shown
    assert [] == jupyter.outside
