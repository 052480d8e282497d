"""Shared prefixes: one agent writes the prompt cache, the others start when its response has begun.

Only then can the entry be read; agents that start together each pay for writing it. An entry lives from the start of
its request, and each read renews it. If agents start more than five minutes apart, one hour may pay.

Source: the vendor's page on prompt caching. In units of the context's price as plain input: a write for five minutes
costs 1.25, for an hour 2, a read at most 0.1.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent_magic.declare.content import tokens_of
from agent_magic.engine.contract import Hold
from agent_magic.engine.queues import turns_of
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from agent_magic.declare.content import TokenRule
    from agent_magic.declare.context import Parts
    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.record.request import Ttl
    from agent_magic.record.terms import ModelFacts

LIFE_S: Final[Mapping[Ttl, float]] = {"5m": 300.0, "1h": 3600.0}
WRITE: Final[Mapping[Ttl, float]] = {"5m": 1.25, "1h": 2.0}
READ: Final = 0.1
SURE: Final = 0.8
"""Share of a cache entry's life to rely on, since durations are only expected."""
PATIENCE_S: Final = 30.0
"""Seconds that followers wait for a leader."""
LEAST_FOLLOWERS: Final = 2
"""Agents for caching to pay."""


@dataclass(slots=True)
class Group:
    """Agents of one model with one shared context."""

    leader: int | None = None  # writes the cache, until its answer begins
    led_s: float = 0.0  # when it was sent
    warm_until_s: float = field(default=0.0)
    useless: bool = False  # a follower read nothing: the provider does not cache this, so no agent waits
    ttl: Ttl = "5m"  # of the entry after each use

    @property
    def life_s(self) -> float:
        return LIFE_S[self.ttl]


class Prefixes:
    """Decides which agents lead and which wait."""

    def __init__(self, groups: Sequence[str | None], lives: Mapping[str, Ttl] | None = None) -> None:
        self._names = list(groups)
        chosen = lives or {}
        known = {name: Group(ttl=chosen.get(name, "5m")) for name in groups if name is not None}
        self._groups = [None if name is None else known[name] for name in groups]

    def name(self, agent: int) -> str | None:
        return self._names[agent]

    def leave(self, agent: int) -> None:
        self._names[agent] = self._groups[agent] = None

    def ttl(self, agent: int) -> Ttl | None:
        group = self._groups[agent]
        return None if group is None else group.ttl

    def hold(self, agent: int, now: float) -> Hold | None:
        group = self._groups[agent]
        if group is None or group.useless or group.leader in {None, agent} or now < group.warm_until_s:
            return None
        until = group.led_s + PATIENCE_S
        return Hold("leader", until) if now < until else None

    def left(self, agent: int, now: float) -> None:
        group = self._groups[agent]
        if group is None:
            return
        if now < group.warm_until_s:
            group.warm_until_s = now + group.life_s
        elif group.leader is None:
            group.leader, group.led_s = agent, now

    def began(self, agent: int) -> None:
        group = self._groups[agent]
        if group is not None and group.leader == agent:
            group.leader, group.warm_until_s = None, group.led_s + group.life_s

    def ended(self, agent: int, read_tokens: int | None, *, followed: bool) -> None:
        group = self._groups[agent]
        if group is None:
            return
        if group.leader == agent:  # it failed before its answer began: another one leads
            group.leader = None
        if followed and read_tokens == 0:
            group.useless = True

    def is_warm(self, agent: int, now: float) -> bool:
        group = self._groups[agent]
        return group is not None and now < group.warm_until_s and not group.useless


def paying_groups(
    models: Sequence[str],
    contexts: Sequence[str | None],
    tokens: Mapping[str, int],
    facts: Mapping[str, ModelFacts],
    *,
    always: bool = False,
) -> list[str | None]:
    names = [None if one is None else f"{model}/{one}" for model, one in zip(models, contexts, strict=True)]
    sizes: dict[str, int] = {}
    for name in names:
        if name is not None:
            sizes[name] = sizes.get(name, 0) + 1

    def pays(model: str, context: str | None, name: str | None) -> bool:
        if context is None or name is None:
            return False
        least = facts[model].min_cacheable_tokens
        return always or (least is not None and sizes[name] >= LEAST_FOLLOWERS and tokens[context] >= least)

    return [
        name if pays(model, context, name) else None
        for model, context, name in zip(models, contexts, names, strict=True)
    ]


