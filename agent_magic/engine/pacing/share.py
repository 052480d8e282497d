"""How kernels that use the same key divide a rate limit.

Every half second each kernel writes a row with the part of each limit that it wants and the part it takes. A kernel
that the limit does not hold back wants its current use; a held kernel wants more at each look. The limit is divided by
max-min fairness. A part shrinks at once and grows only into what all rows leave free, so together they never exceed
the limit, in whichever order they look.

If requests are too large for a kernel's part of the server's bucket, held kernels take turns with their whole part: two
that save up at the same time would cause each other's refusals. Turns are counted by use, so savings are not lost to
the next kernel: a turn ends when its kernel has nothing to send, or has taken more than a waiting one by the size of
the largest request. During turns each kernel looks twenty times a second.

**Tried and lost** (all measured). Turns of four seconds lose the savings for a large request (17 of 100 in place of
25). With two looks a second during turns, 0.8 of requests of 70 % of a bucket pass, a quarter refused. Two kernels that
only read headers: 0.84 of an output limit with 18 % refused, and large requests beside small ones starve. A shared
bucket of tokens: a write for each request, and large requests starve too. A held kernel wants all at once: one that
needs a fifth takes half whenever it is held, 0.93 of the limit used in place of 0.99.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.record.terms import Ceiling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.engine.pacing.limits import Dimension
    from agent_magic.record.terms import Ceilings

HEADROOM: Final = 1.25
"""A kernel that is not held back may take its use times this, which is not reserved for it."""
GROWTH: Final = 1.5
MORE: Final = 0.1
"""A kernel that is held back wants `GROWTH` times its earlier demand, plus `MORE` of the limit."""
LEAST: Final = 0.01
"""The smallest part: a new kernel needs one to be held back, which shows that it wants more."""
IDLE: Final = 2 * LEAST
"""A kernel with at most this part waits for its turn."""
BEAT_S: Final = 0.5
"""How often each kernel looks."""
TURN_BEAT_S: Final = 0.05
"""How often during turns."""
LARGE: Final = 1.0
"""Kernels take turns if a request exceeds this many times its kernel's part of the capacity."""
TURN_S: Final = 0.25
"""The minimum length of a turn, in seconds of refill."""
FADE: Final = 0.97
"""The factor by which the largest recent request fades each half second."""


class Demand(NamedTuple):
    """A pacer's knowledge of one limit; `_s` amounts are in seconds of refill by the whole limit."""

    used: float = 0.0  # the part of it in recent use
    held: bool = False  # it holds back a request now
    largest: float = 0.0  # that waits or was sent since the last look, as a part of the capacity
    largest_s: float = 0.0
    level_s: float = 0.0
    taken_s: float = 0.0
    shut: bool = False  # nothing may be sent after a refusal
    per_minute: float = 0.0
    capacity: float = 0.0


class Claim(NamedTuple):
    """One kernel's row about one limit, as the others read it.

    Parts are from 0 to 1; `largest_s`, `place`, `taken_s` and `level_s` are in seconds of refill by the whole limit.
    """

    want: float  # the part it wants
    part: float  # the part it takes
    largest: float = 0.0
    largest_s: float = 0.0
    empty_s: float = 0.0  # when the level was 0, on the common clock; it has been refilled since
    waits: float = 0.0  # 1 if the limit holds it back
    # its total use, of which the lowest waiting is next; one that begins to wait starts level with the others
    place: float = 0.0
    per_minute: float = 0.0
    capacity: float = 0.0
    taken_s: float = 0.0  # from here on for itself: the pacer's total use at the last look, at `at_s`
    at_s: float = -BEAT_S
    turns: float = 0.0  # 1 during turns
    level_s: float | None = None  # if its turn begins at this look


TOLD: Final = 9
"""Fields of a claim that other kernels read."""


class Share(NamedTuple):
    """A pacer's share of one limit; without a level it keeps its own."""

    part: float
    level_s: float | None = None


Demands = dict[str, dict["Dimension", Demand]]
Claims = dict[str, dict["Dimension", Claim]]


def claims(demands: Demands, before: Claims, me: str, others: Mapping[str, object], now: float) -> Claims:
    """Return a kernel's claim on each limit, from its last claims and the others' rows."""
    read = {name: _read(row) for name, row in others.items()}
    found: Claims = {}
    for model_class, each in demands.items():
        old = before.get(model_class, {})
        found[model_class] = {
            limit: _claim(
                demand,
                old.get(limit, Claim(0.0, LEAST)),
                me,
                {name: row[model_class, limit] for name, row in read.items() if (model_class, limit) in row},
                now,
            )
            for limit, demand in each.items()
        }
    return found


