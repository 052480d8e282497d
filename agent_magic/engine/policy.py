"""A policy: how to run. A value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from agent_magic.declare.validation import is_number, is_word
from agent_magic.errors import DeclarationError, did_you_mean, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping

Schedule = Literal["ready", "layers", "sequential"]
"""`ready`: an agent starts when its own parents are done. `layers`: when all agents of earlier layers are done,
those that somebody has run again too, to measure what such a barrier costs. `sequential`: one after another."""

TimeoutCounts = Literal["work", "total"]
CacheMode = Literal["auto", "on", "off"]
CacheTtl = Literal["auto", "5m", "1h"]
OnLimit = Literal["fail", "warn", "allow"]
"""What becomes of an answer that was cut at `max_tokens`, or refused: not passed on, passed on with a warning, or
without one."""

POLICY_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": get_args(Schedule),
    "cache": get_args(CacheMode),
    "cache_ttl": get_args(CacheTtl),
    "on_max_tokens": get_args(OnLimit),
    "on_refusal": get_args(OnLimit),
    "timeout_counts": get_args(TimeoutCounts),
}
"""Per option, the words it takes."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to run a plan.

    Args:
        concurrency: The most requests under way at once.
        schedule: Who may start when; see `Schedule`.
        max_attempts: The most requests for one agent. Only failures that another try can mend are repeated.
        timeout_s: The deadline of agents that name none: seconds from their first request to their last.
        deadline_s: Seconds from the run's start after which nothing of it goes on; `None` sets no end.
        budget_usd: The most dollars of the run. The worst case of each request is set aside before it is sent, so
            the cap cannot be crossed. Needs a known price.
        budget_tokens: The most tokens of the run, input and output together.
        cache: `auto` caches contexts that agents share where it pays: one agent leads, the others follow when its
            answer begins. `on` marks every context, `off` none.
        cache_ttl: How long a cached context lives: `5m`, `1h`, or `auto`, by when the agents that share it are
            expected to start. Writing for an hour costs 2 times the input, for five minutes 1.25 times.
        on_max_tokens: What becomes of an answer that was cut at its `max_tokens`.
        on_refusal: What becomes of an answer in which the model declined. Passed on or not, it is never served again.
        max_turns: The most requests for one answer: one that the API pauses (`pause_turn`) goes on from where it was
            so often; then its agent is `capped`, and the part that came is passed on as `on_max_tokens` says.
        timeout_counts: `work` counts `timeout_s` from an agent's first request, its retries and their waits included;
            `total` from the moment its parents are done, waiting for a slot or a limit included.
        breaker_share: Which share of the last 20 attempts may fail by the fault of the service or the network before
            requests go one at a time, until it answers again; `None` sets no end.
        max_usd_per_min: The most dollars within any minute; `None` is no limit. Needs a known price.
        seed: Makes the jitter of waiting times repeatable.

    Raises:
        DeclarationError: A value cannot work.
    """

    concurrency: int = 8
    schedule: Schedule = "ready"
    max_attempts: int = field(default=3, kw_only=True)
    timeout_s: float = field(default=300.0, kw_only=True)
    deadline_s: float | None = field(default=None, kw_only=True)
    budget_usd: float | None = field(default=None, kw_only=True)
    budget_tokens: int | None = field(default=None, kw_only=True)
    cache: CacheMode = field(default="auto", kw_only=True)
    cache_ttl: CacheTtl = field(default="auto", kw_only=True)
    on_max_tokens: OnLimit = field(default="warn", kw_only=True)
    on_refusal: OnLimit = field(default="fail", kw_only=True)
    max_turns: int = field(default=10, kw_only=True)
    timeout_counts: TimeoutCounts = field(default="work", kw_only=True)
    breaker_share: float | None = field(default=1.0, kw_only=True)
    max_usd_per_min: float | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for option in ("concurrency", "max_attempts", "max_turns"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DeclarationError(f"{option}={value!r} cannot work.", hint="Give a whole number from 1.")
        if not (is_number(self.timeout_s) and 0 < self.timeout_s < math.inf):
            raise DeclarationError(f"timeout_s={self.timeout_s!r} cannot work.", hint="Give seconds above 0.")
        if self.breaker_share is not None and not (is_number(self.breaker_share) and 0 < self.breaker_share <= 1):
            raise DeclarationError(f"breaker_share={self.breaker_share!r} cannot work.", hint="Give a share up to 1.")
        for option in ("deadline_s", "budget_usd", "budget_tokens", "max_usd_per_min"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and 0 < value < math.inf):
                raise DeclarationError(f"{option}={value!r} cannot work.", hint="Give a number above 0.")
        for option, words in POLICY_WORDS.items():
            value = getattr(self, option)
            if not is_word(value, words):
                hint = f"One of {', '.join(words)}.{did_you_mean(value, words)}"
                raise DeclarationError(f"{option}={shown_value(value)} cannot work.", hint=hint)

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain data: its fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def as_policy(given: object) -> Policy:
    """Return a policy as it was given; the usual one where it is `None`.

    Raises:
        DeclarationError: It is none.
    """
    if given is None or isinstance(given, Policy):
        return given or Policy()
    raise DeclarationError(f"policy={shown_value(given)} is no Policy.", hint="Give Policy(concurrency=8, ...).")


def policy_from(kept: Mapping[str, Any]) -> Policy:
    """Return the policy whose fields were kept. Fields of a later version are left out.

    Raises:
        DeclarationError: A value cannot work.
    """
    known = {one.name for one in fields(Policy)}
    return Policy(**{name: value for name, value in kept.items() if name in known})
