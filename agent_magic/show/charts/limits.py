"""Use of the provider beside its limits: concurrent requests, and sums over the last minute."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.declare.validation import is_number
from agent_magic.engine.pacing.limits import KINDS, MOST
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.measure.frames import next_step
from agent_magic.measure.metrics import summarize
from agent_magic.record.display import single_line
from agent_magic.record.facts import Facts
from agent_magic.show.charts.chart import ADVISE, compose, provenance
from agent_magic.show.charts.marks import Area, Line, Look, Panel, Scale, numbers, times
from agent_magic.show.text import run_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from agent_magic.record.results import Attempt, RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Mark
    from agent_magic.show.theme import Theme

WINDOW_S: Final = 60.0
BINS: Final = 240
NEAR: Final = 0.25
"""A limit is drawn if this share of it was used; otherwise it would flatten the curve."""
CONCURRENT, REQUESTS = "requests under way", "requests"
TITLES: Final = {
    CONCURRENT: "concurrent requests",
    **{kind.unit: f"{kind.counted} in the last minute" for kind in KINDS.values()},
}


class Curve(NamedTuple):
    """A number over time, constant between its steps."""

    name: str
    steps: tuple[tuple[float, float], ...]
    limit: float | None = None

    @property
    def most(self) -> float:
        return max((value for _, value in self.steps), default=0.0)


def run_limits(record: RunRecord, limits: object = None, *, theme: Theme = "auto") -> Chart:
    given = {**known_limits(record), **_given_limits(limits)}
    until_s = max((event.at_s for event in record.events), default=0.0)
    refused_s = [one.ended_s or 0.0 for one in record.facts.rate_limited]
    x = times(until_s)
    shares = shares_of(record)
    panels = [
        _panel(curve, x, refused_s if curve.name == REQUESTS else (), until_s, shares.get(curve.name))
        for curve in curves_of(record.attempts, given)
    ]
    refused = f"red ticks: {len(refused_s):,} requests refused (429)" if refused_s else ""
    title = f"{single_line(record.plan.name)}: limits over time"
    caption = [refused, *evenly(record), *provenance(simulated=record.simulated)]
    return compose(title, run_line(record), panels, caption=caption, theme=theme)


def evenly(record: RunRecord) -> list[str]:
    by = KINDS.get(cast("Any", summarize(record).limited_by))
    limit = None if by is None else known_limits(record).get(by.unit)
    if by is None or not limit:
        return [next_step(record, ADVISE)]
    twice = f"run.whatif(limits={{'{by.field}': {2 * limit:.0f}}}) forecasts twice the limit"
    return [
        f"{limit:,.0f} {by.unit} a minute are let in evenly, {limit / WINDOW_S:.2g} a second",
        next_step(record, twice),
    ]


def shares_of(record: RunRecord) -> dict[str, Curve]:
    classes = {} if record.terms is None else record.terms.after or record.terms.before
    found: dict[str, Curve] = {}
    for name, ceilings in classes.items():
        limits = {kind.unit: ceilings[word].per_minute for word, kind in KINDS.items() if word in ceilings}
        for curve in curves_of(_of_class(record, name), limits):
            if curve.limit is None or curve.name == CONCURRENT:
                continue
            limit, beside = curve.limit, f" ({single_line(name)})" if len(classes) > 1 else ""
            share = Curve(curve.name + beside, tuple((at, value / limit) for at, value in curve.steps))
            if curve.name not in found or share.most > found[curve.name].most:
                found[curve.name] = share
    return found


def used_lately(records: Iterable[RunRecord], name: str, now: datetime) -> dict[str, float]:
    found = dict.fromkeys((kind.unit for kind in KINDS.values()), 0.0)
    for record in records:
        now_s = (now - record.began_at).total_seconds()
        for curve in curves_of(_of_class(record, name), {}):
            if curve.name in found:
                found[curve.name] += next((value for at, value in reversed(curve.steps) if at <= now_s), 0.0)
    return found


def _of_class(record: RunRecord, name: str) -> list[Attempt]:
    return [one for one in record.attempts if name in _classes_of(record, one)]


def _classes_of(record: RunRecord, attempt: Attempt) -> set[str]:
    """Return the class with and without its endpoint: limits may have either name."""
    facts = None if record.terms is None else record.terms.models.get(attempt.model)
    return set() if facts is None else {facts.limit_class, f"{attempt.endpoint}/{facts.limit_class}"}


def known_limits(record: RunRecord) -> dict[str, float | None]:
    """Return the concurrency, and the limits if all requests went to one model class."""
    # Limits are per class, so none of them applies to sums over several classes.
    if record.terms is None:
        return {}
    found: dict[str, float | None] = {CONCURRENT: record.terms.policy.get("concurrency")}
    classes = record.terms.after or record.terms.before
    if len(classes) == 1:
        (ceilings,) = classes.values()
        found.update({kind.unit: ceilings[name].per_minute for name, kind in KINDS.items() if name in ceilings})
    return found


def _given_limits(limits: object) -> dict[str, float | None]:
    known = (*(kind.unit for kind in KINDS.values()), CONCURRENT)
    if not isinstance(limits, Mapping | None):
        hint = "Give a mapping such as {'requests': 50}, per minute."
        raise DeclarationError(f"limits must be a mapping, got {shown_value(limits)}.", hint=hint)
    given = cast("Mapping[object, Any]", limits or {})
    for name, value in given.items():
        if name not in known:
            hint = f"One of {', '.join(known)}.{did_you_mean(name, known)}"
            raise DeclarationError(f"Unknown limit: {shown_value(name)}.", hint=hint)
        if value is not None and not (is_number(value) and 0 < value < MOST):
            raise DeclarationError(f"{name} must be a number above 0, got {shown_value(value)}.")
    return cast("dict[str, float | None]", dict(given))


def curves_of(attempts: Sequence[Attempt], limits: Mapping[str, float | None]) -> list[Curve]:
    """Count requests and input when sent, output when complete, reused answers not at all."""
    sent = Facts(attempts).sent
    concurrent = [(one.started_s, 1.0) for one in sent]
    concurrent += [(one.ended_s, -1.0) for one in sent if one.ended_s is not None]
    changes, taken = _changes(sent), dict[str, list[tuple[float, float]]]()
    for kind in KINDS.values():
        amounts = [(at, kind.amount(*each)) for at, *each in changes]
        came = [(at, amount) for at, amount in amounts if amount]
        taken[kind.unit] = [*came, *((at + WINDOW_S, -amount) for at, amount in came)]
    sums = {name: _running_sum(each) for name, each in {CONCURRENT: concurrent, **taken}.items()}
    return [Curve(name, tuple(steps), limits.get(name)) for name, steps in sums.items()]


def peaks(curve: Curve, until_s: float, bins: int = BINS) -> list[tuple[float, float, float]]:
    """Return the peak of each bin as (start, end, value), equal neighbours merged."""
    # When one request ends and the next begins a moment later, the curve dips by one. Drawn as it is, that looks
    # like a spike.
    width = max(until_s, 1e-9) / bins
    highest = [0.0] * bins
    ends = [*(at for at, _ in curve.steps[1:]), until_s]
    for (start, value), end in zip(curve.steps, ends, strict=False):  # without steps there is an end too many
        first, last = min(int(start / width), bins - 1), ceil(min(end, until_s) / width)
        for index in range(first, min(max(last, first + 1), bins)):
            highest[index] = max(highest[index], value)
    found: list[tuple[float, float, float]] = []
    for index, value in enumerate(highest):
        start, end = index * width, (index + 1) * width
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], end, value)
        else:
            found.append((start, end, value))
    return found


def _panel(curve: Curve, x: Scale, refused_s: Sequence[float], until_s: float, share: Curve | None) -> Panel:
    steps, limit = peaks(curve, until_s), curve.limit
    is_near = limit is not None and curve.most > limit * NEAR
    ticks = numbers(max(curve.most, limit if limit and is_near else 0.0, 1.0), 3)
    edge = [*((start, value) for start, _, value in steps), (steps[-1][1], steps[-1][2])]
    marks: list[Mark] = [
        Area([(start, end, 0.0, value) for start, end, value in steps], Look("run", 0.16)),
        Line(edge, Look("run", size=1.5), is_stepped=True),
    ]
    note = "limit unknown" if limit is None else f"limit {limit:,.10g}"
    if limit is None and share is not None:  # of several models with separate limits
        note = f"at most {percent(share.most)} of a limit: {share.name}"
    if limit is not None and is_near:
        marks.append(Line([(0.0, limit), (x.most, limit)], Look("fail", size=1.2, dash="5 4")))
    elif limit is not None:
        note += ", far above"
    marks += [Line([(at, 0.0), (at, ticks[-1] * 0.12)], Look("fail", size=2.0)) for at in refused_s]
    y = Scale(ticks[-1], (0.0, ticks[-1] / 2, ticks[-1]), label=_write, write=_write)
    ink = "fail" if is_near else "soft"
    return Panel(marks, x, y, height=84, left=56, title=TITLES[curve.name], note=note, note_ink=ink)


def percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 or not share else 1}f} %"


def _write(value: float) -> str:
    return f"{value:,.10g}"


def _changes(attempts: Iterable[Attempt]) -> list[tuple[float, float, float, float]]:
    """Return (second, requests, uncached input tokens, output tokens) for each request."""
    found: list[tuple[float, float, float, float]] = []
    for one in attempts:
        taken = None if one.usage is None else one.usage.limited_input_tokens
        found.append((one.started_s, 1.0, taken or 0.0, 0.0))
        if one.usage is not None and one.usage.output_tokens and one.ended_s is not None:
            found.append((one.ended_s, 0.0, 0.0, one.usage.output_tokens))
    return found


def _running_sum(changes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    steps: list[tuple[float, float]] = []
    value = 0.0
    for at, change in sorted(changes):
        value += change
        if steps and steps[-1][0] == at:
            steps[-1] = (at, value)
        else:
            steps.append((at, value))
    return steps
