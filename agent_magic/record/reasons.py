"""Why a ready agent waits: one table of words, for everything that records, adds up or shows a wait."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from agent_magic.declare.units import plural

Reason = Literal[
    "slot",
    "barrier",
    "group",
    "schedule",
    "requests",
    "input",
    "output",
    "concurrent",
    "retry_after",
    "limits",
    "key",
    "leader",
    "identical",
    "budget",
    "spend",
    "breaker",
    "backoff",
    "retry",
    "paused",
    "person",
    "alone",
    "resource",
    "ledger",
    "deadline",
    "dependencies",
    "longest",
]
"""Events and files hold these words; never reuse one for another idea."""


class Wording(NamedTuple):
    """Words for an agent's card, and to follow "waiting for" or "limited by"."""

    label: str
    phrase: str
    is_rate_limit: bool = False


REASONS: Final[dict[str, Wording]] = {
    "": Wording("", "its turn"),
    "slot": Wording("waits for a slot", "a slot"),
    "barrier": Wording("waits for its layer", "its layer"),
    "group": Wording("waits for its group", "its group"),
    "schedule": Wording("one at a time", "its schedule, one step at a time"),
    "requests": Wording("request limit", "the request limit", is_rate_limit=True),
    "input": Wording("input limit", "the input limit", is_rate_limit=True),
    "output": Wording("output limit", "the output limit", is_rate_limit=True),
    "concurrent": Wording("server takes no more", "how many requests the server takes at once", is_rate_limit=True),
    "retry_after": Wording("told to wait (429)", "the wait that a 429 asked for", is_rate_limit=True),
    "limits": Wording("first reply tells limits", "the first reply, which tells the limits"),
    "key": Wording("first request goes alone", "the first reply to an untried key"),
    "leader": Wording("waits for the cache", "the cache"),
    "identical": Wording("same request asked", "the answer to an identical request"),
    "budget": Wording("waits for the budget", "the budget"),
    "spend": Wording("spend cap per minute", "the spend cap per minute"),
    "breaker": Wording("circuit breaker open", "the circuit breaker"),
    "backoff": Wording("waits to retry", "a retry after a failure"),
    "retry": Wording("runs again", "a retry"),
    "paused": Wording("paused", "the pause to end"),
    "person": Wording("waits for you", "a person's answer"),
    "alone": Wording("runs alone", "the calls beside it"),
    "resource": Wording("waits for a resource", "a resource"),
    "ledger": Wording("another run buys it", "another run that buys the same answer"),
    "deadline": Wording("deadline passed", "the deadline"),
    "dependencies": Wording("waits for its parents", "dependencies"),
    "longest": Wording("the longest step", "its longest step"),
    "none known": Wording("no limit known", "nothing that is known"),
}


def wording(reason: str) -> Wording:
    """An unknown word, such as from a file, stands for itself."""
    return REASONS.get(reason) or Wording(reason, reason)


def held(reason: str) -> str:
    """Return words such as `, held by the request limit`."""
    return f", held by {wording(reason).phrase}" if reason else ""


def limit(reason: str, slots: int | None = None) -> str:
    """Return words to follow "limited by": `the request limit`, `its 3 slots (concurrency)`."""
    if reason == "slot":
        return f"{'slots' if slots is None else f'its {plural(slots, reason)}'} (concurrency)"
    return wording(reason).phrase


def limited(reason: str, slots: int | None = None) -> str:
    return f"limited by {limit(reason, slots)}" if reason else ""
