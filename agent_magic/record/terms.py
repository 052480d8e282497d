"""The terms of a run as plain data, for forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent_magic.declare.content import TokenRule


class Ceiling(NamedTuple):
    """One rate limit; `capacity` may pass at once after a pause, as far as is known."""

    per_minute: float
    capacity: float


Ceilings = dict[str, dict[str, Ceiling]]
"""Rate limits by model class and kind: `requests`, `input`, `output`."""


class Learned(NamedTuple):
    """A pacer's knowledge of one model class at the start of a run, which decides its first requests.

    Attributes:
        inputs, outputs: Expected and used tokens; older answers count less.
        ahead: Token seconds under way and tokens, for the time an output token is under way.
        window: Maximum requests at once while no limit is known.
        levels, margins: Of each limit's bucket.
        external: Use by others per second.
        slots: An inferred limit of requests at once, its log odds, and numbers and seconds of answers and of refusals.
        minute: An inferred count of requests per minute, its log odds, and seconds since: a higher one was tried, a
            minute began, each request of the last minute.
    """

    inputs: tuple[float, float]
    outputs: tuple[float, float]
    ahead: tuple[float, float]
    answers: int
    window: float
    levels: tuple[float, ...]
    margins: tuple[float, ...]
    external: tuple[float, ...] = (0.0, 0.0, 0.0)
    slots: tuple[float, ...] = ()
    minute: tuple[float, ...] = ()


class ModelFacts(NamedTuple):
    """A provider's facts about one model; `min_cacheable_tokens` is its shortest cached prefix."""

    limit_class: str
    min_cacheable_tokens: int | None = None
    token_rule: TokenRule | None = None


NOTHING: Final[Mapping[str, Any]] = {}
"""A `MappingProxyType` cannot be pickled, and runs go to other processes."""


class Endpoint(NamedTuple):
    """One of several endpoints of a run, with its known limits at the start and at the end."""

    weight: float
    before: Ceilings
    after: Ceilings
    learned: Mapping[str, Learned] = NOTHING


class Terms(NamedTuple):
    """The terms of a run.

    Attributes:
        policy: Fields of its policy, with the drawn seed.
        paced: True if a pacer kept its rate limits.
        before, after: Known limits at the start and at the end, of all endpoints together.
        work_s: Expected seconds of work per agent; `None` if unknown.
        key_untried: True if its first request had to test the API key.
    """

    policy: Mapping[str, Any]
    paced: bool
    before: Ceilings
    after: Ceilings
    work_s: tuple[float, ...] | None = None
    key_untried: bool = False
    learned: Mapping[str, Learned] = NOTHING
    models: Mapping[str, ModelFacts] = NOTHING
    route: str = ""
    endpoints: Mapping[str, Endpoint] = NOTHING


MOST = 1e15
"""More of anything in a file is damage."""
LEAST = 1e-6
"""Less of what others are divided by is damage."""
OF_SLOTS, OF_MINUTE = 6, 5
"""Numbers in `Learned.slots`, and in `Learned.minute` before those of requests."""


def checked_terms(terms: Terms) -> Terms:
    """Raise `ValueError` if no run can have had these terms."""
    apart = [each for one in terms.endpoints.values() for each in (one.before, one.after)]
    limits = [one for each in (terms.before, terms.after, *apart) for pool in each.values() for one in pool.values()]
    if not all(LEAST <= one.per_minute <= MOST and LEAST <= one.capacity <= MOST for one in limits):
        raise ValueError("a limit must be > 0")
    if not all(0 <= one <= MOST for one in terms.work_s or ()):
        raise ValueError("work_s must be >= 0")
    if not all(LEAST <= one.weight <= MOST for one in terms.endpoints.values()):
        raise ValueError("a weight must be > 0")
    for learned in (
        *terms.learned.values(),
        *(each for one in terms.endpoints.values() for each in one.learned.values()),
    ):
        divisors = (learned.inputs[0], learned.outputs[0], learned.window)
        if not all(LEAST <= one <= MOST for one in divisors) or learned.answers < 0:
            raise ValueError("what was learned must be > 0")
        numbers = [one for part in learned for one in (part if isinstance(part, tuple) else (part,))]
        if not all(abs(one) <= MOST for one in numbers) or min(*learned.inputs, *learned.outputs, *learned.ahead) < 0:
            raise ValueError("what was learned must be >= 0 and not too large")
        slots, minute = learned.slots, learned.minute
        if slots and (len(slots) != OF_SLOTS or slots[0] < 1 or min(slots[2], slots[4]) < LEAST):
            raise ValueError("a learned number of slots must be >= 1, with its sums")
        if minute and (len(minute) < OF_MINUTE or minute[0] < 1):
            raise ValueError("a learned count of a minute must be >= 1, with its times")
    return terms
