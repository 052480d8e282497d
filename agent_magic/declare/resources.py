"""Resources of steps and tools: limited ones, and files and other things that are written.

`am.resource("db", 2)` limits what `uses="db"` runs at once; `--writes report.md` keeps others from writing or using it.
"""

from __future__ import annotations

import math
import os.path
from functools import cache, lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.validation import check_integer, check_text
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.declare.dag import Dag

_LIMITS: Final[dict[str, int]] = {}
_UNITS: Final[dict[str, str]] = {}


class Held(NamedTuple):
    """A resource held while a step runs: `amount` of `most`; of a path 1 for a writer, infinity for readers."""

    name: str
    most: float = 1.0
    amount: float = 1.0


def resource(name: str, most: int, *, unit: str = "") -> str:
    """Limit how many steps and calls may hold a resource at once, or how much of it, in this process.

    Args:
        name: The resource, as named in `uses` of tools and tasks and `--uses` of agents.
        most: The limit.
        unit: Unit of a resource of which each takes an amount, as in `uses="memory:500MB"` or `"memory:500"`.

    Returns:
        The name.

    Raises:
        DeclarationError: An argument is invalid.
    """
    check_text("name of a resource", name)
    check_integer("most of a resource", most)
    if unit:
        check_text("unit of a resource", unit)
    _LIMITS[name], _UNITS[name] = most, unit
    return name


def _held(text: str) -> Held:
    name, _, amount = text.rpartition(":")
    if text in _LIMITS or name not in _LIMITS:
        if _UNITS.get(text):
            wanted = f"{text}:100{_UNITS[text]}"
            raise DeclarationError(
                f"uses={text!r} takes an amount of it, in {_UNITS[text]}.", hint=f"Write {wanted!r}."
            )
        return Held(_plain(text), _LIMITS.get(text, math.inf))
    number, most = amount.strip().removesuffix(_UNITS[name]).strip(), _LIMITS[name]
    try:
        taken = float(number)
    except ValueError:
        taken = math.nan
    if not 0 < taken <= most:
        unit = _UNITS[name]
        raise DeclarationError(
            f"uses={text!r} must take an amount of {name!r} from 0 to {most:,}{unit}, got {amount!r}."
        )
    return Held(name, most, taken)


def held_by(uses: Iterable[str], writes: Iterable[str]) -> tuple[Held, ...]:
    used, written = map(_held, uses), (Held(_plain(name)) for name in writes)
    return tuple({one.name: one for one in (*used, *written)}.values())


def held_beside(own: Sequence[Held], uses: Iterable[str], writes: Iterable[str]) -> tuple[Held, ...]:
    """Return the resources of a tool's call beyond its step's `own`."""
    return tuple(one for one in held_by(uses, writes) if not any(overlap(one.name, other.name) for other in own))


def check_uses(uses: Iterable[str]) -> None:
    """Refuse a resource with amounts that is used without one, or with too much."""
    if uses:
        held_by(uses, ())


def conflicts(holds: Sequence[tuple[Held, ...]], dag: Dag) -> list[tuple[str, int, int]]:
    # Using a folder uses all files in it; the resource is then the inner one. One used by a single step is never in
    # conflict.
    users: dict[str, list[tuple[int, bool]]] = {}
    for step, held in enumerate(holds):
        for one in held:
            if one.name not in _LIMITS:
                users.setdefault(one.name, []).append((step, one.most == 1.0))

    @cache
    def ordered(step: int) -> set[int]:
        return {*dag.ancestors([step]), *dag.descendants([step])}

    found: list[tuple[str, int, int]] = []
    for name, steps in users.items():
        around = [one for folder in _folders(name) for one in users.get(folder, ())]
        for number, (step, writes) in enumerate(steps):
            others = [one for one, also in (*steps[number + 1 :], *around) if (writes or also) and one != step]
            found += [(name, min(step, one), max(step, one)) for one in others if one not in ordered(step)]
    return list(dict.fromkeys(found))


def overlap(name: str, other: str) -> bool:
    """Return whether two paths are equal, or one is a folder of the other; a resource is no folder."""
    if name == other:
        return True
    return not (name in _LIMITS or other in _LIMITS) and (name in _folders(other) or other in _folders(name))


@lru_cache(maxsize=4096)
def _folders(path: str) -> frozenset[str]:
    inside = PurePath(path)
    return frozenset() if os.pardir in inside.parts else frozenset(map(str, inside.parents))


def _plain(name: str) -> str:
    return name if name in _LIMITS else os.path.normpath(name)
