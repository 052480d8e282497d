"""Which failures a retry can mend, and how long to wait before it."""

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
"""Waits are lengthened by up to this share, so that agents refused together do not return together."""
TWICE = 2
"""Maximum attempts after a truncated or garbled reply, which may have been billed."""
GONE = 404
"""The model is retired or unknown."""
STOPS_RUN = frozenset({401, 402})
"""The key or account is refused, for every agent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, as the conductor sees it.

    Attributes:
        attempts: Maximum attempts for this kind of failure; 1 is final.
        counts: True if it uses up an attempt. A demand to wait does not.
        stops_run: True if every other agent would fail too.
        crowded: True if too many concurrent requests may be the cause.
        fault: True if the service or network is to blame.
        reached: True if there was a connection.
        limit: The limit named by a 429.
        falls_back: True if another model might answer.
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
    """Classify an error for the conductor.

    Args:
        error: The error of the attempt.
        max_attempts: Maximum attempts per agent by the policy.
    """
    kind = type(error).__name__
    why = " ".join(f"{kind}: {error}".split()).strip(": ")
    match error:
        case RateLimited(final=True) | RateLimited(again=False):
            return Failure(why, kind=kind, stops_run=error.final, limit=error.limit)
        case RateLimited(retry_after_s=wait):  # the pacer slows down to the limit: only the deadline is the end of it
            counts = wait == 0 or max_attempts == 1
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
    """Return the seconds to wait before the next attempt."""
    # A server's `retry-after` says that earlier attempts fail, so it is only lengthened: by jitter, and to the
    # ordinary backoff if that is longer, for example if our clock runs ahead of a date.
    wait = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempt - 1, 10))
    if failure.retry_after_s is not None and failure.retry_after_s >= wait:
        return failure.retry_after_s + wait * JITTER * random.random()
    return wait * (1 + JITTER * random.random())
