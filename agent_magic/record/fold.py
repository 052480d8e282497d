"""How each event changes the record of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent_magic.record.answer import ESCALATED, TURNS
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AgentReopened,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
    Event,
    FirstToken,
    RunEnded,
)
from agent_magic.record.facts import Attempt, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.record.results import AgentResult, RunRecord

_KIND = re.compile(r"([A-Z][A-Za-z]+): ")
"""The class that begins an error line, such as `RateLimited: ...`."""


def _ready(record: RunRecord, event: AgentReady) -> None:
    result = record.results[event.agent]
    if result.ready_s is None:  # a step that runs again counts from the first time
        result.ready_s = event.at_s
    result.status = "queued"


def _attempt_started(record: RunRecord, event: AttemptStarted) -> None:
    result = record.results[event.agent]
    free_s = _free_s(result, event.granted_s)
    backoff_s = 0.0 if result.waits_until_s is None else _end_backoff(result, free_s, event.granted_s)
    result.status = "running"
    turn = _turn(result.attempts, event) if result.attempts else 1
    result.attempts.append(Attempt(result.name, event, free_s, backoff_s, turn=turn))


def _turn(before: Sequence[Attempt], event: AttemptStarted) -> int:
    """Return the turn of a request; a new conversation begins without messages."""
    last = before[-1]
    if last.kind == ESCALATED:
        return 1
    goes_on = event.request.goes_on
    if last.answer is not None and (goes_on or last.kind is not None or last.answer.stop_reason in TURNS):
        return last.turn + 1
    return last.turn if goes_on else 1


def _free_s(result: AgentResult, now_s: float) -> float:
    since_s = result.attempts[-1].ended_s if result.attempts else result.ready_s
    if since_s is None:
        return now_s
    if not result.calls:
        return since_s
    return max([since_s, *(one.ended_s or since_s for one in result.calls)])


def _end_backoff(result: AgentResult, free_s: float, now_s: float) -> float:
    until_s, result.waits_until_s, result.waits_why = result.waits_until_s, None, ""
    return 0.0 if until_s is None else max(0.0, min(until_s, now_s) - free_s)


def _first_token(record: RunRecord, event: FirstToken) -> None:
    record.results[event.agent].attempts[-1].first_token_s = event.at_s


def _attempt_ended(record: RunRecord, event: AttemptEnded) -> None:
    record.results[event.agent].attempts[-1].ended = event


def _call_started(record: RunRecord, event: CallStarted) -> None:
    result = record.results[event.agent]
    if event.turn and result.calls and result.calls[-1].turn == event.turn:
        free_s, backoff_s = result.calls[-1].free_s, 0.0
    else:
        free_s = _free_s(result, event.at_s)
        backoff_s = 0.0 if result.waits_until_s is None else _end_backoff(result, free_s, event.at_s)
    result.status = "running"
    result.calls = [*result.calls, ToolCall(result.name, event, free_s, backoff_s)]


def _call_ended(record: RunRecord, event: CallEnded) -> None:
    call = record.results[event.agent].call(event.number)
    call.ended, call.prints = event, event.prints


def _backoff(record: RunRecord, event: BackoffStarted) -> None:
    result = record.results[event.agent]
    result.status = "queued"
    result.waits_until_s, result.waits_why = event.until_s, event.why


def _agent_ended(record: RunRecord, event: AgentEnded) -> None:
    result = record.results[event.agent]
    # stopped before the attempt it waited for; or its answer may have waited for its condition
    if result.status != "running" or record.plan.agents[event.agent].speculate:
        free_s = _free_s(result, event.at_s)
        result.last_backoff_s = _end_backoff(result, free_s, event.at_s)
        result.last_queued_s = event.at_s - free_s - result.last_backoff_s
    result.status, result.error, result.finished_s = event.status, event.error, event.at_s
    found = _KIND.match(event.error) if event.error and not event.kind else None  # older versions kept no kind
    result.kind = found[1] if found else event.kind or None


def _agent_reopened(record: RunRecord, event: AgentReopened) -> None:
    result = record.results[event.agent]
    result.status, result.error, result.kind, result.finished_s = "pending", None, None, None
    result.last_backoff_s = result.last_queued_s = 0.0


def _run_ended(record: RunRecord, event: RunEnded) -> None:
    record.ended_s, record.cut = event.at_s, event.cut


FOLD: dict[type[Event], Callable[[RunRecord, Any], None]] = {
    AgentReady: _ready,
    AttemptStarted: _attempt_started,
    FirstToken: _first_token,
    AttemptEnded: _attempt_ended,
    CallStarted: _call_started,
    CallEnded: _call_ended,
    BackoffStarted: _backoff,
    AgentEnded: _agent_ended,
    AgentReopened: _agent_reopened,
    RunEnded: _run_ended,
}
