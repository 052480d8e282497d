"""Composed outputs: the same words as HTML and as text, in 80 columns, no word broken, nothing of others as markup."""

from __future__ import annotations

import pytest

from agent_magic.api import Run
from agent_magic.show import Page, advice_page, columns_of
from agent_magic.show.markup import TEXT_WIDTH
from agent_magic.show.page import Column, Fold, Line, Table, Words
from tests.show.story import business_run
from tests.show.test_pictures import HOSTILE
from tests.show.test_values import Seen

PROSE = "a long sentence that has to be set in several lines because it does not fit beside the others at all, ever"


def page_of(text: str) -> Page:
    """A page with a text in every place."""
    table = Table((Column(text), Column(text, "prose"), Column("n", "number")), [(text, text, "1")], strong=True)
    return Page([Line(text, "warn", head=text), table, Fold(text, [Words(text)])])


def test_prose_breaks_between_words() -> None:
    """A table fits its width: prose wraps inside its column, the others stay on their line."""
    table = Table((Column("name"), Column("what", "prose"), Column("n", "number")), [("agent_1", PROSE, "1,000")])
    lines = table.text(TEXT_WIDTH).splitlines()
    assert max(map(columns_of, lines)) <= TEXT_WIDTH
    assert ["name", "what", "n"] == lines[0].split()
    assert PROSE.split() == " ".join(lines[1:]).replace("agent_1", "").replace("1,000", "").split()


def test_numbers_are_on_the_right() -> None:
    """So that digits of the same worth stand under each other."""
    assert ["  n", "  1", "100"] == Table((Column("n", "number"),), [("1",), ("100",)]).text(TEXT_WIDTH).splitlines()


def test_wide_letters_count_twice() -> None:
    """In a terminal an East Asian letter takes two columns, an accent none."""
    assert (4, 1) == (columns_of("日本"), columns_of("e\u0301"))


def test_html_and_text_say_the_same() -> None:
    """Every word of the text is in the HTML."""
    bundle = page_of("one two").bundle()
    assert set(bundle["text/plain"].split()) <= set(
        Seen(bundle["text/html"]).text.replace("one two", " one two ").split()
    )


def test_what_is_folded_can_be_left_out_of_text() -> None:
    """A fold with a line in its place has only that line."""
    assert "more: x" == Page([Fold("all", [Words("secret")], instead="more: x")]).text()


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_stays_text(text: str) -> None:
    """Whatever stands in a line, a heading, a cell or a fold never becomes markup."""
    seen = Seen(page_of(text).bundle()["text/html"])
    ours = {"style", "div", "b", "pre", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    assert seen.tags <= ours
    assert set(seen.attributes) <= {"aria-label", "class", "role", "style", "tabindex"}


def test_an_advice_is_a_table_of_changes() -> None:
    """What to change and what it saves come first; rules that found nothing, and sources, are folded."""
    advice = Run(business_run()).advise()
    bundle = advice_page(advice).bundle()
    assert max(map(columns_of, bundle["text/plain"].splitlines())) <= TEXT_WIDTH
    assert bundle["text/plain"].startswith("Advice: ")
    words = set(" ".join(bundle["text/plain"].split()).split())
    for one in advice:
        assert set((one.change or one.measured).split()) <= words
    assert "<details>" in bundle["text/html"]
