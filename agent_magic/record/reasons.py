"""Why a ready agent waits: one table of words, for everything that records, adds up or shows a wait."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from agent_magic.declare.units import plural

Reason = Literal[
    "slot",
    "barrier",
    "requests",
    "input",
    "output",
    "retry_after",
    "limits",
    "key",
    "leader",
    "budget",
    "spend",
    "breaker",
    "backoff",
    "retry",
    "paused",
    "person",
    "alone",
    "resource",
    "deadline",
    "dependencies",
]
"""The words in `held_by` and `limited_by`. Events and files hold them; never reuse one for another idea."""


class Wording(NamedTuple):
    """How a reason reads.

    Attributes:
        label: On an agent's card, where there is room for few words.
        phrase: What is waited for, to follow "waiting for" or "limited by".
        is_rate_limit: Whether the provider's rate limits are the cause.
    """

    label: str
    phrase: str
    is_rate_limit: bool = False


REASONS: Final[dict[str, Wording]] = {
    "": Wording("", "its turn"),
    "slot": Wording("waits for a slot", "a slot"),
    "barrier": Wording("waits for its layer", "its layer"),
    "requests": Wording("request limit", "the request limit", is_rate_limit=True),
    "input": Wording("input limit", "the input limit", is_rate_limit=True),
    "output": Wording("output limit", "the output limit", is_rate_limit=True),
    "retry_after": Wording("told to wait (429)", "the wait that a 429 asked for", is_rate_limit=True),
    "limits": Wording("first reply tells limits", "the first reply, which tells the limits"),
    "key": Wording("first request goes alone", "the first reply to an untried key"),
    "leader": Wording("waits for the cache", "the cache"),
    "budget": Wording("waits for the budget", "the budget"),
    "spend": Wording("spend cap per minute", "the spend cap per minute"),
    "breaker": Wording("circuit breaker open", "the circuit breaker"),
    "backoff": Wording("waits to retry", "a retry after a failure"),
    "retry": Wording("runs again", "a retry"),
    "paused": Wording("paused", "the pause to end"),
    "person": Wording("waits for you", "a person's answer"),
    "alone": Wording("runs alone", "the calls beside it"),
    "resource": Wording("waits for a resource", "a resource"),
    "deadline": Wording("deadline passed", "the deadline"),
    "dependencies": Wording("waits for its parents", "dependencies"),
}


def wording(reason: str) -> Wording:
    """Return how a reason reads; a word from elsewhere, such as a file, stands for itself."""
    return REASONS.get(reason) or Wording(reason, reason)


def held(reason: str) -> str:
    """Say what something waited for, to follow what it was: `, held by the request limit`; empty for nothing."""
    return f", held by {wording(reason).phrase}" if reason else ""


def limit(reason: str, slots: int | None = None) -> str:
    """Say what held a run, to follow "limited by": `the request limit`, `its 3 slots (concurrency)`.

    Args:
        reason: Its `limited_by`.
        slots: How many agents could run at once; `None` where that is unknown.
    """
    if reason == "slot":
        return f"{'slots' if slots is None else f'its {plural(slots, reason)}'} (concurrency)"
    return wording(reason).phrase


def limited(reason: str, slots: int | None = None) -> str:
    """Say what held a run: `limited by the request limit`; empty where nothing did. See `limit`."""
    return f"limited by {limit(reason, slots)}" if reason else ""
