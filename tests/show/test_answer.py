"""The answer of `%%agent NAME --run` below its cell."""

from __future__ import annotations

from typing import Any

import pytest

from agent_magic.show import AnswerView, answer_page
from agent_magic.show.values import COPY
from tests.show.story import business_run
from tests.show.test_pictures import HOSTILE
from tests.show.test_values import OF_MARKDOWN, Seen, run_of


class Handle:
    """An output that remembers what it showed."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        """Show something else."""
        assert raw
        self.shown.append(data)


def view_of(record: Any, texts: list[str]) -> tuple[AnswerView, Handle]:
    """Return the view of a run's first agent, of whose answer the last of these texts has arrived."""
    handle = Handle()
    view = AnswerView(record, 0, lambda _: texts[-1] if texts else "")
    view._handle = handle
    return view, handle


def test_an_answer_is_markdown_and_one_line_of_numbers():
    """The text twin has the answer as it came, and below it seconds, tokens, dollars and source."""
    bundle = answer_page(run_of("# Flask\n\nIt is *small*."), 0).bundle()
    assert "# Flask\n\nIt is *small*.\n1.5 s · 46 tokens · $0.0021 · simulated" == bundle["text/plain"]
    seen = Seen(bundle["text/html"])
    assert {"h1", "em", "button"} <= seen.tags
    assert {COPY} == seen.attributes["onclick"]


def test_the_run_of_a_parent_is_counted():
    """What the agent needed has run too, and the line says how many they were."""
    record = business_run()
    page = answer_page(record, len(record.results) - 1)
    assert "9 agents · " in page.text().replace("\n", " ")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_answer_stays_text(text: str):
    """No element and no handler comes from a model, neither while it arrives nor at the end."""
    record = run_of(text)
    view, handle = view_of(record, [text])
    view.tick(1.0, {})
    view.finish()
    for bundle in handle.shown:
        seen = Seen(bundle["text/html"])
        assert seen.tags <= OF_MARKDOWN | {"style", "details", "summary", "button"}
        assert seen.attributes.get("onclick", {COPY}) == {COPY}


def test_what_arrives_is_shown_a_few_times_a_second():
    """The same text is not sent again, and the copy button comes with the whole answer only."""
    texts = ["one"]
    view, handle = view_of(run_of("one two"), texts)
    for now_s in (1.0, 1.1, 1.3):
        view.tick(now_s, {})
    assert 1 == len(handle.shown)
    assert "button" not in Seen(handle.shown[0]["text/html"]).tags
    texts.append("one two")
    view.tick(1.4, {})
    assert ["one\n1 s", "one two\n1 s"] == [one["text/plain"] for one in handle.shown]


def test_before_the_answer_it_says_what_goes_on():
    """The agents it waits for, or what holds it, stand in the line until the first words come."""
    record = business_run()
    record.results[1].status = "running"
    view, handle = view_of(record, [])
    view.tick(2.0, {0: "rate limit"})
    record.results[1].status = "succeeded"
    view.tick(3.0, {0: "rate limit"})
    assert ["2 s · first competitors", "3 s · rate limit"] == [one["text/plain"] for one in handle.shown]
