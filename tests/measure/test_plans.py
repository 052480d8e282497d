"""Plans as tables: things to do, and differences."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

import agent_magic as am
from agent_magic.api import Run
from agent_magic.errors import Rejected
from agent_magic.measure.compare import DIFF, TODO, todo_markdown
from tests.live.virtual import Reply, drive

HAIKU = "claude-haiku-5-5"
PLAN = am.Plan([am.Agent("b", "{{ a }}", role="writer"), am.Agent("a", "x {{ t }}", model=HAIKU)], {"t": "it"})


def test_things_to_do_stand_in_an_order_that_works():
    """A row per step: parents first, with owner, and seconds where an estimate knows them."""
    frame = PLAN.todo(estimate=PLAN.estimate())
    assert [*TODO] == [*frame.columns]
    assert [("a", "claude-haiku-5-5", ""), ("b", "writer", "a")] == [
        *zip(frame["step"], frame["owner"], frame["after"], strict=True)
    ]
    assert frame["expected_s"].notna().all()
    assert PLAN.todo()["expected_s"].isna().all()


def test_a_run_says_what_is_done():
    """Statuses are those of the run; a list shows them."""
    run = Run(drive(PLAN, lambda *_: Reply(1.0))[0])
    assert ["succeeded", "succeeded"] == [*PLAN.todo(run)["status"]]
    assert f"- [x] **a** ({HAIKU})\n- [x] **b** (writer), after a" == todo_markdown(PLAN.todo(run))
    refused = Run(drive(PLAN, lambda *_: Reply(1.0, error=Rejected("no", status=400), status=400))[0])
    assert f"- [ ] **a** ({HAIKU}): failed\n- [ ] **b** (writer), after a: skipped" == todo_markdown(PLAN.todo(refused))


@pytest.mark.parametrize(
    ("step", "change", "status"),
    [
        ("a", {"prompt": "y"}, ["stale", "stale"]),
        ("b", {"prompt": "{{ a }}!"}, ["succeeded", "stale"]),
        ("b", {"priority": 3}, ["succeeded", "succeeded"]),
    ],
)
def test_what_would_be_asked_again_is_not_done(step, change, status):
    """A step that changed since the run, and what reads it; what no request says changes nothing."""
    run = Run(drive(PLAN, lambda *_: Reply(1.0))[0])
    agents = [replace(one, **change) if one.name == step else one for one in PLAN.agents]
    frame = am.Plan(agents, {"t": "it"}).todo(run)
    assert status == [*frame["status"]]
    assert todo_markdown(frame).count("[ ]") == status.count("stale")


def test_a_priority_is_in_the_frame_and_in_the_list():
    """The step's own; 0 says nothing."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y", role="writer", priority=2)])
    assert [0, 2] == [*plan.todo()["priority"]]
    assert "- [ ] **a** (agent)\n- [ ] **b** (writer), priority 2" == todo_markdown(plan.todo())


def test_a_frame_is_markdown_without_another_package(monkeypatch):
    """Where `tabulate` is not installed the table is written without it; only its options ask for the package."""
    monkeypatch.setitem(sys.modules, "tabulate", None)
    frame = am.Plan([am.Agent("a", "x", model="m|n"), am.Agent("b", "{{ a }}", priority=2)]).todo()
    head = "step | status | owner | after | layer | priority | expected_s | expected_usd |"
    line = ":--- | :--- | :--- | :--- | ---: | ---: | ---: | ---: |"
    rows = ["a | pending | m\\|n |  | 0 | 0 | <NA> | <NA> |", "b | pending | agent | a | 1 | 2 | <NA> | <NA> |"]
    assert "\n".join(f"| {row}" for row in [head, line, *rows]) == frame.to_markdown(index=False)
    numbered = [f"|  | {head}", f"| ---: | {line}", *(f"| {n} | {row}" for n, row in enumerate(rows))]
    assert "\n".join(numbered) == frame.to_markdown()
    with pytest.raises(ImportError, match="tabulate"):
        frame.to_markdown(tablefmt="grid")


def test_two_versions_differ_by_step_option_and_value():
    """What is the same has no row."""
    other = am.Plan([am.Agent("a", "y {{ t }}", model=HAIKU), am.Agent("c", "new")], {"t": "this"})
    frame = PLAN.diff(other)
    assert [*DIFF] == [*frame.columns]
    rows = [tuple(row) for row in frame.fillna("").to_numpy()]
    assert [
        ("b", "removed", "", "", ""),
        ("c", "added", "", "", "new"),
        ("a", "changed", "prompt", "x {{ t }}", "y {{ t }}"),
        ("(values)", "changed", "t", "it", "this"),
    ] == rows
    assert not len(PLAN.diff(PLAN))
