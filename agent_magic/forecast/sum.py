"""The numbers of a forecast, each a sum over its bars. The same definitions as those of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.engine.pacing.limits import class_of
from agent_magic.measure.metrics import NEAR_BOUND, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.forecast.work import Work
    from agent_magic.forecast.world import Bar, World


FIRST_REPLY: Final = frozenset({"key", "limits"})
"""What holds requests until a first reply, in the first run of a session that asks a model class."""


class Totals(NamedTuple):
    """A forecast in one row; see `agent_magic.measure.metrics.Summary` for what the names mean.

    Attributes:
        queue_s: Sum over agents of waiting for a slot, a limit, a leader, the budget or a barrier.
        n_429: Requests that the provider refused.
        succeeded: Agents that have an answer.
    """

    wall_s: float
    agent_s: float
    mean_concurrency: float | None
    critical_path_s: float
    bound: float | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cost_usd: float | None
    queue_s: float
    limited_by: str
    n_429: int
    succeeded: int


def first_wait_s(bars: Iterable[Bar]) -> float:
    """Return the most seconds by which a later run of a session may be faster, which waits for no first reply."""
    waits: dict[str, float] = {}
    for bar in bars:
        if bar.held_by in FIRST_REPLY:
            pool, waited_s = class_of(bar.model), bar.granted_s - bar.free_s - bar.backoff_s
            waits[pool] = max(waits.get(pool, 0.0), waited_s)
    return sum(waits.values())


def add_up(dag: Dag, works: Sequence[Work], world: World) -> Totals:
    """Add up what came of a forecast."""
    bars = world.bars
    number = {work.name: agent for agent, work in enumerate(works)}
    work_s = [0.0] * len(works)
    waits: dict[str, float] = {}
    queue_s = 0.0
    for bar in bars:
        work_s[number[bar.agent]] += bar.ended_s - bar.granted_s
        waited_s = bar.granted_s - bar.free_s
        queue_s += waited_s - bar.backoff_s
        if waited_s > 0:
            cause = bar.held_by or "slot"
            waits[cause] = waits.get(cause, 0.0) + waited_s
    starts = [at for at in world.ready_s if at is not None]
    ends = [at for at in world.ended_s if at is not None]
    wall_s = max(ends, default=0.0) - min(starts, default=0.0)
    agent_s = math.fsum(work_s)
    _, path_s = dag.longest_path(work_s)
    mean = agent_s / wall_s if wall_s else None
    bound = agent_s / path_s if path_s else None
    return Totals(
        wall_s,
        agent_s,
        mean,
        path_s,
        bound,
        _tokens(bars, "input_tokens"),
        _tokens(bars, "output_tokens"),
        _tokens(bars, "cache_read_tokens"),
        _tokens(bars, "cache_write_tokens"),
        _cost(bars),
        max(0.0, queue_s),
        _limited_by(waits, agent_s, path_s, wall_s, mean, bound),
        world.refused,
        sum(status == "succeeded" for status in world.status),
    )


def _tokens(bars: Iterable[Bar], name: str) -> int | None:
    """Add a count up; `None` where an answer's is unknown, or nothing was asked."""
    total, any_known = 0, False
    for bar in bars:
        count: int | None = getattr(bar.usage, name)
        if count is not None:
            total += count
            any_known = True
        elif bar.outcome == "succeeded" and name in {"input_tokens", "output_tokens"}:
            return None
    return total if any_known else None


def _cost(bars: Sequence[Bar]) -> float | None:
    """Add dollars up; `None` where an answer's price is unknown, or nothing was asked."""
    if not bars or any(bar.cost_usd is None and bar.outcome == "succeeded" for bar in bars):
        return None
    known = [bar.cost_usd for bar in bars if bar.cost_usd is not None]
    return math.fsum(known) if known else None


def _limited_by(
    waits: dict[str, float], agent_s: float, path_s: float, wall_s: float, mean: float | None, bound: float | None
) -> str:
    """Name what cost the most waiting, as a run's summary does."""
    verdict = judge(agent_s, path_s, wall_s)
    if verdict is None or verdict == "CONCURRENT":
        return ""
    if mean is not None and bound and mean / bound * NEAR_BOUND >= 1:
        return "dependencies"
    return max(waits, key=lambda cause: waits[cause], default="")
