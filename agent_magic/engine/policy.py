"""A policy: how to run a plan. A value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from agent_magic.declare.validation import check_integer, check_positive, check_word, listed, must_be

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Schedule = Literal["ready", "layers", "sequential"]
"""`ready`: an agent starts when its own parents are done. `layers`: when every agent of the earlier layers is done, to
measure what such a barrier costs. `sequential`: one agent at a time."""

TimeoutCounts = Literal["work", "total"]
CacheMode = Literal["auto", "on", "off"]
CacheTtl = Literal["auto", "5m", "1h"]
Shared = Literal["on", "off"]
OnDoubt = Literal["ask", "again", "error"]
"""What to do with a tool call that a killed kernel had begun, and that may have happened: ask a person, and fail the
agent where nobody is there; call it again; or tell the model that it failed."""
DEGRADES: Final = ("effort", "model")
Batch = Literal["off", "on", "auto"]
BatchFallback = Literal["batch", "live"]
"""How a request is asked again that a batch did not answer: in the next batch, or at once and at full price."""
OnLimit = Literal["fail", "warn", "allow"]
"""What to do with an answer that was cut at `max_tokens`, or refused: fail its agent, pass it on with a warning, or
pass it on without one."""

POLICY_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": get_args(Schedule),
    "cache": get_args(CacheMode),
    "cache_ttl": get_args(CacheTtl),
    "on_max_tokens": get_args(OnLimit),
    "on_refusal": get_args(OnLimit),
    "timeout_counts": get_args(TimeoutCounts),
    "on_doubt": get_args(OnDoubt),
    "shared": get_args(Shared),
    "batch": get_args(Batch),
    "batch_fallback": get_args(BatchFallback),
}
"""Per option, the words it takes."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to run a plan.

    Args:
        concurrency: The most requests under way at once.
        schedule: Who may start when; see `Schedule`.
        max_attempts: The most requests for one agent. Only failures that a retry can mend are retried.
        timeout_s: The deadline of agents that have none of their own: seconds from their first request to their last.
        deadline_s: Seconds after the run's start at which all of it stops; `None` is no deadline.
        budget_usd: The most dollars of the run. The worst case of each request is reserved before it is sent, so the
            cap cannot be crossed. It needs a known price.
        budget_tokens: The most tokens of the run, input and output together.
        cache: `auto` caches contexts that agents share if it pays: one agent leads, the others follow when its answer
            begins. `on` marks every context, `off` none.
        cache_ttl: How long a cached context lives: `5m`, `1h`, or `auto`, by when the agents that share it are
            expected to start. Writing for an hour costs 2 times the input, for five minutes 1.25 times.
        on_max_tokens: What to do with an answer that was cut at its `max_tokens`; see `OnLimit`.
        on_refusal: What to do with an answer in which the model declined. Such an answer is never served again.
        max_turns: The most requests for one answer. An answer that the API pauses (`pause_turn`) is continued; after
            so many requests its agent is `capped`, and the partial answer is passed on as `on_max_tokens` says.
        on_doubt: What to do with a tool call that may have happened before a kill; see `OnDoubt`.
        ask_s: Seconds that a person has to answer a question; then it counts as denied.
        timeout_counts: `work` counts `timeout_s` from an agent's first request, retries and backoff included; `total`
            from the moment its parents are done, waiting for a slot or a rate limit included.
        breaker_share: The circuit breaker opens when this share of the last 20 attempts failed by the fault of the
            service or the network: requests then go one at a time until one succeeds. `None` is no breaker.
        max_usd_per_min: The most dollars within any minute; `None` is no limit. It needs a known price.
        shared: `on` divides the rate limits with other kernels that keep the same ledger and use the same key; `off`
            leaves that to the provider's headers.
        batch: `on`, or `True`, sends requests as batches: half the price, and answers within hours, at most a day. What
            is ready at the same time is one batch. `auto` does so as far as `deadline_s` allows. An agent whose tools
            are yours goes by batch only if it says `batch="on"` itself. `concurrency`, rate limits, `timeout_s`,
            `max_usd_per_min` and the cache are for other requests.
        batch_fallback: How to ask again what a batch did not answer; see `BatchFallback`. With `live` and a
            `deadline_s`, a batch that has not ended after three quarters of it is cancelled, and its rest asked live.
        degrade: What a request that has not left gives up where the budget has no room for it, or the time until
            `deadline_s` is expected to be too short: `effort` sends it with the effort `low` where it has more,
            `model` asks the cheapest model of the provider. Both: `"effort,model"`. Nothing by default.
        seed: Makes the jitter of backoff repeatable.

    Raises:
        DeclarationError: A value is not what it must be.
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
    on_doubt: OnDoubt = field(default="ask", kw_only=True)
    ask_s: float = field(default=600.0, kw_only=True)
    timeout_counts: TimeoutCounts = field(default="work", kw_only=True)
    breaker_share: float | None = field(default=1.0, kw_only=True)
    max_usd_per_min: float | None = field(default=None, kw_only=True)
    shared: Shared = field(default="on", kw_only=True)
    batch: Batch | bool = field(default="off", kw_only=True)
    batch_fallback: BatchFallback = field(default="batch", kw_only=True)
    degrade: str | Sequence[str] | None = field(default="", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.batch, bool):
            object.__setattr__(self, "batch", "on" if self.batch else "off")
        for option in ("concurrency", "max_attempts", "max_turns"):
            check_integer(option, getattr(self, option))
        check_positive("timeout_s", self.timeout_s)
        check_positive("ask_s", self.ask_s)
        for option in ("deadline_s", "budget_usd", "budget_tokens", "max_usd_per_min", "breaker_share"):
            if (value := getattr(self, option)) is not None:
                check_positive(option, value, most=1 if option == "breaker_share" else math.inf)
        if self.seed is not None and type(self.seed) is not int:
            raise must_be("seed", "an integer or None", self.seed)
        for option, words in POLICY_WORDS.items():
            check_word(option, getattr(self, option), words)
        if not isinstance(self.degrade, str | Sequence | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise must_be("degrade", "'effort', 'model' or both", self.degrade)
        words = listed(self.degrade or ())
        for word in words:
            check_word("degrade", word, DEGRADES)
        object.__setattr__(self, "degrade", ",".join(words))  # as a text it is the same in a file

    def to_dict(self) -> dict[str, Any]:
        """Return its fields by name, as plain data."""
        return dict(zip(self.__slots__, _values(self), strict=True))


_values: Final[Callable[[Policy], tuple[Any, ...]]] = attrgetter(*Policy.__slots__)


def as_policy(given: object, room: int | None = None) -> Policy:
    """Return a policy as it was given, or the default one for `None`.

    Args:
        given: The policy.
        room: The most requests that whoever answers makes at once: what exceeds them waits for a slot.

    Raises:
        DeclarationError: It is something else.
    """
    if given is None or isinstance(given, Policy):
        policy = given or Policy()
        return policy if room is None or room >= policy.concurrency else replace(policy, concurrency=room)
    raise must_be("policy", "a Policy", given, " Give Policy(concurrency=8, ...).")


def policy_from(kept: Mapping[str, Any]) -> Policy:
    """Return the policy with these fields. Fields of a later version are left out.

    Raises:
        DeclarationError: A value is not what it must be.
    """
    known = {one.name for one in fields(Policy)}
    return Policy(**{name: value for name, value in kept.items() if name in known})
