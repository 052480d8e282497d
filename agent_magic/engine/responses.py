"""Judgement of complete responses that are not plain answers: another turn, a partial answer or a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.retry import Failure, failure_of
from agent_magic.errors import Capped, Refused, UnexpectedToolUse
from agent_magic.record.answer import PAUSED, TOOL_USE

if TYPE_CHECKING:
    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Answer


class Verdict(NamedTuple):
    """The reaction to a response; by default it is passed on.

    Attributes:
        failure: The reason not to pass it on.
        continues: True if another request continues it.
        capped: The reason why none may; the partial answer is passed on.
    """

    failure: Failure | None = None
    continues: bool = False
    capped: str = ""


CUT = {
    "max_tokens": "Give it more with --max-tokens.",
    "model_context_window_exceeded": "Give it a shorter prompt.",
}
"""Stop reasons of truncated answers, and remedies."""
PASSED_ON = Verdict()
KEPT = "the text so far is kept"


def judge(answer: Answer, turns: int, policy: Policy, most: int, *, is_last: bool = False) -> Verdict:
    """Return what follows a response; `is_last` if its request allowed no more tool calls."""
    if answer.stop_reason == PAUSED:
        return _paused(answer, turns, policy, most)
    if answer.stop_reason == TOOL_USE and is_last:
        more = "Raise --max-turns." if turns >= most else "The budget had no room for more: raise --budget."
        return _capped(f"The model asks for more tools in its last turn ({turns}); {KEPT}. {more}", policy)
    if answer.stop_reason == TOOL_USE:
        why = "The model asks for a tool call (tool_use), but names none, or this agent has no tools."
        return Verdict(failure_of(UnexpectedToolUse(why), 1))
    if answer.stop_reason == "refusal" and policy.on_refusal == "fail":
        category = f" ({answer.refusal})" if answer.refusal else ""
        return Verdict(failure_of(Refused(f"The model declined to answer{category}.", category=answer.refusal), 1))
    if answer.stop_reason in CUT and policy.on_max_tokens == "fail":
        return Verdict(failure_of(Capped(f"The answer was cut ({answer.stop_reason}). {CUT[answer.stop_reason]}"), 1))
    return PASSED_ON


def _paused(answer: Answer, turns: int, policy: Policy, most: int) -> Verdict:
    """Continue a paused answer, as often as the policy allows."""
    if answer.content is None:
        return _capped(f"The answer was paused (pause_turn) with nothing in it to go on from; {KEPT}.", policy)
    if turns >= most:
        return _capped(f"The answer was paused (pause_turn) {turns} times; {KEPT}. Raise --max-turns.", policy)
    return Verdict(continues=True)


def _capped(why: str, policy: Policy) -> Verdict:
    """Return a verdict that passes on the partial answer, or a failure, as the policy says."""
    if policy.on_max_tokens == "fail":
        return Verdict(failure_of(Capped(why), 1))
    return Verdict(capped=f"Capped: {why}")
