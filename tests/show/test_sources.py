"""One word for one source of an answer: in the frame, on the card, in the text, in the panel and on the page."""

from __future__ import annotations

import html
import re
from typing import get_args

import pytest

import agent_magic as am
from agent_magic.measure.metrics import source_of
from agent_magic.record import RunRecord, Source
from agent_magic.show import Feed, cards_layout, details_of, groups_of, run_text, scene_of, states_of
from agent_magic.show.run_page import run_page
from agent_magic.show.states import MEANINGS, SOURCES, badge_of, source_word
from tests.live.virtual import Reply, drive
from tests.show.story import record_of

PLAN = am.Plan(
    [
        am.Agent("row", "Say {{ item }}", each="xs"),
        am.Agent("one", "One of {{ row }}"),
        am.Agent("two", "Two", when="row | length > 9"),
        am.first_of("first", ["one", "two"]),
    ],
    {"xs": [1, 1, 2]},
)


def test_every_source_has_its_state() -> None:
    """None is missing, and what was not bought now is in a state that the legend explains."""
    assert {*get_args(Source)} == {*SOURCES}
    assert {"s"} == {*SOURCES.values()} - {*MEANINGS}


@pytest.fixture(scope="module")
def runs() -> tuple[RunRecord, RunRecord]:
    """A run that buys, with a row that shares, and one that takes all from the ledger."""
    ledger = am.Ledger(":memory:")
    policy = am.Policy(4, seed=1)
    first, second = (drive(PLAN, lambda prompt, _: Reply(1.0, text=prompt), policy, ledger=ledger)[0] for _ in range(2))
    return first, second


@pytest.mark.parametrize("again", [False, True])
def test_each_place_says_the_same(runs: tuple[RunRecord, RunRecord], again: bool) -> None:
    """The word of the frame, of the answer that a race forwards too; a card has it as badge if nothing was bought."""
    record = runs[again]
    said = dict(zip(am.Run(record).agents["agent"], am.Run(record).agents["source"], strict=True))
    assert {"row_0", "row_1", "row_2", "one", "two", "first"} == {*said}
    bought = "ledger" if again else "live"
    assert [bought, "shared", bought, bought, bought] == [
        said[name] for name in ("row_0", "row_1", "row_2", "one", "first")
    ]
    page, table = run_page(record, name="x", cassette=b""), groups_of(record, 9.0, {}, most=60)
    rows = {row.name: row.last for group in table for row in group.rows}
    for number, node in enumerate(scene_of(PLAN, record).nodes):
        source = None if node.title == "two" else said[node.title]
        word, badge = source_word(source), badge_of(source)
        assert (badge, SOURCES[source or "live"] if source else "k") == (node.badge, states_of(record)[number])
        (line,) = re.findall(rf"^ +{node.title} .*", run_text(record), re.MULTILINE)
        (folded,) = re.findall(rf"<summary><b>{node.title}</b>(.*?)</summary>", page)
        for text in (line, html.unescape(folded), details_of(record, number)["facts"]):
            assert [word] * bool(word) == re.findall(r"\b(?:ledger|shared|live)\b", text)
        assert [badge] * bool(badge) == re.findall(r"\b(?:ledger|shared|live)\b", rows[node.title])


@pytest.mark.parametrize("again", [False, True])
def test_the_live_header_says_what_is_saved(runs: tuple[RunRecord, RunRecord], again: bool) -> None:
    """A shared answer is no source of the run, neither while it goes on nor in the saved picture."""
    record, grows = runs[again], record_of(PLAN)
    feed = Feed(grows, cards_layout(PLAN))  # pyright: ignore[reportArgumentType] - a few cards
    seen = set[str]()
    for event in record.events:
        grows.add(event)
        feed.step(event.at_s, {})
        seen |= {text for _, text in feed.whole()["head"]["facts"]} & {*SOURCES}
    assert {source_of(record)} == seen == {*scene_of(PLAN, record).header.facts} & {*SOURCES}
