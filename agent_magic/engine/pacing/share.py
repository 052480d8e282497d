"""How kernels that use the same key divide a rate limit: each tells what it wants, and takes no more than is left.

Every half a second each kernel writes a row that the others read: per limit, the part it wants and the part it takes.
Whoever is not held by the limit wants what it uses; whoever is held wants more at each look, up to all of it. What
everybody gets is the max-min fair division of that: nobody gets less than an equal part unless it wants less, and what
some leave is divided among the rest. A part shrinks at once and grows only into what the others' rows have left free,
so together they never take more than the limit, in whichever order they look.

Where requests are so large that their parts of the server's bucket have no room for them (one of 5,000 tokens where
10,000 pass at once, among four), kernels that are held take turns instead: one has all of what there is for them, the
others nothing. Two that save up for large requests at the same time would otherwise refuse each other's. Whoever has
its turn passes it on when it has taken as much more than another that waits as the largest request takes, or has
nothing to send; then whoever of those that wait has taken least goes on from what was left. So turns are as long as
requests are large, of 60 requests a minute one each, and are counted by what was taken: what is saved up for a large
request is not lost to the next one. While there are turns each looks twenty times a second, and writes when one begins
or ends.

**Limits** that one has been told are in its row, so a kernel that begins beside it need not be refused to learn them.

**What was tried and lost.** Turns by the clock, four seconds each: whoever saves up for a large request loses what was
saved when its time is over (17 of 100 in place of 25). With two looks a second 0.96 of one request a second passes
among four, and 0.8 of requests of 70 % of a bucket with a quarter refused. Two kernels that only read headers: 0.84 of
an output limit with 18 % refused, and large requests beside small ones starve, because what is missing is seen only
when it is gone. A bucket of tokens that all take from: a write for each request, and no queue, so large requests starve
there too. Whoever is held wants all at once: one that needs a fifth takes half whenever it is held for a moment, and
0.93 of the limit is used in place of 0.99 (all measured).
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
"""How much more than it uses a kernel may take that is not held. It is not kept free for it."""
GROWTH: Final = 1.5
MORE: Final = 0.1
"""A kernel that is held wants so many times what it wanted, and so much of the limit more."""
LEAST: Final = 0.01
"""The part that nobody goes below: so a kernel that begins can be held, which tells that it wants more."""
IDLE: Final = 2 * LEAST
"""Up to this part a kernel waits for its turn."""
BEAT_S: Final = 0.5
"""How often each kernel looks."""
TURN_BEAT_S: Final = 0.05
"""How often each looks while they take turns."""
LARGE: Final = 1.0
"""From how many times its part of what may pass at once on a request is so large that kernels take turns."""
TURN_S: Final = 0.25
"""What may flow in for a turn at least."""
FADE: Final = 0.97
"""What is left half a second later of how large requests were."""


class Demand(NamedTuple):
    """What a pacer knows of one limit.

    Attributes:
        used: The part of it that was used of late.
        held: True if it holds a request now.
        largest: The largest request that asked since the last look or waits, as a part of what may pass at once.
        largest_s: How long it takes to flow in, with all of the limit.
        level_s: How long what may pass now took to flow in, with all of the limit.
        taken_s: How long all that was ever taken took to flow in.
        shut: True if nothing may leave after a refusal.
        per_minute: What is announced; 0 if nothing is known.
        capacity: What may pass at once.
    """

    used: float = 0.0
    held: bool = False
    largest: float = 0.0
    largest_s: float = 0.0
    level_s: float = 0.0
    taken_s: float = 0.0
    shut: bool = False
    per_minute: float = 0.0
    capacity: float = 0.0


class Claim(NamedTuple):
    """What one kernel tells the others of one limit.

    Attributes:
        want: The part it wants, 0 to 1.
        part: The part it takes, 0 to 1.
        largest: The largest request of late, as a part of what may pass at once.
        largest_s: How long it takes to flow in, with all of the limit.
        empty_s: When, on the common clock, nothing was left: what may pass now has flowed in since.
        waits: 1 if the limit holds it, else 0.
        place: What it has taken, in seconds of the limit: of those that wait the least is next. Whoever has not waited
            begins beside those that do.
        per_minute: What is announced; 0 if it knows nothing.
        capacity: What may pass at once.
        taken_s: For itself: what the pacer had taken at the last look.
        at_s: For itself: when that was.
        turns: For itself: 1 while they take turns, else 0.
        level_s: For itself, where its turn begins at this look: how long what may pass now took to flow in.
    """

    want: float
    part: float
    largest: float = 0.0
    largest_s: float = 0.0
    empty_s: float = 0.0
    waits: float = 0.0
    place: float = 0.0
    per_minute: float = 0.0
    capacity: float = 0.0
    taken_s: float = 0.0
    at_s: float = -BEAT_S
    turns: float = 0.0
    level_s: float | None = None


TOLD: Final = 9
"""So many fields of a claim the others read."""


class Share(NamedTuple):
    """What a pacer is to keep to of one limit.

    Attributes:
        part: Above 0, at most 1.
        level_s: How long what may pass now took to flow in, with all of the limit; `None` if the pacer knows best.
    """

    part: float
    level_s: float | None = None


Demands = dict[str, dict["Dimension", Demand]]
"""What a pacer knows, by model class and limit."""
Claims = dict[str, dict["Dimension", Claim]]
"""What one kernel tells, by model class and limit."""


def claims(demands: Demands, before: Claims, me: str, others: Mapping[str, object], now: float) -> Claims:
    """Return what a kernel takes of each limit.

    Args:
        demands: What its pacer knows.
        before: What it told at the last look.
        me: Its name.
        others: The rows of the others by their names, as `row_of` wrote them. What cannot be read is left out.
        now: The time on a clock that all of them have.
    """
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
    free = 1 - sum(bound)  # the rest of its part another gives away
    mine = mine._replace(part=max(LEAST, min(fair, free)), turns=float(turns))
    if turns and before.part <= IDLE < mine.part:
        empty_s = max(one.empty_s for one in rows.values())
        mine = mine._replace(empty_s=empty_s, level_s=now - empty_s)
    return mine


def _is_next(me: str, rows: Mapping[str, Claim], turn_s: float) -> bool:
    """Say whether it is a kernel's turn: it is until it has taken its fill, then it is that of who has taken least."""
    waiting = {name: one.place for name, one in rows.items() if one.waits}
    have = [name for name, one in rows.items() if one.part > IDLE]
    if have:
        first = min(have, key=lambda name: (rows[name].place, name))
        least = min((place for name, place in waiting.items() if name != me), default=math.inf)
        return first == me and me in waiting and rows[me].place < least + turn_s
    return me == min(waiting, key=lambda name: (waiting[name], name), default=None)


