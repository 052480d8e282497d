"""Tools and tasks in the numbers of a run: a row per call, waits by reason, work up to a moment."""

from __future__ import annotations

import pytest

from agent_magic.measure import (
    agents_frame,
    attempts_frame,
    events_frame,
    slack_s,
    summarize,
    summary_frame,
    tool_calls_frame,
)
from agent_magic.measure.metrics import waited_s
from agent_magic.measure.service import utilization_frame
from agent_magic.record import spans_of
from tests.show.calling import ASKED, calling_run

COLUMNS = "agent turn tool arguments status result started_s duration_s result_chars error source held_by prints"


def test_each_call_is_a_row_in_the_order_they_began():
    """Of tools and of tasks; the call of a task has no turn and no arguments, unknown is missing."""
    frame = tool_calls_frame(calling_run())
    assert COLUMNS.split() == list(frame.columns)
    assert ["clean", "run_sql", "lock", "broken"] == list(frame["tool"])
    assert ["clean", "finder", "finder", "broken"] == list(frame["agent"])
    assert [True, False, False, True] == list(frame["turn"].isna())
    assert ("finder", 1, ASKED, "succeeded", "north first", 1.0, 1.0, 11) == tuple(frame.iloc[1][COLUMNS.split()].drop(
        ["tool", "error", "source", "held_by", "prints"]))  # fmt: skip
    assert ["failed", "ValueError: locked", "person"] == list(frame.iloc[2][["status", "error", "held_by"]])
    assert ["string", "Int64", "Float64", "Int64"] == [
        str(frame.dtypes[name]) for name in ("tool", "turn", "duration_s", "result_chars")
    ]


def test_a_call_under_way_has_no_result_yet():
    """What is not known is missing."""
    row = tool_calls_frame(calling_run(1.5)).iloc[-1]
    assert "running" == row["status"]
    assert row[["duration_s", "result_chars", "error", "source"]].isna().all()


def test_agents_and_tasks_are_told_apart():
    """A task asks no model; the context of an agent is the input of its largest turn."""
    frame = agents_frame(calling_run()).set_index("agent")
    assert ["task", "agent", "task", "agent"] == list(frame["kind"])
    assert [True, False, True, False] == list(frame["model"].isna()) == list(frame["context_tokens"].isna())
    assert 600 == frame.loc["finder", "context_tokens"]
    assert (0.5, 2.0) == (frame.loc["clean", "tool_s"], frame.loc["finder", "tool_s"])


def test_attempts_name_their_turn():
    """A response that asks for tools is a turn of its own."""
    assert [1, 2, 1] == list(attempts_frame(calling_run())["turn"])


def test_the_parts_of_an_agents_time_add_up():
    """Waiting for a person between two calls is queued, and the sum is exact."""
    frame = agents_frame(calling_run())
    parts = frame[["queued_s", "api_s", "tool_s", "backoff_s", "local_s"]].sum(axis=1)
    assert list(frame["total_s"]) == list(parts)
    assert 3.0 == frame.set_index("agent").loc["finder", "queued_s"]


def test_the_summary_counts_tasks_and_knows_who_answered():
    """The results of tasks are no answers: a run of simulated agents stays simulated."""
    row = summary_frame(calling_run()).iloc[0]
    assert [2, 2, "simulated"] == list(row[["agents", "tasks", "source"]])
    assert {"person": 3.0} == {
        reason: seconds for reason, seconds in waited_s(calling_run().results).items() if seconds
    }


def test_work_counts_what_goes_on():
    """While a tool or a task runs, its seconds count up to now; while a person is asked, nothing does."""
    assert 0.25 == summarize(calling_run(0.0), 0.25).agent_s
    assert 0.5 + 0.5 + 0.5 == summarize(calling_run(1.5), 1.5).agent_s
    assert 0.5 + 0.5 + 1.0 == summarize(calling_run(2.0), 4.0).agent_s


def test_tasks_have_slack():
    """A task that nobody waits for could have ended with the run."""
    assert [0.0, 0.0, 0.75, 0.0] == slack_s(calling_run())


def test_events_name_the_tool_and_no_arguments():
    """What was called, what it waited for, what became of it."""
    said = list(events_frame(calling_run()).query("event.str.startswith('Call')", engine="python")["what"])
    assert [
        "run_sql",
        "run_sql succeeded",
        "lock, held by a person's answer",
        "lock failed: ValueError: locked",
    ] == said[2:6]
    assert not [words for words in said if "SELECT" in words or "north" in words]


def test_spans_of_tools_belong_to_the_attempt_that_asked():
    """They name the functions; the wait between them names its reason."""
    spans = [one for one in spans_of(calling_run()) if one.agent == "finder" and one.phase in {"tool", "queued"}]
    assert [("tool", "run_sql", 1), ("queued", "a person's answer", 3), ("tool", "lock", 1)] == [
        (one.phase, one.reason, one.attempt) for one in spans
    ]


def test_models_are_those_of_agents():
    """A task is no model's."""
    assert ["claude-haiku-5-5", "(all)"] == list(utilization_frame(calling_run())["model"])


@pytest.mark.parametrize(
    ("until_s", "since_s", "waits"),
    [
        (0.2, None, False),
        (0.9, 0.5, False),
        (1.2, 1.0, False),
        (3.0, None, True),
        (5.5, 5.0, False),
        (7.5, None, False),
    ],
)
def test_what_an_agent_does_now(until_s, since_s, waits):
    """A request, calls, or nothing while it waits between two turns."""
    result = calling_run(until_s)["finder"]
    assert (since_s, waits) == (result.working_since_s, result.is_waiting)


def test_a_result_says_what_was_called():
    """A task has no tokens to show; an agent has both."""
    record = calling_run()
    assert "AgentResult('clean': succeeded, 1 call, 0.5 s)" == repr(record["clean"])
    assert "2 calls, 2.0 s" in repr(record["finder"])
    assert [1, 2] == [one.turn for one in record["finder"].attempts]


def test_what_functions_printed_is_a_column_where_any_did():
    """A kernel without anybody at it shows prints nowhere else."""
    run = calling_run()
    assert [one.prints for result in run.results for one in result.calls if one.prints] == list(
        tool_calls_frame(run)["prints"].dropna()
    )
    for one in (one for result in run.results for one in result.calls):
        one.prints = ""
    assert COLUMNS.removesuffix(" prints").split() == list(tool_calls_frame(run).columns)
