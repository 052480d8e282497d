"""The estimate of a plan: cost and time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent_magic.declare.units import count, dollars, plural, seconds, steps
from agent_magic.engine.admission.budget import give_price
from agent_magic.errors import shortened
from agent_magic.forecast.evidence import SURE_BY
from agent_magic.record.display import single_line
from agent_magic.record.reasons import limit
from agent_magic.show.page import Column, Fold, Line, Page, Table, Words, cut
from agent_magic.show.text import LEAST_STACK, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.forecast.estimate.value import Estimate, Expected, Outlay, Pilot
    from agent_magic.measure.path import CriticalPath
    from agent_magic.record.prices import Tariff

MOST_ROWS = 40
MOST_NAME = 20
RATES = ("input", "output", "cache read", "cache write", "1 h write")
MOST_STEPS = 8
MOST_REASONS = 6
MARKS = {"counted": "", "measured": "", "estimated": "≈", "ledger": "", "pilot": "≈", "assumed": "?"}
COLUMNS = (
    Column("agent", most=MOST_NAME),
    *(Column(title, "number") for title in ("input", "output", "low–high", "seconds", "expected", "at most")),
)
FACTS = (Column(""), Column("", "prose"))


def estimate_page(estimate: Estimate, prompts: str = "", worth: str = "", *, head: bool = True) -> Page:
    """Return the total, a row per agent (a declaration with many items is one), and the basis."""
    expected = estimate.expected
    lines = _lines(expected)
    rows = [_cells(one[0]) if len(one) == 1 else _group_cells(one) for one in lines[:MOST_ROWS]]
    more = [Line(f"… and {len(lines) - MOST_ROWS:,} more: plan.estimate().agents", "soft")]
    return Page(
        [
            *([headline(estimate)] if head else []),
            *(Line(note, "warn", head="note:") for note in estimate.notes),
            Fold("by agent", [Table(COLUMNS, rows, strong=True), *(more if len(lines) > MOST_ROWS else [])]),
            Fold(
                "ranges, and what they are based on",
                [
                    Table(FACTS, _facts(estimate), strong=True),
                    Line("≈ estimated, ? assumed; failures and retries not included.", "soft"),
                    *(Line(reason, "soft") for reason in _reasons(expected)),
                ],
            ),
            *([Fold("several agents or one", [Line(worth)])] if worth else []),
            *([Fold("the prompts", [Words(prompts)])] if prompts else []),
        ]
    )


def headline(estimate: Estimate) -> Line:
    label = " (simulated)" if estimate.simulated else ""
    cost = dollars(None if estimate.cost is None else estimate.cost.likely)
    many, wall_s = steps(len(estimate.expected), estimate.tasks), estimate.wall_s
    usd = "" if estimate.cost is None else f"{dollars(estimate.cost.low)}–{dollars(estimate.cost.high)}, "
    sure = f"{usd}{seconds(wall_s.low)}–{seconds(wall_s.high)}; {SURE_BY[estimate.basis]}"
    words = f"{many}, about {cost}{label} and {seconds(wall_s.likely)} ({sure}). %agents run runs it."
    return Line(words, head=f"{estimate.plan}:")


def pilot_line(pilot: Pilot) -> str:
    label = " (simulated)" if pilot.simulated else ""
    failed = f", {listed(pilot.failed)} failed" if pilot.failed else ""
    return f"ran {listed(pilot.agents) or 'no agent'} for {dollars(pilot.cost_usd)}{label}{failed}"


def price_line(expected: Sequence[Expected], times: int = 1) -> str:
    low, high = _sum(one.cost_usd for one in expected), _sum(one.most_usd for one in expected)
    likely, most = (None if one is None else one * times for one in (low, high))
    runs = f"{plural(times, 'run')} of " if times > 1 else ""
    asked = [one for one in expected if not one.shares]
    tokens, requests = sum(one.input_tokens for one in asked), sum(not one.is_task for one in asked)
    return (
        f"{runs}{plural(requests, 'request')}, about {count(tokens)} input tokens{' each' if times > 1 else ''}: "
        f"expected {dollars(likely)}, at most {dollars(most)} if every answer fills its max_tokens."
    )


def _cells(one: Expected) -> tuple[str, ...]:
    if one.reused:
        return one.agent, "ledger", "ledger", "", "0.0 s", "$0", "$0"
    if one.shares:
        return one.agent, "shared", "shared", "", MARKS[one.seconds_basis] + seconds(one.seconds.likely), "$0", "$0"
    if one.is_task:
        return one.agent, "task", "", "", MARKS[one.seconds_basis] + seconds(one.seconds.likely), "", ""
    return (
        one.agent,
        MARKS[one.basis] + count(one.input_tokens),
        MARKS[one.output_basis] + count(one.output_tokens),
        f"{count(one.output.low)}–{count(one.output.high)}",
        MARKS[one.seconds_basis] + seconds(one.seconds.likely),
        dollars(one.cost_usd),
        dollars(one.most_usd),
    )


def _lines(expected: Sequence[Expected]) -> list[list[Expected]]:
    found: dict[tuple[str, int], list[Expected]] = {}
    sizes = Counter(one.group for one in expected)
    for number, one in enumerate(expected):
        many = one.counted or (one.group and sizes[one.group] >= LEAST_STACK)
        key = (one.group, -1) if many else ("", number)
        found.setdefault(key, []).append(one)
    return list(found.values())


def _group_cells(group: Sequence[Expected]) -> tuple[str, ...]:
    many = len(group)
    name, each = group[0].group, sorted(one.seconds.likely for one in group)[len(group) // 2]
    group = [one for one in group if not one.shares] or group
    worst = max(group, key=lambda one: list(MARKS).index(one.basis))
    written = max(group, key=lambda one: list(MARKS).index(one.output_basis))
    timed = max(group, key=lambda one: list(MARKS).index(one.seconds_basis))
    low, high = sum(one.output.low for one in group), sum(one.output.high for one in group)
    label, took = f"{cut(name, MOST_NAME - 8)} ({many:,})", f"{MARKS[timed.seconds_basis]}{seconds(each)} each"
    if group[0].is_task:
        return label, "tasks", "", "", took, "", ""
    return (
        label,
        MARKS[worst.basis] + count(sum(one.input_tokens for one in group)),
        MARKS[written.output_basis] + count(sum(one.output_tokens for one in group)),
        f"{count(low)}–{count(high)}",
        took,
        dollars(_sum(one.cost_usd for one in group)),
        dollars(_sum(one.most_usd for one in group)),
    )


def _facts(estimate: Estimate) -> list[tuple[str, str]]:
    cost, wall_s, path = estimate.cost or (None, None, None), estimate.wall_s, estimate.critical_path
    facts = {
        "dollars": f"{dollars(cost[0])} low, {dollars(cost[1])} expected, {dollars(cost[2])} high; "
        f"at most {dollars(estimate.most_usd)} if every answer fills its max_tokens",
        "seconds": f"{seconds(wall_s.low)} low, {seconds(wall_s.likely)} expected, {seconds(wall_s.high)} high",
        "critical path": f"{_steps(path)}, {seconds(path.length_s)} together" if path.agents else "",
        "limited by": limit(estimate.limited_by) if estimate.limited_by else "",
        "identical": f"{'; '.join(estimate.identical)}; the same request is bought once" if estimate.identical else "",
        "reused": f"{estimate.reused} of {plural(len(estimate.expected), 'answer')}, at $0" if estimate.reused else "",
        "pilot": "" if estimate.pilot is None else pilot_line(estimate.pilot),
        "budget": _reach(estimate),
        "based on": estimate.stands_on,
    }
    return [(name, words) for name, words in facts.items() if words]


def _steps(path: CriticalPath) -> str:
    steps = [f"{name} {seconds(took)}" for name, took in zip(path.agents, path.work_s, strict=True)]
    return " → ".join(shortened(steps, MOST_STEPS))


def _reach(estimate: Estimate) -> str:
    found = estimate.reaches
    if found is None:
        return ""
    return (
        f"{dollars(found.budget_usd)} is enough for {found.likely} of "
        f"{steps(len(estimate.expected), estimate.tasks)}, {found.surely} if every answer fills its max_tokens"
    )


def _reasons(expected: Sequence[Expected]) -> list[str]:
    parts: dict[str, list[str]] = {}
    for one in expected:
        for part in one.stands_on.split("; "):
            parts.setdefault(part, []).append(one.agent)
    found = [
        part + ("" if len(names) == len(expected) else f" ({listed(names, 4)})")
        for part, names in parts.items()
        if "assumed" in part or "table" in part or "taken as" in part
    ]
    left = len(found) - MOST_REASONS
    return found if left <= 0 else [*found[:MOST_REASONS], f"… and {left} more in plan.estimate().agents"]


def outlay_line(what: Outlay, budget_usd: float | None) -> str:
    """Return `150 agents, about $7.20 expected (estimate), at most $31.00`."""
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


def prices_page(tariffs: Mapping[str, tuple[Tariff, str]]) -> Page:
    rows = [
        (
            "" if above > 0 else single_line(model),
            f"> {above:,}" if above > 0 else "",
            *(f"${one:,.10g}" for one in price.rates),
        )
        for model, (tariff, _) in tariffs.items()
        for above, price in tariff
    ]
    columns = [Column("model"), Column("prompt", "number"), *(Column(one, "number") for one in RATES)]
    sources: dict[str, list[str]] = {}
    for model, (tariff, source) in tariffs.items():
        sources.setdefault(source if tariff else "", []).append(single_line(model))
    unknown = [Line(f"no known price. {give_price(one)}", "warn", f"{one}:") for one in sources.pop("", [])]
    told = "; ".join(f"{single_line(source)} ({listed(models)})" for source, models in sources.items())
    priced = [Table(columns, rows, strong=True), Line(f"Dollars per million tokens. From {told}.", "soft")]
    return Page([*(priced if rows else []), *unknown])


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if None in found else sum(one for one in found if one is not None)
