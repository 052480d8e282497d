"""What has to be said of a run in words, one line each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent_magic.measure.contexts import shared_contexts
from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.prices import saved_usd
from agent_magic.show.units import dollars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.engine.policy import Policy
    from agent_magic.measure.contexts import Shared
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.prices import Prices, TokenPrice
    from agent_magic.record.results import RunRecord


NO_PRICE = "has no known price"


def capped_note(record: RunRecord, policy: Policy) -> str:
    """Say which answers were cut, or refused, and passed on; empty where the policy wants no word of it."""
    notes: list[str] = []
    if policy.on_max_tokens == "warn" and (cut := record.capped):
        notes.append(
            f"Cut at max_tokens, and passed on as they were: {_some(cut)}. Give more with max_tokens, or --max-tokens."
        )
    paused = [one.name for one in record.results if one.status == "capped"]
    if policy.on_max_tokens == "warn" and paused:
        notes.append(f"Paused too often (pause_turn), and passed on as far as they came: {_some(paused)}. --max-turns.")
    if policy.on_refusal == "warn" and record.refused:
        notes.append(f"Refused, and passed on all the same: {_some(record.refused)}. %agents show NAME has them.")
    if not record.redacted and (silent := record.empty):
        notes.append(f"Empty answers, passed on as they were: {_some(silent)}. Ask again with --fresh, or reword.")
    return " ".join(notes)


def context_notes(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None) -> list[str]:
    """Say what caching each shared context saved or lost, a line for each that was cached."""
    made_up = " (simulated)" if record.simulated else ""
    return [
        _context_note(one) + made_up + "; run.contexts has more."
        for one in shared_contexts(record, prices)
        if one.cached and one.requests
    ]


def _context_note(one: Shared) -> str:
    what = f"context {one.context!r} for {one.model}"
    if not one.cache_write_tokens and not one.cache_read_tokens:
        return f"{what}: marked to be cached, but the provider cached nothing"
    if one.saved_usd is None or one.uncached_usd is None or one.cost_usd is None:
        return f"{what}: cached, and what that saved is unknown"
    paid = f"{dollars(one.cost_usd)} in place of {dollars(one.uncached_usd)}"
    if one.saved_usd < 0:
        return f"{what}: caching cost more than it saved, {paid}; --cache off sends it plain"
    return f"{what}: caching saved {dollars(one.saved_usd)}, {paid}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")  # noqa: RUF100


def budget_note(record: RunRecord, policy: Policy) -> str:
    """Say how to go on where the budget has kept agents from being asked; an empty string where it has not."""
    stopped = [(one.name, one.error or "") for one in record.results if (one.error or "").startswith("BudgetExceeded")]
    unpriced = [name for name, error in stopped if NO_PRICE in error]
    tokens = [name for name, error in stopped if "tokens are used" in error]
    usd = [name for name, _ in stopped if name not in {*unpriced, *tokens}]
    notes: list[str] = []
    for names, cap in ((usd, dollars(policy.budget_usd)), (tokens, f"{policy.budget_tokens or 0:,} tokens")):
        if names:
            small = f"Not asked, the budget of {cap} being too small for their worst case: {_some(names)}."
            notes.append(f"{small} A run with more goes on.")
    if unpriced:
        hint = "%agents prices MODEL --input USD --output USD gives one."
        notes.append(f"Not asked, a budget in dollars being no use without a price: {_some(unpriced)}. {hint}")
    return " ".join(notes)


def served_note(record: RunRecord) -> str:
    """Say how many answers were there before the run; an empty string where none was."""
    served = sum(bool(one.attempts) and one.attempts[-1].price == PAID_BEFORE for one in record.results)
    if not served:
        return ""
    saved = saved_usd(record)
    worth = "" if saved is None else f", {dollars(saved)} saved"
    of = f"{served} of {len(record.results)} answers"
    return f"{of} came from the ledger or the run before: $0{worth}. --fresh buys anew."


def filled_note(record: RunRecord) -> str:
    """Say what the bought part of a run cost whose rest was recorded; an empty string where there is no such part."""
    sources = {one.source for result in record.results for one in result.attempts}
    if "replay" not in sources or len(sources) == 1:
        return ""
    now = [one for one in record.attempts if one.source != "replay" and one.price is not None]
    costs = [one.price.cost_usd for one in now if one.price is not None]
    known = [cost for cost in costs if cost is not None]
    mark = "" if len(known) == len(costs) else "≥"
    made_up = " (simulated)" if any(one.source == "simulated" for one in now) else ""
    return f"{mark}{dollars(math.fsum(known))} of it spent now{made_up}; the rest is what the recorded answers had cost"


def ledger_notes(ledger: Ledger | None) -> list[str]:
    """Return what a ledger has to say, once: a damaged file, a full disk, calls that were under way at a kill."""
    if ledger is None:
        return []
    notes = list(ledger.notes)
    ledger.notes.clear()
    return notes
