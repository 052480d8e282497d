"""Two runs compared: a bar of each per agent, what became slower or dearer, which answers changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.declare.units import dollars, plural, seconds
from agent_magic.measure.frames import next_step
from agent_magic.measure.metrics import summarize
from agent_magic.record.answer import WITHOUT_ANSWER
from agent_magic.record.display import single_line
from agent_magic.show.charts.chart import ADVISE, compose, provenance
from agent_magic.show.charts.marks import MARGIN, ROW_H, WIDTH, Bar, Label, Look, Panel, Rows, times
from agent_magic.show.markup import fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Mark
    from agent_magic.show.theme import Theme

MOST_ROWS: Final = 40
LEAST_S: Final = 0.05
LEAST_SHARE: Final = 0.1
"""A smaller relative change of an agent's time is chance."""
LEAST_USD: Final = 0.00005
BAR_H: Final = 6.0
LABEL_W: Final = 250.0
NAMES_W: Final = 150.0
BEFORE: Final = Look("idle", 0.75, BAR_H, "a")
AFTER: Final = Look("done", 1.0, BAR_H, "b")
SLOWER: Final = Look("wait", 1.0, BAR_H, "b, slower")
LOST: Final = Look("fail", 1.0, BAR_H, "b, did not succeed")


def comparison_chart(a: RunRecord, b: RunRecord, rows: Sequence[Mapping[str, object]], *, theme: Theme) -> Chart:
    first, second = ({one.name: one for one in record.results} for record in (a, b))
    shown = sorted(rows, key=lambda row: -abs(_number(row["diff_s"]) or 0.0))[:MOST_ROWS]
    wanted = {str(row["agent"]) for row in shown}
    kept = [row for row in rows if row["agent"] in wanted]
    pairs = [(first.get(str(row["agent"])), second.get(str(row["agent"]))) for row in kept]
    until_s = max((span[1] for pair in pairs for one in pair if (span := _span(one))), default=0.0)
    marks = [
        mark
        for index, (row, pair) in enumerate(zip(kept, pairs, strict=True))
        for mark in _row(index, row, *pair, until_s)
    ]
    names = Rows([single_line(str(row["agent"])) for row in kept])
    panel = Panel(marks, times(until_s), names, height=len(kept) * ROW_H, left=NAMES_W, right=LABEL_W + 10)
    looks = list(dict.fromkeys(mark.look for mark in marks if isinstance(mark, Bar)))
    left = len(rows) - len(kept)
    caption = [
        next_step(b, _step(b, rows)),
        *provenance(simulated=a.simulated or b.simulated),
        f"the {len(kept)} agents that differ most of {plural(len(rows), 'agent')}" if left else "",
    ]
    legend = [look for look in (BEFORE, AFTER, SLOWER, LOST) if look in looks]
    return compose("two runs: b over a", _line(a, b, rows), [panel], legend=legend, caption=caption, theme=theme)


def _line(a: RunRecord, b: RunRecord, rows: Sequence[Mapping[str, object]]) -> str:
    one, other = summarize(a), summarize(b)
    counts = {
        "slower": sum(_is_slower(row) for row in rows),
        "dearer": sum((_number(row["diff_usd"]) or 0.0) >= LEAST_USD for row in rows),
    }
    changed = sum(row["text_changed"] is True for row in rows)
    return " · ".join(
        [
            f"{seconds(one.wall_s)} → {seconds(other.wall_s)}",
            f"{dollars(one.cost_usd)} → {dollars(other.cost_usd)}",
            *(f"{number:,} {word}" for word, number in counts.items() if number),
            *([f"{plural(changed, 'answer')} changed"] if changed else []),
        ]
    )


def _step(b: RunRecord, rows: Sequence[Mapping[str, object]]) -> str:
    """Return the next step: only grades tell which answer is better."""
    changed = next((str(row["agent"]) for row in reversed(rows) if row["text_changed"] is True), "")
    if changed:
        return f"b.judge({single_line(changed)!r}, judge, against=a) tells whose answer is better"
    if b.served:
        return "b reused answers, which takes no time: %agents run --fresh measures it"
    if any(map(_is_slower, rows)):
        return "b.timeline() shows where its seconds went"
    return ADVISE.replace("run.", "b.")


def _row(
    place: int, row: Mapping[str, object], a: AgentResult | None, b: AgentResult | None, until_s: float
) -> Iterator[Mark]:
    end_s = 0.0
    for result, look, y in ((a, BEFORE, 0.3), (b, _look(row, b), 0.7)):
        span = _span(result)
        if span is None or result is None:
            continue
        facts = {"agent": single_line(result.name), "run": look.word[0], "seconds": seconds(span[1] - span[0])}
        yield Bar(*span, place + y, look, facts)
        end_s = max(end_s, span[1])
    if words := _words(row, a, b):
        is_bold = _is_slower(row)
        free = (WIDTH - 2 * MARGIN - NAMES_W - LABEL_W) * (1 - end_s / until_s) if until_s else 0.0
        words = fit(words, LABEL_W + free, 11, bold=True)
        yield Label(end_s, place + 0.5, words, dx=6, ink="ink" if is_bold else "soft", is_bold=is_bold)


def _look(row: Mapping[str, object], b: AgentResult | None) -> Look:
    if b is not None and b.status in WITHOUT_ANSWER:
        return LOST
    return SLOWER if _is_slower(row) else AFTER


def _words(row: Mapping[str, object], a: AgentResult | None, b: AgentResult | None) -> str:
    if a is None or b is None:
        return "only in b" if a is None else "only in a"
    took, cost = _number(row["diff_s"]), _number(row["diff_usd"])
    words = [f"{a.status} → {b.status}"] if a.status != b.status else []
    words += [_signed(took, seconds(abs(took)))] if took is not None and abs(took) >= LEAST_S else []
    words += [_signed(cost, dollars(abs(cost)))] if cost is not None and abs(cost) >= LEAST_USD else []
    parts = {"prompt": row["prompt_changed"], "answer": row["text_changed"]}
    changed = [name for name, is_changed in parts.items() if is_changed is True]
    words += [f"{', '.join(changed)} changed"] if changed else []
    return " · ".join(words)


def _signed(number: float, words: str) -> str:
    return ("+" if number > 0 else "−") + words


def _is_slower(row: Mapping[str, object]) -> bool:
    took, before = _number(row["diff_s"]), _number(row["seconds_a"])
    return took is not None and took > max(LEAST_S, LEAST_SHARE * (before or 0.0))


def _span(result: AgentResult | None) -> tuple[float, float] | None:
    if result is None or result.ready_s is None or result.finished_s is None:
        return None
    return result.ready_s, result.finished_s


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
