"""What a complete response means that did not simply end: another turn, a part of an answer, or a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.retry import Failure, failure_of
from agent_magic.errors import Capped, Refused, UnexpectedToolUse
from agent_magic.record.answer import PAUSED, TOOL_USE
from agent_magic.record.results import CAPPED

if TYPE_CHECKING:
    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Answer


class Verdict(NamedTuple):
    """What follows from a response. With nothing set it is passed on as an answer.

    Attributes:
        failure: Why it is not passed on.
        continues: Whether another request goes on from it.
        capped: Why it does not go on although it could: the part there is is passed on.
    """

    failure: Failure | None = None
    continues: bool = False
    capped: str = ""


PASSED_ON = Verdict()
KEPT = "what came is kept"


def judge(answer: Answer, turns: int, policy: Policy, most: int, *, is_last: bool = False) -> Verdict:
    """Return what follows from a response.

    Args:
        answer: The response.
        turns: How many the conversation has had, this one included.
        policy: Whether answers that were cut or refused are passed on.
        most: How many turns it may have.
        is_last: Whether it was told to ask for no more tools.
    """
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
    if answer.stop_reason in CAPPED and policy.on_max_tokens == "fail":
        return Verdict(failure_of(Capped("The answer was cut at max_tokens. Give it more with --max-tokens."), 1))
    return PASSED_ON


def _paused(answer: Answer, turns: int, policy: Policy, most: int) -> Verdict:
    """Let a paused answer go on, as often as the policy allows."""
    if answer.content is None:
        return _capped(f"The answer was paused (pause_turn) with nothing in it to go on from; {KEPT}.", policy)
    if turns >= most:
        return _capped(f"The answer was paused (pause_turn) {turns} times; {KEPT}. Raise --max-turns.", policy)
    return Verdict(continues=True)


def _capped(why: str, policy: Policy) -> Verdict:
    """Pass on what there is, or nothing."""
    if policy.on_max_tokens == "fail":
        return Verdict(failure_of(Capped(why), 1))
    return Verdict(capped=f"Capped: {why}")
