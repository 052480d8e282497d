"""The log of a run, in `logging.getLogger("agent_magic")` at DEBUG: its events with time and reason.

No line has a prompt, an answer, a key, or arguments or results of calls.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
    FirstToken,
    RunEnded,
)
from agent_magic.record.plaintext import single_line
from agent_magic.record.reasons import held

if TYPE_CHECKING:
    from agent_magic.record.events import Event
    from agent_magic.record.results import AgentResult, RunRecord

LOG = logging.getLogger("agent_magic")


def tell(record: RunRecord, since: int) -> int:
    """Log the events of a run from a number on; return the number for the next call."""
    events = record.events
    for event in events[since:]:
        if isinstance(event, RunEnded):
            LOG.debug("%.3f s: the run %s", event.at_s, "was stopped" if event.cut else "is over")
        else:
            result = record.results[event.agent]
            LOG.debug("%.3f s: %s %s", event.at_s, result.name, _what(event, result))
    return len(events)


def _of_call(event: CallStarted | CallEnded, result: AgentResult) -> str:
    if isinstance(event, CallStarted):
        return f"begins call {event.number}: {single_line(event.tool)}{held(event.held_by)}"
    took_s = event.at_s - result.call(event.number).started_s
    return f"ended call {event.number}: {event.kind or event.status} after {took_s:.3f} s"


def _what(event: Event, result: AgentResult) -> str:
    match event:
        case AgentReady():
            return "is ready"
        case AttemptStarted():
            return f"sends attempt {event.number} to {event.request.model}{held(event.held_by)}"
        case FirstToken():
            return f"has the first token of attempt {event.number}"
        case AttemptEnded():
            used = event.usage
            tokens = "unknown tokens"
            if used is not None and used.total_input_tokens is not None and used.output_tokens is not None:
                tokens = f"{used.total_input_tokens} input and {used.output_tokens} output tokens"
            return f"ended attempt {event.number}: {event.kind or 'answered'}, {tokens}"
        case CallStarted() | CallEnded():
            return _of_call(event, result)
        case BackoffStarted():
            return f"tries again at {event.until_s:.3f} s"
        case AgentEnded():
            return f"{event.status}{f' ({event.kind})' if event.kind else ''}"
        case _:
            return "is to run again"
