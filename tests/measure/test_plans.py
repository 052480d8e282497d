"""Plans as tables: things to do, and differences."""

from __future__ import annotations

import agent_magic as am
from agent_magic.api import Run
from agent_magic.errors import Rejected
from agent_magic.measure.plans import DIFF, TODO, todo_markdown
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
