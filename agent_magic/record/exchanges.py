"""Server timing as seen by a run: when each request was sent, began to be answered, and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import RunRecord


class Exchange(NamedTuple):
    """The timing of one request, in seconds of its run; unknown tokens are 0."""

    sent_s: float
    first_s: float | None
    ended_s: float
    input_tokens: int = 0
    output_tokens: int = 0
    whole: bool = True


class SeenRun(NamedTuple):
    """The timing of a run's servers: requests by endpoint (empty if there is only one) and model."""

    uid: str
    origin: str
    simulated: bool
    exchanges: Mapping[tuple[str, str], list[Exchange]]


def seen_run(record: RunRecord) -> SeenRun:
    found: dict[tuple[str, str], list[Exchange]] = {}
    for attempt, exchange in exchanges_of(record):
        found.setdefault((attempt.endpoint, attempt.model), []).append(exchange)
    return SeenRun(record.uid, record.origin, record.simulated, found)


def exchanges_of(record: RunRecord) -> Iterator[tuple[Attempt, Exchange]]:
    for attempt in record.attempts:
        if (exchange := exchange_of(attempt)) is not None:
            yield attempt, exchange


def exchange_of(attempt: Attempt) -> Exchange | None:
    """Return the timing of an attempt; `None` for refusals, answers bought earlier, and batches."""
    ended_s, answer = attempt.ended_s, attempt.answer
    if ended_s is None or attempt.is_served or (answer is not None and not attempt.is_timed):
        return None
    first_s = attempt.first_token_s
    if answer is None and first_s is None and attempt.kind not in {"cancelled", "Late"}:
        return None  # it was turned away
    usage = attempt.usage
    given = 0 if usage is None else usage.total_input_tokens or 0
    made = 0 if usage is None else usage.output_tokens or 0
    return Exchange(attempt.started_s, first_s, ended_s, given, made, whole=attempt.is_answered)
