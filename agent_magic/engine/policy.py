"""The policy of a run: an immutable value; and which requests it sends in batches: half the price, hours later.

A batched request takes no slot and waits for no limit, cache leader or key; it counts toward the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from agent_magic.declare.agent import Agent
from agent_magic.declare.options import known_keywords
from agent_magic.declare.validation import check_integer, check_positive, check_word, listed, make_builtin, must_be
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

Schedule = Literal["ready", "shortest", "layers", "groups", "sequential"]
"""The order of steps. `ready`: an agent starts when its parents are done, the longest remaining path first.
`shortest`: likewise, the agent with the least expected work first. `layers`: when all earlier layers are done, to
measure the cost of such a barrier. `groups`: in groups of `concurrency` agents, each after the previous one.
`sequential`: one step at a time, with its tools, retries and waits.
"""

TimeoutCounts = Literal["work", "total"]
CacheMode = Literal["auto", "on", "off"]
CacheTtl = Literal["auto", "5m", "1h"]
Shared = Literal["on", "off"]
OnDoubt = Literal["ask", "again", "error"]
"""After a kill, a tool call that may have happened: ask a person, failing the agent without an answer; call it again;
or report a failure to the model.
"""
DEGRADES: Final = ("effort", "model")
Batch = Literal["off", "on", "auto"]
Equal = Literal["once", "each"]
"""Identical rows of one declaration: buy one answer and share it, or buy each."""
BatchFallback = Literal["batch", "live"]
"""How to retry requests a batch did not answer: in the next batch, or live at full price."""
OnLimit = Literal["fail", "warn", "allow"]
"""What to do with a truncated or refused answer: fail its agent, pass it on with a warning, or without one."""

POLICY_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": get_args(Schedule),
    "cache": get_args(CacheMode),
    "cache_ttl": get_args(CacheTtl),
    "on_max_tokens": get_args(OnLimit),
    "on_refusal": get_args(OnLimit),
    "timeout_counts": get_args(TimeoutCounts),
    "on_doubt": get_args(OnDoubt),
    "shared": get_args(Shared),
    "identical": get_args(Equal),
    "batch": get_args(Batch),
    "batch_fallback": get_args(BatchFallback),
}


@known_keywords
@dataclass(frozen=True, slots=True)
class Policy:
    """How to run a plan.

    Args:
        concurrency: Maximum number of requests at once.
        schedule: When steps may start; see `Schedule`.
        max_attempts: Maximum attempts per agent. Only failures that a retry can mend are retried.
        timeout_s: Default deadline of an agent: seconds from its first request to its last.
        deadline_s: Seconds after its start at which the run stops; `None` for no deadline.
        budget_usd: Maximum dollars of the run. The worst case of each request is reserved before it is sent, so the cap
            cannot be crossed. Needs known prices.
        budget_tokens: Maximum tokens of the run, input and output together.
        cache: `auto` caches shared contexts if it pays: one agent leads, the others start once its answer begins. `on`
            caches every context, `off` none.
        cache_ttl: Lifetime of a cached context: `5m`, `1h`, or `auto`, by the expected starts of the agents that share
            it. Writing costs 1.25 times the input price for five minutes and 2 times for an hour.
        on_max_tokens: What to do with an answer truncated at `max_tokens`; see `OnLimit`.
        on_refusal: What to do with a refusal; see `OnLimit`. Refusals are never served from the ledger.
        max_turns: Maximum requests per answer. After them an agent is `capped`, and its partial answer is handled as
            `on_max_tokens` says.
        on_doubt: What to do with a tool call that may have happened before a kill; see `OnDoubt`.
        ask_s: Seconds a person has to answer a question before it counts as denied.
        timeout_counts: `work` counts `timeout_s` from the first request, retries and backoff included; `total` from the
            moment the parents are done, waiting included.
        breaker_share: Share of failures among the last 20 attempts, by the service or network, that opens the circuit
            breaker: requests then go one at a time until one succeeds. `None` for no breaker.
        max_usd_per_min: Maximum dollars within any minute; `None` for no limit. Needs known prices.
        shared: `on` divides rate limits with other kernels that use the same ledger and key; `off` relies on the
            provider's headers.
        batch: `on` or `True` sends requests as batches: half the price, answers within a day. Steps ready at the same
            time form one batch. `auto` does so as far as `deadline_s` allows. An agent with your own tools is batched
            only if it says `batch="on"` itself. `concurrency`, rate limits, `timeout_s`, `max_usd_per_min` and the
            cache apply to live requests only.
        batch_fallback: How to retry requests without a batch answer; see `BatchFallback`. With `live` and a
            `deadline_s`, a batch is cancelled after three quarters of it, and the rest is asked live.
        degrade: What to give up if the budget or the time until `deadline_s` is too short: `effort` lowers the effort
            to `low`, `model` uses the cheapest of the agent's fallbacks and the provider's models, `"effort,model"`
            both. Default: nothing.
        identical: `once` buys one of several identical rows of an agent, which share its answer, cost and failure.
            `each` buys each. Separate declarations, repetitions, rounds of a loop, hedges, races, and rows with tools
            that may act are always bought each.
        seed: Seed of the backoff's jitter.

    Raises:
        DeclarationError: A value is invalid.
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
    identical: Equal = field(default="once", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        make_builtin(self)
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
        """Return the fields by name, as plain data."""
        return dict(zip(self.__slots__, _values(self), strict=True))


_values: Final[Callable[[Policy], tuple[Any, ...]]] = attrgetter(*Policy.__slots__)


def as_policy(given: object, room: int | None = None) -> Policy:
    if given is None or isinstance(given, Policy):
        policy = given or Policy()
        return policy if room is None or room >= policy.concurrency else replace(policy, concurrency=room)
    raise must_be("policy", "a Policy", given, " Give Policy(concurrency=8, ...).")


def policy_from(kept: Mapping[str, Any]) -> Policy:
    known = {one.name for one in fields(Policy)}
    return Policy(**{name: value for name, value in kept.items() if name in known})


BATCH_S = 3600.0
"""Expected seconds of a batch. Source: the vendor's page on batches: most finish in less than an hour."""
BATCH_MOST_S = 86_400.0
"""Source: the same page: a batch expires after 24 hours."""
LIVE_SHARE = 0.25
"""Share of a deadline reserved for asking live what no batch has answered."""


class Batching:
    """Decides whether a queued step's next request is batched; `now` has the steps with a batched request."""

    def __init__(
        self, policy: Policy, steps: Collection[int], layers_left: Sequence[float], batch_s: float = BATCH_S
    ) -> None:
        self.steps, self.now = steps, set[int]()
        self._layers_left, self._batch_s = layers_left, batch_s
        self._by_deadline = policy.deadline_s if policy.batch == "auto" else None
        self._falls_back = policy.batch_fallback == "live"
        self._live: set[int] = set()

    def decide(self, step: int, now: float) -> None:
        by_batch = step in self.steps and step not in self._live and self._is_in_time(step, now)
        (self.now.add if by_batch else self.now.discard)(step)

    def ahead(self, layers: Sequence[int]) -> set[int]:
        return {one for one in self.steps if self._is_in_time(one, layers[one] * self._batch_s)}

    def failed(self, step: int) -> None:
        if self._falls_back and step in self.now:
            self._live.add(step)

    def _is_in_time(self, step: int, now: float) -> bool:
        left_s = self._layers_left[step] * self._batch_s
        return self._by_deadline is None or now + left_s <= self._by_deadline


def batching_of(plan: Plan, policy: Policy) -> Batching | None:
    """Return the batching of a plan, if any; raise a `PlanError` if policy and plan contradict."""
    if policy.batch == "off":  # except those that say `batch` themselves
        may = {number for number in plan.special if plan.agents[number].batch == "on"}
    else:
        may = {number for number, one in enumerate(plan.agents) if _may(one, policy)}
    if not may:
        return None
    return Batching(policy, may, plan.dag.remaining([0.0 if one.is_task else 1.0 for one in plan.agents]))


def _may(step: Step, policy: Policy) -> bool:
    """Return whether a step may be batched; raise a `PlanError` if the policy demands it despite its tools."""
    if not isinstance(step, Agent) or step.batch is not None:
        return isinstance(step, Agent) and step.batch == "on"
    if policy.batch == "on" and step.tools.functions:
        raise PlanError(
            f"Agent {step.name!r} has tools, so it would wait for a batch in each of its turns. Say --batch off in its "
            "cell to ask it live, --batch on if it may take that long, or run with --batch auto."
        )
    return not step.tools.functions
