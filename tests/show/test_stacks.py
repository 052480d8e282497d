"""Declarations with many items are one card each: ring, counts, who failed or was slowest, an answer."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.record import AgentEnded, AgentReady, AttemptStarted, Event, RunEnded
from agent_magic.show import Feed, details_of, groups_of, picture, run_text, scene_of, sheet_of
from agent_magic.show.graph.groups import group_texts
from agent_magic.show.graph.scene import Faces, is_large
from agent_magic.show.run_page import run_page
from agent_magic.show.states import state_of
from agent_magic.show.text import counts_line
from tests.live.virtual import Reply, drive
from tests.show.story import REQUEST, answered, broken, each_plan, finished_run, record_of

NS = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("items", "stacked"), [(9, False), (10, True), (40, True)])
def test_ten_items_of_a_declaration_are_one_card(items: int, stacked: bool) -> None:
    """Fewer are cards of their own."""
    plan = each_plan(items)
    assert stacked == is_large(plan)
    svg = ET.fromstring(picture(plan, finished_run(plan)))
    cards = [one for one in svg.iter(f"{NS}text") if one.text == "report"]
    assert cards


def test_other_agents_are_cards_of_their_own() -> None:
    """A stack of forty, then a card of one, which says what the agent's card would."""
    plan = each_plan(40)
    run = finished_run(plan)
    sheet = sheet_of(plan)
    assert [("label", "each of 40 rows", 40), ("report", "layer 1", 1)] == [
        (group.label, group.where, len(group.agents)) for group in sheet.groups
    ]
    stack, alone = scene_of(plan, run).faces
    assert ("87 %", "35 of 40", "5 failed", "f") == stack[1:5]
    assert ("✓", "s") == (alone.share, alone.tone)
    assert " tok · $" in alone.who


def test_a_picture_of_many_items_fits_a_screen() -> None:
    """The picture of 10,000 rows is no taller than that of a window, its cells left out."""
    plan = each_plan(10_000)
    sheet = sheet_of(plan)
    assert 2 == len(sheet.groups)
    assert sheet.layout.height < 400


def test_a_stack_names_who_failed_and_otherwise_who_was_slowest() -> None:
    """The eye goes to what failed; an agent that is asked again and succeeds is named no more."""
    plan = each_plan(12)
    record = record_of(plan)
    faces = Faces(sheet_of(plan), "".join(map(state_of, record.results)))

    def take(*events: Event) -> None:
        for event in events:
            record.add(event)
            faces.take(event, record)
        for agent in range(5):
            faces.turn(agent, state_of(record.results[agent]))

    for agent, took in ((0, 1.0), (1, 3.0)):
        take(AgentReady(0, agent), AttemptStarted(0, agent, 1, 0, "", REQUEST))
        take(*answered(took, agent))
    assert "slowest: label_1, 3.0 s" == faces.face(0, record).who
    assert faces.face(0, record).answer.startswith("label_0: ")
    for agent in (2, 3, 4):
        take(AgentReady(0, agent), AttemptStarted(0, agent, 1, 0, "", REQUEST))
        take(broken(1, agent), AgentEnded(1, agent, "failed", "Overloaded: busy"))
    face = faces.face(0, record)
    assert ("failed: label_2, label_3 +1", "3 failed", "f") == (face.who, face.rest, face.tone)
    faces.turn(2, "s")
    assert "failed: label_3, label_4" == faces.face(0, record).who


def test_the_live_view_of_stacks_says_the_same_as_the_picture() -> None:
    """Event by event, or all at once: the ring, the counts, the lines."""
    plan = each_plan(15)
    run = finished_run(plan)
    record = record_of(plan)
    feed = Feed(record, sheet_of(plan))
    feed.step(0.0, {})
    for event in run.events:
        record.add(event)
        feed.step(event.at_s, {})
    sent = feed.whole()["groups"]
    for place, face in enumerate(scene_of(plan, run).faces):
        counts, total, share, done, _, tone, _, _ = sent[str(place)]
        assert ([*face.counts[:-1]], sum(face.counts), face.share, face.done, face.tone) == (
            counts,
            total,
            share,
            done,
            tone,
        )


def test_a_card_that_waits_names_a_declaration_once() -> None:
    """Not each of its forty agents."""
    plan = each_plan(40)
    _, alone = scene_of(plan, record_of(plan), now_s=0.0).faces
    assert "waits: label" == alone.who


def test_a_group_does_not_count_what_is_not_needed() -> None:
    """Event by event as all at once: an agent that is not needed is neither done nor to do."""
    plan = each_plan(12)
    faces = Faces(sheet_of(plan), "p" * len(plan))
    faces.turn(0, "s")
    faces.turn(1, "u")
    assert (11, "1 of 11") == (sum(faces.counts[0]), faces.face(0, record_of(plan)).done)


def test_a_plan_in_a_plan_is_one_card() -> None:
    """With a loop and a map inside; what is around it has cards of its own."""
    draft = am.Agent("draft", "d {{ critic }}", until="critic > 3", rounds=2)
    inner = am.Plan([draft, am.Agent("critic", "rate {{ draft }}", returns=int), am.Agent("end", "{{ draft }}")])
    plan = am.Plan([am.Agent("before", "a"), am.Agent("letter", "{{ research }} {{ before }}")], {"research": inner})
    sheet = sheet_of(plan)
    assert ["research", "before", "letter"] == [group.label for group in sheet.groups]
    assert "a plan of 5 steps" == sheet.groups[0].where
    assert 2 == len(sheet.layout.edges)


