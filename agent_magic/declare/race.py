"""A race: a step with the first answer of several agents as its value. The others are then cancelled.

```
%%agent quick --first-of fast,careful
```

Sent requests are paid for. A failed agent has lost, and the next answer counts; if all fail, the race has failed. Only
the race may use its agents, so that nothing is cancelled that another step waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.errors import PlanError, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.step import Step

BEATEN: Final = "Beaten"
"""The kind of an end because another one has answered first."""
NO_ANSWER: Final = "NoAnswer"
"""Kind of a race without an answer."""


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
