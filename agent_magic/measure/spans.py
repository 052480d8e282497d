"""The phases of all agents of a run, or of the attempts of a forecast, as charts draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent_magic.record.phases import phases_of
from agent_magic.record.reasons import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.phases import Kind
    from agent_magic.record.results import RunRecord


class Span(NamedTuple):
    """A stretch of one agent's time.

    Attributes:
        agent: Its name.
        attempt: The number of the attempt it belongs to; one above the last for a wait that led to none.
        phase: What the agent did; see `agent_magic.record.phases`.
        reason: What it waited for while queued, in words.
        from_s: Its start, in seconds since the run began.
        to_s: Its end.
        outcome: The status of the attempt.
        model: The model asked.
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


class Forecasted(Protocol):
    """An attempt of a forecast, as far as its spans go."""

    @property
    def agent(self) -> str: ...  # noqa: D102 - the words of a forecast's bar
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def free_s(self) -> float: ...  # noqa: D102
    @property
    def backoff_s(self) -> float: ...  # noqa: D102
    @property
    def granted_s(self) -> float: ...  # noqa: D102
    @property
    def started_s(self) -> float: ...  # noqa: D102
    @property
    def first_token_s(self) -> float | None: ...  # noqa: D102
    @property
    def ended_s(self) -> float: ...  # noqa: D102
    @property
    def held_by(self) -> str: ...  # noqa: D102
    @property
    def outcome(self) -> str: ...  # noqa: D102


def spans_of(record: RunRecord) -> list[Span]:
    """Cut a run into spans, agent by agent in plan order. What goes on counts to the last event."""
    now_s = record.events[-1].at_s if record.events else 0.0
    spans: list[Span] = []
    for result in record.results:
        for phase in phases_of(result):
            attempt, end_s = phase.attempt, now_s if phase.end_s is None else phase.end_s
            number = attempt.number if attempt else len(result.attempts) + 1
            outcome = attempt.status if attempt else result.status
            reason = wording(phase.reason).phrase if phase.kind == "queued" else ""
            spans.append(Span(result.name, number, phase.kind, reason, phase.start_s, end_s, outcome, result.model))
    return [span for span in spans if span.to_s > span.from_s]


def spans_of_forecast(bars: Iterable[Forecasted]) -> list[Span]:
    """Cut the attempts of a forecast into spans, in their order."""
    spans: list[Span] = []
    for bar in bars:
        backoff_end_s = bar.free_s + bar.backoff_s
        first_s = bar.ended_s if bar.first_token_s is None else bar.first_token_s
        phases: tuple[tuple[Kind, float, float], ...] = (
            ("backoff", bar.free_s, backoff_end_s),
            ("queued", backoff_end_s, bar.granted_s),
            ("local", bar.granted_s, bar.started_s),
            ("first", bar.started_s, first_s),
            ("stream", first_s, bar.ended_s),
        )
        for kind, start_s, end_s in phases:
            reason = wording(bar.held_by).phrase if kind == "queued" else ""
            spans.append(Span(bar.agent, bar.number, kind, reason, start_s, end_s, bar.outcome, bar.model))
    return [span for span in spans if span.to_s > span.from_s]


def chain_of(record: RunRecord) -> list[int]:
    """Return the agents that made the run as long as it was, first to last.

    The last to finish, of its parents the last to finish, and so on to the first: their `total_s` follow one another
    without gaps, waits included. (The critical path is the longest chain of work, waits left out.)
    """
    ends = [(result.finished_s, number) for number, result in enumerate(record.results) if result.ready_s is not None]
    known = [(end, number) for end, number in ends if end is not None]
    if not known:
        return []
    chain = [max(known)[1]]
    while parents := record.plan.dag.parents[chain[-1]]:
        chain.append(max(parents, key=lambda parent: record.results[parent].finished_s or 0.0))
    return chain[::-1]
