"""The picture: well-formed and harmless whatever it says, small, the same each time, and telling the truth."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.record import AgentEnded, AgentReady, AttemptStarted, RunRecord
from agent_magic.show import (
    INKS,
    STATES,
    Theme,
    cards_layout,
    node_view,
    picture,
    run_timeline,
    scene_of,
    static_bundle,
)
from agent_magic.show.graph.scene import Scene
from agent_magic.show.graph.svg import MARGIN, PAGE_W, SCROLLED_W, draw, picture_width, plot_of
from agent_magic.show.theme import attributes_for_classes
from tests.show.story import (
    REQUEST,
    answered,
    broken,
    business_plan,
    business_run,
    each_plan,
    finished_run,
    layered_plan,
    plan_of,
    record_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.declare import Plan

NS = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<b>bold</b>",
    "a:b",
    "]]>",
    "<![CDATA[x]]>",
    "&amp; &lt; &#0;",
    "\x00\x01\x1b[31m",
    "\ud800 lone",
    "\udfff",
    "\ufffe\uffff",
    "שלום עולם",
    "\u202egnp.exe",
    "👩‍👩‍👧‍👦🎉",
    "e\u0301" * 60,
    '"><script>alert(1)</script>',
    "</style><script>alert(1)</script>",
    "javascript:alert(1)",
    "--> <!--",
    "x" * 5000,
    "\\N \\G {|}",
    "line\nbreak\ttab",
    "",
]
texts = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF), max_size=60)
)
ALLOWED_TAGS = {"circle", "svg", "style", "g", "rect", "path", "text", "tspan", "title"}
ALLOWED_ATTRIBUTES = set(
    "class width height viewBox role aria-label x y rx d dx transform text-anchor style stroke-dashoffset cx cy r fill "
    "stroke stroke-width stroke-dasharray stroke-linecap stroke-linejoin opacity shape-rendering font-family font-size "
    "font-style font-weight".split()
)


def parsed(svg: str) -> ET.Element:
    """Parse a picture, and hold what every picture holds."""
    root = ET.fromstring(svg.encode())
    for element in root.iter():
        assert element.tag.removeprefix(NS) in ALLOWED_TAGS
        assert set(element.attrib) <= ALLOWED_ATTRIBUTES
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", svg)
    return root


def classes(root: ET.Element, name: str) -> list[ET.Element]:
    """Return the elements of a class."""
    return [one for one in root.iter() if name in one.get("class", "").split()]


def words(element: ET.Element) -> str:
    """Return all text of an element."""
    return "".join(element.itertext())


def with_classes(plan: Plan, record: RunRecord | None = None, **options: Any) -> ET.Element:
    """Draw a picture and keep the classes, by which tests find its parts."""
    with patch("agent_magic.show.graph.svg.attributes_for_classes", lambda markup, _: markup):
        return ET.fromstring(picture(plan, record, **options))


def business_picture(theme: Theme) -> str:
    """Draw the run of the business plan."""
    return picture(business_plan(), business_run(), theme=theme)


def business_chart(theme: Theme) -> str:
    """Draw its timeline."""
    return run_timeline(business_run(), theme=theme).svg


def retold(scene: Scene, text: str) -> Scene:
    """Put a text in every place of a scene that takes one."""
    nodes = tuple(replace(node, title=text, line=text, tail=text, badge=text, hint=text) for node in scene.nodes)
    header = replace(scene.header, counts=text, facts=(text, text), source=text)
    faces = tuple(face._replace(share=text, done=text, rest=text, who=text, answer=text) for face in scene.faces)
    return replace(scene, title=text, nodes=nodes, header=header, faces=faces)


@settings(max_examples=150, deadline=None)
@given(texts)
def test_a_picture_is_well_formed_whatever_it_says(text: str) -> None:
    """Any text, in any place, leaves well-formed XML of harmless elements."""
    record = business_run(5.1)
    scene = retold(scene_of(record.plan, record, now_s=5.1), text)
    parsed(draw(scene, record.plan, cards_layout(record.plan)))
    plan = each_plan(12)
    parsed(draw(retold(scene_of(plan, record_of(plan), now_s=0.0), text), plan, None, theme="dark"))


@settings(max_examples=80, deadline=None)
@given(texts, texts, texts)
def test_texts_of_models_and_errors_are_text(tail: str, error: str, name: str) -> None:
    """Streamed text, errors and titles from outside come through the whole way without becoming markup."""
    plan = plan_of({"one": (), "two": ()}, name=name)
    record = record_of(plan)
    for agent in (0, 1):
        record.add(AgentReady(0, agent))
        record.add(AttemptStarted(0, agent, 1, 0, "", REQUEST))
    record.add(broken(1, 1, error=error))
    record.add(AgentEnded(1, 1, "failed", error))
    scene = scene_of(plan, record, now_s=2)
    arriving = (node_view(record, 0, 2, tail=tail), *scene.nodes[1:])
    root = parsed(draw(replace(scene, nodes=arriving), plan, cards_layout(plan)))
    assert 2 == len(list(root.iter(f"{NS}title")))
    static_bundle(plan, record)["text/plain"].encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_long_and_strange_names_keep_their_full_text_in_the_tooltip(text: str) -> None:
    """A name that is cut can be read whole in the card's title."""
    record = business_run()
    scene = retold(scene_of(record.plan, record), text)
    root = parsed(draw(scene, record.plan, cards_layout(record.plan)))
    shown = words(next(root.iter(f"{NS}title")))
    assert len(shown) >= len(re.findall(r"[a-z]", text))


