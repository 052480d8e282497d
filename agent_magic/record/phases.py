"""An agent's life as consecutive phases. The one place that says when it waited, and when it worked.

```
ready_s ─ queued ─ local ─ first ─ stream ─ backoff ─ queued ─ local ─ first ─ stream ─ local ─ finished_s
          └────────── attempt 1 ──────────┘ └─────────────── attempt 2 ──────────────┘
ready_s ─ queued ─ local ─ first ─ stream ─ tool ─ queued ─ local ─ first ─ stream ─ local ─ finished_s
          └──────────── turn 1 ───────────┘        └─────────── turn 2 ────────────┘
ready_s ─ queued ─ tool ─ finished_s                                                        a task
```

Phases have no gaps, so the lengths of one kind add up to their column (`COLUMN_OF`), and all of them to `total_s`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.record.display import single_line
from agent_magic.record.facts import stretches
from agent_magic.record.reasons import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.record.facts import Attempt, ToolCall
    from agent_magic.record.results import AgentResult, RunRecord

Kind = Literal["queued", "backoff", "local", "first", "stream", "tool"]
"""`local` is our own time, `first` until the first token, `stream` the rest, `tool` without a request under way."""
COLUMN_OF: Final[Mapping[Kind, str]] = {
    "queued": "queued_s",
    "backoff": "backoff_s",
    "local": "local_s",
    "first": "api_s",
    "stream": "api_s",
    "tool": "tool_s",
}
"""The column of `run.agents` that adds up the phases of a kind."""


class Phase(NamedTuple):
    """A span of one agent's time; `attempt` is `None` for tools, and for a wait without a request after it."""

    kind: Kind
    reason: str
    start_s: float
    end_s: float | None
    attempt: Attempt | None


def phases_of(result: AgentResult) -> Iterator[Phase]:
    """Return the phases of attempts; each has at least its `first`, which may be empty."""
    if result.ready_s is None:
        return
    free_s: float | None = result.ready_s
    for phases in (_of_calls(result), _of_attempts(result)):
        for phase in phases:
            yield phase
            free_s = phase.end_s
            if free_s is None:
                return
    if result.finished_s is not None:
        backoff_end_s = free_s + result.last_backoff_s
        queued_end_s = backoff_end_s + result.last_queued_s
        yield Phase("backoff", "", free_s, backoff_end_s, None)
        yield Phase("queued", "", backoff_end_s, queued_end_s, None)
        yield Phase("local", "", queued_end_s, result.finished_s, None)
    elif result.waits_until_s is not None:
        yield Phase("backoff", "", free_s, None, None)
    elif result.is_waiting:
        yield Phase("queued", "", free_s, None, None)


def _of_calls(result: AgentResult) -> Iterator[Phase]:
    for call in result.calls if result.is_task else ():
        yield Phase("backoff", "", call.free_s, call.free_s + call.backoff_s, None)
        yield from _away((call,), call.free_s + call.backoff_s)


def _of_attempts(result: AgentResult) -> Iterator[Phase]:
    for attempt in result.attempts:
        backoff_end_s = attempt.free_s + attempt.backoff_s
        yield Phase("backoff", "", attempt.free_s, backoff_end_s, attempt)
        yield Phase("queued", attempt.held_by, backoff_end_s, attempt.granted_s, attempt)
        yield Phase("local", "", attempt.granted_s, attempt.started_s, attempt)
        if attempt.first_token_s is None:
            yield Phase("first", "", attempt.started_s, attempt.ended_s, attempt)
        else:
            yield Phase("first", "", attempt.started_s, attempt.first_token_s, attempt)
            yield Phase("stream", "", attempt.first_token_s, attempt.ended_s, attempt)
        calls = [one for one in result.calls if one.turn == attempt.number] if result.calls else []
        if calls and attempt.ended_s is not None:
            yield from _away(calls, attempt.ended_s)


def _away(calls: Sequence[ToolCall], since_s: float) -> Iterator[Phase]:
    for one in stretches(calls, since_s):
        yield Phase(one.kind, one.reason, one.start_s, one.end_s, None)


class Span(NamedTuple):
    """A phase as a row: tools have the attempt that requested them, a last wait the next number."""

    agent: str
    attempt: int
    phase: Kind
    reason: str
    from_s: float
    to_s: float
    outcome: str
    model: str

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s


def spans_of(record: RunRecord) -> list[Span]:
    """Return spans by agent in plan order; open phases end at the last event."""
    now_s = record.events[-1].at_s if record.events else 0.0
    spans: list[Span] = []
    for result in record.results:
        asked = 1
        for phase in phases_of(result):
            attempt, end_s = phase.attempt, now_s if phase.end_s is None else phase.end_s
            number = attempt.number if attempt else asked if phase.kind == "tool" else len(result.attempts) + 1
            asked = number if attempt else asked
            outcome = attempt.status if attempt else result.status
            reason = wording(phase.reason).phrase if phase.kind == "queued" else single_line(phase.reason)
            spans.append(Span(result.name, number, phase.kind, reason, phase.start_s, end_s, outcome, result.model))
    return [span for span in spans if span.to_s > span.from_s]


def chain_of(record: RunRecord) -> list[int]:
    """Return the agents that determined the wall time: each is the last parent of the next to finish.

    Unlike the critical path, it includes waits.
    """
    ends = [(result.finished_s, number) for number, result in enumerate(record.results) if result.ready_s is not None]
    known = [(end, number) for end, number in ends if end is not None]
    if not known:
        return []
    chain = [max(known)[1]]
    while parents := record.dag.parents[chain[-1]]:
        chain.append(max(parents, key=lambda parent: record.results[parent].finished_s or 0.0))
    return chain[::-1]
