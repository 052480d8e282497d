"""A run cut into spans: what each agent did when, and what it waited for. Charts and sums stand on these.

For every agent that has finished the lengths of its spans add up to its `total_s`, those of a phase to its column:
`queued` to `queued_s`, `backoff` to `backoff_s`, `first` and `stream` together to `api_s`, `local` to `local_s`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_magic.record.results import AgentResult, Attempt, RunRecord

Phase = Literal["queued", "backoff", "local", "first", "stream"]
"""Waiting to be let go; waiting because an attempt failed; our own time; sent, no token yet; the rest of a request."""

REASONS = {
    "": "its turn",
    "slot": "a slot",
    "barrier": "its layer",
    "requests": "the request limit",
    "input": "the input limit",
    "output": "the output limit",
    "budget": "the budget",
    "leader": "the cache",
    "breaker": "the breaker to close",
    "key": "the first reply to an untried key",
    "limits": "the first reply, which tells the limits",
    "backoff": "a slot",
    "paused": "the pause to end",
    "retry": "a retry",
}
"""What a queued agent waits for, in words."""


class Span(NamedTuple):
    """A stretch of one agent's time.

    Attributes:
        agent: Its name.
        attempt: The number of the attempt it belongs to; one above the last for a wait that led to none.
        phase: What the agent did; see `Phase`.
        reason: What it waited for, where it was queued.
        from_s: Its start, in seconds since the run began.
        to_s: Its end.
        outcome: The status of the attempt.
        model: The model asked.
    """

    agent: str
    attempt: int
    phase: Phase
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
    """Cut a run into spans, agent by agent in plan order. Work under way counts to the last event."""
    now_s = record.events[-1].at_s if record.events else 0.0
    return [span for result in record.results for span in _of_agent(result, now_s)]


def spans_of_forecast(bars: Iterable[Forecasted]) -> list[Span]:
    """Cut the attempts of a forecast into spans, in their order."""
    spans: list[Span] = []
    for bar in bars:
        backoff_until = bar.free_s + bar.backoff_s
        marks: tuple[tuple[Phase, float, float], ...] = (
            ("backoff", bar.free_s, backoff_until),
            ("queued", backoff_until, bar.granted_s),
            ("local", bar.granted_s, bar.started_s),
            *_request(bar.started_s, bar.first_token_s, bar.ended_s),
        )
        for phase, start, end in marks:
            reason = REASONS.get(bar.held_by, bar.held_by) if phase == "queued" else ""
            spans.append(Span(bar.agent, bar.number, phase, reason, start, end, bar.outcome, bar.model))
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


def _of_agent(result: AgentResult, now_s: float) -> Iterator[Span]:
    spans = _all_of_agent(result, now_s) if result.ready_s is not None else ()
    yield from (span for span in spans if span.to_s > span.from_s)


def _all_of_agent(result: AgentResult, now_s: float) -> Iterator[Span]:
    free = result.ready_s or 0.0

    def span(phase: Phase, start: float, end: float, attempt: Attempt | None = None, reason: str = "") -> Span:
        number = attempt.number if attempt else len(result.attempts) + 1
        outcome = attempt.status if attempt else result.status
        return Span(result.name, number, phase, reason, start, end, outcome, result.model)

    for attempt in result.attempts:
        backoff_until = free + attempt.backoff_s
        reason = REASONS.get(attempt.held_by, attempt.held_by)
        yield span("backoff", free, backoff_until, attempt)
        yield span("queued", backoff_until, attempt.granted_s, attempt, reason)
        yield span("local", attempt.granted_s, attempt.started_s, attempt)
        ended = now_s if attempt.ended_s is None else attempt.ended_s
        for phase, start, end in _request(attempt.started_s, attempt.first_token_s, ended):
            yield span(phase, start, end, attempt)
        free = ended
    if result.finished_s is None:
        return
    backoff_until = free + result.last_backoff_s
    queued_until = backoff_until + result.last_queued_s if result.attempts else result.finished_s
    yield span("backoff", free, backoff_until)
    yield span("queued", backoff_until, queued_until, None, REASONS["slot"])
    yield span("local", queued_until, result.finished_s)


def _request(started: float, first: float | None, ended: float) -> tuple[tuple[Phase, float, float], ...]:
    if first is None:
        return (("first", started, ended),)
    return ("first", started, first), ("stream", first, ended)
