"""The displayed form of each public class. Importing this module registers them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.units import UNKNOWN, dollars, known, plural, seconds
from agent_magic.forecast.advice.advice import APPLIED, LEAST_S, LEAST_USD, Advice
from agent_magic.forecast.calibration import Sweep
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.measure.path import CriticalPath
from agent_magic.measure.trial import SAID, Setting, Trial
from agent_magic.record.display import ShownFrame, bundle_of
from agent_magic.record.results import AgentResult
from agent_magic.show.estimates import estimate_page
from agent_magic.show.frames import frame_bundle
from agent_magic.show.page import Column, Fold, Line, Page, Table, Words
from agent_magic.show.values import result_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.forecast.advice.finding import Finding
    from agent_magic.show.page import Block


bundle_of.register(AgentResult, result_bundle)


@bundle_of.register(Advice)
def _advice(advice: Advice) -> dict[str, str]:
    return advice_page(advice).bundle()


@bundle_of.register(Estimate)
def _estimate(estimate: Estimate) -> dict[str, str]:
    return estimate_page(estimate).bundle()


@bundle_of.register(Trial)
def _trial(trial: Trial) -> dict[str, str]:
    return trial_page(trial).bundle()


@bundle_of.register(ShownFrame)
def _frame(frame: ShownFrame) -> dict[str, str]:
    return frame_bundle(cast("pd.DataFrame", frame))


@bundle_of.register(CriticalPath)
@bundle_of.register(Sweep)
def _with_frame(value: CriticalPath | Sweep[Any]) -> dict[str, str]:
    return frame_bundle(value.frame)


SETTINGS: Final = (
    Column("setting"),
    Column("score", "number"),
    Column("95 % interval"),
    Column("answers", "number"),
    Column("one answer", "number"),
    Column("work", "number"),
    Column("whole run", "number"),
    Column("verdict", "prose"),
)
PAIRS: Final = (Column("setting"), Column("other"), Column("difference", "number"), Column("between"))


NOTHING: Final = " Nothing to apply: give it a larger budget, or fix the problem above."


def trial_page(trial: Trial) -> Page:
    places = {one: index for index, one in enumerate(trial.settings)}
    rows = [
        _setting_row(row, trial.more_words(places[Setting.of(row)]))
        for row in trial.frame.astype(object).where(trial.frame.notna(), None).to_dict("records")
    ]
    pairs = [
        (
            row["setting"],
            row["other"],
            f"{_number(row['difference'])}",
            f"{_number(row['low'])} to {_number(row['high'])}",
        )
        for row in trial.pairs.to_dict("records")
    ]
    spent = f"It cost {dollars(trial.spent_usd)}{' (simulated)' if trial.simulated else ''}."
    there = sum(one.by_tokens for each in trial.tried for one in each)
    were, their = ("was", "its") if there == 1 else ("were", "their")
    spent += f" {plural(there, 'answer')} {were} there before, priced by {their} tokens." if there else ""
    whys = dict.fromkeys([why for index in range(len(trial.settings)) if (why := trial.why_unknown(index))])
    apply = " run.apply(trial.chosen) or %agents apply takes it." if trial.chosen else NOTHING
    return Page(
        [
            Line(f"{trial.headline()}.", head=f"Trial of {trial.target}:"),
            Table(SETTINGS, rows, strong=True),
            *(Line(one, "warn") for one in whys),
            Line(f"{spent}{apply}", "soft"),
            Fold("differences, row by row", [Table(PAIRS, pairs)], instead="trial.pairs has the differences"),
        ]
    )


def _setting_row(row: dict[Any, Any], would_tell: str) -> tuple[str, ...]:
    known = {name: value for name, value in row.items() if _is_known(value)}
    errors = known.get("errors")
    verdict = SAID.get(row["verdict"], row["verdict"])
    verdict += f": {would_tell}" if would_tell else ""
    verdict += f" ({errors} not graded)" if errors and known.get("n") else ""
    return (
        Setting.of(row).label,
        _number(known.get("score")),
        f"{_number(known.get('low'))} to {_number(known.get('high'))}" if known.get("n") else UNKNOWN,
        f"{known.get('n') or 0:,}",
        dollars(known.get("cost_usd")),
        seconds(known.get("total_s")),
        dollars(known.get("run_usd")),
        verdict,
    )


def _is_known(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and not math.isnan(value))


def _number(value: Any) -> str:
    return f"{value:.2f}".replace("-", "−") if _is_known(value) else UNKNOWN


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