def context_tokens(context: str | Parts | None, rule: TokenRule | None) -> tuple[int, int]:
    if context is None or isinstance(context, str):
        text, (likely, most) = context or "", (0, 0)
    else:
        files = [one for one in context if not isinstance(one, str)]
        text = "".join(one if isinstance(one, str) else one.text for one in context)
        likely, most = tokens_of(files, rule)
    return likely + len(text) // CHARS_PER_TOKEN, most + len(text.encode(errors="replace"))


def prefix_of(plan: Plan, number: int) -> str | None:
    # Pictures and documents are in its first message, behind its tools and system prompt.
    agent = plan.agents[number]
    if agent.context is None or agent.context not in plan.documents:
        return agent.prefix
    return " ".join([agent.prefix or "", agent.system_text or "", agent.tools_text])


def shared_prefixes(
    plan: Plan,
    models: Sequence[str],
    facts: Mapping[str, ModelFacts],
    policy: Policy,
    work_s: Sequence[float] | None = None,
    without: Container[int] = (),
) -> Prefixes | None:
    if policy.cache == "off" or not plan.has_contexts:
        return None
    contexts = [None if number in without else prefix_of(plan, number) for number in range(len(plan))]
    first = {name: number for number, name in reversed([*enumerate(contexts)]) if name}
    tokens = {
        name: context_tokens(plan.context_of(number), facts[models[number]].token_rule)[0]
        for name, number in first.items()
    }
    groups = paying_groups(models, contexts, tokens, facts, always=policy.cache == "on")
    return Prefixes(*with_lives(groups, plan.dag, policy, work_s))


def with_lives(
    groups: Sequence[str | None], dag: Dag, policy: Policy, work_s: Sequence[float] | None
) -> tuple[list[str | None], dict[str, Ttl]]:
    names = {name for name in groups if name is not None}
    if policy.cache_ttl != "auto":
        return list(groups), dict.fromkeys(names, policy.cache_ttl)
    if work_s is None or not names:
        return list(groups), dict.fromkeys(names, "5m")
    starts_s = expected_starts_s(dag, policy, work_s)
    lives: dict[str, Ttl] = {}
    for name in names:
        own = [at_s for at_s, group in zip(starts_s, groups, strict=True) if group == name]
        chosen = best_ttl(own) or ("5m" if policy.cache == "on" else None)
        if chosen is not None:
            lives[name] = chosen
    return [name if name in lives else None for name in groups], lives


def best_ttl(starts_s: Sequence[float]) -> Ttl | None:
    costs: dict[Ttl, float] = {ttl: _cost(sorted(starts_s), ttl) for ttl in LIFE_S}
    best = min(costs, key=lambda ttl: costs[ttl])  # the first of equal ones: five minutes
    return best if costs[best] < len(starts_s) or len(starts_s) <= 1 else None


def _cost(ordered_s: Sequence[float], ttl: Ttl) -> float:
    rewrites = sum(later - earlier > LIFE_S[ttl] * SURE for earlier, later in itertools.pairwise(ordered_s))
    return WRITE[ttl] * (1 + rewrites) + READ * (len(ordered_s) - 1 - rewrites)


def expected_starts_s(dag: Dag, policy: Policy, work_s: Sequence[float]) -> list[float]:
    """Return the expected start of each agent, ignoring limits and barriers."""
    turn, by_turn = turns_of(dag, policy, work_s)
    slots = 1 if policy.schedule == "sequential" else policy.concurrency
    missing = [len(before) for before in dag.parents]
    ready = [turn[agent] for agent, left in enumerate(missing) if not left]
    heapq.heapify(ready)
    working: list[tuple[float, int]] = []
    starts_s = [0.0] * len(missing)
    now = 0.0
    while ready or working:
        while ready and len(working) < slots:
            agent = by_turn[heapq.heappop(ready)]
            starts_s[agent] = now
            heapq.heappush(working, (now + work_s[agent], agent))
        now, agent = heapq.heappop(working)
        for child in dag.children[agent]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, turn[child])
    return starts_s
