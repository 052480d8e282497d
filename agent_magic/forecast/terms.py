"""Policy and limits of a record, as far as known."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.engine.policy import Policy, policy_from
from agent_magic.errors import DeclarationError
from agent_magic.providers.anthropic import models as by_name
from agent_magic.record.facts import overlap
from agent_magic.record.terms import Ceiling, Ceilings, ModelFacts, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Schedule
    from agent_magic.record.results import RunRecord

OTHERS: Final = "*"


def facts_of(terms: Terms | None, model: str) -> ModelFacts:
    known = None if terms is None else terms.models.get(model)
    return known or by_name.facts_of(model)


_SCHEDULES: Final[dict[str, Schedule]] = {"schedule": "sequential", "barrier": "layers", "group": "groups"}


def policy_of(record: RunRecord) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy of a recorded run, and its inferred parts in words."""
    # A record without a readable policy still shows the concurrency, and waits for barriers and slots.
    if record.terms is not None:
        with suppress(DeclarationError):  # a file from a stranger may say anything
            return policy_from({"identical": "each", **record.terms.policy}), ()  # as all runs were that say nothing
    attempts, held = record.attempts, record.facts.reasons
    most = max((one.number for one in attempts), default=1)
    peak = max(1, overlap([(one.granted_s, math.inf if one.ended_s is None else one.ended_s) for one in attempts])[0])
    usual = Policy()
    concurrency = peak if "slot" in held else max(peak, usual.concurrency)
    found: list[Schedule] = [word for reason, word in _SCHEDULES.items() if reason in held]
    schedule: Schedule = found[0] if found else "ready"
    policy = Policy(concurrency, schedule, max_attempts=max(most, usual.max_attempts), identical="each", seed=0)
    words = [f"its policy was not recorded: concurrency {concurrency}, schedule {schedule} follow from its times"]
    if held.intersection(DIMENSIONS):
        words.append("it waited for rate limits that were not recorded: none are modelled")
    return policy, tuple(words)


def ceilings_for(
    record: RunRecord, asked: Mapping[str, Limits] | None, pools: Iterable[str]
) -> tuple[Ceilings, tuple[str, ...]]:
    """Return the provider's limits in a forecast, and assumptions about them; without `asked` as recorded."""
    learned: Ceilings = record.terms.after if record.terms is not None else {}
    if asked is None:
        return {pool: learned[pool] for pool in pools if pool in learned}, _unknown(learned, pools)
    if not asked:
        return {}, ("no rate limits",)
    found: Ceilings = {}
    for pool in pools:
        limits = asked.get(pool) or asked.get(OTHERS)
        known = dict(learned.get(pool, {}))
        if limits is not None:
            known.update(_ceilings(limits))
        if known:
            found[pool] = known
    return found, ("the provider announces its limits and its buckets are full when the run begins",)


def _unknown(learned: Ceilings, pools: Iterable[str]) -> tuple[str, ...]:
    left = sorted(set(pools) - set(learned))
    return (f"no rate limits are known of {', '.join(left)}: none are modelled",) if learned and left else ()


def _ceilings(limits: Limits) -> dict[str, Ceiling]:
    rates = limits.rates.items()
    return {name: Ceiling(each, max(1.0, each / 60 * limits.burst_s)) for name, each in rates if each is not None}


def known_to(pacer: Pacer, record: RunRecord) -> None:
    if record.terms is not None:
        pacer.recall(record.terms.before, record.terms.learned)
