"""Which failures another attempt can mend, and how long to wait before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_magic.errors import (
    LeftOut,
    NotInBatch,
    Overloaded,
    RateLimited,
    Rejected,
    Truncated,
    Unreachable,
    Unreadable,
)

if TYPE_CHECKING:
    from random import Random

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 8.0
JITTER = 0.25
"""A wait is made up to this much longer, so that agents refused together do not come back together."""
TWICE = 2
"""A reply that was cut or garbled may be paid for again once, not more."""
GONE = 404
"""The model is retired, or there never was one of that name."""
STOPS_RUN = frozenset({401, 402})
"""The key or the account is refused: no other agent can fare better."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed, as far as the conductor cares.

    Attributes:
        why: One line for people.
        attempts: The most attempts a failure of this kind is worth; 1 means it is final.
        retry_after_s: The server's own demand, in seconds.
        counts: Whether it uses up one of the agent's attempts. Being told how long to wait does not.
        stops_run: Whether no other agent can fare better.
        crowded: Whether too many requests at once could be the cause.
        kind: The class of the error, such as `RateLimited`.
        fault: Whether it is the fault of the service or of the network.
        reached: Whether a connection had been found.
        limit: Which limit of the provider a 429 names.
        falls_back: Whether another model could answer where this one does not.
    """

    why: str
    attempts: int = 1
    retry_after_s: float | None = field(default=None, kw_only=True)
    counts: bool = field(default=True, kw_only=True)
    stops_run: bool = field(default=False, kw_only=True)
    crowded: bool = field(default=False, kw_only=True)
    kind: str = field(default="", kw_only=True)
    fault: bool = field(default=False, kw_only=True)
    reached: bool = field(default=True, kw_only=True)
    limit: str | None = field(default=None, kw_only=True)
    falls_back: bool = field(default=False, kw_only=True)


def failure_of(error: BaseException, max_attempts: int) -> Failure:
    """Sort an error into what the conductor has to know.

    Args:
        error: What ended the attempt.
        max_attempts: The most attempts per agent that the policy allows.
    """
    kind = type(error).__name__
    why = " ".join(f"{kind}: {error}".split()).strip(": ")
    match error:
        case RateLimited(final=True):
            return Failure(why, kind=kind, stops_run=True, limit=error.limit)
        case RateLimited(retry_after_s=wait):  # told how long to wait, the agent's deadline is the end of it
            counts = not wait or max_attempts == 1
            return Failure(why, max_attempts, kind=kind, retry_after_s=wait, counts=counts, limit=error.limit)
        case Overloaded(retry_after_s=wait):
            return Failure(why, max_attempts, kind=kind, retry_after_s=wait, crowded=True, fault=True, falls_back=True)
        case Unreachable(final=final):
            most = 1 if final else max_attempts
            return Failure(why, most, kind=kind, stops_run=final, crowded=True, fault=True, reached=error.sent)
        case Truncated() | Unreadable():
            return Failure(why, min(TWICE, max_attempts), kind=kind, fault=True)
        case NotInBatch(again=True) | LeftOut():  # of several endpoints there is one less each time
            return Failure(why, max_attempts, kind=kind, counts=isinstance(error, NotInBatch) or max_attempts == 1)
        case Rejected(status=status):
            return Failure(why, kind=kind, stops_run=status in STOPS_RUN, falls_back=status == GONE)
        case _:
            return Failure(why, kind=kind)


def backoff_s(failure: Failure, attempt: int, random: Random) -> float:
    """Return how long to wait before the next attempt, in seconds.

    A server's `retry-after` is a promise that earlier attempts fail, so it is only ever lengthened: by jitter, and to
    the ordinary wait where it is shorter, such as a date that our clock says is past.

    Args:
        failure: How the attempt failed.
        attempt: The number of the attempt that failed, from 1.
        random: The source of the jitter.
    """
    wait = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempt - 1, 10))
    if failure.retry_after_s is not None and failure.retry_after_s >= wait:
        return failure.retry_after_s + wait * JITTER * random.random()
    return wait * (1 + JITTER * random.random())
