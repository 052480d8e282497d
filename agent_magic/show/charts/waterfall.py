"""Where the seconds and the dollars of a run went: steps that add up to the whole."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.show.charts.chart import MARGIN, Chart, Paper, in_both, spec_of
from agent_magic.show.markup import fit, number, single_line
from agent_magic.show.units import dollars, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.measure.spans import Span
    from agent_magic.show.theme import Theme

MOST_STEPS = 9
ROW_H = 24.0
LABEL_W = 176.0
_END_W = 76.0
_PHASES: Mapping[str, tuple[str, str]] = {
    "queued": ("wait", "waiting for {}"),
    "backoff": ("fail", "waiting after a failure"),
    "local": ("none", "our own time"),
    "first": ("tape", "waiting for the first token"),
    "stream": ("run", "streaming"),
}


class Step(NamedTuple):
    """A step of a waterfall.

    Attributes:
        word: What it is.
        amount: Seconds or dollars.
        ink: Its colour.
    """

    word: str
    amount: float
    ink: str


def second_steps(spans: Sequence[Span], wall_s: float) -> list[Step]:
    """Add up what the agents of a chain did, by phase and reason. What is left of `wall_s` is our own time.

    Args:
        spans: What the agents that made the run as long as it was did.
        wall_s: How long it was.
    """
    sums: dict[tuple[str, str], float] = {("local", ""): wall_s - sum(span.length_s for span in spans)}
    for span in spans:
        key = (span.phase, span.reason if span.phase == "queued" else "")
        sums[key] = sums.get(key, 0.0) + span.length_s
    order = list(_PHASES)
    keys = sorted(sums, key=lambda key: (order.index(key[0]), -sums[key]))
    return [
        Step(_PHASES[phase][1].format(reason or "a slot"), sums[phase, reason], _PHASES[phase][0])
        for phase, reason in keys
    ]


def dollar_steps(costs: Mapping[str, float | None]) -> list[Step]:
    """Put the agents in order of what they cost, the small ones together. Without a known price there is no step."""
    known = sorted(((cost, name) for name, cost in costs.items() if cost), key=lambda one: -one[0])
    shown = known[:MOST_STEPS] if len(known) <= MOST_STEPS + 1 else known[: MOST_STEPS - 1]
    rest = known[len(shown) :]
    steps = [Step(single_line(name), cost, "done") for cost, name in shown]
    return [*steps, Step(f"{len(rest):,} more agents", sum(cost for cost, _ in rest), "done")] if rest else steps


def waterfall_chart(
    times: Sequence[Step],
    costs: Sequence[Step],
    *,
    title: str,
    line: str,
    total_usd: float | None,
    unpriced: int = 0,
    caption: str = "",
    theme: Theme = "auto",
) -> Chart:
    """Draw where the seconds and the dollars went.

    Args:
        times: The steps of the seconds.
        costs: The steps of the dollars.
        title: What it is of.
        line: The run's numbers in a line.
        total_usd: Dollars of the run; `None` where an answer's price is unknown.
        unpriced: How many agents asked and have no known price.
        caption: Where the numbers come from.
        theme: Its colours.
    """
    lost = f"{unpriced:,} agents without a known price not among the dollars" if unpriced else ""
    caption = " · ".join(filter(None, [caption, lost]))
    wall = sum(step.amount for step in times)
    total = sum(step.amount for step in costs)
    seen = [step for step in times if step.amount >= 0.0005 * max(wall, 1e-9)]
    paper = Paper(theme)
    paper.head(title, line)
    y = _panel(
        paper, 92, "seconds, along the agents that made the run as long as it was", seen, ("wall time", wall), seconds
    )
    whole = "cost" if total_usd is not None else "cost, as far as it is known"
    if costs:
        y = _panel(paper, y + 40, "dollars, by agent", costs, (whole, total), dollars)
    paper.caption(y + 30, caption)
    text = [title, line, *_lines(seen, ("wall time", wall), seconds)]
    text += ["", *_lines(costs, (whole, total), dollars)] if costs else []
    both = in_both(theme, functools.partial(_spec, seen, costs, (wall, total), (title, line, caption)))
    svg = paper.svg(y + (44 if caption else 24), f"{title}: {line}")
    return Chart(title, svg, text="\n".join([*text, *([caption] if caption else [])]), **both)


def _panel(
    paper: Paper,
    top: float,
    heading: str,
    steps: Sequence[Step],
    whole: tuple[str, float],
    write: Callable[[float], str],
) -> float:
    """Draw the steps one under the other, each where the last one ended. Returns where the panel ends."""
    paper.text(MARGIN, top - 8, heading, size=12, ink="ink", weight=600)
    x = MARGIN + LABEL_W
    scale = (paper.width - x - MARGIN - _END_W) / max(whole[1], 1e-12)
    done, y = 0.0, top
    for step in [*steps, Step(*whole, "ink")]:
        total = step.ink == "ink"
        start = 0.0 if total else done
        middle = y + ROW_H / 2
        paper.text(
            x - 10,
            middle + 4,
            fit(step.word, LABEL_W - 12, 11.5, bold=total),
            size=11.5,
            anchor="end",
            ink="ink" if total else "soft",
            weight=650 if total else None,
        )
        wide = max(1.0, step.amount * scale)
        paper.rect(x + start * scale, middle - 7, wide, 14, ink=step.ink, hint=f"{step.word}: {write(step.amount)}")
        paper.text(x + start * scale + wide + 6, middle + 4, write(step.amount), ink="ink")
        done = start + step.amount
        if not total:
            edge = number(x + done * scale)
            paper.line(f"M{edge} {number(middle + 7)}V{number(middle + ROW_H - 7)}", ink="edge")
        y += ROW_H
    return y


def _lines(steps: Sequence[Step], whole: tuple[str, float], write: Callable[[float], str]) -> list[str]:
    rows = [*((step.word, step.amount) for step in steps), whole]
    return [f"  {write(amount):>14}  {word}" for word, amount in rows]


def _spec(
    times: Sequence[Step], costs: Sequence[Step], wholes: tuple[float, float], words: tuple[str, str, str], theme: Theme
) -> dict[str, Any]:
    inks = Paper(theme).inks
    panels = [_spec_panel(times, ("wall time", wholes[0]), "seconds", "s", inks)]
    panels += [_spec_panel(costs, ("cost", wholes[1]), "dollars", "$", inks)] if costs else []
    return spec_of(words[0], words[1], {"vconcat": panels, "spacing": 28}, theme=theme, caption=words[2])


def _spec_panel(
    steps: Sequence[Step], whole: tuple[str, float], title: str, unit: str, inks: Mapping[str, str]
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    done = 0.0
    for step in steps:
        rows.append(
            {"step": step.word, "from": done, "to": done + step.amount, "amount": step.amount, "colour": inks[step.ink]}
        )
        done += step.amount
    rows.append({"step": whole[0], "from": 0, "to": whole[1], "amount": whole[1], "colour": inks["ink"]})
    write = seconds if unit == "s" else dollars
    for row in rows:
        row["shown"] = write(row["amount"])
    y = {
        "field": "step",
        "type": "nominal",
        "sort": [row["step"] for row in rows],
        "title": None,
        "axis": {"ticks": False, "domain": False},
    }
    x = {"field": "from", "type": "quantitative", "title": title, "scale": {"zero": True}}
    return {
        "width": 620,
        "height": {"step": 24},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "bar", "height": 14, "cornerRadius": 2},
                "encoding": {
                    "x": x,
                    "x2": {"field": "to"},
                    "y": y,
                    "color": {"field": "colour", "type": "nominal", "scale": None},
                    "tooltip": [{"field": "step"}, {"field": "shown", "title": title}],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": inks["ink"]},
                "encoding": {"x": {"field": "to", "type": "quantitative"}, "y": y, "text": {"field": "shown"}},
            },
        ],
    }