def _level(wants: Sequence[float]) -> float:
    """Return the part that those get who want more than there is for them."""
    left = 1.0
    for place, want in enumerate(sorted(wants)):
        level = left / (len(wants) - place)
        if want >= level:
            return level
        left -= want
    return 1.0


def beat_s(told: Claims) -> float:
    """Return when to look again: soon where kernels take turns."""
    turns = any(one.turns for each in told.values() for one in each.values())
    return TURN_BEAT_S if turns else BEAT_S


def is_news(told: Claims, before: Claims) -> bool:
    """Say whether others have to know it before the next beat: whose turn it is, and who waits."""
    return told.keys() != before.keys() or any(
        (one.part, one.waits) != (old.part, old.waits)
        for name, each in told.items()
        for one, old in ((one, before[name].get(limit, one)) for limit, one in each.items())
    )


def with_parts(told: Claims, before: Claims) -> Claims:
    """Return claims with the parts that were written before."""
    return _of_both(told, before, lambda one, old: one._replace(part=old.part, level_s=None))


def without_growth(told: Claims, before: Claims) -> Claims:
    """Return claims with the smaller part of each: what is given away is given away before the others read it."""
    return _of_both(told, before, lambda one, old: one._replace(part=min(one.part, old.part), level_s=None))


def _of_both(told: Claims, before: Claims, make: Callable[[Claim, Claim], Claim]) -> Claims:
    untold = Claim(0.0, 1.0)  # a pacer has all of what it was told nothing of
    return {
        name: {limit: make(one, before.get(name, {}).get(limit, untold)) for limit, one in each.items()}
        for name, each in told.items()
    }


def shares_of(told: Claims) -> dict[str, dict[Dimension, Share]]:
    """Return what a pacer is to keep to."""
    return {name: {limit: Share(one.part, one.level_s) for limit, one in each.items()} for name, each in told.items()}


def limits_of(others: Mapping[str, object], known: Iterable[str]) -> Ceilings:
    """Return the limits that others have been told, of these model classes."""
    found: dict[str, dict[str, Ceiling]] = {}
    for row in others.values():
        for (name, limit), one in _read(row).items():
            if name in known and one.per_minute > 0 and one.capacity > 0:
                found.setdefault(name, {})[limit] = Ceiling(one.per_minute, one.capacity)
    return found


def row_of(told: Claims) -> dict[str, Any]:
    """Return claims as plain data."""
    return {name: {limit: list(one[:TOLD]) for limit, one in each.items()} for name, each in told.items()}


def _read(row: object) -> Mapping[tuple[str, str], Claim]:
    try:
        data = cast("dict[str, dict[str, Iterable[Any]]]", row)
        found = {(name, limit): Claim(*map(float, one)) for name, each in data.items() for limit, one in each.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return {key: one for key, one in found.items() if 0 <= one.want <= 1 and 0 <= one.part <= 1}
