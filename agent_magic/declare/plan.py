"""A plan: agents, the edges between them, and the values their prompts take. Frozen and validated."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from agent_magic.declare.agent import Agent
from agent_magic.declare.context import Context, with_contexts
from agent_magic.declare.dag import Dag, build_dag
from agent_magic.declare.each import Answers, expand, groups_of, members_of, side_by_side
from agent_magic.declare.serialization import sendable, value_text
from agent_magic.declare.validation import check_given, each_of, is_word, listed
from agent_magic.errors import (
    Cycle,
    DeclarationError,
    DuplicateAgent,
    PlanError,
    UndefinedVariable,
    UnknownAgent,
    did_you_mean,
    shown_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


OnCycle = Literal["error", "sequential"]
OnMissing = Literal["error", "drop"]
PLAN_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"on_cycle": get_args(OnCycle), "on_missing": get_args(OnMissing)}
"""Per option, the words it takes."""


class PlanWarning(UserWarning):
    """A plan was mended on request: an edge was dropped."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One agent waits for another.

    Attributes:
        parent: The agent that is waited for.
        child: The agent that waits.
        kind: `prompt` where the parent's text goes into the child's prompt, `after` where only the order counts.
    """

    parent: str
    child: str
    kind: Literal["prompt", "after"]


@dataclass(frozen=True)
class Plan:
    """The frozen, validated graph of agents. Making one sends nothing and costs nothing.

    Args:
        agents: The agents in declared order.
        values: A value for each `{{ name }}` that is not an agent. Only the names in use are kept.
        name: The title of the graph.
        description: What the plan is for.
        on_cycle: `error`, or `sequential`: agents run one after another in declared order, and edges that point
            backwards are dropped with a warning each.
        on_missing: `error`, or `drop`: edges to agents that do not exist, or to the agent itself, are dropped with a
            warning each, and their `{{ name }}` becomes empty.
        contexts: Text that agents share. Those in use are written now, with these values, and stand among the plan's
            values from then on.

    Attributes:
        index: The number of each agent by name.
        groups: Per name of an agent that was declared for each item of a value, the numbers of the agents it became, by
            the numbers of the items.
        dag: Who waits for whom.
        inputs: Per agent, the names of the parents whose text its prompt takes.
        dropped: Edges left out on request, as (agent, missing parent).

    Raises:
        DuplicateAgent: Two agents have one name.
        UnknownAgent: `after` names an agent that is not in the plan.
        UndefinedVariable: A prompt names something that is neither an agent nor a value.
        Cycle: Agents wait for each other.
        PlanError: A context uses an agent's answer, or has its name; or something is not of its kind.
    """

    agents: Sequence[Agent]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = field(default="agents", kw_only=True)
    description: str = field(default="", kw_only=True)
    on_cycle: OnCycle = field(default="error", kw_only=True)
    on_missing: OnMissing = field(default="error", kw_only=True)
    contexts: InitVar[Iterable[Context]] = field(default=(), kw_only=True)
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    groups: Mapping[str, Mapping[int, int]] = field(init=False, repr=False, compare=False)
    dag: Dag = field(init=False, repr=False, compare=False)
    inputs: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    dropped: frozenset[tuple[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self, contexts: Iterable[Context] | None) -> None:
        check_given(self)
        shared, values = each_of("contexts", () if contexts is None else contexts, Context), dict(self.values or {})
        self._put(agents=expand(each_of("agents", self.agents, Agent), values))
        _check_words(self)
        index: dict[str, int] = {}
        for number, agent in enumerate(self.agents):
            if index.setdefault(agent.name, number) != number:
                raise DuplicateAgent(agent.name)
        values, groups = with_contexts(shared, self.agents, values), groups_of(self.agents)
        links = _Links(self.agents, index, groups, values, drop=self.on_missing == "drop")
        self._put(index=MappingProxyType(index), groups=groups, values=MappingProxyType(links.used))
        try:
            dag = build_dag(links.parents, self.names)
        except Cycle:
            if self.on_cycle == "error":
                raise
            dag = links.in_declared_order()
        self._put(dag=dag, inputs=tuple(links.inputs), dropped=frozenset(links.dropped))

    def _put(self, **fields: object) -> None:
        """Set fields while the plan is being made; afterwards it is frozen."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields as what can be copied and sent to another process: views cannot."""
        plain = {"index": dict(self.index), "values": dict(self.values)}
        return {**vars(self), **plain, "groups": {name: dict(numbers) for name, numbers in self.groups.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._put(**state)
        self._put(**{name: MappingProxyType(state[name]) for name in ("index", "values", "groups")})

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, name: str) -> Agent:
        return self.agents[self.number(name)]

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names in declared order."""
        return tuple(self.index)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.dag.depth

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """The agents grouped by depth. A picture and a word, never a barrier."""
        return tuple(self._names(row) for row in self.dag.layers())

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, ordered by child."""
        return tuple(
            Edge(self.agents[parent].name, agent.name, "prompt" if self.agents[parent].name in used else "after")
            for agent, used, before in zip(self.agents, map(set, self.inputs), self.dag.parents, strict=True)
            for parent in before
        )

    def number(self, name: str) -> int:
        """Return the agent's number in declared order.

        Raises:
            UnknownAgent: There is no such agent.
        """
        try:
            return self.index[name]
        except (KeyError, TypeError):  # a list has no place among names
            raise UnknownAgent(name, known=self.index, groups=self.groups) from None

    def numbers(self, names: str | Iterable[str]) -> list[int]:
        """Return the numbers of these agents, or of one; the name of a group stands for all of it.

        Raises:
            UnknownAgent: There is no such agent.
        """
        names = listed(names)
        found = (self.groups[name].values() if name in self.groups else (self.number(name),) for name in names)
        return list(dict.fromkeys(number for each in found for number in each))

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the agents that `name` waits for."""
        return self._names(self.dag.parents[self.number(name)])

    def children(self, name: str) -> tuple[str, ...]:
        """Return the agents that wait for `name`."""
        return self._names(self.dag.children[self.number(name)])

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return every agent that `name` waits for, directly or not, in declared order."""
        return self._names(sorted(self.dag.ancestors([self.number(name)])))

    def descendants(self, name: str) -> tuple[str, ...]:
        """Return every agent that waits for `name`, directly or not, in declared order."""
        return self._names(sorted(self.dag.descendants([self.number(name)])))

    def critical_path(self, work_s: Mapping[str, float] | None = None) -> tuple[tuple[str, ...], float]:
        """Find the longest chain of work.

        Args:
            work_s: Seconds of own work per agent, waiting left out. `None` counts each agent as 1.

        Returns:
            The agents on it, first to last, and its length: in seconds, or in agents without `work_s`.

        Raises:
            PlanError: `work_s` leaves an agent out.
        """
        if not isinstance(work_s, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"work_s={shown_value(work_s)} gives no agent a number. Give {{'name': seconds, ...}}.")
        if work_s is not None and (left_out := [name for name in self.names if name not in work_s]):
            raise PlanError(f"work_s has no seconds for {left_out[0]!r}. Give every agent a number.")
        work = [1.0] * len(self) if work_s is None else [work_s[name] for name in self.names]
        path, length = self.dag.longest_path(work)
        return self._names(path), length

    def select(self, names: str | Iterable[str]) -> Self:
        """Return the plan of these agents, or of one, and all their ancestors."""
        wanted = self.numbers(names)
        keep = self.dag.ancestors(wanted) | set(wanted)
        return type(self)(
            tuple(agent for number, agent in enumerate(self.agents) if number in keep),
            self.values,
            name=self.name,
            description=self.description,
            on_cycle=self.on_cycle,
            on_missing=self.on_missing,
        )

    def prompt(self, name: str, answers: Mapping[str, str]) -> str:
        """Write the prompt that goes out.

        Args:
            name: The agent.
            answers: The text of each parent whose answer the prompt uses.

        Raises:
            PlanError: One of those is not there.
        """
        number = self.number(name)
        known = isinstance(answers, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
        lacking = [one for one in self.inputs[number] if not known or one not in answers]
        if lacking:
            raise PlanError(f"The prompt of {name!r} uses the answer of {lacking[0]!r}: give its text in answers.")
        return self.prompt_of(number, answers)

    def prompt_of(self, number: int, answers: Mapping[str, str]) -> str:
        """Write the prompt of the agent with this number; see `prompt`."""
        template = self.agents[number].template
        if not template.names:
            return template.render({})
        own = self.inputs[number]
        chosen: Mapping[str, Any] = answers
        if own != template.names:
            chosen = {name: self._meant(number, name, answers) for name in template.names}
        try:
            return template.render(chosen)
        except DeclarationError as error:
            name = self.agents[number].name
            raise DeclarationError(f"Agent {name!r}: {error}", agent=name) from None

    def prompt_ahead(self, number: int, answers: Mapping[str, str]) -> str:
        """Write a prompt with stand-ins for answers that are not there yet.

        Where it takes an answer apart, as `{{ name.splitlines()[1] }}` does, a stand-in may lack the part. That says
        nothing of the answer that will come, so it is the template then, as it was declared.

        Raises:
            DeclarationError: It cannot be filled in, whatever the answers will be.
        """
        try:
            return self.prompt_of(number, answers)
        except DeclarationError:
            agent = self.agents[number]
            if agent.template.takes_apart({*self.inputs[number], *self.groups}):
                return agent.prompt
            raise

    def _meant(self, number: int, name: str, answers: Mapping[str, str]) -> Any:
        """Return what a name in an agent's prompt means: the item it is for, an answer, those of a group, a value."""
        agent, own = self.agents[number], self.inputs[number]
        if agent.part is not None and name in agent.part.values:
            return agent.part.values[name]
        if name not in self.groups:
            return answers[name] if name in own else self.values.get(name, "")
        group, kept = self.groups[name], set(own)  # edges that were dropped have no answer
        members = [self.agents[one].name for one in members_of(self.agents, group, agent)]
        texts = Answers(answers[member] for member in members if member in kept)
        return str(texts) if side_by_side(self.agents, group, agent) else texts

    def context_of(self, number: int) -> str | None:
        """Return the context of the agent with this number; `None` where it has none."""
        name = self.agents[number].context
        return None if name is None else sendable(value_text(self.values[name]))

    def check_prompts(self) -> None:
        """Fill every prompt in with a stand-in for each answer, so that what cannot work fails before any spend.

        Raises:
            DeclarationError: A prompt's expressions fail, whatever the answers will be.
        """
        written: dict[str, str] = {}
        for number, agent in enumerate(self.agents):
            if not agent.template.simple:
                self.prompt_ahead(number, dict.fromkeys(self.inputs[number], "(answer)"))
            elif self.values:
                written.update(dict.fromkeys(agent.template.names, agent.name))
            if agent.context is not None:
                written[agent.context] = agent.name
        for name, agent in written.items():
            try:
                value_text(self.values.get(name, ""))
            except DeclarationError as error:
                raise DeclarationError(f"Agent {agent!r}, {name!r}: {error}", agent=agent) from None

    def _names(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.agents[number].name for number in numbers)


def _check_words(plan: Plan) -> None:
    """Raise `PlanError` for an option that is not one of its words."""
    for option, words in PLAN_WORDS.items():
        word = getattr(plan, option)
        if not is_word(word, words):
            raise PlanError(
                f"{option}={shown_value(word)} is not one of {', '.join(words)}.{did_you_mean(word, words)}"
            )


class _Links:
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
        return build_dag(self.parents)
