"""What stands below a run: outcome, cost, next step, the answers, folded, and notes.

A note is one line, empty if there is nothing to say.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.flow import CONDITION
from agent_magic.declare.race import BEATEN
from agent_magic.declare.units import dollars, known, plural, steps
from agent_magic.declare.user_code import hint_of
from agent_magic.errors import Rejected
from agent_magic.live.people import LATE, NOBODY
from agent_magic.measure.compare import bought_again
from agent_magic.measure.contexts import shared_contexts
from agent_magic.measure.metrics import cost_mark, summarize
from agent_magic.record.answer import PAID_BEFORE, total_usd
from agent_magic.record.facts import APPROVAL, SAVE
from agent_magic.record.ledger.base import IN_DOUBT
from agent_magic.record.prices import Prices, asking_usd, saved_usd
from agent_magic.record.results import capped_loops, sharers_of
from agent_magic.show.page import Fold, Line, Page, Words, cut
from agent_magic.show.text import cost, held, listed, troubles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.engine.policy import Policy
    from agent_magic.measure.contexts import Shared
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.facts import ToolCall
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.results import AgentResult, RunRecord
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
    spent = "cost unknown" if known(numbers.cost_usd) is None else cost(numbers)
    spent += " (simulated)" if record.simulated else ""
    line = Line(" · ".join(filter(None, [told.happened, spent, by])), told.tone)
    steps = [Line(one, "soft") for one in (_again(before, record), told.step) if one]
    return Page([line, *steps, *_answers(record)])


def _again(before: RunRecord | None, record: RunRecord) -> str:
    if before is None or before.plan.name != record.plan.name:
        return ""
    parts = [f"{number:,} with {reason}" for reason, number in bought_again(before, record).items()]
    return f"asked again: {', '.join(parts)}." if parts else ""


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


NO_PRICE = "has no known price"
REJECTED = "not asked again, since the same request was rejected as wrong"
_MOST_NAMED = 5


def ending_notes(record: RunRecord, policy: Policy) -> list[str]:
    plan, notes = record.plan, [capped_note(record, policy)]
    if plan.flow is not None:
        notes += [rounds_note(record), races_note(record)]
    notes.append(degraded_note(record))
    if plan.special:
        notes.append(closed_note(record, policy))
    if plan.groups:
        notes.append(no_items_note(record))
    if plan.special:
        notes += [unasked_note(record), failed_tools_note(record), called_again_note(record)]
    if plan.saves:
        notes.append(edited_note(record))
    return [*notes, filled_note(record)]


def capped_note(record: RunRecord, policy: Policy) -> str:
    """Name the cut, refused or empty answers that were passed on."""
    results = record.results
    if all(map(_ended_plainly, results)):
        return ""
    notes: list[tuple[Sequence[str], str]] = []
    if policy.on_max_tokens == "warn":
        held = [one.name for one in results if one.status == "capped" and one.kind == "BudgetExceeded"]
        ended = [one.name for one in results if one.status == "capped" and one.name not in held]
        long, full = record.stopped_for("max_tokens"), record.stopped_for("model_context_window_exceeded")
        notes += [
            (long, "Cut at max_tokens: {}. The text so far was passed on; --max-tokens allows more."),
            (full, "Cut, since the model's context is full: {}. The text so far was passed on; shorten the prompt."),
            (ended, "Incomplete after --max-turns: {}. The text so far was passed on."),
            (held, "Incomplete, since the budget had no room for the next turn: {}. The text so far was passed on."),
        ]
    if policy.on_refusal == "warn":
        notes.append((record.refused, "Refused: {}. Passed on as it is; %agents show NAME shows it."))
    empty = () if record.redacted else record.empty
    notes.append((empty, "Empty answer: {}. Passed on as it is; reword the prompt, or ask again with --fresh."))
    return " ".join(text.format(listed(names, _MOST_NAMED)) for names, text in notes if names)


def rounds_note(record: RunRecord) -> str:
    return " ".join(
        f"{name} capped: it ran all its rounds and {until} does not hold. The last was passed on; --rounds allows more."
        for name, until in capped_loops(record)
    )


def no_items_note(record: RunRecord) -> str:
    plan, told = record.plan, list[str]()
    for group, members in plan.groups.items():
        first = plan.agents[next(iter(members.values()))].part
        if first is None or not first.source or any(record.results[one].status != "unused" for one in members.values()):
            continue
        names = {plan.names[one] for one in members.values()}
        asked = [one.name for one, uses in zip(record.results, plan.inputs, strict=True) if names & {*uses}]
        asked = [name for name in asked if record[name].attempts]
        if asked:
            told.append(f"{first.over} has no items, so {listed(asked, 5)} was asked about no answer of {group}.")
            told.append(f'--when "{group} | length > 0" leaves it out.')
    return " ".join(told)


def closed_note(record: RunRecord, policy: Policy) -> str:
    """Name the agents that stopped calling tools early because of the budget."""
    most = {number: record.plan.agents[number].max_turns or policy.max_turns for number in record.plan.special}
    closed = [
        one.name
        for number, one in enumerate(record.results)
        if number in most and one.attempts and one.attempts[-1].request.tool_choice and one.turns < most[number]
    ]
    names = listed(closed, 5)
    return f"Answered without more tools, since the budget had no room for more turns: {names}." if closed else ""


def races_note(record: RunRecord) -> str:
    steps = [(one.hedges, record[one.name]) for one in record.plan.firsts if one.hedges]  # places have none
    twice = [(record[first], place) for first, place in steps if place.attempts]
    lost = [one for one in record.results if one.kind == BEATEN and one.attempts]
    others = [one for one in lost if all(one not in pair for pair in twice)]
    told: list[str] = []
    if others:
        told.append(f"Not needed, since others answered first: {listed([one.name for one in others], _MOST_NAMED)}.")
        told.append(f"They cost {_told_cost(others, record)}.")
    if twice:
        names = listed([place.name for _, place in twice], _MOST_NAMED)
        ahead = sum(place.status == "succeeded" for _, place in twice)
        of_pairs = [one for pair in twice for one in pair if one in lost]
        told.append(f"Asked a second time, since the answer was overdue: {names}; {ahead:,} of them answered first.")
        told += [f"The requests that were not needed cost {_told_cost(of_pairs, record)}."] if of_pairs else []
    if thrown := [one for one in record.results if one.kind == CONDITION and one.attempts]:
        names = listed([one.name for one in thrown], _MOST_NAMED)
        told.append(
            f"Begun before the condition was known, which is false: {names}; cost {_told_cost(thrown, record)}."
        )
    return " ".join(told)


def degraded_note(record: RunRecord) -> str:
    if not (found := record.degraded):
        return ""
    models = sorted({one.attempts[-1].model for one in found if one.moved_by == "degraded"})
    efforts = {one.attempts[-1].request.effort for one in found if one.attempts[-1].request.effort == "low"}
    how = [f"asked {', '.join(models)} instead"] if models else []
    how += ["with effort low"] if efforts else []
    names = listed([one.name for one in found], _MOST_NAMED)
    return f"Degraded, since the budget or the time was short: {names}; {' and '.join(how)}."


def _told_cost(lost: Sequence[AgentResult], record: RunRecord) -> str:
    cost = math.fsum(one.cost_usd for one in lost if one.cost_usd is not None)
    return f"{dollars(cost, cost_mark(lost))}{' (simulated)' if record.simulated else ''}"


def _ended_plainly(result: AgentResult) -> bool:
    end = result.attempts[-1].ended if result.attempts else None
    text = end.answer.text if end and end.answer else ""
    return bool(end and end.answer and end.answer.stop_reason == "end_turn" and text and not text.isspace())


def context_notes(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None) -> list[str]:
    label = " (simulated)" if record.simulated else ""
    return [
        f"{_context_note(one)}{label}. See run.contexts."
        for one in shared_contexts(record, prices)
        if one.ttl and one.requests
    ]


def _context_note(one: Shared) -> str:
    what = f"context {one.context!r} for {one.model}"
    if not one.cache_write_tokens and not one.cache_read_tokens:
        return f"{what}: marked for caching, but the provider cached nothing"
    if one.saved_usd is None or one.uncached_usd is None or one.cost_usd is None:
        return f"{what}: cached, savings unknown"
    paid = f"{dollars(one.cost_usd)} instead of {dollars(one.uncached_usd)}"
    if one.saved_usd < 0:
        return f"{what}: caching cost more than it saved, {paid}; --cache off disables it"
    return f"{what}: caching saved {dollars(one.saved_usd)}, {paid}"


def budget_note(record: RunRecord, policy: Policy) -> str:
    stopped = [(one.name, one.error or "") for one in record.results if one.kind == "BudgetExceeded"]
    unpriced = [name for name, error in stopped if NO_PRICE in error]
    tokens = [name for name, error in stopped if "tokens are used" in error]
    usd = [name for name, _ in stopped if name not in {*unpriced, *tokens}]
    notes = [
        f"Not sent, over the budget of {cap}: {listed(names, _MOST_NAMED)}. Run again with a larger budget to continue."
        for names, cap in ((usd, dollars(policy.budget_usd)), (tokens, f"{policy.budget_tokens or 0:,} tokens"))
        if names
    ]
    if unpriced:
        hint = "Set one: %agents prices MODEL --input USD --output USD."
        notes.append(f"Not sent, a budget in dollars needs a known price: {listed(unpriced, _MOST_NAMED)}. {hint}")
    return " ".join(notes)


def rejected_note(names: Sequence[str]) -> str:
    are, it = ("is", "it") if len(names) == 1 else ("are", "them")
    return f"{listed(names, _MOST_NAMED)} {are} {REJECTED}. Fix {it}; %agents retry {names[0]} sends it all the same."


DESK = "desk = am.Desk(plan), plan.run(ask=desk.ask), desk.approve(...)."


def unasked_note(record: RunRecord) -> str:
    asked = [
        (f"the answer of {one.name}" if call.tool == APPROVAL else f"{one.name} ({call.tool})", call.error or "")
        for one in record.results
        for call in one.calls
    ]
    absent = list(dict.fromkeys(name for name, error in asked if error.endswith(NOBODY.why)))
    late = list(dict.fromkeys(name for name, error in asked if LATE in error))
    notes = [
        (
            absent,
            "Denied, since nobody could be asked: {}. Run it in JupyterLab or on a terminal, or answer from Python: "
            + DESK,
        ),
        (late, "Denied, since nobody answered in time: {}. Policy(ask_s=...) waits longer."),
    ]
    return " ".join(text.format(listed(names, _MOST_NAMED)) for names, text in notes if names)


def failed_tools_note(record: RunRecord) -> str:
    # The model goes on without them, so the run looks well.
    ends: dict[str, list[ToolCall]] = {}
    for call in (one for result in record.results for one in result.calls if not one.is_own and one.ended is not None):
        ends.setdefault(call.tool, []).append(call)
    found: list[str] = []
    for tool, calls in ends.items():
        if all(one.status == "failed" for one in calls):
            error = calls[-1].error or ""
            shown = cut(error, 120)
            end = "" if shown.endswith((".", "…", "?")) else "."
            found.append(f"No call of {tool} succeeded ({len(calls):,} failed): {shown}{end} {hint_of(error)}".rstrip())
    return " ".join([*found[:_MOST_TOOLS], *(["%agents error NAME shows where."] if found else [])])


_MOST_TOOLS = 3


def called_again_note(record: RunRecord) -> str:
    # The result of a tool may have changed, so only a pure tool's results are kept after a conversation. Its
    # effects, such as a sent letter, happen again.
    found = Counter(
        call.tool
        for result in record.results
        for call in result.calls
        if call.source not in {None, "ledger", "replay"}
        and not call.is_own
        and all(one.price == PAID_BEFORE for one in result.attempts[call.turn - 1 : call.turn + 1])
        and len(result.attempts) > call.turn
    )
    if not found:
        return ""
    told = listed([f"{tool} {times:,}" for tool, times in found.items()], 5)
    return f"Tools called again, though the answers were reused: {told}. @am.tool(pure=True) keeps results."


def edited_note(record: RunRecord) -> str:
    told = [one.prints for result in record.results for one in result.calls if one.tool == SAVE and one.prints]
    more = f" So were {len(told) - _MOST_TOOLS:,} more: run.tool_calls has them." if len(told) > _MOST_TOOLS else ""
    return " ".join(told[:_MOST_TOOLS]) + more


def replayed_files_note(record: RunRecord) -> str:
    """Name the files that the recorded run wrote and its replay does not."""
    names = [name for result in record.results if result.source == "replay" for name in result.artifacts]
    wrote = listed([*dict.fromkeys(names)], _MOST_NAMED)
    return f"a replay writes no files; the recorded run wrote {wrote}" if names else ""


def filled_note(record: RunRecord) -> str:
    """Return the cost of the live part of a partly replayed run."""
    if not record.replayed:
        return ""
    sources = record.facts.sources - {"edited"}
    if "replay" not in sources or len(sources) == 1:
        return ""
    costs = [one.cost_usd for one in record.facts.ended if one.source != "replay"]
    known = [cost for cost in costs if cost is not None]
    mark = "" if len(known) == len(costs) else "≥"
    label = " (simulated)" if "simulated" in sources else ""
    return f"{dollars(math.fsum(known), mark)} spent now{label}; the rest is what the replayed answers had cost"


def ledger_notes(ledger: Ledger | None) -> list[str]:
    if ledger is None:
        return []
    notes = list(ledger.notes)
    ledger.notes.clear()
    return notes