def test_a_loop_is_a_way_back_and_counts_rounds() -> None:
    """The arrow goes from the last card to the first; a card says how many rounds there were, of at most how many."""
    draft = am.Agent("draft", "Write. {% if critic %}{{ critic }}{% endif %}", until="critic > 3", rounds=3)
    critic = am.Agent("critic", "Rate: {{ draft }}", returns=int)
    plan = am.Plan((draft, critic, am.Agent("end", "{{ draft }}")))
    sorry = am.Agent("sorry", "{{ critic }}", when="critic < 3")
    assert "when critic < 3" == sheet_of(am.Plan((draft, critic, sorry))).groups[-1].where
    sheet = sheet_of(plan)
    wheres = [(group.label, group.where) for group in sheet.groups]
    assert [("draft", "↻ until critic > 3"), ("critic", "↻ with draft"), ("end", "agent")] == wheres
    assert ((1, 0),) == sheet.returns
    assert ("✓", "1 of up to 3 rounds", "") == group_texts(sheet.groups[0], (1, 0, 0, 0, 0, 0, 0, 0))
    assert 1 == picture(plan).count("the next round")


def test_a_loop_that_ends_at_its_cap_says_so_on_all_its_cards() -> None:
    """Once the last round has ended, not before; the card of the step that ended earlier changes with it."""
    draft = am.Agent("draft", "Write. {% if critic %}{{ critic }}{% endif %}", until="critic > 3", rounds=2)
    plan = am.Plan((draft, am.Agent("critic", "Rate: {{ draft }}", returns=int)))
    record = record_of(plan)
    sheet, feed = sheet_of(plan), Feed(record, sheet_of(plan))
    texts = {"draft_1": "a", "critic_1": '{"value": 1}', "draft_2": "b", "critic_2": '{"value": 2}'}
    for number, (name, text) in enumerate(texts.items()):
        agent = plan.index[name]
        for event in (AgentReady(number, agent), AttemptStarted(number, agent, 1, number, "", REQUEST)):
            record.add(event)
        for event in answered(number + 1.0, agent, text=text):
            record.add(event)
            feed.step(event.at_s, {})
        for _, _, share, _, rest, tone, who, _ in feed.whole()["groups"].values():
            is_capped = (share, rest, tone, who) == ("≡", "capped", "m", "not met: critic > 3")
            assert (number == 3) == is_capped, name
    record.add(RunEnded(5.0, cut=False))
    faces = scene_of(plan, record, sheet=sheet).faces
    assert ["2 of up to 2 rounds"] * 2 == [face.done for face in faces]
    assert ["m", "m"] == [face.tone for face in faces]
    header = scene_of(plan, record, sheet=sheet).header
    assert "4 of 4 done · 2 capped" == header.counts
    table = groups_of(record, 5.0, {}, most=60)
    page = run_page(record, name="x.agents.jsonl", cassette=b"")
    for number, name in enumerate(plan.names):
        why = ["not met: critic > 3"] if name.endswith("_2") else []
        state = "m" if why else "s"
        (row,) = [row for group in table for row in group.rows if row.name == name]
        (line,) = [line for line in run_text(record).splitlines() if line.startswith(f"    {name}")]
        (folded,) = re.findall(rf"<summary><b>{name}</b>.*?</summary>", page)
        details = details_of(record, number)
        assert (state, state) == (row.state, details["state"])
        told = (row.last, line, folded.replace("&gt;", ">"), details["facts"])
        assert [why] * 4 == [re.findall("not met: critic > 3", text) for text in told]


def test_a_loop_inside_a_nested_plan_says_why_it_is_capped() -> None:
    """The card of the nested plan is amber, and names the condition."""
    draft = am.Agent("draft", "Write. {% if critic %}{{ critic }}{% endif %}", until="critic > 3", rounds=2)
    inner = am.Plan((draft, am.Agent("critic", "Rate: {{ draft }}", returns=int)), name="inner")
    plan = am.Plan([am.Agent("end", "{{ inner }}")], {"inner": inner})
    record, _ = drive(plan, lambda *_: Reply(1.0, text='{"value": 1}'), Policy(4, seed=1))
    sheet = sheet_of(plan)
    (face,) = [face for face, group in zip(scene_of(plan, record).faces, sheet.groups, strict=True) if group.is_box]
    assert ("m", "not met: inner__critic > 3") == (face.tone, face.who)


def test_a_group_that_was_stopped_says_cancelled_as_the_header_does() -> None:
    """What ran and was stopped is not "not run": the card, the header and the cells have one word."""
    plan = each_plan(12)
    faces = Faces(sheet_of(plan), "s" + "c" * (len(plan) - 1))
    assert "11 cancelled" == faces.face(0, record_of(plan)).rest
    assert "1 of 12 done · 11 cancelled" == counts_line("s" + "c" * 11)


def test_a_box_shows_the_last_answer_and_a_typed_one_without_its_object() -> None:
    """A plan in a plan is what its last step says, in whatever order its steps end; names are without the plan's."""
    inner = am.Plan((am.Agent("sources", "x"), am.Agent("notes", "y", returns=int)))
    plan = am.Plan((am.Agent("letter", "{{ research }}"),), {"research": inner})
    record = record_of(plan)
    faces = Faces(sheet_of(plan), "".join(map(state_of, record.results)))
    for agent, text in ((1, '{"value": 7}'), (0, "three")):
        ended = answered(1.0, agent, text=text)
        for event in (AgentReady(0, agent), AttemptStarted(0, agent, 1, 0, "", REQUEST), *ended):
            record.add(event)
            faces.take(event, record)
    assert "notes: 7" == faces.face(0, record).answer
