"""The charts of one run: what they are told is worked out here from its record."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.validation import is_number
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.measure.metrics import critical_path, summarize, total_cost
from agent_magic.measure.spans import chain_of, spans_of
from agent_magic.show.charts.chart import provenance
from agent_magic.show.charts.limits import INPUT, OUTPUT, REQUESTS, UNDER_WAY, curves_of, limits_chart
from agent_magic.show.charts.points import check_frame, is_known
from agent_magic.show.charts.timeline import timeline_chart
from agent_magic.show.charts.tradeoff import Mark, tradeoff_chart
from agent_magic.show.charts.waterfall import dollar_steps, second_steps, waterfall_chart
from agent_magic.show.markup import single_line
from agent_magic.show.text import one_line
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.theme import Theme

MOST = 1e12
"""A limit above this is a mistake."""


def run_timeline(record: RunRecord, *, theme: Theme = "auto") -> Chart:
    """Draw when each agent of a run waited and worked, its critical path marked."""
    plan = record.plan
    order = [plan.names[agent] for layer in plan.dag.layers() for agent in layer]
    on_path = {plan.names[agent] for agent in critical_path(record)}
    return timeline_chart(
        spans_of(record),
        order,
        on_path=on_path if len(on_path) < len(order) else (),  # it says nothing where every agent is on it
        title=f"{single_line(plan.name)}: timeline",
        line=one_line(summarize(record)),
        caption=provenance(simulated=record.simulated),
        theme=theme,
    )


def run_waterfall(record: RunRecord, *, theme: Theme = "auto") -> Chart:
    """Draw where the seconds and the dollars of a run went."""
    numbers = summarize(record)
    chain = {record.results[agent].name for agent in chain_of(record)}
    spans = [span for span in spans_of(record) if span.agent in chain]
    costs = {result.name: result.cost_usd for result in record.results if result.attempts}
    return waterfall_chart(
        second_steps(spans, numbers.wall_s or 0.0),
        dollar_steps(costs),
        title=f"{single_line(record.plan.name)}: where the seconds and the dollars went",
        line=one_line(numbers),
        total_usd=total_cost(record.results),
        unpriced=sum(cost is None for cost in costs.values()),
        caption=provenance(simulated=record.simulated),
        theme=theme,
    )


def run_limits(record: RunRecord, limits: Mapping[str, float | None] | None = None, *, theme: Theme = "auto") -> Chart:
    """Draw what a run asked of the provider over time, beside the limits that are known or given."""
    return limits_chart(
        curves_of(record, {**known_limits(record), **_given_limits(limits)}),
        until_s=max((event.at_s for event in record.events), default=0.0),
        refused_s=[one.ended_s or 0.0 for one in record.attempts if one.status_code == 429],
        title=f"{single_line(record.plan.name)}: limits over time",
        line=one_line(summarize(record)),
        caption=provenance(simulated=record.simulated),
        theme=theme,
    )


def _given_limits(limits: object) -> dict[str, float | None]:
    """Read the limits that a user gives.

    Raises:
        DeclarationError: There is no such limit, or it is no number.
    """
    known = (REQUESTS, INPUT, OUTPUT, UNDER_WAY)
    if not isinstance(limits, Mapping | None):
        hint = "Give a mapping such as {'requests': 50}, per minute."
        raise DeclarationError(f"limits={shown_value(limits)} cannot work.", hint=hint)
    given = cast("Mapping[object, Any]", limits or {})
    for name, value in given.items():
        if name not in known:
            hint = f"One of {', '.join(known)}.{did_you_mean(name, known)}"
            raise DeclarationError(f"There is no limit {shown_value(name)}.", hint=hint)
        if value is not None and not (is_number(value) and 0 < value < MOST):
            raise DeclarationError(f"{name}={shown_value(value)} cannot work.", hint="Give a number above 0.")
    return cast("dict[str, float | None]", dict(given))


def run_tradeoff(record: RunRecord, frame: Any, *, chosen: Any = None, theme: Theme = "auto") -> Chart:
    """Draw a frame of scenarios as cost against time, the run itself among them.

    Args:
        record: The run.
        frame: What `run.whatif(...)` returned.
        chosen: The label of a row of it, such as `frame["cost_usd"].idxmin()`, to be marked; `None` marks none.
        theme: Its colours.

    Raises:
        DeclarationError: The frame has no such row, or its seconds or dollars are unknown.
    """
    check_frame(frame)
    numbers = summarize(record)
    known = numbers.cost_usd is not None and numbers.wall_s is not None
    marks = [Mark("this run", numbers.cost_usd or 0.0, numbers.wall_s or 0.0)] if known else []
    if chosen is not None:
        marks.append(_chosen(frame, chosen))
    return tradeoff_chart(frame, marks=marks, caption=frame_caption(frame), theme=theme)


def _chosen(frame: Any, chosen: Any) -> Mark:
    """Mark the row of a label, which has to be one that can be drawn."""
    labels: list[Any] = frame.index.tolist()
    places = [place for place, label in enumerate(labels) if isinstance(chosen, Hashable) and label == chosen]
    if len(places) != 1:
        what = f"the label of {len(places)} rows" if places else "no row"
        such = f", such as {labels[0]!r}" if len(places) < len(labels) else ""
        hint = (
            f"It has {plural(len(labels), 'row')}; give the label of one{such}. frame.reset_index() tells them apart."
        )
        raise DeclarationError(f"chosen={shown_value(chosen)} is {what} of the frame.", hint=hint)
    cost, wall_s = (frame[name].iloc[places[0]] for name in ("cost_usd", "wall_s"))
    if not (is_known(cost) and is_known(wall_s)):
        hint = "Choose one that has both: frame.dropna(subset=['cost_usd', 'wall_s'])."
        raise DeclarationError(f"The seconds or dollars of row {shown_value(chosen)} are unknown.", hint=hint)
    return Mark("chosen", float(cost), float(wall_s), strong=True)


def tradeoff(frame: Any, *, theme: Theme = "auto") -> Chart:
    """Draw a frame of scenarios as cost against time: what `run.whatif(...)` returned.

    Raises:
        DeclarationError: It is none.
    """
    check_frame(frame)
    return tradeoff_chart(frame, caption=frame_caption(frame), theme=theme)


def frame_caption(frame: Any) -> str:
    """Say where the numbers of a frame come from."""
    foretold = "nothing was sent" if frame.attrs.get("source") == "forecast" else ""
    return provenance(simulated=bool(frame.attrs.get("simulated")), forecast=foretold)


def known_limits(record: RunRecord) -> dict[str, float | None]:
    """Return what a run knew of its limits: its own concurrency, and the provider's where all went to one model class.

    Limits are per class: beside the sums of several classes none of them would be true.
    """
    if record.terms is None:
        return {}
    found: dict[str, float | None] = {UNDER_WAY: record.terms.policy.get("concurrency")}
    classes = record.terms.after or record.terms.before
    if len(classes) == 1:
        (ceilings,) = classes.values()
        words = {"requests": REQUESTS, "input": INPUT, "output": OUTPUT}
        found.update({name: ceilings[word].per_minute for word, name in words.items() if word in ceilings})
    return found
