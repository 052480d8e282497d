"""Compact frames of a run: one line with what all rows share, the columns that vary, and all columns behind a fold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.units import UNKNOWN, dollars, plural, seconds
from agent_magic.declare.values import levels_of
from agent_magic.errors import shown_value
from agent_magic.forecast.evidence import SURE_BY
from agent_magic.measure.frames import ALL
from agent_magic.measure.scores import FEW
from agent_magic.record.display import single_line
from agent_magic.record.reasons import limit, wording
from agent_magic.show.markup import TEXT_WIDTH
from agent_magic.show.page import GAP, Column, Fold, Line, Page, Table, columns_of, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from agent_magic.show.page import Kind

MOST_WIDTH: Final = 100
"""In characters; its HTML then fits a JupyterLab of 1280 px."""
MOST_COLUMNS: Final = 10
MOST_ROWS: Final = 60
MOST_LINES: Final = 3
END_ROWS: Final = 10
"""Rows shown from each end if there are more than `MOST_ROWS`."""
LEAST_S: Final = 0.05
MOST_CELL: Final = 48
MOST_SAID: Final = 96
LEAST_WORDS: Final = 16
HTML_WORDS: Final = 48
"""Minimum width of errors and reasons: in text, and in a notebook."""
ALWAYS: Final = ("arguments", "result", "error", "why")
"""Text columns shown unless empty; they share the remaining width."""
MEASURES: Final = (
    *("total_s", "wall_s", "api_s", "seconds_a", "seconds_b", "diff_s", "cost_usd", "diff_usd", "cost_usd_a"),
    *("cost_usd_b", "time change", "low–high s", "cost change", "low–high $", "score"),
)
"""Columns shown first, in this order, even if all rows agree."""
RANKED: Final = (*MEASURES, "basis", "input_tokens", "output_tokens", "held_by", "limited_by")
RANKS: Final = {name: rank for rank, name in enumerate(RANKED, 1)}
"""Columns placed first, after those that identify a row."""
SILENT: Final = ("stop_reason", "price", "request_id", "plan", "kind")
"""Columns not mentioned if all rows agree."""
COMPARED: Final = ("wall_s", "cost_usd")
KEPT: Final = (*COMPARED, "answers", "basis")
"""Columns placed before all others."""
TOLD_APART: Final = ("answers", "basis")
"""Columns that distinguish a run with reused answers from its forecasts."""
LEAST_GAIN: Final = 0.1
"""Minimum relative gain of a recommended forecast; less is chance."""
CHANGES: Final = {"wall_s": "time change", "cost_usd": "cost change"}
RANGES: Final = {
    "wall_s": ("low–high s", "wall_low_s", "wall_high_s"),
    "cost_usd": ("low–high $", "cost_low_usd", "cost_high_usd"),
}
REASONS: Final[dict[str, Callable[[str], str]]] = {
    "held_by": lambda word: wording(word).phrase,
    "limited_by": limit,
    "answers": lambda word: word.removeprefix("as if "),  # as is said above
}
OUTSIDE: Final = frozenset({"limits", "prices", "route", "outage"})
"""What-if arguments that no declaration has, so they cannot be applied."""
MANIFOLD: Final = 10.0
LONG_S: Final = 120.0


class _Shown(NamedTuple):
    title: str
    kind: Kind
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(columns_of, (self.title, *self.cells)))


def frame_bundle(frame: pd.DataFrame) -> dict[str, str]:
    return {**_page(frame, HTML_WORDS, MOST_WIDTH).bundle(), "text/plain": frame_text(frame)}


def frame_text(frame: pd.DataFrame) -> str:
    return _page(frame, LEAST_WORDS, TEXT_WIDTH).text()


def _page(frame: pd.DataFrame, words: int, width: int) -> Page:
    if not len(frame):
        why = [frame.attrs["verdict"]] if frame.attrs.get("verdict") else []
        return Page([Line(" · ".join(["no rows", *why, f"columns: {', '.join(map(str, frame.columns))}"]), "soft")])
    said, columns = _columns(frame, words, width)
    more = f"all {len(frame.columns)} columns"
    is_forecast, verdict = bool(frame.attrs.get("recorded")), frame.attrs.get("verdict", "")
    rows = [plural(len(frame), "row")] if len(frame) > 1 else []
    forecasts = len(frame) - 2 if "as_it_was" in frame.attrs else len(frame)
    rows = [f"{plural(forecasts, 'forecast')}, nothing sent", *_unchanged(frame)] if is_forecast else rows
    rows = [verdict] if verdict else rows
    counts = [Line(" · ".join(found), "soft") for found in [[*rows, *said]] if found]
    totals = [*_totals(frame), *_recorded(frame)]
    head = [*totals, *counts] if is_forecast else [*counts, *totals]  # of forecasts the line to decide by comes first
    head += _ungraded(frame)
    table = _table(columns)
    if len(columns) >= len(frame.columns):
        return Page([*head, table])
    every = [*_index(frame), *(_shown(frame, index) for index in range(len(frame.columns)))]
    return Page([*head, table, Fold(more, [_table(every, wide=True)], instead=f"{more}: list(frame)")])


def _totals(frame: pd.DataFrame) -> list[Line]:
    totals: Mapping[str, Any] = frame.attrs.get("totals", {})
    if not totals:
        return []
    words = [seconds(totals["wall_s"]), dollars(totals["cost_usd"], totals["cost_mark"])]
    words += [f"judging it {dollars(frame.attrs['cost_usd'])}"] if "cost_usd" in frame.attrs else []
    return [Line(_with_next(" · ".join(words), frame.attrs.get("next", "")), "soft", head="the run")]


def _with_next(words: str, step: str) -> str:
    return f"{words}. {step}." if step else words


def _ungraded(frame: pd.DataFrame) -> list[Line]:
    missing = [] if "to_score" not in frame else [*dict.fromkeys(frame["to_score"].dropna())]
    more = f" ({len(missing) - 1} more in to_score)" if missing[1:] else ""
    return [Line(f"{missing[0]}{more}", "soft", head="a score that is empty")] if missing else []


def _recorded(frame: pd.DataFrame) -> list[Line]:
    recorded: Mapping[str, float | None] = frame.attrs.get("recorded", {})
    if not recorded:
        return []
    numbers = " · ".join((seconds(recorded.get("wall_s")), dollars(recorded.get("cost_usd"))))
    head = "as if all were bought" if "as_it_was" in frame.attrs else frame.attrs.get("subject", "the run")
    return [Line(_with_next(f"{numbers}{_how_sure(frame)}", to_take(frame)), head=head)]


def _how_sure(frame: pd.DataFrame) -> str:
    planned: Mapping[str, Any] = frame.attrs.get("planned", {})
    if not planned:
        return ""
    units = {"wall_s": seconds, "cost_usd": dollars}
    ranges = ["–".join(map(write, planned[name])) for name, write in units.items() if planned[name] is not None]
    return f" ({', '.join(ranges)}; {SURE_BY[planned['basis']]})"


def _unchanged(frame: pd.DataFrame) -> list[str]:
    unchanged: Mapping[str, Any] = frame.attrs.get("unchanged", {})
    silent = (False, "", "auto", "off") if "as_it_was" in frame.attrs else (False, "")
    return [f"{name} {single_line(str(value))}" for name, value in unchanged.items() if value not in silent]


def to_take(frame: pd.DataFrame, asked: Sequence[str] = ()) -> str:
    recorded: Mapping[str, float | None] = frame.attrs.get("recorded", {})
    if lacking := frame.attrs.get("lacking", 0):
        return f"It lacks {plural(lacking, 'answer')} that a forecast has: compare after %agents retry"
    if not all(name in frame and recorded.get(name) for name in COMPARED):
        return ""
    wall_s, cost_usd = ([math.inf if one is None else one for one in _known(frame[name])] for name in COMPARED)
    if "as_it_was" in frame.attrs:  # the last row is no forecast
        wall_s[-1] = cost_usd[-1] = math.inf
    orders = {"fastest": list(zip(wall_s, cost_usd, strict=True)), "cheapest": list(zip(cost_usd, wall_s, strict=True))}
    best: dict[str, int] = {}
    for name, (word, order) in zip(COMPARED, orders.items(), strict=True):
        least, was = min(order), recorded[name]
        if was and least[0] <= (1 - LEAST_GAIN) * was:
            best[word] = order.index(least)
    places = list(dict.fromkeys(best.values()))
    if not places:
        whose = frame.attrs.get("subject", "the run")
        return f"No forecast is 10 % faster or cheaper: keep {whose}'s settings"
    rows = {place: _row_words(frame, place, asked) for place in places}
    if len(places) == 2 or not OUTSIDE.isdisjoint(frame.columns):
        return ", ".join(f"{rows[place]} is the {word}" for word, place in best.items())
    row, which = rows[places[0]], " and ".join(best)
    if _is_of_plan(frame):
        return f"%agents apply {row} declares the {which}"
    return f"run.apply({row}) takes the {which}"


def _row_words(frame: pd.DataFrame, index: int, asked: Sequence[str]) -> str:
    if not asked:
        return f"frame.iloc[{index}]"
    cells = [(name, frame[name].iloc[index]) for name in asked]
    said = [(name, one.item() if hasattr(one, "item") else one) for name, one in cells]  # of numpy, with a long repr
    return f"{{{', '.join(f'{name!r}: {shown_value(one)}' for name, one in said if _word(one) != UNKNOWN)}}}"


def _columns(frame: pd.DataFrame, words: int, width: int) -> tuple[list[str], list[_Shown]]:
    said: list[str] = []
    wanted: list[_Shown] = []
    said_elsewhere = {*_said_elsewhere(frame), "to_score"}
    apart = "as_it_was" in frame.attrs or (len(frame.columns) > 0 and str(frame.iloc[-1, 0]) == ALL)
    rows = len(frame) - apart
    told_apart = TOLD_APART if "as_it_was" in frame.attrs or _is_of_plan(frame) else ()
    for index, name in enumerate(map(str, frame.columns)):
        values = frame.iloc[:, index]
        kind = _kind_of(values)
        if name in said_elsewhere:
            continue
        first = _the_same(values.iloc[:rows]) if rows > 1 and index else None
        if values.isna().all() or (kind == "number" and name not in MEASURES and _is_next_to_nothing(name, values)):
            continue
        if first is not None and name not in (*MEASURES, *ALWAYS, *told_apart):
            if kind == "text" and first[0] not in ("", "no") and name not in SILENT:
                said.append(_said(name, cut(_read(name, first[0]), MOST_SAID), said))
            continue
        wanted += [_shown(frame, index), *_range(frame, index), *_changes(frame, index)]
    return said, _fitting([*_index(frame), *wanted], words, width)


def _said(name: str, word: str, before: list[str]) -> str:
    """Format a column's common word; if two runs agree, once for both."""
    first = f"{name.removesuffix('_b')}_a {word}"
    if not name.endswith("_b") or first not in before:
        return f"{name} {word}"
    before.remove(first)
    return f"{name.removesuffix('_b')} {word} in both"


