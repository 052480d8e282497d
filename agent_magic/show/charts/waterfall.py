"""The seconds and dollars of a run, as steps that add up to the total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.units import dollars, seconds
from agent_magic.measure.frames import next_step
from agent_magic.measure.metrics import summarize, total_cost
from agent_magic.record.display import single_line
from agent_magic.record.phases import chain_of, spans_of
from agent_magic.show.charts.chart import ADVISE, compose, provenance
from agent_magic.show.charts.marks import ROW_H, Bar, Label, Line, Look, Panel, Rows, Scale
from agent_magic.show.charts.timeline import look_of
from agent_magic.show.text import one_line
from agent_magic.show.theme import BAR_H, PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.record.phases import Kind, Span
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Mark
    from agent_magic.show.theme import Theme

MOST_STEPS: Final = 9
LEAST_SHARE: Final = 0.0005
ORDER: Final[tuple[Kind, ...]] = ("queued", "backoff", "local", "first", "stream", "tool")


class Step(NamedTuple):
    """In seconds or dollars."""

    name: str
    amount: float
    look: Look


def run_waterfall(record: RunRecord, *, theme: Theme = "auto") -> Chart:
    totals = summarize(record)
    wall_s = totals.wall_s or 0.0
    chain = {record.results[agent].name for agent in chain_of(record)}
    times = second_steps([span for span in spans_of(record) if span.agent in chain], wall_s)
    seen = [step for step in times if step.amount >= LEAST_SHARE * max(wall_s, 1e-9)]
    costs = {result.name: result.cost_usd for result in record.results if result.attempts}
    unpriced = sum(cost is None for cost in costs.values())
    heading = "seconds, along the agents that made the run as long as it was"
    panels = [_panel(heading, seen, ("wall time", wall_s), seconds)]
    if steps := dollar_steps(costs):
        whole = "cost" if total_cost(record.results) is not None else "cost, as far as it is known"
        panels.append(_panel("dollars, by agent", steps, (whole, sum(step.amount for step in steps)), dollars))
    lost = f"without {unpriced:,} agents of unknown price" if unpriced else ""
    title = f"{single_line(record.plan.name)}: where the seconds and the dollars went"
    caption = [next_step(record, ADVISE), *provenance(simulated=record.simulated), lost]
    return compose(title, one_line(totals), panels, caption=caption, theme=theme)


def second_steps(spans: Sequence[Span], wall_s: float) -> list[Step]:
    """Add up the spans by phase and reason; the rest of `wall_s` is local work."""
    sums: dict[tuple[Kind, str], float] = {("local", ""): wall_s - sum(span.length_s for span in spans)}
    for span in spans:
        key = (span.phase, (span.reason or "a slot") if span.phase == "queued" else "")
        sums[key] = sums.get(key, 0.0) + span.length_s
    keys = sorted(sums, key=lambda key: (ORDER.index(key[0]), -sums[key]))
    return [
        Step(f"waiting for {reason}" if reason else PHASES[kind].word, sums[kind, reason], _plain(look_of(kind)))
        for kind, reason in keys
    ]


def dollar_steps(costs: Mapping[str, float | None]) -> list[Step]:
    known = sorted(((cost, name) for name, cost in costs.items() if cost), key=lambda one: -one[0])
    shown = known[:MOST_STEPS] if len(known) <= MOST_STEPS + 1 else known[: MOST_STEPS - 1]
    rest = known[len(shown) :]
    look = _plain(look_of("stream"))
    steps = [Step(single_line(name), cost, look) for cost, name in shown]
    return [*steps, Step(f"{len(rest):,} more agents", sum(cost for cost, _ in rest), look)] if rest else steps


def _plain(look: Look) -> Look:
    return look._replace(size=BAR_H, word="", dash="")


def _panel(title: str, steps: Sequence[Step], whole: tuple[str, float], write: Callable[[float], str]) -> Panel:
    marks: list[Mark] = []
    done = 0.0
    for row, step in enumerate([*steps, Step(*whole, Look("ink", size=BAR_H))]):
        is_whole = row == len(steps)
        start = 0.0 if is_whole else done
        done = start + step.amount
        marks.append(Bar(start, done, row + 0.5, step.look, {"step": step.name, "amount": write(step.amount)}))
        marks.append(Label(done, row + 0.5, write(step.amount), dx=6, ink="ink"))
        if not is_whole:
            marks.append(Line([(done, row + 0.8), (done, row + 1.2)], Look("edge")))
    rows = Rows([*(step.name for step in steps), whole[0]], bold=frozenset({len(steps)}))
    x = Scale(max(whole[1], 1e-12), write=write)
    return Panel(marks, x, rows, height=ROW_H * (len(steps) + 1), left=268, right=76, title=title)
