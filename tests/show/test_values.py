"""How an agent's result, the answers of a run, and Markdown look."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent
from agent_magic.declare import Plan
from agent_magic.record import AgentEnded, AgentReady, Answer, AttemptEnded, AttemptStarted, Price, Usage
from agent_magic.record.display import clean
from agent_magic.show import Markdown, result_bundle, texts_html
from agent_magic.show.values import MOST_CHARS, folded, markdown_html, result_text
from tests.show.story import MODEL, REQUEST, business_run, record_of
from tests.show.test_pictures import HOSTILE

OURS = {"div", "b", "span", "pre", "details", "summary"}
OF_MARKDOWN = {*"div p em strong code pre h1 h2 h3 h4 h5 h6 ul ol li blockquote a hr br s".split()}
OF_MARKDOWN |= {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"class", "style", "href", "title", "rel", "target", "start", "open"}


class Seen(HTMLParser):
    """What a browser would find in a piece of HTML."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")

    def handle_data(self, data: str) -> None:
        """Note its text."""
        self.text += data


def run_of(text: str, name: str = "a") -> Any:
    """Return the record of one agent that answered this."""
    plan = Plan((Agent("a", "Write."),))
    object.__setattr__(plan.agents[0], "name", name)
    record = record_of(plan)
    usage = Usage(12, output_tokens=34)
    answer = Answer(text, "end_turn", usage=usage, model=MODEL, source="simulated")
    record.add(AgentReady(0.0, 0))
    record.add(AttemptStarted(0.0, 0, 1, 0.0, "", REQUEST))
    record.add(AttemptEnded(1.5, 0, 1, answer, None, None, "", usage, Price(0.0021, "given"), "simulated", 200))
    record.add(AgentEnded(1.5, 0, "succeeded", None))
    return record


def test_a_result_has_its_numbers_and_its_text():
    """HTML and text say the same: the state, the model, seconds, tokens in and out, dollars, the source, the answer."""
    bundle = result_bundle(run_of("Flask.\nIt is small.").results[0])
    facts = f"a · succeeded · {MODEL} · 1.5 s · 12 tokens in, 34 out · $0.0021 · simulated"
    assert f"{facts}\n  Flask.\n  It is small." == bundle["text/plain"]
    assert facts + "Flask.\nIt is small." == Seen(bundle["text/html"]).text


def test_a_failure_says_why():
    """An agent that failed shows its error, and that there is no text."""
    record = business_run()
    result = record["review_finance"]
    result.error = "529: <b>full</b>"
    shown = Seen(result_bundle(result)["text/html"])
    assert "529: <b>full</b>" in shown.text
    assert "529: <b>full</b>" in result_text(result)


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_texts_stay_texts(payload: str):
    """Whatever a model, an agent's name or an error says: no element, no attribute but our own."""
    result = run_of(payload * 30, payload).results[0]
    result.error = payload
    for markup in (result_bundle(result)["text/html"], texts_html([payload], [payload])):
        seen = Seen(markup)
        assert set() == seen.tags - OURS
        assert set() == set(seen.attributes) - {"class", "style"}
    assert "\x1b" not in result_text(result)


@given(st.text(max_size=4000), st.integers(1, 60))
def test_folding_loses_nothing(text: str, times: int):
    """The start and the folded rest together are the whole text, character for character."""
    whole = text * times
    markup = folded(whole)
    if whole.strip() and len(whole) <= MOST_CHARS:
        assert _cleaned(whole) == Seen(re.sub("<summary.*?</summary>", "", markup)).text
    assert set() == Seen(markup).tags - OURS


def _cleaned(text: str) -> str:
    return Seen(f"<pre>{clean(text).replace('&', '&amp;').replace('<', '&lt;')}</pre>").text


def test_a_huge_answer_does_not_fill_the_notebook():
    """At most so many characters go into a cell, and the rest is counted."""
    markup = folded("word " * MOST_CHARS)
    assert len(markup) < MOST_CHARS * 1.1
    assert f"{4 * MOST_CHARS:,} in .text" in markup


def test_the_text_twin_is_short():
    """In a terminal an answer is at most a dozen lines."""
    shown = result_text(run_of("line\n" * 500).results[0])
    assert 14 == len(shown.splitlines())
    assert shown.endswith("… 2,500 characters in all: .text")


@pytest.mark.parametrize(
    "payload",
    [
        *HOSTILE,
        "![x](http://evil.example/a.png)",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "<img src=x onerror=alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        "![x][y]\n\n[y]: https://evil.example/a.png",
        "<https://ok.example/?a=1&b=%22onclick=x>",
        '[x](https://ok.example "t\\" onclick=alert(1)")',
        "[x](file:///etc/passwd) [y](//evil.example/a)",
    ],
)
def test_markdown_lets_no_html_and_no_picture_through(payload: str):
    """Rendered Markdown has its own elements only, links to the web only, and loads nothing."""
    for text in (payload, f"# {payload}\n\n- {payload}\n\n```\n{payload}\n```", f"| a |\n|---|\n| {payload} |"):
        seen = Seen(markdown_html(text))
        assert set() == seen.tags - OF_MARKDOWN
        assert set() == set(seen.attributes) - ATTRIBUTES
        for target in seen.attributes.get("href", ()):
            assert target.startswith(("https://", "http://", "mailto:"))


@given(st.text(alphabet=st.sampled_from("<>!\"'()[]:/ `*#|-\n\\&;javscriptdmgonex="), max_size=300))
def test_markdown_of_any_signs_is_harmless(text: str):
    """No arrangement of signs makes an element or an attribute that is not on the list."""
    seen = Seen(markdown_html(text))
    assert set() == seen.tags - OF_MARKDOWN
    assert set() == set(seen.attributes) - ATTRIBUTES


def test_markdown_is_rendered_when_asked_for():
    """It has its HTML, and its source as text."""
    bundle = Markdown("# Plan\n\n**bold** and ![a chart](http://x.example/y.png)")._repr_mimebundle_()
    assert "<h1>Plan</h1>" in bundle["text/html"]
    assert "<strong>bold</strong> and <em>[picture: a chart]</em>" in bundle["text/html"]
    assert bundle["text/plain"].startswith("# Plan")