def _claim(demand: Demand, before: Claim, me: str, others: Mapping[str, Claim], now: float) -> Claim:
    past = min(1.0, max(0.0, now - before.at_s) / BEAT_S)
    more = past * ((GROWTH - 1) * before.want + MORE)
    want = min(1.0, before.want + more if demand.held else demand.used)
    fade = FADE**past
    mine = Claim(
        want,
        before.part,
        max(demand.largest, fade * before.largest),
        max(demand.largest_s, fade * before.largest_s),
        now - demand.level_s if before.part > IDLE else before.empty_s,
        float(demand.held and not demand.shut),
        before.place + max(0.0, demand.taken_s - before.taken_s),
        demand.per_minute,
        demand.capacity,
        demand.taken_s,
        now,
    )
    rows = {**others, me: mine}
    level = _level([one.want for one in rows.values()])
    fair = min(HEADROOM * want, level)
    heavy = {name: one for name, one in rows.items() if one.want >= level}
    turns = len(heavy) > 1 and me in heavy and max(one.largest for one in rows.values()) > LARGE * level
    turn_s = max(TURN_S, *(one.largest_s for one in rows.values()))
    if not (turns and before.waits):
        line = [one.place for name, one in heavy.items() if name != me and one.waits]
        mine = mine._replace(place=max([mine.place, *([min(line) - turn_s] if line else [])]))
    if turns:
        fair = level * len(heavy) if _is_next(me, {**heavy, me: mine}, turn_s) else LEAST
    fair += max(0.0, 1 - sum(one.want for one in rows.values())) / len(rows)
    bound = (min(one.part, one.want) for one in others.values() if not turns or one.part > IDLE)
    free = 1 - sum(bound)  # another kernel gives up the rest of its part
    mine = mine._replace(part=max(LEAST, min(fair, free)), turns=float(turns))
    if turns and before.part <= IDLE < mine.part:
        empty_s = max(one.empty_s for one in rows.values())
        mine = mine._replace(empty_s=empty_s, level_s=now - empty_s)
    return mine


def _is_next(me: str, rows: Mapping[str, Claim], turn_s: float) -> bool:
    """Return whether it is a kernel's turn."""
    waiting = {name: one.place for name, one in rows.items() if one.waits}
    have = [name for name, one in rows.items() if one.part > IDLE]
    if have:
        first = min(have, key=lambda name: (rows[name].place, name))
        least = min((place for name, place in waiting.items() if name != me), default=math.inf)
        return first == me and me in waiting and rows[me].place < least + turn_s
    return me == min(waiting, key=lambda name: (waiting[name], name), default=None)


def _level(wants: Sequence[float]) -> float:
    left = 1.0
    for index, want in enumerate(sorted(wants)):
        level = left / (len(wants) - index)
        if want >= level:
            return level
        left -= want
    return 1.0


def beat_s(told: Claims) -> float:
    turns = any(one.turns for each in told.values() for one in each.values())
    return TURN_BEAT_S if turns else BEAT_S


def is_news(told: Claims, before: Claims) -> bool:
    return told.keys() != before.keys() or any(
        (one.part, one.waits) != (old.part, old.waits)
        for name, each in told.items()
        for one, old in ((one, before[name].get(limit, one)) for limit, one in each.items())
    )


def with_parts(told: Claims, before: Claims) -> Claims:
    return _of_both(told, before, lambda one, old: one._replace(part=old.part, level_s=None))


def without_growth(told: Claims, before: Claims) -> Claims:
    """Return claims with the smaller of both parts, so that a part is given up before others read it."""
    return _of_both(told, before, lambda one, old: one._replace(part=min(one.part, old.part), level_s=None))


def _of_both(told: Claims, before: Claims, make: Callable[[Claim, Claim], Claim]) -> Claims:
    untold = Claim(0.0, 1.0)  # a pacer has all of a limit that no row mentions
    return {
        name: {limit: make(one, before.get(name, {}).get(limit, untold)) for limit, one in each.items()}
        for name, each in told.items()
    }


def shares_of(told: Claims) -> dict[str, dict[Dimension, Share]]:
    return {name: {limit: Share(one.part, one.level_s) for limit, one in each.items()} for name, each in told.items()}


def limits_of(others: Mapping[str, object], known: Iterable[str]) -> Ceilings:
    found: dict[str, dict[str, Ceiling]] = {}
    for row in others.values():
        for (name, limit), one in _read(row).items():
            if name in known and one.per_minute > 0 and one.capacity > 0:
                found.setdefault(name, {})[limit] = Ceiling(one.per_minute, one.capacity)
    return found


def row_of(told: Claims) -> dict[str, Any]:
    return {name: {limit: list(one[:TOLD]) for limit, one in each.items()} for name, each in told.items()}


def _read(row: object) -> Mapping[tuple[str, str], Claim]:
    try:
        data = cast("dict[str, dict[str, Iterable[Any]]]", row)
        found = {(name, limit): Claim(*map(float, one)) for name, each in data.items() for limit, one in each.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return {key: one for key, one in found.items() if 0 <= one.want <= 1 and 0 <= one.part <= 1}
