"""Frames: columns, dtypes, unknowns, and every number worked out once more from `run.attempts`."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest
from hypothesis import given, settings

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.errors import Overloaded, Unreachable
from agent_magic.measure import agents_frame, attempts_frame, events_frame, layers_frame, summarize, summary_frame
from agent_magic.record import History
from tests.declare.examples import E2
from tests.live.virtual import Reply, drive
from tests.record.histories import histories

# The columns of `run.agents` and `run.summary` are a contract.
AGENTS = (
    "agent, status, kind, total_s, input_tokens, output_tokens, cost_usd, model, model_used, source, attempts, "
    "queued_s, api_s, tool_s, backoff_s, local_s, ttft_s, started_s, finished_s, cache_read_tokens, "
    "cache_write_tokens, layer, on_critical_path, slack_s, context_tokens, round, speedup, saved_s, stop_reason, error"
).split(", ")
SUMMARY = (
    "plan, agents, succeeded, wall_s, input_tokens, output_tokens, cost_usd, verdict, limited_by, mean_concurrency, "
    "bound, efficiency, agent_s, queued_s, critical_path_s, layers, tasks, failed, skipped, not_needed, cancelled, "
    "rate_limited, source, speedup, speedup_over, cost_multiple, sequential_s, time_saved_pct, speedup_basis, "
    "success_rate, cost_multiple_low, cost_multiple_high"
).split(", ")
WORDS = {
    "error_class",
    "agent",
    "model",
    "model_used",
    "status",
    "source",
    "stop_reason",
    "error",
    "plan",
    "verdict",
    "limited_by",
    "event",
    "what",
    "held_by",
    "price",
    "slowest",
    "request_id",
    "batch",
    "speedup_over",
    "speedup_basis",
    "kind",
}
COUNTS = {
    "searches",
    "tasks",
    "turn",
    "round",
    "layer",
    "layers",
    "agents",
    "attempt",
    "attempts",
    "succeeded",
    "failed",
    "skipped",
    "not_needed",
    "cancelled",
    "rate_limited",
    "http_status",
}
YES_NO = {"on_critical_path", "usage_estimated"}


def dtype_of(column):
    """The dtype that a column of this name has."""
    if column in WORDS:
        return "string"
    if column in YES_NO:
        return "bool"
    return "Int64" if column in COUNTS or column.endswith("_tokens") else "Float64"


def business_run():
    """E2 with two seconds an agent."""
    record, _ = drive(E2.plan, lambda *_: Reply(2.0))
    return record


def every_frame(record):
    """All five frames of a record."""
    return {
        "agents": agents_frame(record),
        "attempts": attempts_frame(record),
        "layers": layers_frame(record),
        "summary": summary_frame(record),
        "events": events_frame(record),
    }


def test_the_columns_of_the_contract():
    """`run.agents` and `run.summary` have exactly these columns; what a reader looks for stands first."""
    frames = every_frame(business_run())
    assert AGENTS == list(frames["agents"].columns)
    assert SUMMARY == list(frames["summary"].columns)


@pytest.mark.parametrize("frame", ["agents", "attempts", "layers", "summary", "events"])
@pytest.mark.parametrize("kind", ["finished", "failed", "empty"])
def test_dtypes_do_not_depend_on_the_run(frame, kind):
    """Seconds and dollars are Float64, counts Int64, words string, yes and no bool; whatever happened."""
    record = {
        "finished": business_run,
        "failed": lambda: drive(E2.plan, lambda *_: Reply(error=Unreachable("x"), status=None))[0],
        "empty": lambda: drive(Plan(()), None)[0],
    }[kind]()
    found = every_frame(record)[frame]
    assert {column: dtype_of(column) for column in found.columns} == {
        column: str(dtype).replace("str", "string") if str(dtype) == "str" else str(dtype)
        for column, dtype in found.dtypes.items()
    }
    assert isinstance(found.index, pd.RangeIndex)


def test_rows_stand_in_plan_order():
    """One row per agent, index 0 to n-1; one per layer; one for the run."""
    frames = every_frame(business_run())
    assert list(E2.plan.names) == list(frames["agents"]["agent"])
    assert list(range(9)) == list(frames["agents"].index)
    assert [0, 1, 2, 3] == list(frames["layers"]["layer"])
    assert [4, 2, 2, 1] == list(frames["layers"]["agents"])
    assert 1 == len(frames["summary"])
    assert 9 == len(frames["attempts"])


def test_frames_say_where_they_are_from():
    """Every frame carries the run's id, the plan's name and the source of its results."""
    record = business_run()
    for frame in every_frame(record).values():
        attrs = {name: value for name, value in frame.attrs.items() if name not in {"totals", "next"}}
        assert {"run": record.uid, "plan": "agents", "source": "live", "simulated": False} == attrs
    assert agents_frame(record).attrs["totals"]["wall_s"] == summarize(record).wall_s
    assert record.uid != business_run().uid


def test_events_are_a_frame():
    """A row per event: when, whose, which attempt, and what, in words without prompts or answers."""
    plan = Plan((Agent("a", "secret"), Agent("b", "{{ a }}")))
    busy = Overloaded("full", status=529, retry_after_s=2.0)
    record, _ = drive(plan, lambda prompt, number: Reply(1.0, busy if number == 1 and prompt == "secret" else None))
    frame = events_frame(record)
    assert len(record.events) == len(frame)
    mine = frame[frame["agent"] == "a"]
    words = "AgentReady AttemptStarted AttemptEnded BackoffStarted AttemptStarted FirstToken AttemptEnded AgentEnded"
    assert words.split() == list(mine["event"])
    assert [1, 1, 2, 2, 2] == list(mine["attempt"].dropna())
    assert "RunEnded" == frame["event"].iloc[-1]
    assert frame["agent"].isna().iloc[-1]
    assert "finished" == frame["what"].iloc[-1]
    assert not frame["what"].str.contains("secret").any()


def test_the_business_plan_in_numbers():
    """E2 at two seconds an agent: 8 s of wall, 18 s of work, 2.25 at once of 2.25 possible."""
    row = summary_frame(business_run()).iloc[0]
    names = ["agents", "layers", "wall_s", "agent_s", "mean_concurrency", "critical_path_s", "bound", "efficiency"]
    assert (9, 4, 8.0, 18.0, 2.25, 8.0, 2.25, 1.0) == tuple(row[names])
    assert ("CONCURRENT", "dependencies") == (row["verdict"], row["limited_by"])
    assert (90, 45, 9, 0, 0, 0, "live") == (
        row.input_tokens,
        row.output_tokens,
        row.succeeded,
        row.failed,
        row.skipped,
        row.cancelled,
        row.source,
    )


def test_unknown_is_missing_and_never_zero():
    """An agent that never ran has no times, tokens, dollars, source or slack; one without usage no tokens."""
    plan = Plan((Agent("a", "x"), Agent("b", "{{ a }}"), Agent("c", "y")))
    record, _ = drive(
        plan,
        lambda prompt, _: Reply(1.0, Unreachable("x") if prompt == "x" else None, tokens=None, status=None),
        Policy(max_attempts=1),
    )
    frame = agents_frame(record).set_index("agent")
    missing = set(frame.columns[frame.loc["b"].isna()])
    assert (
        set(AGENTS) - {"agent", "kind", "layer", "model", "status", "attempts", "on_critical_path", "error"} == missing
    )
    assert (0, "'a' did not succeed", False) == (
        frame.loc["b", "attempts"],
        frame.loc["b", "error"],
        frame.loc["b", "on_critical_path"],
    )
    for name in ("a", "c"):
        row = frame.loc[name]
        assert (
            row[["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd"]].isna().all()
        )
        assert row[["queued_s", "api_s", "tool_s", "backoff_s", "local_s", "total_s", "slack_s"]].notna().all()
    summary = summary_frame(record).iloc[0]
    assert summary[["input_tokens", "output_tokens", "cost_usd"]].isna().all()


def test_a_failed_attempt_has_its_own_row():
    """Every request is a row, in the order it was sent: what held it, how long, how it ended."""
    plan = Plan((Agent("a", "x"), Agent("b", "y")))

    def script(prompt, number):
        return Reply(2.0, Unreachable("gone"), status=None) if (prompt, number) == ("x", 1) else Reply(3.0)

    record, _ = drive(plan, script, Policy(1, seed=1))
    frame = attempts_frame(record)
    assert [("a", 1), ("b", 1), ("a", 2)] == list(zip(frame["agent"], frame["attempt"], strict=True))
    assert ["failed", "succeeded", "succeeded"] == list(frame["status"])
    assert ["Unreachable: gone"] == list(frame["error"].dropna())
    assert [2.0, 3.0, 3.0] == list(frame["api_s"])
    assert [0.0, 2.0, 5.0] == list(frame["started_s"])
    assert 0.5 <= frame["backoff_s"][2] <= 0.625
    assert 3.0 == frame["backoff_s"][2] + frame["queued_s"][2]
    assert frame["held_by"].isna()[0]
    assert ["slot", "backoff"] == list(frame["held_by"][1:])


def rows_of(frame):
    """The rows of a frame as dicts, unknown as NaN, which can be added up."""
    return [
        {name: math.nan if pd.isna(value) else value for name, value in row.items()} for row in frame.to_dict("records")
    ]


def known(values):
    """The values that are known."""
    return [value for value in values if not pd.isna(value)]


def same(left, right):
    """Whether two numbers are equal, or both unknown."""
    return (pd.isna(left) and (right is None or pd.isna(right))) or left == right


@settings(max_examples=60)
@given(histories())
def test_every_number_follows_from_the_attempts(history):
    """`run.agents`, `run.layers` and `run.summary`, worked out once more from `run.attempts` in plain Python."""
    record, _ = history
    frames = every_frame(record)
    agents, attempts = rows_of(frames["agents"]), rows_of(frames["attempts"])
    rows = {name: [row for row in attempts if row["agent"] == name] for name in record.plan.names}
    work = {}
    for agent in agents:
        mine = rows[agent["agent"]]
        assert len(mine) == agent["attempts"]
        if not pd.isna(agent["total_s"]):
            assert sum(row["api_s"] for row in mine) == agent["api_s"]
            parts = ("queued_s", "api_s", "tool_s", "backoff_s", "local_s")
            assert agent["total_s"] == sum(agent[part] for part in parts)
        work[agent["agent"]] = 0.0 if pd.isna(agent["api_s"]) else agent["api_s"] + agent["local_s"]
        for column in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"):
            counts = known(row[column] for row in mine)
            assert same(agent[column], sum(counts) if counts else None)
        priced = known(row["cost_usd"] for row in mine)
        if mine and not pd.isna(mine[-1]["stop_reason"]) and pd.isna(mine[-1]["cost_usd"]):  # a refusal is billed too
            assert pd.isna(agent["cost_usd"])
        else:
            assert same(agent["cost_usd"], math.fsum(priced) if priced else None)
        assert same(agent["started_s"], min((row["started_s"] for row in mine), default=None))
        if agent["status"] == "succeeded":
            assert "succeeded" == mine[-1]["status"]
            assert same(agent["ttft_s"], mine[-1]["ttft_s"])
            assert same(agent["stop_reason"], mine[-1]["stop_reason"])
            assert sum(row["backoff_s"] for row in mine) == agent["backoff_s"]
            assert sum(row["queued_s"] for row in mine) == agent["queued_s"]
    check_slack(record.plan, {agent["agent"]: agent for agent in agents}, rows)
    check_layers(record, agents, rows_of(frames["layers"]), work)
    check_summary(record, agents, rows_of(frames["summary"])[0], work)


def check_slack(plan, agents, rows):
    """Work out once more how much later each agent could have ended: what follows it takes what it took."""
    ran = {name for name, agent in agents.items() if rows[name] and not pd.isna(agent["finished_s"])}
    last = max((agents[name]["finished_s"] for name in ran), default=0.0)

    def latest(name):
        found = last
        for child in ran:
            if name in plan.parents(child):
                ready_s = agents[child]["finished_s"] - agents[child]["total_s"]
                took_s = agents[child]["finished_s"] - (ready_s + rows[child][0]["queued_s"])
                found = min(found, latest(child) - took_s)
        return found

    for name, agent in agents.items():
        assert same(agent["slack_s"], latest(name) - agent["finished_s"] if name in ran else None)


def check_layers(record, agents, layers, work):
    """Work the layers out once more."""
    for number, layer in enumerate(layers):
        members = [agent for agent in agents if agent["layer"] == number]
        assert (number, len(members)) == (layer["layer"], layer["agents"])
        assert math.fsum(work[agent["agent"]] for agent in members) == layer["agent_s"]
        assert sum(agent["status"] == "succeeded" for agent in members) == layer["succeeded"]
        for column in ("input_tokens", "output_tokens"):
            tokens = known(agent[column] for agent in members)
            assert same(layer[column], sum(tokens) if tokens else None)
        assert same(layer["cost_usd"], cost_of(members))
        starts = known(agent["finished_s"] - agent["total_s"] for agent in members)
        assert same(layer["started_s"], min(starts, default=None))
        ends = known(agent["finished_s"] for agent in members)
        assert same(layer["finished_s"], max(ends, default=None))
        ended = [agent for agent in members if not pd.isna(agent["total_s"])]
        if ended:
            latest = max(agent["finished_s"] for agent in ended)
            assert layer["slowest"] in {agent["agent"] for agent in ended if agent["finished_s"] == latest}
            assert layer["wall_s"] == latest - min(starts)
        if layer["wall_s"]:
            assert same(layer["mean_concurrency"], layer["agent_s"] / layer["wall_s"])
    assert record.plan.depth == len(layers)


def cost_of(agents):
    """The dollars of some agents; unknown where an answer has no price, none where nobody was asked."""
    if agents and not any(agent["attempts"] for agent in agents):
        return 0.0
    if any(pd.isna(agent["cost_usd"]) and not pd.isna(agent["stop_reason"]) for agent in agents):
        return None
    costs = known(agent["cost_usd"] for agent in agents)
    return math.fsum(costs) if costs else None


def check_summary(record, agents, summary, work):
    """Work the summary out once more."""
    plan = record.plan
    assert math.fsum(work.values()) == summary["agent_s"]
    for status in ("succeeded", "failed", "skipped", "cancelled"):
        assert sum(agent["status"] == status for agent in agents) == summary[status]
    for column in ("input_tokens", "output_tokens"):
        tokens = known(agent[column] for agent in agents)
        assert same(summary[column], sum(tokens) if tokens else None)
    assert same(summary["cost_usd"], cost_of(agents))
    longest = {}
    for number in plan.dag.order:
        name = plan.names[number]
        longest[name] = work[name] + max((longest[one] for one in plan.parents(name)), default=0.0)
    assert max(longest.values()) == summary["critical_path_s"]
    path = [agent["agent"] for agent in agents if agent["on_critical_path"]]
    assert sum(work[name] for name in path) == summary["critical_path_s"]
    for earlier, later in itertools.pairwise(path):
        assert later in plan.descendants(earlier)
    starts = [result.ready_s for result in record.results if result.ready_s is not None]
    ends = [result.finished_s for result in record.results]
    wall = max(ends) - min(starts)
    assert wall == summary["wall_s"]
    assert sum(known(agent["queued_s"] for agent in agents)) == summary["queued_s"]
    if wall and summary["critical_path_s"]:
        assert summary["agent_s"] / wall == summary["mean_concurrency"]
        assert summary["agent_s"] / summary["critical_path_s"] == summary["bound"]
        assert 0 <= summary["efficiency"] <= 1.0000001
        near, slow = 1.2 * summary["critical_path_s"], 0.8 * summary["agent_s"]
        if record.cut or not any(agent["status"] == "succeeded" for agent in agents):
            assert pd.isna(summary["verdict"])
        else:
            word = "SEQUENTIAL" if wall >= slow else "CONCURRENT" if wall <= near else "PARTIAL"
            assert word == summary["verdict"]
    sources = {agent["source"] for agent in agents if not pd.isna(agent["source"])}
    assert same(summary["source"], " + ".join(sorted(sources)) or None)
    last = max(ends[number] for number in range(len(plan)))
    for agent in agents:
        if not pd.isna(agent["slack_s"]):
            assert 0 <= agent["slack_s"] <= last


def test_how_far_off_an_expectation_was():
    """Seconds over what was expected, less 1; missing where nothing was, and no column where nothing was at all."""
    plan = Plan([Agent("a", "x", expect=4.0), Agent("b", "{{ a }}", expect=1.0), Agent("c", "{{ b }}", expect=1.0)])
    replies = {"x": Reply(6.0, text="y"), "y": Reply(0.5, text="z"), "z": Reply(1.0, Overloaded("no"))}
    record, _ = drive(plan, lambda prompt, _: replies[prompt], Policy(seed=1, max_attempts=1), history=History())
    frame = agents_frame(record).set_index("agent")
    assert [4.0, 1.0, 1.0] == frame["expected_s"].tolist()
    assert [0.5, -0.5] == frame["bias"].iloc[:2].tolist()
    assert frame["bias"].isna()["c"]
    assert "bias" not in agents_frame(drive(Plan([Agent("a", "x")]), lambda *_: Reply(1.0))[0])
