"""Who waits for whom: the edges of a plan, read out of its agents."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from agent_magic.declare.dag import Dag, build_dag
from agent_magic.declare.each import members_of
from agent_magic.errors import PlanError, UndefinedVariable, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.declare.agent import Agent


class PlanWarning(UserWarning):
    """A plan was mended on request: an edge was dropped."""


class Links:
    """Reads who waits for whom out of the agents.

    Attributes:
        parents: Per agent, the numbers of its parents: first those in its prompt, then those it comes after.
        inputs: Per agent, the names of the parents whose text its prompt takes.
        used: The values that prompts use.
        dropped: Edges left out on request, as (agent, missing parent).
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        index: Mapping[str, int],
        groups: Mapping[str, Mapping[int, int]],
        values: Mapping[str, Any],
        *,
        drop: bool,
    ) -> None:
        self.agents, self.index, self.groups, self.values, self.drop = agents, index, groups, values, drop
        self.parents: list[list[int]] = []
        self.inputs: list[tuple[str, ...]] = []
        self.used: dict[str, Any] = {}
        self.dropped: list[tuple[str, str]] = []
        for agent in agents:
            inputs = tuple(name for name in self._members(agent, agent.uses) if self._is_input(agent, name))
            order = [name for name in self._members(agent, agent.after) if self._is_parent(agent, name)]
            if agent.context is not None:
                self._keep_context(agent, agent.context)
            self.inputs.append(inputs)
            self.parents.append([index[name] for name in dict.fromkeys((*inputs, *order))])

    def _members(self, agent: Agent, names: Sequence[str]) -> Iterable[str]:
        """Put in place of a group those of it that are meant."""
        if not self.groups:
            return names
        found: dict[str, None] = {}
        for name in names:
            meant = members_of(self.agents, self.groups[name], agent) if name in self.groups else None
            found.update(dict.fromkeys([name] if meant is None else [self.agents[one].name for one in meant]))
        return found

    def _is_input(self, agent: Agent, name: str) -> bool:
        """Tell whether a name in the prompt is a parent; keep its value, or raise, if not."""
        if name in self.index and (name != agent.name or name not in self.values):
            return not self._drops_itself(agent, name)
        if name in self.values:
            self.used[name] = self.values[name]
        elif self.drop:
            self._drop(agent.name, name)
        else:
            raise UndefinedVariable(name, agent=agent.name, known=[*self.index, *self.values])
        return False

    def _keep_context(self, agent: Agent, name: str) -> None:
        if name not in self.values:
            raise UndefinedVariable(name, agent=agent.name, known=self.values, what="the context")
        self.used[name] = self.values[name]

    def _is_parent(self, agent: Agent, name: str) -> bool:
        if name in self.index:
            return not self._drops_itself(agent, name)
        if not self.drop:
            raise UnknownAgent(name, known=self.index, wanted_by=agent.name)
        self._drop(agent.name, name)
        return False

    def _drops_itself(self, agent: Agent, name: str) -> bool:
        if name != agent.name or not self.drop:
            return False
        self._drop(agent.name, name)
        return True

    def _drop(self, agent: str, missing: str) -> None:
        self.dropped.append((agent, missing))
        warnings.warn(f"Edge dropped: {agent!r} no longer waits for {missing!r}.", PlanWarning, stacklevel=6)

    def in_declared_order(self) -> Dag:
        """Keep the edges that point forward, drop the others with a warning each, and chain all agents."""
        for number, agent in enumerate(self.agents):
            for parent in self.parents[number]:
                if parent >= number:
                    self._drop(agent.name, self.agents[parent].name)
            earlier = [parent for parent in self.parents[number] if parent < number]
            names = {self.agents[parent].name for parent in earlier}
            self.inputs[number] = tuple(name for name in self.inputs[number] if name in names)
            self.parents[number] = earlier if not number or number - 1 in earlier else [*earlier, number - 1]
        dag = build_dag(self.parents)
        if dag is None:  # pragma: no cover - every edge points forward
            raise PlanError("The agents cannot be put in order.")
        return dag
