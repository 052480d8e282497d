"""What makes a complete response a failure all the same."""

from __future__ import annotations

from agent_magic import Policy
from agent_magic.engine.retry import PASSED_ON, judge
from agent_magic.record import Answer, Usage
from tests.live.virtual import Reply, drive


def test_a_request_for_a_tool_is_never_a_success():
    """It is a turn. Without tools the agent fails after one request, and says why; its child is skipped."""
    from agent_magic import Agent
    from agent_magic.declare import Plan

    plan = Plan([Agent("a", "x"), Agent("b", "{{ a }}")])
    record, client = drive(plan, lambda *_: Reply(stop_reason="tool_use"), Policy(max_attempts=3, seed=1))
    assert ["failed", "skipped"] == [result.status for result in record.results]
    assert (
        "UnexpectedToolUse: The model asks for a tool call (tool_use), but names none, or this agent has no tools."
        == (record["a"].error)
    )
    assert 1 == len(client.asked)
    assert 5 == record["a"].usage.output_tokens


def test_what_no_policy_objects_to_is_passed_on():
    """Any other stop reason, a new one too."""
    for reason in ("end_turn", "stop_sequence", "max_tokens", "something_new"):
        assert PASSED_ON is judge(Answer("x", reason, usage=Usage(), model="m"), 1, Policy(), 10)
