"""What a run ran under, as plain data: what a forecast has to repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Ceiling(NamedTuple):
    """One rate limit.

    Attributes:
        per_minute: How much may pass in a minute.
        capacity: How much may pass at once after a pause, as far as is known.
    """

    per_minute: float
    capacity: float


Ceilings = dict[str, dict[str, Ceiling]]
"""Rate limits by model class, then by what is limited: `requests`, `input`, `output`."""


class Terms(NamedTuple):
    """What a run ran under.

    Attributes:
        policy: The fields of its policy, the seed that was drawn among them.
        paced: Whether a pacer kept it inside rate limits.
        before: The limits that were known when it began.
        after: Those that were known when it was over.
        work_s: Per agent, the seconds that were expected of it, by which agents took turns; `None` if none were.
        key_untried: Whether its first request had to show that the API takes the key.
    """

    policy: Mapping[str, Any]
    paced: bool
    before: Ceilings
    after: Ceilings
    work_s: tuple[float, ...] | None = None
    key_untried: bool = False
