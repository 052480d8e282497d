"""The line below a run: outcome, cost, next step; and the answers, folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.race import BEATEN
from agent_magic.declare.units import dollars, known, plural, steps
from agent_magic.errors import Rejected
from agent_magic.measure.compare import bought_again
from agent_magic.measure.metrics import summarize
from agent_magic.record.answer import PAID_BEFORE, total_usd
from agent_magic.record.ledger.base import IN_DOUBT
from agent_magic.record.prices import Prices, asking_usd, saved_usd
from agent_magic.record.results import sharers_of
from agent_magic.show.page import Fold, Line, Page, Words
from agent_magic.show.text import cost, held, listed, troubles

if TYPE_CHECKING:
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.results import RunRecord
    from agent_magic.show.page import Block
    from agent_magic.show.theme import Tone

MOST_ANSWERS: Final = 40
FEW_ANSWERS: Final = 5
MOST_CHARS: Final = 4_000
MOST_KINDS: Final = 3


class _Next(NamedTuple):
    happened: str
    step: str
    tone: Tone = ""


def closing(record: RunRecord, price: str = "", before: RunRecord | None = None, prices: Prices | None = None) -> Page:
    """Return the line below a run; its last run, `before`, explains repeated purchases."""
    numbers = summarize(record)
    told = _failed(record, price) or _cut(numbers) or _reused(record, prices) or _fine(record, numbers, prices)
    by = "" if numbers.failed else held(numbers)  # what failed matters more
    line = Line(" · ".join(filter(None, [told.happened, _cost(record, numbers), by])), told.tone)
    steps = [Line(one, "soft") for one in (_again(before, record), told.step) if one]
    return Page([line, *steps, *_answers(record)])


def _again(before: RunRecord | None, record: RunRecord) -> str:
    if before is None or before.plan.name != record.plan.name:
        return ""
    parts = [f"{number:,} with {reason}" for reason, number in bought_again(before, record).items()]
    return f"asked again: {', '.join(parts)}." if parts else ""


def _cost(record: RunRecord, numbers: Summary) -> str:
    label = " (simulated)" if record.simulated else ""
    return f"{'cost unknown' if known(numbers.cost_usd) is None else cost(numbers)}{label}"


def _failed(record: RunRecord, price: str) -> _Next | None:
    failed = [one for one in record.results if one.status == "failed"]
    if not failed:
        return None
    kinds = ", ".join(list(dict.fromkeys((one.error or "").partition(":")[0] for one in failed))[:MOST_KINDS])
    below = record.plan.dag.descendants([number for number, one in enumerate(record.results) if one in failed])
    skipped = [n for n, one in enumerate(record.results) if one.status == "skipped" and not one.is_left_out]
    theirs = sum(number in below for number in skipped)
    also = f", {theirs:,} skipped because of {'it' if len(failed) == 1 else 'them'}" if theirs else ""
    also += f", {len(skipped) - theirs:,} not asked" if len(skipped) > theirs else ""
    it, price = "it" if len(failed) == 1 else "these", f", {price}" if price else ""
    why = f"%agents error {failed[0].name} shows why."
    asks = f"%agents retry asks {it} again{price}. {why}"
    too_many = all(one.kind == "TooManyItems" for one in failed)
    rejected = [one for one in failed if one.kind == Rejected.__name__]  # the same request is rejected again
    left = len(failed) + sum(one.status == "cancelled" for one in record.results)
    if any(one.kind == IN_DOUBT for one in failed):
        ways = "--on-doubt error tells the model that it failed, --on-doubt again calls it once more"
        asks = f"See whether the call was made. Then %agents run {ways}."
    elif too_many:  # there are as many items again
        asks = f"{why} Raise --most in its cell, then %agents run goes on{price}."
    elif left > len(failed):
        asks = f"%agents run goes on with the {left:,} left{price}. {why}"
    elif len(rejected) == len(failed):
        asks = f"{why} Fix {it}, then %agents run goes on{price}."
    elif rejected:
        names = listed([one.name for one in rejected], 3)
        others = listed([one.name for one in failed if one.kind != Rejected.__name__], 3)
        asks = (
            f"%agents retry asks {others} again{price}. Fix {names} first: %agents error {rejected[0].name} shows why."
        )
    return _Next(f"{len(failed):,} failed: {kinds}{also}", asks, "warn")


def _cut(numbers: Summary) -> _Next | None:
    left = numbers.steps - numbers.succeeded - numbers.capped - numbers.left_out
    if not left:
        return None
    happened = ", ".join(["stopped" if numbers.cut else "ended", f"{numbers.steps - left:,} kept", *troubles(numbers)])
    more = " once --budget allows more" if numbers.limited_by == "budget" else ""
    return _Next(happened, f"%agents run goes on with the {left:,} left{more}.", "warn")


def _reused(record: RunRecord, prices: Prices | None) -> _Next | None:
    of = len(record.rows)
    served = sum(bool(one.attempts) and one.attempts[-1].price == PAID_BEFORE for one in record.results)
    if not served:
        return None
    every = f"all {of:,} reused" if served == of and of > 1 else f"{served:,} of {of:,} reused"
    return _Next(f"{every}{_saved(record, prices)}", "%agents run --fresh asks all again.")


def _saved(record: RunRecord, prices: Prices | None) -> str:
    prices = prices or Prices(tell=lambda _: None)
    saved = [saved_usd(record, prices)]
    for result, first in zip(record.results, sharers_of(record), strict=True):
        if result.is_shared and first is not None and not record.results[first].is_shared:
            saved.append(asking_usd(record.results[first], prices))
    found = total_usd(saved)
    return "" if found is None else f", {dollars(found)} saved"


def _fine(record: RunRecord, numbers: Summary, prices: Prices | None) -> _Next:
    done = [one.is_task for one in record.results if not one.is_left_out and one.status != "capped"]
    cut = f"{numbers.capped:,} capped" if numbers.capped else ""
    beaten = sum(one.kind == BEATEN and one.is_left_out for one in record.rows)
    by_condition = numbers.left_out - beaten
    out = f", {by_condition:,} skipped by a condition" if by_condition else ""
    out += f", {beaten:,} not needed: another answered first" if beaten else ""
    shared = sum(record.source_at(number) == "shared" for number in range(len(record.results)))
    out += f", {shared:,} with the answer to an identical request{_saved(record, prices)}" if shared else ""
    return _Next(
        ", ".join(filter(None, [f"{steps(len(done), sum(done))} done" if done or not cut else "", cut])) + out,
        "run.agents has the numbers, %agents advise says what would be faster or cheaper.",
    )


def _answers(record: RunRecord) -> list[Fold]:
    found = [one for one in record.results if one.text]
    if not found:
        return []
    is_large = len(found) > MOST_ANSWERS
    shown = found[:FEW_ANSWERS] if is_large else found
    inside: list[Block] = [Fold(one.name, [Words(one.text, MOST_CHARS)]) for one in shown]
    inside += [Line("run.texts has the others.", "soft")] if is_large else []
    return [Fold(plural(len(found), "answer"), inside, instead="")]
