"""Nothing that is printed, or shown as `text/plain`, carries a control character of a model, a server or a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

import agent_magic as am
from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.forecast import Outlay
from agent_magic.record import (
    AgentEnded,
    AgentReady,
    Answer,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    FirstToken,
    Price,
    Request,
    RunEnded,
    RunRecord,
    Usage,
)
from agent_magic.show import (
    Choice,
    Explorer,
    Feed,
    LineView,
    Markdown,
    budget_note,
    capped_note,
    cards_layout,
    closing,
    context_card,
    context_notes,
    declaration_card,
    details_of,
    estimate_page,
    frame_text,
    outlay_line,
    plan_picture,
    result_bundle,
    static_bundle,
)
from agent_magic.show.estimates import prices_page
from tests.show.calling import arguments_of, calling_run
from tests.show.story import MODEL, record_of

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x00\u202e"
CONTROL = {*map(chr, range(32)), *map(chr, range(127, 160)), "\u202e"} - {"\n", "\t"}


def hostile_run(*, cut: bool = False) -> RunRecord:
    """Return a run as a file may hold it: escapes in each word that is not ours, and in values past our checks."""
    plan = Plan(
        [Agent("a", "x"), Agent("b", "y {{ a }}"), Agent("c", "z", context="shared")], values={"shared": "text"}
    )
    object.__setattr__(plan, "name", "plan" + ESCAPES)
    record = record_of(plan)
    request = Request(MODEL, "Write." + ESCAPES, 800)
    usage = Usage(400, output_tokens=412)
    words: Any = {"model": MODEL + ESCAPES, "request_id": ESCAPES}
    answer = Answer("Good." + ESCAPES, "end" + ESCAPES, usage=usage, source="simulated", **words)
    price = Price(0.0021, "given" + ESCAPES)
    error = f"Overloaded: {ESCAPES}"
    for agent in (0, 2):
        record.add(AgentReady(0.0, agent))
        record.add(AttemptStarted(0.0, agent, 1, 0.0, "", request))
        record.add(AttemptEnded(1.0, agent, 1, None, error, "Overloaded", "", None, price, None, 529))
        record.add(BackoffStarted(1.0, agent, 2.0, error))
        record.add(AttemptStarted(2.0, agent, 2, 2.0, "", request))
        record.add(FirstToken(2.1, agent, 2))
    record.add(AttemptEnded(3.0, 0, 2, answer, None, None, "", usage, price, "simulated", 200))
    record.add(AgentEnded(3.0, 0, "succeeded", None))
    record.add(AgentReady(3.0, 1))
    record.add(AttemptEnded(4.0, 2, 2, None, error, "Overloaded", "part" + ESCAPES, None, price, None, 529))
    record.add(AgentEnded(4.0, 2, "failed", error))
    if cut:
        record.add(AgentEnded(4.0, 1, "cancelled", f"BudgetExceeded: {ESCAPES}"))
        record.add(RunEnded(4.0, cut=True))
    return record


def printed(record: RunRecord) -> Iterator[tuple[str, object]]:
    """Yield everything that says something of a run in plain text."""
    run, policy = Run(record), Policy()
    yield "repr", repr(run)
    yield "result", repr(run["c"])
    yield "bundle", run.bundle()["text/plain"]
    yield "stable bundle", static_bundle(record.plan, record, timings=False)["text/plain"]
    yield "plan", plan_picture(record.plan)["text/plain"]
    for name in ("agents", "attempts", "tool_calls", "layers", "summary", "events", "contexts", "savings"):
        yield name, getattr(run, name).to_string()
        yield name, frame_text(getattr(run, name))
    yield "closing", closing(record).text()
    yield "utilization", run.utilization().to_string()
    yield "percentiles", run.percentiles().to_string()
    yield "path", repr(run.critical_path())
    yield "health", str(run.health)
    yield "advice", repr(run.advise())
    for name, chart in {"timeline": run.timeline(), "waterfall": run.waterfall(), "limits": run.limits_chart()}.items():
        yield name, chart.text
        yield name, repr(chart)
    whatif = run.whatif(concurrency=[1, 2])
    yield "whatif", whatif.to_string()
    yield "tradeoff", run.tradeoff(whatif).text
    yield "explore", Explorer(run.forecaster()).answer(Choice(concurrency=1)).bundle["text/plain"]
    for result in record.results:
        yield "answer", result_bundle(result)["text/plain"]
    yield "markdown", Markdown("x" + ESCAPES)._repr_mimebundle_()["text/plain"]
    for note in (capped_note(record, policy), budget_note(record, policy), *context_notes(record, None)):
        yield "note", note
    yield "estimate", estimate_page(am.Plan(record.plan.agents, values=record.plan.values).estimate()).text()
    yield "outlay", outlay_line(Outlay(3, 1.0, 2.0, 0), None)
    yield "tariff", prices_page({MODEL + ESCAPES: ((), "list")}).text()
    yield "card", declaration_card(record.plan.agents[2], ["a" + ESCAPES], [ESCAPES], [ESCAPES])["text/plain"]
    yield "card", context_card("a" + ESCAPES, 12, [ESCAPES])["text/plain"]
    lines = io.StringIO()
    view = LineView(record, lines)
    view.show()
    view.finish()
    yield "log", lines.getvalue()


def test_calls_carry_no_control_characters():
    """Names of tools, what they print and return, errors and tracebacks, in a log, in frames and in the panel."""
    record = calling_run(text=ESCAPES, arguments=arguments_of(ESCAPES))
    run = Run(record)
    said = [run.tool_calls.to_string(), run.events.to_string(), run.bundle()["text/plain"], run.timeline().text]
    said += [result_bundle(one)["text/plain"] for one in record.results] + [repr(one) for one in record.results]
    feed = Feed(record, cards_layout(record.plan))  # pyright: ignore[reportArgumentType]
    said += [str(feed.step(8.0, {})), *(str(details_of(record, agent)) for agent in range(4))]
    assert not CONTROL & set("".join(said).replace("\\n", ""))
    assert not any(f"\\x{ord(one):02x}" in "".join(said) for one in "\x1b\x07\x9b\x00")


@pytest.mark.parametrize("cut", [False, True], ids=["under way", "stopped"])
def test_no_plain_text_carries_control_characters(cut: bool):
    """Of a run whose file, server, model and names are hostile: every frame, chart, card, note and line."""
    shown = dict.fromkeys(name for name, _ in printed(hostile_run(cut=cut)))
    broken = {name: text for name, text in printed(hostile_run(cut=cut)) if CONTROL & set(str(text))}
    assert {} == broken, f"{len(shown)} looked at"


def test_the_live_view_sends_no_control_characters():
    """Neither the picture, nor what is sent later, nor the panel of an agent."""
    record = hostile_run()
    feed = Feed(record, cards_layout(record.plan))  # pyright: ignore[reportArgumentType]
    said = [feed.step(4.0, {1: ESCAPES}), *(details_of(record, agent, ESCAPES) for agent in range(3))]
    assert not CONTROL & set(str(said).replace("\\n", ""))
    assert not any(f"\\x{ord(one):02x}" in str(said) for one in "\x1b\x07\x9b\x00")
