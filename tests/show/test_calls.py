"""Tools and tasks on the screen: cards, bars, the panel's conversation, text; and nothing in them is ever markup."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from agent_magic.api import Run
from agent_magic.show import (
    Feed,
    Shades,
    cards_layout,
    details_of,
    digraph,
    frame_text,
    groups_of,
    node_view,
    picture,
    plan_text,
    static_bundle,
)
from agent_magic.show.graph.timeline import bars_of
from agent_magic.show.live import MOST_ARGUMENT, MOST_CALLS, MOST_RESULT, fixed_parts
from tests.show.calling import arguments_of, calling_events, calling_plan, calling_run
from tests.show.test_pictures import HOSTILE

if TYPE_CHECKING:
    from agent_magic.record import RunRecord
    from agent_magic.show import Layout

CLEAN, FINDER, BROKEN, REPORT = range(4)


def line_at(until_s: float, tail: str = "") -> tuple[str, str]:
    """Return the state of the finder's card and its numbers at a moment."""
    view = node_view(calling_run(until_s), FINDER, until_s, tail=tail)
    return view.state, view.line


def test_a_card_says_which_tool_runs_and_how_long() -> None:
    """While a person is asked it waits; with the next request it says its turn."""
    assert ("r", "0.5 s · run_sql") == line_at(1.5)
    assert ("q", "queued") == line_at(3.0, "waits for you")
    assert "waits for you" == node_view(calling_run(3.0), FINDER, 3.0, tail="waits for you").tail
    assert ("r", "0.2 s · turn 2") == line_at(6.2)


def test_tools_side_by_side_are_counted() -> None:
    """Two names have no room on a card."""
    record = calling_run(1.0)
    record.add(calling_events()[10]._replace(at_s=1.0))  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    assert "0.5 s · 2 tools" == node_view(record, FINDER, 1.5).line


def test_a_task_is_a_card_of_its_own_shape_without_tokens() -> None:
    """An outline with cut corners; what it returned, or the class of its error."""
    svg = picture(calling_plan(), calling_run(), theme="light")
    ET.fromstring(svg)
    assert 2 == svg.count("data-w=")
    done, failed = (node_view(calling_run(), agent, 8.0) for agent in (CLEAN, BROKEN))
    assert ("0.5 s", "[1]", True) == (done.line, done.tail, done.is_task)
    assert ("0.2 s · KeyError", "'x'") == (failed.line, failed.tail)
    assert "task" == node_view(calling_run(), CLEAN, 8.0).hint.split(" · ")[1]
    assert [CLEAN, BROKEN] == fixed_parts(calling_run(), *_placed(calling_run()))["tasks"]


def _placed(record: RunRecord) -> tuple[Layout, Feed]:
    layout = cards_layout(record.plan)
    assert layout is not None
    return layout, Feed(record, layout)


def test_bars_of_tools_stand_between_those_of_requests() -> None:
    """With the wait for a person in between, and the name of the tool under the mouse."""
    bars = [(bar.kind, bar.from_s, bar.to_s, bar.what) for bar in bars_of(calling_run()["finder"])]
    assert [("t", 1.0, 2.0, "run_sql"), ("q", 2.0, 5.0, "waits for you"), ("t", 5.0, 6.0, "lock")] == bars[2:5]
    assert [("t", 0.0, 0.5, "")] == [
        (bar.kind, bar.from_s, bar.to_s, bar.what) for bar in bars_of(calling_run()["clean"])
    ]


def test_groups_count_an_agent_once_whatever_it_calls() -> None:
    """Tasks are at work while they run, agents while their tools do."""
    shades = Shades([0, 0, 0, 0], 1)
    running: list[int] = []
    for event in calling_events():
        shades.take(event)
        running.append(shades.running[0])
    assert (2, 0) == (max(running), running[-1])


def test_the_page_is_told_of_a_tool_under_way() -> None:
    """It counts the seconds itself; the last line that was printed stands below."""
    _, feed = _placed(calling_run(1.5))
    assert ["run_sql", "3 rows", None, "", 1.0] == feed.step(1.5, {FINDER: "3 rows"})["nodes"]["1"]


def test_the_panel_reads_like_a_conversation() -> None:
    """What was said, then each call with its arguments as rows and what came of it."""
    (turn,) = details_of(calling_run(), FINDER)["turns"]
    assert ("turn 1", "Let me see.") == (turn["heading"], turn["said"])
    look, lock = turn["calls"]
    assert ("run_sql", "1.0 s", [["query", "SELECT 1"], ["limit", "20"]]) == (
        look["tool"],
        look["facts"],
        look["arguments"],
    )
    assert {"result": "north first", "printed": "connecting\n3 rows\n"} == look["texts"]
    assert ("failed", "1.0 s · failed", []) == (lock["status"], lock["facts"], lock["arguments"])
    assert {"result", "traceback"} == set(lock["texts"])


