"""Advice as a page: changes and their savings; settled rules and sources, folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.declare.units import dollars, known, plural, seconds
from agent_magic.forecast.advice.advice import APPLIED, LEAST_S, LEAST_USD
from agent_magic.show.page import Column, Fold, Line, Page, Table, Words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.advice.finding import Finding
    from agent_magic.show.page import Block

CHANGES: Final = (
    Column("", "number"),
    Column("change", "prose"),
    Column("saves"),
    Column("run then", "number"),
)
SOURCES: Final = (Column("rule"), Column("source", "prose"))
WHY: Final = (Column("", "number"), Column("why", "prose"))
EDITS: Final = (Column("", "number"), Column("write", "prose"), Column("where", "prose"))
RULES: Final = (Column("rule"), Column("measured", "prose"))
DIFF: Final = (Column("changed"), Column("option"), Column("before", "prose"), Column("now", "prose"))


def advice_page(advice: Advice) -> Page:
    changes = [
        (
            f"{number}.",
            one.change + (APPLIED if one.applied else ""),
            _gain(one),
            seconds(one.forecast_s) if known(one.forecast_s) is not None else "",
        )
        for number, one in enumerate(advice.changes, 1)
    ]
    numbered = [(f"{number}.", one) for number, one in enumerate(advice.changes, 1)]
    why = [(number, one.measured + ("" if advice.planned else _trust(one))) for number, one in numbered]
    fine = [(one.rule, one.measured) for one in advice if not one.change]
    blocks: list[Block] = [Line(_headline(advice), head="Lint:" if advice.planned else "Advice:")]
    if changes:
        blocks += [Table(CHANGES, changes), Table(WHY, why)]
    edits = [(number, one.edit, one.where) for number, one in numbered if one.edit]
    if edits:
        blocks.append(Table(EDITS, edits))
    if fine:
        blocks.append(Fold(f"{plural(len(fine), 'rule')} found nothing to change", [Table(RULES, fine)]))
    sources = [(one.rule, one.source) for one in advice]
    return Page([*blocks, Fold("where the rules are from", [Table(SOURCES, sources)], instead="")])


def _headline(advice: Advice) -> str:
    label = " (simulated)" if advice.simulated else ""
    found = f"{plural(len(advice.changes), 'change')} would pay" if advice.changes else "no change would pay"
    if applied := sum(one.applied for one in advice.changes):
        found += f", {applied} of them applied"
    if advice.planned:
        expected = f"the run is expected to take {seconds(advice.wall_s)} and {dollars(advice.cost_usd)}{label}"
        return f"{found}; {expected}. %agents plan says how sure that is."
    return f"{found}; the run took {seconds(advice.wall_s)} and {dollars(advice.cost_usd)}{label}."


def _gain(one: Finding) -> str:
    told = [
        (value, write(abs(value)))
        for value, least, write in ((one.saves_s, LEAST_S, seconds), (one.saves_usd, LEAST_USD, dollars))
        if known(value) is not None and value is not None and abs(value) >= least
    ]
    gains, costs = ([text for value, text in told if (value > 0) is good] for good in (True, False))
    return ", ".join([*gains, *(f"costs {text}" for text in costs)])


def _trust(one: Finding) -> str:
    told = ": ".join(filter(None, [one.basis.capitalize(), one.assumed]))
    return "" if told == "Measured" else f" {told}."


def diff_page(rows: Sequence[tuple[str, str, str, str]], prompts: Mapping[str, str], note: str) -> Page:
    tables: list[Block] = [Table(DIFF, rows, strong=True)] if rows else []
    for name, lines in prompts.items():
        tables += [Line("", head=f"The prompt of {name}:"), Words(lines)]
    return Page([Line("", head="Applied:"), *tables, Line(note, "soft")])
