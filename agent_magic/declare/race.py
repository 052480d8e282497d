"""Races and hedges.

A race: a step with the first answer of several agents as its value. The others are then cancelled.

```
%%agent quick --first-of fast,careful
```

Sent requests are paid for. A failed agent has lost, and the next answer counts; if all fail, the race has failed. Only
the race may use its agents, so that nothing is cancelled that another step waits for.

A hedge: an agent with an overdue answer is asked a second time, and the first answer counts.

```
%%agent label --each reviews --hedge p95
Positive or negative? {{ item.text }}
```

It is a race between each agent's request, `label_first_0`, and a reserved place for a second one, `label_hedge_0`;
`label_0` takes the first answer. If the answer is in time, the place stays unused and costs nothing. The delay is a
number of seconds, or a share of this run's answers: with `p95`, the time that 95 of 100 of them took.

Source: J. Dean, L. A. Barroso, "The Tail at Scale", Communications of the ACM 56 (2013), on hedged requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.task import Task, first_of
from agent_magic.errors import PlanError, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.dag import Dag
    from agent_magic.declare.step import Step

BEATEN: Final = "Beaten"
"""The kind of an end because another one has answered first."""
NO_ANSWER: Final = "NoAnswer"
"""Kind of a race without an answer."""
FIRST: Final = "_first"
HEDGE: Final = "_hedge"
"""What the names of a hedged agent's requests end with."""


def check_races(
    agents: Sequence[Step], index: Mapping[str, int], groups: Mapping[str, Mapping[int, int]], dag: Dag
) -> None:
    """Raise for the first invalid race.

    Raises:
        UnknownAgent: There is no such agent.
        PlanError: It uses a group, or another step uses one of its agents.
    """
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
    """Return the share of answers within the time after which one is overdue; `None` for a number of seconds."""
    return int(hedge[1:]) / 100 if isinstance(hedge, str) else None


def hedged_steps(agent: Agent, steps: Sequence[Agent]) -> list[Step]:
    """Return the steps of an agent with a hedge: those with the first answer, the requests, and the places."""
    first = [_apart(one, agent.name, FIRST) for one in steps]
    places = [
        _apart(one, agent.name, HEDGE, hedge=agent.hedge, hedges=asked.name)
        for one, asked in zip(steps, first, strict=True)
    ]
    return [*map(_race, steps, first, places), *first, *places]


def _apart(step: Agent, group: str, end: str, **options: Any) -> Agent:
    """Return a step with its own name and group."""
    part = None if step.part is None else replace(step.part, group=f"{group}{end}")
    name = f"{group}{end}" if part is None else f"{part.group}_{part.number}"
    return replace(step, name=name, part=part, **{"hedge": None, **options})


def _race(step: Agent, first: Agent, place: Agent) -> Task:
    race = first_of(step.name, [first.name, place.name])
    return replace(race, part=step.part, returns=step.returns, priority=step.priority)


def declared_hedge(place: Agent) -> Agent:
    """Return the agent that a place for a second request was declared by."""
    part = place.part
    name = (place.name if part is None else part.group).removesuffix(HEDGE)
    return replace(place, name=name, part=None, each=None if part is None else part.over, hedges=None)