def _said_elsewhere(frame: pd.DataFrame) -> set[str]:
    """Return redundant columns, such as a model equal to the requested one."""
    found: set[str] = set()
    if {"model", "model_used"} <= {*frame} and frame["model_used"].equals(frame["model"]):
        found.add("model_used")
    if {"n", "score", "low", "high", "reads"} <= {*frame}:
        found |= {"score", "low", "high"} if (frame["n"] < FEW).any() else {"reads"}
    return found


def _is_next_to_nothing(name: str, values: pd.Series[Any]) -> bool:
    return float(values.abs().max()) < (LEAST_S if name.endswith("_s") else 1e-12)


def _fitting(columns: list[_Shown], wide: int, width: int) -> list[_Shown]:
    words = [place for place, one in enumerate(columns) if one.title in ALWAYS]
    keys = next((place for place, one in enumerate(columns) if one.title in RANKS), 1)

    def rank(index: int) -> int:
        if not index or columns[index].title in KEPT:
            return -1
        return 0 if index < keys else RANKS.get(columns[index].title, len(RANKS) + 1)

    order = sorted(range(len(columns)), key=rank)
    all_b = {one.title for one in columns if one.title.endswith("_b")}  # of two runs one side alone says nothing
    room, kept = width - len(words) * (LEAST_WORDS + len(GAP)), set(words)
    for place in [one for one in order if one not in kept]:
        needed = columns[place].width + len(GAP)
        if kept - {*words} and (needed > room or len(kept) == MOST_COLUMNS):
            break
        room -= needed
        kept.add(place)
    titles = {columns[place].title for place in kept}
    kept -= {place for place in kept if f"{columns[place].title.removesuffix('_a')}_b" in all_b - titles}
    wide = max(LEAST_WORDS, wide // max(1, len(words))) + max(0, room) // max(1, len(words))
    return [_shortened(columns[place], wide) if place in words else columns[place] for place in sorted(kept)]


def _shortened(column: _Shown, most: int) -> _Shown:
    if column.title == "why" and column.width > most:
        return column._replace(kind="prose", cells=[cut(cell, MOST_LINES * most) for cell in column.cells])
    return column._replace(cells=[cut(cell, most) for cell in column.cells])


def _table(columns: Sequence[_Shown], *, wide: bool = False) -> Table:
    return Table(
        [Column(one.title, one.kind) for one in columns],
        list(zip(*(one.cells for one in columns), strict=True)),
        wide=wide,
    )


def _index(frame: pd.DataFrame) -> Iterator[_Shown]:
    index = frame.index
    if index.nlevels == 1 and index.name is None and type(index).__name__ == "RangeIndex":
        return
    for name, values in zip(index.names, levels_of(index), strict=True):
        yield _Shown(
            "" if name is None else str(name), "text", _ends([_word(one) for one in _first(values)], len(index))
        )


def _shown(frame: pd.DataFrame, index: int) -> _Shown:
    values = frame.iloc[:, index]
    name = str(frame.columns[index])
    return _Shown(name, _kind_of(values), _ends(_cells(name, _first(values), _kind_of(values)), len(frame)))


def _is_of_plan(frame: pd.DataFrame) -> bool:
    return frame.attrs.get("subject") == "the plan"


def _range(frame: pd.DataFrame, index: int) -> list[_Shown]:
    title, *ends = RANGES.get(str(frame.columns[index]), ("",))
    if not _is_of_plan(frame) or not {*ends} or not {*ends} <= {*frame}:
        return []
    low, high = (_cells(name, _first(frame[name]), "number") for name in ends)
    cells = [UNKNOWN if UNKNOWN in pair else "–".join(pair) for pair in zip(low, high, strict=True)]
    return [_Shown(title, "number", _ends(cells, len(frame)))]


def _changes(frame: pd.DataFrame, index: int) -> list[_Shown]:
    name = str(frame.columns[index])
    was: float | None = frame.attrs.get("recorded", {}).get(name)
    if name not in COMPARED or not was or _is_of_plan(frame):
        return []
    cells = [UNKNOWN if one is None else _percent(one / was - 1) for one in _known(_first(frame.iloc[:, index]))]
    return [_Shown(CHANGES[name], "number", _ends(cells, len(frame)))]


def _percent(share: float) -> str:
    if share >= MANIFOLD:
        return f"{1 + share:,.0f}x"
    whole = round(100 * share)
    return "0 %" if not whole else f"{'+' if whole > 0 else '−'}{abs(whole):,} %"


def _first(values: Any) -> Any:
    if len(values) <= MOST_ROWS:
        return values
    return values.take([*range(END_ROWS), *range(len(values) - END_ROWS, len(values))])


def _ends(cells: list[str], rows: int) -> list[str]:
    return cells if rows <= MOST_ROWS else [*cells[:END_ROWS], "…", *cells[END_ROWS:]]


def _kind_of(values: pd.Series[Any]) -> Kind:
    return "number" if values.dtype.kind in "iuf" else "text"


def _the_same(values: pd.Series[Any]) -> tuple[str] | None:
    """Return what all rows share in a tuple; `None` if they differ or one is unknown."""
    words = {_word(one) for one in values.head(2)}
    if len(words) > 1 or values.isna().any():
        return None
    words |= {_word(one) for one in values}
    return (words.pop(),) if len(words) == 1 else None


def _known(values: Any) -> list[Any]:
    return [None if gone else one for one, gone in zip(values, values.isna(), strict=True)]


def _cells(name: str, values: Any, kind: Kind) -> list[str]:
    if kind == "text":
        return [cut(_read(name, _word(one)), MOST_CELL) for one in _known(values)]
    numbers: list[Any] = _known(values)
    digits = _decimals(name, [one for one in numbers if one is not None], values.dtype.kind)
    sign = name.startswith("diff_")
    found = ["" if one is None else _written(abs(one), digits) for one in numbers]
    if _is_seconds(name):
        pairs = zip(numbers, found, strict=True)
        found = [seconds(abs(one)) if one is not None and abs(one) > LONG_S else word for one, word in pairs]
    if _is_dollars(name):
        found = [word and (f"${word}" if number else "$0") for word, number in zip(found, numbers, strict=True)]
    return [
        UNKNOWN
        if one is None
        else word
        if not word.strip("$0.")
        else f"{'−' if one < 0 else '+' if sign else ''}{word}"
        for one, word in zip(numbers, found, strict=True)
    ]


def _is_seconds(name: str) -> bool:
    return name.endswith("_s") or name.startswith("seconds_")


def _is_dollars(name: str) -> bool:
    return "usd" in name.split("_")


def _written(number: float, digits: int | None) -> str:
    if digits is not None:
        return f"{number:,.{digits}f}"
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _decimals(name: str, numbers: list[float], kind: str) -> int | None:
    """Return one decimal for seconds, four or six for dollars; `None` for mixed kinds."""
    if kind != "f" or not numbers:
        return 0
    largest, least = max(map(abs, numbers)), min((abs(one) for one in numbers if one), default=1.0)
    if _is_dollars(name):
        return 2 if least >= 1 else 4 if least >= 0.001 else 6
    if _is_seconds(name):
        return 1 if largest >= 1 or not largest else 2
    return None if largest > 1000 * least else 2


def _read(name: str, word: str) -> str:
    return REASONS[name](word) if name in REASONS and word != UNKNOWN else word


def _word(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if type(value).__name__ in {"Timestamp", "datetime"}:
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return single_line(str(value)[:400])
