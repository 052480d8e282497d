"""What a plan may cost and take, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.engine.admission.budget import give_price
from agent_magic.record.plaintext import single_line
from agent_magic.show.text import listed
from agent_magic.show.units import count, dollars, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.forecast.confirm import Outlay
    from agent_magic.forecast.estimate.value import Estimate, Expected
    from agent_magic.forecast.pilot import Pilot
    from agent_magic.record.prices import Tariff

MOST_ROWS = 40
RATES = ("input", "output", "cache read", "cache write", "for an hour")
MOST_STEPS = 8
MOST_REASONS = 6
MARKS = {"counted": "", "estimated": "≈", "ledger": "", "pilot": "≈", "assumed": "?"}
"""What stands before a number for what it stands on."""


def estimate_text(estimate: Estimate) -> str:
    """Write a table, a row per agent, and what the whole may cost and take. Each number says what it stands on."""
    expected = estimate.expected
    width = min(32, max((len(one.agent) for one in expected), default=5))
    titles = f"{'input':>9}  {'output':>7}  {'low–high':>13}  {'seconds':>10}  {'expected':>9}  {'at most':>9}"
    head = f"{'agent':<{width}}  {titles}"
    rows = [f"{one.agent[:width]:<{width}}  {_cells(one)}" for one in expected[:MOST_ROWS]]
    more = [f"… and {len(expected) - MOST_ROWS:,} more"] if len(expected) > MOST_ROWS else []
    return "\n".join([head, *rows, *more, *_whole(estimate), *_legend(estimate)])


def pilot_line(pilot: Pilot) -> str:
    """Write what was run to find out: `pilot: a, b and c were run for $0.0021 (simulated); ...`."""
    who, made_up = ", ".join(pilot.agents) or "nobody", " (simulated)" if pilot.simulated else ""
    failed = f"; {', '.join(pilot.failed)} failed" if pilot.failed else ""
    were = "was" if len(pilot.agents) == 1 else "were"
    return f"pilot: {who} {were} run for {dollars(pilot.cost_usd)}{made_up}{failed}; the rest is estimated by that"


def price_line(expected: Sequence[Expected], times: int = 1) -> str:
    """Write in a line what running it so many times may cost."""
    low, high = _sum(one.cost_usd for one in expected), _sum(one.most_usd for one in expected)
    likely, most = (None if one is None else one * times for one in (low, high))
    runs = f"{plural(times, 'run')} of " if times > 1 else ""
    tokens = sum(one.input_tokens for one in expected)
    return (
        f"{runs}{plural(len(expected), 'request')}, about {count(tokens)} input tokens{' each' if times > 1 else ''}: "
        f"expected {dollars(likely)}, at most {dollars(most)} if every answer fills its max_tokens."
    )


def _cells(one: Expected) -> str:
    if one.reused:
        return f"{'ledger':>9}  {'ledger':>7}  {'':>13}  {'0.0 s':>10}  {'$0':>9}  {'$0':>9}"
    ends = f"{count(one.output.low)}–{count(one.output.high)}"
    return (
        f"{MARKS[one.basis] + count(one.input_tokens):>9}  {MARKS[one.output_basis] + count(one.output_tokens):>7}  "
        f"{ends:>13}  {MARKS[one.seconds_basis] + seconds(one.seconds.likely):>10}  {dollars(one.cost_usd):>9}  "
        f"{dollars(one.most_usd):>9}"
    )


def _whole(estimate: Estimate) -> list[str]:
    """Write what the whole may cost and take."""
    cost, wall_s = estimate.cost or (None, None, None), estimate.wall_s
    most = f"at most {dollars(estimate.most_usd)} if every answer fills its max_tokens"
    lines = [
        f"dollars: {dollars(cost[0])} low, {dollars(cost[1])} expected, {dollars(cost[2])} high; {most}",
        f"seconds: {seconds(wall_s.low)} low, {seconds(wall_s.likely)} expected, {seconds(wall_s.high)} high",
    ]
    path = estimate.critical_path
    if path.agents:
        steps = [f"{name} {seconds(took)}" for name, took in zip(path.agents, path.work_s, strict=True)]
        if len(steps) > MOST_STEPS:
            steps = [*steps[: MOST_STEPS - 2], f"({len(steps) - MOST_STEPS + 1} more)", steps[-1]]
        lines.append(f"critical path: {' → '.join(steps)}, {seconds(path.length_s)} together")
    lines.append(f"limited by: {estimate.limited_by}")
    if estimate.reused:
        lines.append(f"ledger: {estimate.reused} of {plural(len(estimate.expected), 'answer')} bought before, at $0")
    if estimate.pilot is not None:
        lines.append(pilot_line(estimate.pilot))
    if estimate.reaches is not None:
        found = estimate.reaches
        lines.append(
            f"budget: {dollars(found.budget_usd)} reaches {found.likely} of {plural(len(estimate.expected), 'agent')} "
            f"in the order they start, {found.surely} if every answer fills its max_tokens"
        )
    return lines


def _legend(estimate: Estimate) -> list[str]:
    made_up = " Earlier answers were made up by the stand-in API." if estimate.simulated else ""
    return [
        f"stands on: {estimate.stands_on}. ≈ is estimated or of a pilot, ? is assumed; failures are left out.{made_up}",
        *_reasons(estimate.expected),
        *(f"note: {note}" for note in estimate.notes),
    ]


def _reasons(expected: Sequence[Expected]) -> list[str]:
    """Say in words what was assumed, each once, and of whom where that is not all."""
    parts: dict[str, list[str]] = {}
    for one in expected:
        for part in one.stands_on.split("; "):
            parts.setdefault(part, []).append(one.agent)
    found = [
        f"  {part}" + ("" if len(names) == len(expected) else f" ({listed(names, 4)})")
        for part, names in parts.items()
        if "assumed" in part or "table" in part or "taken as" in part
    ]
    left = len(found) - MOST_REASONS
    return found if left <= 0 else [*found[:MOST_REASONS], f"  … and {left} more in plan.estimate().agents"]


def outlay_line(what: Outlay, budget_usd: float | None) -> str:
    """Write in a line what a run may cost: `150 agents, about $7.20 expected (estimate), at most $31.00`."""
    parts = [plural(what.agents, "agent")]
    if what.unpriced < what.agents:
        parts.append(f"about {dollars(what.usd)} expected (estimate)")
        if budget_usd is not None and budget_usd < what.most_usd:
            parts.append(f"at most {dollars(budget_usd)}, the budget")
        elif not what.unpriced:
            parts.append(f"at most {dollars(what.most_usd)}")
    if what.unpriced:
        parts.append(f"{what.unpriced:,} of unknown price")
    return ", ".join(parts)


def tariff_text(model: str, tariff: Tariff, basis: str) -> str:
    """Write what a model's tokens cost per million, a line for each length of the prompt, and where that is from."""
    model = single_line(model)
    if not tariff:
        return f"{model}: no price is known. {give_price(model)}"
    lines: list[str] = []
    for above, price in tariff:
        rates = ", ".join(f"{kind} ${rate:,.10g}" for kind, rate in zip(RATES, price.rates, strict=True))
        lines.append(f"  prompts over {above:,} tokens: {rates}" if lines else f"{model}: {rates} per MTok ({basis})")
    return "\n".join(lines)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if None in found else sum(one for one in found if one is not None)
