"""The phases of all agents of a run, for charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.phases import phases_of
from agent_magic.record.plaintext import single_line
from agent_magic.record.reasons import wording

if TYPE_CHECKING:
    from agent_magic.record.phases import Kind
    from agent_magic.record.results import RunRecord


class Span(NamedTuple):
    """A phase of one agent.

    Attributes:
        attempt: The number of its attempt, for tools of the attempt that requested them; one above the last for a wait
            without an attempt.
        reason: The reason of a queued agent's wait; function names for tools.
    """

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
        """Its length."""
        return self.to_s - self.from_s


def spans_of(record: RunRecord) -> list[Span]:
    """Return the spans of a run, by agent in plan order. Open phases end at the last event."""
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
    """Return the agents that determined the wall time, first to last: each is the last parent of the next to finish.

    Unlike the critical path, it includes waits: their `total_s` follow one another without gaps.
    """
    ends = [(result.finished_s, number) for number, result in enumerate(record.results) if result.ready_s is not None]
    known = [(end, number) for end, number in ends if end is not None]
    if not known:
        return []
    chain = [max(known)[1]]
    while parents := record.dag.parents[chain[-1]]:
        chain.append(max(parents, key=lambda parent: record.results[parent].finished_s or 0.0))
    return chain[::-1]