def test_the_same_run_has_the_same_picture() -> None:
    """Nothing of the clock or of chance is in a picture."""
    assert picture(business_plan(), business_run()) == picture(business_plan(), business_run())


def test_a_hundred_agents_take_at_most_100_kilobytes() -> None:
    """A notebook with pictures stays small."""
    plan = layered_plan(100, 20)
    svg = picture(plan, finished_run(plan))
    assert len(svg.encode()) <= 100_000
    parsed(svg)
    assert 100 == len(classes(with_classes(plan, finished_run(plan)), "n"))


@pytest.mark.parametrize(("count", "width"), [(201, 30), (1000, 90), (10_000, 900), (10_000, 1), (10_000, 10_000)])
def test_more_than_200_agents_are_cells(count: int, width: int) -> None:
    """Ten thousand agents take at most 300 kilobytes, in any shape and at any moment."""
    plan = layered_plan(count, width)
    record = finished_run(plan, until_s=3.0)
    svg = picture(plan, record, now_s=3.0)
    assert len(svg.encode()) <= 300_000
    parsed(svg)
    root = with_classes(plan, record, now_s=3.0)
    assert [] == [one for one in classes(root, "n") if "gr" not in one.get("class", "").split()]
    assert 1 <= len(classes(root, "gr")) <= 40
    drawn = sum(cells_in(path) for path in classes(root, "z"))
    assert count == drawn


def cells_in(path: ET.Element) -> int:
    """Count the cells that a dashed path draws."""
    size, gap = map(float, path.attrib["stroke-dasharray"].split())
    return sum(1 + round((float(long) - size) / (size + gap)) for long in re.findall(r"h([\d.]+)", path.attrib["d"]))


def test_every_state_has_a_shape_of_its_own() -> None:
    """A picture can be read without its colours."""
    assert len(STATES) == len({state.icon for state in STATES.values()})


def heights_of_bars(root: ET.Element) -> set[float]:
    """Find where bars stand, drawn one by one or many in a path."""
    alone = {float(one.attrib["y"]) for one in classes(root, "b") if one.tag == f"{NS}rect"}
    paths = [one.attrib["d"] for one in classes(root, "b") if one.tag == f"{NS}path"]
    return alone | {float(y) for path in paths for y in re.findall(r"M[\d.]+ ([\d.]+)", path)}


