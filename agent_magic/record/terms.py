"""What a run ran under, as plain data: what a forecast has to repeat."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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


class Learned(NamedTuple):
    """What a pacer had learned of one model class when a run began: how fast it lets the first requests go.

    Attributes:
        inputs: Input tokens that were expected and that were used, older answers counting less.
        outputs: The same of output.
        ahead: Token seconds under way and tokens: for how long an output token is under way.
        answers: How many answers that is.
        produced: Output tokens and the seconds between the beginnings and the ends of their answers.
        window: How many requests may be under way while no limit is known.
        pace: How much faster than the limit what is saved up is spent, and above which pace there were refusals.
        levels: What was in the buckets of requests, input and output.
        margins: What is left in them.
        foreign: What others take of them per second.
        spread: How far beliefs of the input are off, as a share.
    """

    inputs: tuple[float, float]
    outputs: tuple[float, float]
    ahead: tuple[float, float]
    answers: int
    produced: tuple[float, float]
    window: float
    pace: tuple[float, float]
    levels: tuple[float, float, float]
    margins: tuple[float, float, float]
    foreign: tuple[float, float, float]
    spread: float


class Terms(NamedTuple):
    """What a run ran under.

    Attributes:
        policy: The fields of its policy, the seed that was drawn among them.
        paced: Whether a pacer kept it inside rate limits.
        before: The limits that were known when it began.
        after: Those that were known when it was over.
        work_s: Per agent, the seconds that were expected of it, by which agents took turns; `None` if none were.
        key_untried: Whether its first request had to show that the API takes the key.
        learned: By model class, what the pacer had learned when it began.
    """

    policy: Mapping[str, Any]
    paced: bool
    before: Ceilings
    after: Ceilings
    work_s: tuple[float, ...] | None = None
    key_untried: bool = False
    learned: Mapping[str, Learned] = MappingProxyType({})
