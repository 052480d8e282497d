"""The worked examples E1, E2, E3, E5 and E6 of the sources: who waits for whom, and how long each works."""

from __future__ import annotations

from dataclasses import dataclass

from agent_magic import Agent
from agent_magic.declare import Plan


@dataclass(frozen=True)
class Example:
    """One worked example.

    Attributes:
        parents: Per agent, the agents it waits for.
        work_s: Per agent, its seconds (E5 and E6 count minutes).
    """

    parents: tuple[tuple[int, ...], ...]
    work_s: tuple[float, ...]

    @property
    def plan(self) -> Plan:
        """The plan, its agents named `a0`, `a1`, ...; prompts use the parents' answers."""
        prompts = ["".join(f"{{{{ a{parent} }}}} " for parent in row) or "start" for row in self.parents]
        return Plan(tuple(Agent(f"a{number}", prompt) for number, prompt in enumerate(prompts)))


E1 = Example(((), (), (), (0, 1, 2), (3,)), (2.0, 2.0, 2.0, 2.0, 1.0))
E2 = Example(((), (), (), (), (0, 1), (0, 1), (2, 4), (3, 4), (5, 6, 7)), (2.0,) * 9)
E3 = Example(
    (*[()] * 6, *[(one,) for one in range(6)], tuple(range(6, 12)), (12,), (13,)),
    (*[2.0] * 14, 1.0),
)
E5 = Example(((), (), (), (0, 1, 2), (0, 1, 2)), (5.0, 4.0, 5.0, 3.0, 4.0))
E6 = Example(((), (0,), (1,), (), (3,)), (5.0, 10.0, 5.0, 3.0, 3.0))