def test_a_response_that_asks_for_calls_is_no_answer_yet() -> None:
    """While its calls run the panel has no answer, and says no stop reason."""
    detail = details_of(calling_run(1.5), FINDER)
    assert not {"answer", "answer so far"} & set(detail["texts"])
    assert "tool_use" not in detail["facts"]
    assert "" == detail["rendered"]
    assert "Good." == details_of(calling_run(), FINDER)["texts"]["answer"]


def test_the_panel_of_a_task_has_its_value_its_prints_and_its_traceback() -> None:
    """And no table of requests."""
    assert {"value": "[1]", "printed": "read 1 row\n"} == details_of(calling_run(), CLEAN)["texts"]
    broken = details_of(calling_run(), BROKEN)
    assert ["traceback"] == list(broken["texts"])
    assert ([], [], "task · 0.2 s") == (broken["attempts"], broken["turns"], broken["facts"])


def test_what_the_panel_is_sent_is_bounded() -> None:
    """Long arguments and results are cut and marked, and the last calls are shown."""
    long = "x" * 100_000
    (turn,) = details_of(calling_run(2.0, arguments=json.dumps({"query": long})), FINDER)["turns"]
    ((_, value),) = turn["calls"][0]["arguments"]
    assert len(value) < MOST_ARGUMENT + 60
    assert value.endswith("more characters: run['finder']")
    assert MOST_CALLS * (MOST_RESULT + MOST_ARGUMENT) < 100_000


@pytest.mark.parametrize("arguments", ["not json", "[1, 2]", '"text"', "", "{" * 10_000, '{"a": NaN}'])
def test_arguments_that_are_no_object_are_shown_as_they_came(arguments: str) -> None:
    """A model may have written anything."""
    (turn,) = details_of(calling_run(arguments=arguments), FINDER)["turns"]
    assert all(isinstance(cell, str) for row in turn["calls"][0]["arguments"] for cell in row)


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_words_stay_words(payload: str) -> None:
    """Tool names, arguments, results, prints, tracebacks and what the model said: pictures parse, data is data."""
    record = calling_run(text=payload, arguments=arguments_of(payload))
    under_way = calling_run(1.5, payload, arguments_of(payload))
    for one in (record, under_way):
        root = ET.fromstring(picture(one.plan, one))
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert names <= {"svg", "style", "g", "rect", "path", "text", "tspan", "title"}
        ET.fromstring(Run(one).timeline().svg)
        json.dumps([details_of(one, agent) for agent in range(4)])
        static_bundle(one.plan, one)
        Run(one).tool_calls.to_string()
        frame_text(Run(one).tool_calls)


def test_text_names_tasks_and_counts_calls() -> None:
    """The line under the graph, the lines per agent, the plan and the table in a terminal."""
    text = static_bundle(calling_plan(), calling_run())["text/plain"]
    assert text.startswith("2 agents and 2 tasks in 3 layers · 1 failed")
    lines = [line.split("  ") for line in text.splitlines()]
    assert "task" in next(line for line in lines if "clean" in line)
    assert {"2 turns", "2 calls"} <= set(next(line for line in lines if "finder" in line))
    assert "clean  task" in plan_text(calling_plan())
    rows = {row.name: row for group in groups_of(calling_run(), 8.0, {}, most=40) for row in group.rows}
    assert ("0.5 s", "", "") == (rows["clean"].took, rows["clean"].tokens, rows["clean"].cost)
    rows = {
        row.name: row for group in groups_of(calling_run(1.5), 1.5, {FINDER: "3 rows"}, most=40) for row in group.rows
    }
    assert ("0.5 s", "run_sql · 3 rows") == (rows["finder"].took, rows["finder"].last)


def test_a_short_frame_shows_kinds_where_there_are_two() -> None:
    """A run of agents alone says nothing of kinds."""
    assert "kind" in frame_text(Run(calling_run()).agents).splitlines()[2].split()


def test_a_graph_of_a_plan_knows_tasks() -> None:
    """In Graphviz a task has its own shape."""
    assert 2 == digraph(calling_plan()).source.count("shape=octagon")


def test_calls_are_shown_with_what_came_back() -> None:
    """What a tool was given and what it returned, also where every call got the same."""
    shown = frame_text(Run(calling_run(arguments='{"query": "all"}')).tool_calls)
    heads = next(line for line in shown.splitlines() if line.startswith("agent")).split()
    assert ["arguments", "result"] == [name for name in heads if name in {"arguments", "result"}]
    assert '{"query": "all"}' in shown
