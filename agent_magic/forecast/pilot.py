"""A pilot: a few agents of a plan really run, so that their answers estimate the rest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.declare.validation import must_be
from agent_magic.measure.metrics import total_cost
from agent_magic.record.history import answers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.history import Past
    from agent_magic.record.results import RunRecord


class Pilot(NamedTuple):
    """Result of a pilot.

    Attributes:
        agents: Agents with an answer from it.
        failed: Agents without one.
        cost_usd: Its dollars; `None` if a price is unknown.
        simulated: True if its answers are simulated.
    """

    agents: tuple[str, ...]
    failed: tuple[str, ...]
    cost_usd: float | None
    simulated: bool

    @classmethod
    def of(cls, record: RunRecord) -> Pilot:
        good = tuple(one.name for one in record.results if one.status == "succeeded")
        bad = tuple(one.name for one in record.results if one.status != "succeeded")
        return cls(good, bad, total_cost(record.results), record.simulated)


def with_pilot(rows: Sequence[Past], record: RunRecord | None) -> list[Past]:
    known = set(rows)
    return [*rows, *(row for row in (answers_of(record) if record else ()) if row not in known)]


def pilot_agents(plan: Plan, held: Sequence[bool], count: int) -> list[str]:
    """Choose at most `count` agents of a pilot: the most representative ones with known or chosen parents.

    Agents of one group represent each other, spread over its items, others those of their model.
    """
    if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be("The number of agents in a pilot", "an integer >= 1", count)
    kinds = [agent.part.group if agent.part is not None else f" {agent.model}" for agent in plan.agents]
    left = [agent for agent in range(len(plan)) if not held[agent]]
    size = Counter(kinds[agent] for agent in left)
    chosen: set[int] = set()
    while len(chosen) < count:
        ready = [
            agent
            for agent in left
            if agent not in chosen and all(held[one] or one in chosen for one in plan.dag.parents[agent])
        ]
        if not ready:
            break
        taken = Counter(kinds[agent] for agent in chosen)
        kind = max((kinds[agent] for agent in ready), key=lambda one: size[one] / (1 + taken[one]))
        same = [agent for agent in ready if kinds[agent] == kind]
        chosen.add(same[len(same) * (taken[kind] % count) // count])
    return [plan.agents[agent].name for agent in sorted(chosen)]
