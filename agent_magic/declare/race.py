"""Races and hedges.

A race, `--first-of fast,careful`, takes the first answer of several agents and cancels the others; sent requests are
paid for. Only the race may use its agents, so that nothing is cancelled that another step waits for.

A hedge, `--hedge p95` or seconds, asks an agent with an overdue answer a second time: a race between the request,
`label_first_0`, and a reserved place for a second one, `label_hedge_0`.

Source: J. Dean, L. A. Barroso, "The Tail at Scale", Communications of the ACM 56 (2013), on hedged requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.task import first_of
from agent_magic.errors import PlanError, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.dag import Dag
    from agent_magic.declare.step import Step

BEATEN: Final = "Beaten"
"""Kind of the end of an agent that has lost."""
NO_ANSWER: Final = "NoAnswer"
FIRST: Final = "_first"
HEDGE: Final = "_hedge"


def check_races(
    agents: Sequence[Step], index: Mapping[str, int], groups: Mapping[str, Mapping[int, int]], dag: Dag
) -> None:
    """Refuse a race of a group, or of agents that another step uses."""
    for number, race in enumerate(agents):
        for name in race.parameters if race.race else ():
            if name in groups:
                message = f"{race.name!r} is the first of {name!r}, which is several agents or rounds."
                raise PlanError(f"{message} A race is between single agents: name those.")
            if name not in index:
                raise UnknownAgent(name, known=index, wanted_by=race.name)
            others = [agents[one].name for one in dag.children[index[name]] if one != number]
            if others:
                message = f"{name!r} is in the race of {race.name!r}, and {others[0]!r} uses it too."
                hint = f"Let {others[0]!r} use {race.name!r}, or declare {name!r} once more under another name."
                raise PlanError(f"{message} It may be cancelled. {hint}")


def share_of(hedge: str | float) -> float | None:
    """Return the share of answers in time; `None` for seconds."""
    return int(hedge[1:]) / 100 if isinstance(hedge, str) else None


def hedged_steps(agent: Agent, steps: Sequence[Agent]) -> list[Step]:
    """Return the steps with the first answer, the requests, and places for second ones."""
    first = [_apart(one, agent.name, FIRST) for one in steps]
    places = [
        _apart(one, agent.name, HEDGE, hedge=agent.hedge, hedges=asked.name)
        for one, asked in zip(steps, first, strict=True)
    ]
    races = [
        replace(first_of(one.name, [asked.name, place.name]), part=one.part, returns=one.returns, priority=one.priority)
        for one, asked, place in zip(steps, first, places, strict=True)
    ]
    return [*races, *first, *places]


def _apart(step: Agent, group: str, end: str, **options: Any) -> Agent:
    part = None if step.part is None else replace(step.part, group=f"{group}{end}")
    name = f"{group}{end}" if part is None else f"{part.group}_{part.number}"
    return replace(step, name=name, part=part, **{"hedge": None, **options})


def declared_hedge(place: Agent) -> Agent:
    part = place.part
    name = (place.name if part is None else part.group).removesuffix(HEDGE)
    return replace(place, name=name, part=None, each=None if part is None else part.over, hedges=None)
