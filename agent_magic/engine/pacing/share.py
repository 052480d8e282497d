"""How kernels that use the same key divide a rate limit: each tells what it wants, and takes no more than is left.

Every half a second each kernel writes a row that the others read: per limit, the part it wants and the part it takes.
Whoever is not held by the limit wants what it uses; whoever is held wants more at each look, up to all of it. What
everybody gets is the max-min fair division of that: nobody gets less than an equal part unless it wants less, and what
some leave is divided among the rest. A part shrinks at once and grows only into what the others' rows have left free,
so together they never take more than the limit, in whichever order they look.

Where requests are so large that their parts of the server's bucket have no room for them (one of 5,000 tokens where
10,000 pass at once, among four), kernels that are held take turns instead: all of what there is for some seconds, then
nothing. Two that save up for large requests at the same time would otherwise refuse each other's. A turn lasts as long
as two such requests take to flow in: of a limit of 5 requests a minute, each one is large. Whoever takes its turn goes
on from what the one before it has left.

**What was tried and lost.** Two kernels that only read headers: 0.84 of an output limit with 18 % refused, and large
requests beside small ones starve, because what is missing is seen only when it is gone. A bucket of tokens that all
take from: a write for each request, and no queue, so large requests starve there too. Whoever is held wants all at
once: one that needs a fifth takes half whenever it is held for a moment, and 0.93 of the limit is used in place of
0.99 (all measured).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.engine.pacing.limits import Dimension

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
LARGE: Final = 1.5
"""From how many times its part of what may pass at once on a request is so large that kernels take turns."""
TURN_S: Final = 4.0
"""How long a turn is at least."""
REQUESTS_PER_TURN: Final = 2.5
"""How many of the largest requests flow in within a turn, the half so that the second one still leaves in it."""
FADE: Final = 0.9
"""What is left at the next look of how large requests were."""


class Demand(NamedTuple):
    """What a pacer knows of one limit.

    Attributes:
        used: The part of it that was used of late.
        held: Whether it holds a request now.
        largest: The largest request that asked since the last look or waits, as a part of what may pass at once.
        largest_s: How long it takes to flow in, with all of the limit.
        level_s: How long what may pass now took to flow in, with all of the limit.
    """

    used: float = 0.0
    held: bool = False
    largest: float = 0.0
    largest_s: float = 0.0
    level_s: float = 0.0


class Claim(NamedTuple):
    """What one kernel tells the others of one limit.

    Attributes:
        want: The part it wants, 0 to 1.
        part: The part it takes, 0 to 1.
        largest: The largest request of late, as a part of what may pass at once.
        largest_s: How long it takes to flow in, with all of the limit.
        empty_s: When, on the common clock, nothing was left: what may pass now has flowed in since.
        level_s: For itself, where it takes its turn at this look: how long what may pass now took to flow in.
    """

    want: float
    part: float
    largest: float = 0.0
    largest_s: float = 0.0
    empty_s: float = 0.0
    level_s: float | None = None


class Share(NamedTuple):
    """What a pacer is to keep to of one limit.

    Attributes:
        part: Above 0, at most 1.
        level_s: How long what may pass now took to flow in, with all of the limit; `None` where the pacer knows best.
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
    want = min(1.0, GROWTH * before.want + MORE if demand.held else demand.used)
    largest, largest_s = max(demand.largest, FADE * before.largest), max(demand.largest_s, FADE * before.largest_s)
    mine = Claim(want, 0.0, largest, largest_s, now - demand.level_s if before.part > IDLE else before.empty_s)
    rows = {**others, me: mine}
    level = _level([one.want for one in rows.values()])
    fair = min(HEADROOM * want, level)
    heavy = sorted(name for name, one in rows.items() if one.want >= level)
    turns = len(heavy) > 1 and me in heavy and max(one.largest for one in rows.values()) > LARGE * level
    if turns:
        turn_s = max(TURN_S, REQUESTS_PER_TURN * max(one.largest_s for one in rows.values()))
        fair = level * len(heavy) if heavy[int(now / turn_s) % len(heavy)] == me else LEAST
    fair += max(0.0, 1 - sum(one.want for one in rows.values())) / len(rows)
    free = 1 - sum(min(one.part, one.want) for one in others.values())  # the rest of its part another gives away
    mine = mine._replace(part=max(LEAST, min(fair, free)))
    if turns and before.part <= IDLE < mine.part:
        empty_s = max(one.empty_s for one in rows.values())
        mine = mine._replace(empty_s=empty_s, level_s=max(0.0, now - empty_s))
    return mine


def _level(wants: Sequence[float]) -> float:
    """Return the part that those get who want more than there is for them."""
    left = 1.0
    for place, want in enumerate(sorted(wants)):
        level = left / (len(wants) - place)
        if want >= level:
            return level
        left -= want
    return 1.0


def shares_of(told: Claims) -> dict[str, dict[Dimension, Share]]:
    """Return what a pacer is to keep to."""
    return {name: {limit: Share(one.part, one.level_s) for limit, one in each.items()} for name, each in told.items()}


def row_of(told: Claims) -> dict[str, Any]:
    """Return claims as plain data."""
    return {name: {limit: list(one[:-1]) for limit, one in each.items()} for name, each in told.items()}


def _read(row: object) -> Mapping[tuple[str, str], Claim]:
    try:
        data = cast("dict[str, dict[str, Iterable[Any]]]", row)
        found = {(name, limit): Claim(*map(float, one)) for name, each in data.items() for limit, one in each.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return {key: one for key, one in found.items() if 0 <= one.want <= 1 and 0 <= one.part <= 1}
