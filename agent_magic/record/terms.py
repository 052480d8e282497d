"""What a run ran under, as plain data: what a forecast has to repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent_magic.declare.content import TokenRule


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
        window: How many requests may be under way while no limit is known.
        levels: What was in the bucket of each kind of limit.
        margins: What is left in them.
        external: What others take of them per second.
    """

    inputs: tuple[float, float]
    outputs: tuple[float, float]
    ahead: tuple[float, float]
    answers: int
    window: float
    levels: tuple[float, ...]
    margins: tuple[float, ...]
    external: tuple[float, ...] = (0.0, 0.0, 0.0)


class ModelFacts(NamedTuple):
    """What a provider says of one of its models.

    Attributes:
        limit_class: The models with which it shares rate limits.
        min_cacheable_tokens: The shortest prefix that its prompt cache keeps; `None` has no cache.
        token_rule: How many tokens it makes of pictures and PDFs; `None` where nobody says.
    """

    limit_class: str
    min_cacheable_tokens: int | None = None
    token_rule: TokenRule | None = None


NOTHING: Final[Mapping[str, Any]] = {}
"""Nothing by name, which nobody changes. A `MappingProxyType` cannot be pickled, and runs go to other processes."""


class Endpoint(NamedTuple):
    """One of several endpoints of a run.

    Attributes:
        weight: How much it was to get compared with the others.
        before: Its limits that were known when the run began, by model class.
        after: Those that were known when it was over.
        learned: By model class, what the pacer had learned of it when the run began.
    """

    weight: float
    before: Ceilings
    after: Ceilings
    learned: Mapping[str, Learned] = NOTHING


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
        models: What the provider said of the models that were asked.
        route: How requests were given to several endpoints; empty where there was one.
        endpoints: These by name, but for those that were left out; `before` and `after` are of all together.
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


def checked_terms(terms: Terms) -> Terms:
    """Return terms that a file tells, if a run can have had them.

    Raises:
        ValueError: It cannot: a limit or a time that is negative, nothing learned from answers, or numbers too large.
    """
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
    return terms
