"""A frame of scenarios as points: what sets each apart, its time, its price, and whether another beats it in both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.errors import DeclarationError, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIRST_NUMBER = "wall_s"
_NONE = frozenset({"<NA>", "None", "nan"})


class Point(NamedTuple):
    """A scenario.

    Attributes:
        label: What sets it apart from the others, in words.
        wall_s: How long it takes.
        cost_usd: What it costs.
        front: Whether no other is both cheaper and faster.
        wall_range_s: The low and the high end, where they are known.
        basis: What it stands on.
    """

    label: str
    wall_s: float
    cost_usd: float
    front: bool = False
    wall_range_s: tuple[float, float] | None = None
    basis: str = ""


def points_of(frame: Any) -> list[Point]:
    """Read the scenarios of a frame that have a time and a price. The columns before `wall_s` say what was asked.

    Raises:
        DeclarationError: The frame has no times or no prices.
    """
    check_frame(frame)
    columns = [str(name) for name in frame.columns]
    asked = columns[: columns.index(_FIRST_NUMBER)]
    rows: list[dict[str, Any]] = frame.to_dict("records")
    varied = [name for name in asked if len({str(row[name]) for row in rows}) > 1]
    found = [
        Point(
            " · ".join(_word(name, row[name]) for name in varied if str(row[name]) not in _NONE) or "as it was",
            float(row[_FIRST_NUMBER]),
            float(row["cost_usd"]),
            wall_range_s=_range(row),
            basis=str(row.get("basis", "")),
        )
        for row in rows
        if is_known(row[_FIRST_NUMBER]) and is_known(row["cost_usd"])
    ]
    front = pareto([(one.cost_usd, one.wall_s) for one in found])
    return [one._replace(front=number_ in front) for number_, one in enumerate(found)]


def check_frame(frame: Any) -> None:
    """Raise `DeclarationError` for what is no frame of scenarios."""
    hint = "Give what run.whatif(...) returned."
    if not hasattr(frame, "columns") or not hasattr(frame, "attrs"):
        raise DeclarationError(f"{shown_value(frame)} is no frame of scenarios.", hint=hint)
    columns = [str(name) for name in frame.columns]
    for name in (_FIRST_NUMBER, "cost_usd"):
        if name not in columns:
            raise DeclarationError(f"The frame has no column {name!r}: {columns!r}.", hint=hint)


def pareto(pairs: Sequence[tuple[float, float]]) -> set[int]:
    """Return the places of the pairs that no other beats in both; of equal ones the first."""
    order = sorted(range(len(pairs)), key=lambda place: (*pairs[place], place))
    best, front = math.inf, set[int]()
    for place in order:
        if pairs[place][1] < best:
            best = pairs[place][1]
            front.add(place)
    return front


def _word(name: str, value: object) -> str:
    """Say one argument in few words."""
    if name == "concurrency":
        return f"{value} at once"
    if name == "cache_ttl":
        return f"cached {value}"
    if name in {"cache", "batch"}:
        text = {"True": "on", "False": "off"}.get(str(value), str(value))
        return f"{name} {text}"
    return str(value).replace("claude-", "")


def is_known(value: Any) -> bool:
    """Tell whether a cell holds a number."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):  # `None`, and pandas' `NA`
        return False


def _range(row: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = row.get("wall_low_s"), row.get("wall_high_s")
    return (float(str(low)), float(str(high))) if is_known(low) and is_known(high) else None
