"""What makes a complete reply a failure all the same: the policies of `stop_reason`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.errors import CallError, Capped, Refused, UnexpectedToolUse
from agent_magic.record.answer import TOOL_USE
from agent_magic.record.results import CAPPED

if TYPE_CHECKING:
    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Answer


def turns_out(answer: Answer, turns: int, policy: Policy) -> str:
    """Say why a paused answer does not go on; an empty string lets it.

    Args:
        answer: The part that came.
        turns: How many requests it has had.
        policy: How many it may have.
    """
    if answer.content is None:
        return "The answer was paused (pause_turn) with nothing in it to go on from; what came is kept."
    if turns >= policy.max_turns:
        return f"The answer was paused (pause_turn) {turns} times; what came is kept. Raise --max-turns."
    return ""


def judge(answer: Answer, policy: Policy) -> CallError | None:
    """Say why an answer is not passed on; `None` passes it on.

    Args:
        answer: A complete reply.
        policy: Whether answers that were cut, or refused, are passed on.
    """
    if answer.stop_reason == TOOL_USE:
        return UnexpectedToolUse("The model asks for a tool call (tool_use), and this agent has no tools.")
    if answer.stop_reason == "refusal" and policy.on_refusal == "fail":
        category = f" ({answer.refusal})" if answer.refusal else ""
        return Refused(f"The model declined to answer{category}.", category=answer.refusal)
    if answer.stop_reason in CAPPED and policy.on_max_tokens == "fail":
        return Capped("The answer was cut at max_tokens. Give it more with --max-tokens.")
    return None