@pytest.mark.parametrize(("count", "named"), [(9, 1), (40, 1), (41, 1), (63, 1), (64, 2), (200, 4)])
def test_every_agent_has_its_row_in_a_picture_that_fits_a_page(count: int, named: int) -> None:
    """From forty rows on they share the room; where not each can have its name, the picture says so."""
    plan = layered_plan(count, 20)
    record = finished_run(plan)
    root = with_classes(plan, record)
    rows = sorted(heights_of_bars(root))
    assert count == len({round(row, 1) for row in rows})
    assert rows[-1] - rows[0] <= 40 * 19
    said = [note for note in map(words, root.iter(f"{NS}text")) if "has its name" in note]
    assert said == ([f"one row of {named} has its name"] if named > 1 else [])
    labels = [one for one in root.iter(f"{NS}text") if one.get("text-anchor") == "end" and words(one) in plan.index]
    assert -(-count // named) == len(labels)


def test_two_hundred_agents_that_waited_and_failed_make_a_small_picture() -> None:
    """A hundred kilobytes for each hundred of them."""
    plan = layered_plan(200, 40)
    assert len(picture(plan, finished_run(plan)).encode()) <= 200_000


def test_the_critical_path_is_bold() -> None:
    """Cards and edges of the longest chain of work are marked, and no others."""
    root = with_classes(business_plan(), business_run())
    bold = [card for card in classes(root, "on") if "n" in card.get("class", "").split()]
    names = {words(next(card.iter(f"{NS}title"))).split(" ")[0] for card in bold}
    assert {"operations", "review_ops", "business_plan"} == names
    assert 2 == sum("on" in edge.get("class", "").split() for edge in classes(root, "e"))


def test_a_source_that_is_not_the_live_api_cannot_be_overlooked() -> None:
    """The header says it, and each card whose answer was not made for this run."""
    root = with_classes(business_plan(), business_run())
    assert ["ledger + simulated"] == [words(one) for one in classes(root, "src")]
    assert ["ledger"] == [words(one) for one in classes(root, "x")]


def test_a_finished_card_shows_the_start_of_its_answer() -> None:
    """As text, on one line; a failed one shows why, without its class, which stands above."""
    plan = plan_of({"one": (), "two": ()})
    record = record_of(plan)
    for agent in (0, 1):
        record.add(AgentReady(0, agent))
        record.add(AttemptStarted(0, agent, 1, 0, "", REQUEST))
    record.add(broken(1, 1, error="Overloaded: the service is full"))
    record.add(AgentEnded(1, 1, "failed", "Overloaded: the service is full"))
    for event in answered(1, 0):
        record.add(event)
    assert ["Good.", "the service is full"] == [words(one) for one in classes(with_classes(plan, record), "w")]


def test_the_bar_is_filled_by_what_is_done() -> None:
    """What runs is no part of it, and what will not run is not red."""
    header = scene_of(business_plan(), business_run(5.1), now_s=5.1).header
    assert (("s", 4 / 9), ("m", 0.0), ("f", 0.0), ("k", 0.0)) == header.progress
    parts = [one.get("class") for one in classes(with_classes(business_plan(), business_run(5.1)), "p")]
    assert ["g p s-s", "g p s-m", "g p s-f", "g p s-k"] == parts


def test_a_plan_shows_estimates_and_no_timeline() -> None:
    """Before a run a card has what it is expected to use, marked as an estimate."""
    plan = business_plan()
    root = with_classes(plan, estimates=dict.fromkeys(plan.names, (500, 0.002)))
    assert {"≈ 500 tok · ≈ $0.0020"} == {words(one) for one in classes(root, "l")}
    assert [] == classes(root, "b") == classes(root, "tr")
    assert "≈ 4,500 tokens" in words(classes(root, "facts")[0])


def test_a_function_has_no_tokens_and_no_dollars() -> None:
    """Its card says that it is a task; a card of many functions and one agent has what the agent is expected to use."""

    def clean(draft: str) -> str:
        return draft

    plan = am.Plan([am.Agent("draft", "Write"), am.Task("clean", clean)])
    root = with_classes(plan, estimates={"draft": (500, 0.002), "clean": (0, 0.0)})
    assert ["≈ 500 tok · ≈ $0.0020", "task"] == [words(one) for one in classes(root, "l")]


def test_unknown_numbers_are_a_dash_never_zero() -> None:
    """What nobody knows is not 0."""
    plan = plan_of({"one": ()})
    root = with_classes(plan, estimates={"one": (None, None)})
    assert "– tok · $–" == words(classes(root, "l")[0])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_on_their_ground(theme: str) -> None:
    """Every colour of words has a contrast of 4.5 or more on cards, bands and the ground."""
    inks = INKS[theme]  # pyright: ignore[reportArgumentType]
    for word in ("ink", "soft", "run", "done", "wait", "fail", "kept", "tape"):
        for ground in ("card", "ground") if word != "soft" else ("card", "ground", "band"):
            assert contrast(inks[word], inks[ground]) >= 4.5, (word, ground)


def contrast(one: str, two: str) -> float:
    """Source: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio."""

    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(one), light(two)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
@pytest.mark.parametrize("drawn", [business_picture, business_chart])
def test_a_picture_needs_no_style(drawn: Callable[[Theme], str], theme: Theme) -> None:
    """Colours and sizes are attributes, for viewers that strip `<style>`; only the dark twin of `auto` needs one."""
    style, body = drawn(theme).rpartition("</style>")[::2]
    assert ("@media" in style) == (theme == "auto")
    for word in ("var(", "currentColor", "class="):
        assert word not in body.partition(">")[2]
    assert INKS["dark" if theme == "dark" else "light"]["ink"] in body


@pytest.mark.parametrize("drawn", [business_picture, business_chart])
def test_a_picture_turns_dark_by_the_colours_it_has(drawn: Callable[[Theme], str]) -> None:
    """Each colour of its elements has a rule for dark pages, and no two roles have one light colour."""
    style, body = drawn("auto").rpartition("</style>")[::2]
    used = set(re.findall(r'((?:fill|stroke)="#\w+")', body))
    assert used == set(re.findall(r'\[((?:fill|stroke)="#\w+")\]', style))
    assert set(INKS["dark"]) == set(re.findall(r"--am-(\w+):", style))
    assert len(INKS["light"]) == len(set(INKS["light"].values()))


def test_attributes_are_what_the_style_sheet_says() -> None:
    """The more specific rule wins, what is inherited is not repeated, and an attribute that is there stays."""
    card = '<g class="n s-f on"><rect class="c"/><text class="w">x</text><path class="i" stroke-width="9"/></g>'
    made = attributes_for_classes(f'<g class="am-fig">{card}</g>', "light")
    inks = INKS["light"]
    rect, text, icon = ET.fromstring(made)[0]
    assert {"fill": inks["card"], "stroke": inks["fail"], "stroke-width": "1.8"} == rect.attrib
    assert {"fill": inks["fail"], "font-style": "italic"} == text.attrib
    assert (inks["fail"], "9", "none") == tuple(icon.attrib[key] for key in ("stroke", "stroke-width", "fill"))


def test_the_bundle_holds_one_picture_and_its_text() -> None:
    """No HTML beside the SVG: front ends would show it instead."""
    assert {"image/svg+xml", "text/plain"} == set(static_bundle(business_plan(), business_run()))


def test_nbconvert_shows_exactly_one_picture() -> None:
    """A notebook turned into a page shows the picture once."""
    from nbconvert import HTMLExporter
    from nbformat import v4

    bundle = static_bundle(business_plan(), business_run())
    output = v4.new_output("display_data", data=bundle)
    book = v4.new_notebook(cells=[v4.new_code_cell("run", outputs=[output])])
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(book)
    assert 1 == len(re.findall(r"<img[^>]*data:image/svg\+xml", page)) + page.count('class="am-fig')


def test_a_record_without_events_can_be_drawn() -> None:
    """The first frame of a live view is of a run that has not begun."""
    record: RunRecord = record_of(business_plan())
    root = with_classes(record.plan, record)
    assert 9 == len(classes(root, "s-p"))


def test_a_wide_picture_is_scrolled_not_shrunk() -> None:
    """Up to the width of a page it is as wide as the page allows; wider, its letters would be too small to read."""
    narrow, wide = (ET.fromstring(picture(layered_plan(count, 2))) for count in (4, 16))
    assert "100%" == narrow.attrib["width"]
    assert f"max-width:{narrow.attrib['viewBox'].split()[2]}px" in narrow.attrib["style"]
    assert wide.attrib["viewBox"].split()[2] == wide.attrib["width"]
    assert "max-width" not in wide.attrib["style"]


@pytest.mark.parametrize(("layers", "is_scrolled"), [(4, False), (9, True)])
def test_the_timeline_is_on_the_page_as_a_whole(layers: int, is_scrolled: bool) -> None:
    """A graph that is too wide is scrolled; what is above and below it ends where a page of 1280 px ends."""
    plan = layered_plan(layers, 1)
    layout = cards_layout(plan)
    assert layout is not None
    width = picture_width(layout)
    assert is_scrolled == (width > SCROLLED_W)
    plot = plot_of(width, 100.0, layers)
    assert (PAGE_W if is_scrolled else width) == plot.x + plot.w + 16 + MARGIN
    bars = re.findall(r'<rect x="([\d.]+)" y="47" width="([\d.]+)"', picture(plan, finished_run(plan), theme="light"))
    assert plot.x + plot.w + 16 == pytest.approx(max(float(x) + float(w) for x, w in bars), abs=1)
