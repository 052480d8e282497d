"""A plan: agents, the edges between them, and the values their prompts take. Frozen and validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial
from itertools import compress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.content import NO_PROMPT, Prompt
from agent_magic.declare.context import (
    Context,
    checked,
    context_of,
    documents_of,
    read_content,
    render,
    shows_content,
    with_contexts,
    with_conversations,
)
from agent_magic.declare.dag import Dag, build_dag, without_laps
from agent_magic.declare.each import OWN, Answers, firsts, for_all, group_of, groups_of, view_of
from agent_magic.declare.edges import Edge, Edges, Taken, answers_of, check_fields, check_items
from agent_magic.declare.expansion import expand
from agent_magic.declare.flow import MISSING, Flow, is_reserved
from agent_magic.declare.grouping import declared_name
from agent_magic.declare.race import check_races
from agent_magic.declare.resources import Held, conflicts, held_by, saved_paths
from agent_magic.declare.step import steps_of
from agent_magic.declare.subplan import join
from agent_magic.declare.validation import check_mapping, check_text, check_word, instances_of, names_of
from agent_magic.declare.values import same_name, value_notes, with_same_names
from agent_magic.errors import (
    Cycle,
    DeclarationError,
    DuplicateAgent,
    InvalidAnswer,
    PlanError,
    UnknownAgent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.declare.answers.returns import Returns
    from agent_magic.declare.context import Parts
    from agent_magic.declare.step import Step

OnCycle = Literal["error", "sequential"]
OnMissing = Literal["error", "drop"]
OnConflict = Literal["wait", "error"]
PLAN_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_cycle": get_args(OnCycle),
    "on_missing": get_args(OnMissing),
    "on_conflict": get_args(OnConflict),
}


@dataclass(frozen=True)
class Plan:
    """The frozen, validated graph of agents. Creating one sends nothing and costs nothing.

    Args:
        agents: The agents in declared order.
        values: A value for each `{{ name }}` that is not an agent. Only used names are kept. The steps of a value that
            is a plan join this one; see `agent_magic.declare.subplan`.
        name: The title of the graph.
        description: The purpose of the plan.
        on_cycle: If agents wait for each other: `error`, or `sequential`: they run one after another in declared order,
            and edges that point backwards are dropped with a warning each.
        on_missing: For edges to agents that do not exist, or to the agent itself: `error`, or `drop`: they are dropped
            with a warning each, and their `{{ name }}` becomes empty.
        on_conflict: If two unordered steps write, or write and use, the same thing: `wait` orders them, with a note; or
            `error`.
        contexts: Shared texts of agents. Used ones are rendered now, with these values, and become values.
        notes: Notes for readers of the plan, one line each.

    Attributes:
        index: The number of each agent by name.
        groups: Numbers of a group's agents, by the group's declared name and the numbers of the items.
        shown: Replacements in prompts for values that tasks receive unchanged: pictures of figures.
        dag: The dependencies.
        inputs: Names of each agent's parents with answers that its prompt uses.
        dropped: The dropped edges, as (agent, missing parent).
        holds: Resources per step.
        saves: File of each agent with a saved answer.

    Raises:
        DuplicateAgent: Two agents have one name.
        UnknownAgent: `after` names an agent that is not in the plan.
        UndefinedVariable: A prompt uses a name that is neither an agent nor a value.
        Cycle: Agents wait for each other.
        PlanError: A context uses an agent's answer, or has its name; or an argument has a wrong type.
    """

    agents: Sequence[Step]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = field(default="agents", kw_only=True)
    description: str = field(default="", kw_only=True)
    on_cycle: OnCycle = field(default="error", kw_only=True)
    on_missing: OnMissing = field(default="error", kw_only=True)
    on_conflict: OnConflict = field(default="wait", kw_only=True)
    contexts: InitVar[Iterable[Context]] = field(default=(), kw_only=True)
    notes: Sequence[str] = field(default=(), kw_only=True, repr=False, compare=False)
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    groups: Mapping[str, Mapping[int, int]] = field(init=False, repr=False, compare=False)
    shown: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    dag: Dag = field(init=False, repr=False, compare=False)
    inputs: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    dropped: frozenset[tuple[str, str]] = field(init=False, repr=False, compare=False)
    holds: Mapping[int, tuple[Held, ...]] = field(init=False, repr=False, compare=False)
    saves: Mapping[int, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self, contexts: Iterable[Context] | None) -> None:
        check_mapping("values", self.values)
        for option in ("name", "description"):
            check_text(option, getattr(self, option), error=PlanError)
        shared, values = (
            instances_of("contexts", () if contexts is None else contexts, Context),
            with_same_names(self.values or {}),
        )
        agents = steps_of(self.agents)
        if plans := {name: value for name, value in values.items() if issubclass(type(value), Plan)}:
            agents, values = join(agents, values, plans)
        agents, places = expand(agents, values)
        agents = with_conversations(agents, places, values)
        self._put(agents=agents)
        for option, words in PLAN_WORDS.items():
            check_word(option, getattr(self, option), words, error=PlanError)
        index: dict[str, int] = {}
        for number, agent in enumerate(self.agents):
            if index.setdefault(agent.name, number) != number:
                raise DuplicateAgent(agent.name)
        values, groups = with_contexts(shared, self.agents, values), groups_of(self.agents, places)
        edges = Edges(self.agents, index, groups, values, drop=self.on_missing == "drop", places=places)
        used, shown = read_content(self.agents, edges.used)
        self._put(index=MappingProxyType(index), groups=groups, values=MappingProxyType(used), shown=shown)
        try:
            dag = build_dag(edges.parents, self.names, edges.alike)
        except Cycle as error:
            if self.on_cycle == "error":
                steps = (self.agents[index[name]] for name in error.cycle)
                raise Cycle(without_laps([declared_name(one) for one in steps])) from None
            dag = edges.in_declared_order()
        check_races(self.agents, index, groups, dag)
        priorities = for_all([one.priority for one in firsts(self.agents, dag.alike)], dag.alike)
        dag = dag.with_priority(priorities)
        self._put(dag=dag, inputs=tuple(edges.inputs), dropped=frozenset(edges.dropped), notes=tuple(self.notes))
        self._hold()
        if any(not (one.returns is one.when is one.until is None) for one in self.firsts):
            _check_fields(self, lambda one: one.returns)

    def _hold(self) -> None:
        """Record the resources of each step, and resolve conflicts."""
        for tool in (tool for one in self.firsts if one.tools for tool in one.tools.functions):
            held_by(tool.uses, tool.writes)  # refused here what its calls would meet
        saves, held = saved_paths(self.agents, self.dag.alike), ()
        if saves or any(one.uses_resources or one.writes for one in self.firsts):
            files = [(saves[number],) if number in saves else () for number in range(len(self))]
            held = [
                held_by(one.uses_resources, (*one.writes, *file)) for one, file in zip(self.agents, files, strict=True)
            ]
        self._put(saves=saves, holds={step: one for step, one in enumerate(held) if one})
        found = conflicts(held, self.dag) if self.holds else []
        if not found:
            return
        said = [f"{self.names[one]} and {self.names[other]} both change or use {name}" for name, one, other in found]
        if self.on_conflict == "error":
            hint = "Let one wait for the other with after=, or allow it with on_conflict='wait'."
            raise PlanError(f"{said[0]}, and neither waits for the other. {hint}")
        self._put(notes=(*self.notes, *(f"{one}: they run one after the other" for one in said)))

    def _put(self, **fields: object) -> None:
        """Set fields during construction; the plan is frozen afterwards."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, object]:
        """Return picklable fields: mapping proxies cannot be pickled."""
        plain = {"index": dict(self.index), "values": dict(self.values)}
        kept = {name: value for name, value in vars(self).items() if name != "flow"}  # it is created again
        return {**kept, **plain, "groups": {name: dict(numbers) for name, numbers in self.groups.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._put(**state)
        self._put(**{name: MappingProxyType(state[name]) for name in ("index", "values", "groups")})

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, name: str) -> Step:
        return self.agents[self.number(name)]

    @cached_property
    def firsts(self) -> Sequence[Step]:
        """The steps, with only the first of equal places; see `agent_magic.declare.each`."""
        return firsts(self.agents, self.dag.alike)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The agents' names in declared order."""
        return tuple(self.index)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.dag.depth

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """The agents by layer. A layer is a picture, never a barrier."""
        return tuple(self._names(row) for row in self.dag.layers())

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, ordered by child."""
        return tuple(
            Edge(self.agents[parent].name, agent.name, self._kind(number, parent, used))
            for number, (agent, used, before) in enumerate(
                zip(self.agents, map(set, self.inputs), self.dag.parents, strict=True)
            )
            for parent in before
        )

    def _kind(self, number: int, parent: int, used: set[str]) -> Literal["prompt", "continues", "after"]:
        agent, before = self.agents[number], self.agents[parent]
        if agent.continues is not None and agent.continues in {before.name, group_of(before)}:
            return "continues"
        return "prompt" if before.name in used else "after"

    def number(self, name: str) -> int:
        """Return the number of an agent in declared order, from 0.

        Args:
            name: The agent.

        Raises:
            UnknownAgent: There is no such agent.
        """
        try:
            return self.index[name] if name in self.index else self.index[same_name(name)]
        except (KeyError, TypeError, AttributeError):  # a list cannot be a key
            raise UnknownAgent(name, known=self.index, groups=self.groups) from None

    def numbers(self, names: str | Iterable[str]) -> list[int]:
        """Return the numbers of agents.

        Args:
            names: The agents, or one. The name of a group stands for all of it.

        Raises:
            UnknownAgent: There is no such agent.
        """
        names = [same_name(str(one)) for one in names_of(names)]
        found = (self.groups[name].values() if name in self.groups else (self.number(name),) for name in names)
        return list(dict.fromkeys(number for each in found for number in each))

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the agents that an agent waits for.

        Args:
            name: The agent.
        """
        return self._names(self.dag.parents[self.number(name)])

    def children(self, name: str) -> tuple[str, ...]:
        """Return the agents that wait for an agent.

        Args:
            name: The agent.
        """
        return self._names(self.dag.children[self.number(name)])

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return every agent that an agent waits for, directly or not, in declared order.

        Args:
            name: The agent.
        """
        return self._names(sorted(self.dag.ancestors([self.number(name)])))

    def descendants(self, name: str) -> tuple[str, ...]:
        """Return every agent that waits for an agent, directly or not, in declared order.

        Args:
            name: The agent.
        """
        return self._names(sorted(self.dag.descendants([self.number(name)])))

    def critical_path(self, work_s: Mapping[str, float] | None = None) -> tuple[tuple[str, ...], float]:
        """Return the longest chain of work.

        Args:
            work_s: Seconds of own work per agent, waiting excluded. `None` counts each agent as 1.

        Returns:
            The agents on it, first to last, and its length: in seconds, or in agents without `work_s`.

        Raises:
            PlanError: `work_s` leaves an agent out.
        """
        check_mapping("work_s", work_s, " Give {'name': seconds, ...}.")
        if work_s is not None and (left_out := [name for name in self.names if name not in work_s]):
            raise PlanError(f"work_s has no seconds for {left_out[0]!r}. Give every agent a number.")
        work = [1.0] * len(self) if work_s is None else [work_s[name] for name in self.names]
        path, length = self.dag.longest_path(work)
        return self._names(path), length

    def select(self, names: str | Iterable[str]) -> Self:
        """Return the plan of some agents and all their ancestors.

        Args:
            names: The agents, or one. The name of a group stands for all of it.

        Raises:
            UnknownAgent: There is no such agent.
        """
        wanted = self.numbers(names)
        keep = self.dag.ancestors(wanted) | set(wanted)
        return type(self)(
            tuple(agent for number, agent in enumerate(self.agents) if number in keep),
            self.values,
            name=self.name,
            description=self.description,
            on_cycle=self.on_cycle,
            on_missing=self.on_missing,
            on_conflict=self.on_conflict,
            notes=self.notes,
        )

    def takes(self, number: int) -> tuple[str, ...]:
        """Return the names that a task takes, without parameters that only have a default.

        Args:
            number: The task's number in declared order.
        """
        step = self.agents[number]
        if not step.parameters:
            return ()
        own = OWN if step.part is not None and step.part.has_item else ()
        known = (own, self.groups, self.values, self.inputs[number])
        return tuple(name for name in step.parameters if any(name in one for one in known))

    def source_of(self, number: int, name: str) -> str | tuple[str, ...] | None:
        """Return the source of a task's parameter: a step, all of a group, or `None` for the result of `meaning`.

        Args:
            number: The task's number in declared order.
            name: The parameter.
        """
        step = self.agents[number]
        if step.part is not None and name in OWN and step.part.has_item:
            return None
        if name not in self.groups:
            return name if name in self.inputs[number] else None
        view = view_of(self.agents, self.groups[name], step)
        if view.kind == "last" or (view.kind == "same" and step.part is not None and step.part.rounds):
            return None  # which round it is, the run decides
        members = tuple(self.agents[one].name for one in view.members)
        return members[0] if view.kind == "same" and len(members) == 1 else members

    def prompt(self, name: str, answers: Mapping[str, Any]) -> str:
        """Return the text of the prompt that an agent sends, with a label for each picture and document.

        Args:
            name: The agent.
            answers: The answer of each parent that the prompt uses.

        Raises:
            PlanError: One of those is missing.
            DeclarationError: The prompt cannot be rendered, or is empty.
        """
        number = self.number(name)
        known = isinstance(answers, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
        can_miss = self.flow.optional.get(number, ()) if self.flow is not None else ()
        needed = [one for one in self.inputs[number] if not can_miss or self.index[one] not in can_miss]
        missing = [one for one in needed if not known or one not in answers]
        if missing:
            raise PlanError(f"The prompt of {name!r} uses the answer of {missing[0]!r}: give its text in answers.")
        return self.prompt_of(number, answers).text

    def prompt_of(self, number: int, answers: Mapping[str, Any]) -> Prompt:
        """Return the prompt of the agent with a number; see `prompt`.

        Args:
            number: The agent's number in declared order.
            answers: The answer of each parent that the prompt uses.

        Raises:
            DeclarationError: The prompt cannot be rendered, or is empty. A task has none.
        """
        agent = self.agents[number]
        if agent.is_task:
            return NO_PROMPT
        template = agent.template
        plain = self.inputs[number] == template.names and not agent.attach and agent.context not in self.documents
        return checked(template.render(answers) if plain else self._render(number, answers), agent)

    def prompt_ahead(self, number: int, answers: Mapping[str, Any]) -> Prompt:
        """Return a prompt with placeholders for missing answers.

        A placeholder may lack a part of the answer that the prompt uses, as `{{ name.splitlines()[1] }}` does, or make
        the prompt empty. That says nothing about the future answer, so the template itself is returned then.

        Args:
            number: The agent's number in declared order.
            answers: A placeholder for the answer of each parent that the prompt uses.

        Raises:
            DeclarationError: The prompt cannot be rendered with any answers.
        """
        agent, inputs = self.agents[number], self.inputs[number]
        if agent.is_task:
            return NO_PROMPT
        returned: dict[str, Any] = {name: self.agents[self.index[name]].returns for name in inputs}
        answers = {
            name: returned[name].placeholder(answer)
            if returned.get(name) is not None and isinstance(answer, str)
            else answer
            for name, answer in answers.items()
        }
        try:
            found = self._render(number, answers)
        except DeclarationError:
            seen = (name for name, group in self.groups.items() if view_of(self.agents, group, agent).members)
            unknown = {*inputs, *seen}
            source = None if agent.part is None else self.index.get(agent.part.source)
            if source is not None and self.agents[source].returns is None:  # a task may return any items
                unknown |= OWN
            if not agent.template.apart.isdisjoint(unknown):
                return Prompt(agent.prompt)
            raise
        if inputs and not found.text.strip():
            return Prompt(agent.prompt)
        return checked(found, agent, ahead=bool(inputs))

    def _render(self, number: int, answers: Mapping[str, Any]) -> Prompt:
        agent = self.agents[number]
        names = (*agent.template.names, *agent.attach)
        values = {name: self.meaning(number, name, answers) for name in names}
        return render(
            agent,
            self.documents.get(agent.context, ()),
            {name: value for name, value in values.items() if value is not MISSING},
        )

    def meaning(self, number: int, name: str, answers: Mapping[str, Any]) -> Any:
        """Return the value of a name in a step: its item, an answer, the answers of a group, or a value.

        Args:
            number: The step's number in declared order.
            name: A name that it uses.
            answers: Its parents' results, by name, without left-out ones.

        Returns:
            `agent_magic.declare.flow.MISSING` for a left-out step. A group has only the others, and a loop the last
            round that ran; in the first round, values from the round before are `None`.
        """
        agent, part = self.agents[number], self.agents[number].part
        if part is not None and name in OWN and part.has_item:
            return self.flow.item_of(number, answers)[name] if part.source and self.flow else part.values[name]
        if name not in self.groups:
            if name in answers and name != agent.name and (agent.name, name) not in self.dropped:
                return answers[name]
            is_left = self.flow is not None and name in self.index and name not in self.values
            return MISSING if is_left else self.shown[name] if name in self.shown else self.values.get(name, "")
        view = view_of(self.agents, self.groups[name], agent)
        members = [self.agents[one].name for one in view.members]
        kept = [one for one in members if one in answers and (agent.name, one) not in self.dropped]
        found = Answers(answers[one] for one in kept)
        if view.kind == "all":
            return found
        if view.kind == "last" or (part is not None and part.rounds):
            return found[-1] if found else None
        return found[0] if found else MISSING if self.flow is not None and members else ""

    def continued(self, number: int, answers: Mapping[str, Any]) -> str | None:
        """Return the agent that an agent continues in conversation, if any: for a loop, its last answered round.

        Args:
            number: The agent's number in declared order.
            answers: The answers so far, by name.
        """
        name = self.agents[number].continues
        if name is None:
            return None
        if name not in self.groups:
            return name if name in self.index else None
        view = view_of(self.agents, self.groups[name], self.agents[number])
        members = [self.agents[one].name for one in view.members]
        return next((one for one in reversed(members) if one in answers), members[-1] if members else None)

    @cached_property
    def in_conversations(self) -> frozenset[int]:
        """The agents in continued conversations: those that are continued, and those that continue."""
        # Their requests are cached up to the end, even if nothing continues them yet, for a later cell.
        if all(one.continues is None for one in self.firsts):
            return frozenset()
        own = {number for number, one in enumerate(self.agents) if one.continues is not None}
        names = {str(self.agents[number].continues) for number in own}
        return frozenset(own.union(self.numbers(one for one in names if one in self.index or one in self.groups)))

    @cached_property
    def flow(self) -> Flow | None:
        """Decides during a run which steps are needed; `None` if all are."""
        unsure = any(one.when is not None or one.race or is_reserved(one) for one in self.firsts)
        return Flow(self) if unsure else None

    def meaning_of(self, number: int, text: str) -> Any:
        """Return the form of an agent's answer in prompts: its text, or the value of a typed one.

        Args:
            number: The agent's number in declared order.
            text: The text of its answer; for one that was left out of a recording, a placeholder is returned.
        """
        returns, part = self.agents[number].returns, self.agents[number].part
        if returns is None:
            return text
        try:
            return returns.as_written(text, is_row=part is not None and bool(part.asked))
        except InvalidAnswer:
            return returns.placeholder(text)

    def context_of(self, number: int) -> str | Parts | None:
        """Return the context an agent shares with others: a text, or parts of other kinds, if any.

        Args:
            number: The agent's number in declared order.

        Raises:
            DeclarationError: It cannot be rendered, or is empty.
        """
        agent = self.agents[number]
        return self.documents.get(agent.context) or context_of(agent, self.values)

    def check_prompts(self) -> None:
        """Render every prompt and context with placeholders for answers, so that errors come before any spending.

        Raises:
            DeclarationError: One cannot be rendered with any answers, or a condition cannot be decided.
            UndefinedField: One uses a field of an answer that is a text.
        """
        if any(one.when is not None or one.until is not None or one.part is not None for one in self.firsts):
            _check_fields(self, answers_of)
        checked: set[str] = set()
        for number in self._to_check:
            agent, inputs = self.agents[number], self.inputs[number]
            if agent.is_task:
                continue
            template = agent.template
            rendered = not template.simple or shows_content(agent, self.values)
            if rendered or (template.is_bare and template.names != inputs):
                self.prompt_ahead(number, dict.fromkeys(inputs, "(answer)"))
            else:  # a large value of many prompts is written once
                for name in self.values.keys() & set(template.names) - checked:
                    template.check_value(name, self.values[name])
                    checked.add(name)
            if agent.context is not None and agent.context not in checked:
                self.context_of(number)
                checked.add(agent.context)

    @cached_property
    def has_contexts(self) -> bool:
        """True if any step shares a context with others."""
        return any(one.context is not None for one in self.firsts)

    @cached_property
    def documents(self) -> Mapping[str | None, Parts]:
        """The parts of contexts that are or have pictures or documents, by name. They stand before the prompts."""
        return documents_of(self.firsts, {**self.values, **self.shown})

    @cached_property
    def _to_check(self) -> tuple[int, ...]:
        """The agents with a prompt or context that can fail: not those with nothing but answers in it."""
        # Of reserved places it is the first: the items are unknown, so their prompts are equal.
        numbers = firsts(range(len(self)), self.dag.alike)
        of_group: dict[str, int] = {}
        for number, agent in zip(numbers, self.firsts, strict=True):
            if agent.part is not None and agent.part.source:
                of_group.setdefault(agent.part.group, number)
        return tuple(
            number
            for number, agent, inputs in zip(numbers, self.firsts, firsts(self.inputs, self.dag.alike), strict=True)
            if (agent.part is None or not agent.part.source or of_group[agent.part.group] == number)
            and (
                agent.context is not None
                or agent.attach
                or agent.cite
                or (not agent.is_task and (not agent.template.simple or not self._has_answers_only(agent, inputs)))
            )
        )

    def _has_answers_only(self, agent: Step, inputs: tuple[str, ...]) -> bool:
        """Return whether a prompt writes only answers of its parents."""
        names = agent.template.names
        return names == inputs or (bool(inputs) and all(name in inputs or name in self.groups for name in names))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Per step, the model it asks; empty for a task, which asks none."""
        asked = ["" if one.is_task else one.model or DEFAULT_MODEL for one in self.firsts]
        return tuple(for_all(asked, self.dag.alike))

    @cached_property
    def asked(self) -> frozenset[str]:
        """The models that the plan's agents may ask."""
        others = (self.agents[number].other_models for number in self.special)
        return frozenset(self.models).union(*others) - {""}

    @cached_property
    def special(self) -> tuple[int, ...]:
        """The steps that are more than a prompt: tasks, agents with types, tools, a nod, other models, or `batch`."""
        found = [
            bool(one.is_task or one.tools or one.ask or one.other_models)
            or not (one.returns is one.check is one.batch is None)
            for one in self.firsts
        ]
        return tuple(compress(range(len(self)), for_all(found, self.dag.alike)))

    def hints(self) -> list[str]:
        """Return a line for each chosen model, and each value that is sent in an unexpected form."""
        told = {declared_name(one): one for one in self.agents if one.chosen}
        found = [f"{name}: auto is {one.model}: {one.chosen}" for name, one in told.items()]
        found += self._other_thinking()
        worded = {declared_name(one): one.returns for one in self.firsts if not one.is_task}
        for name, returns in worded.items():
            if returns is not None and returns.in_words:
                why = f"is asked for in words, and checked when the answer is there. {returns.in_words}"
                found += [f"{name}: its type {why}"]
        for agent, answers in zip(self.agents, self.inputs, strict=True):
            if agent.is_task:
                continue
            values = {**self.values, **(agent.part.values if agent.part is not None and not agent.part.asks else {})}
            names = [name for name in agent.template.whole if name not in answers and name not in self.groups]
            shared = [agent.context] if agent.context and agent.context not in self.documents else []
            found += value_notes([*names, *shared], values)
        return list(dict.fromkeys(found))

    def _other_thinking(self) -> list[str]:
        """Return a note for each agent that continues with another model, which does not see earlier thinking."""
        found: dict[str, None] = {}
        for number in sorted(self.in_conversations):
            before = self.continued(number, {})
            if before is None or self.models[number] == self.models[self.index[before]]:
                continue
            had, agent = self.models[self.index[before]], self.agents[number]
            told = agent.name if agent.part is None else agent.part.group
            found[
                f"{told}: {self.models[number]} goes on in a conversation of {had}; it cannot read what that has "
                "thought, which is left out, and finds nothing of it in the cache"
            ] = None
        return list(found)

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.agents[number].name for number in numbers)


def _check_fields(plan: Plan, answers: Callable[[Step], Returns | None]) -> None:
    # Plans read from data use declared types only: an outline has no types, and a recorded run always opens.
    for step in plan.firsts:
        check_fields(step, partial(_taken, plan, answers, step))
        if step.part is not None and step.part.source and step.part.place == 0:
            found = _taken(plan, answers, step, step.part.source)
            if found is not None and not found.several:
                check_items(step, step.part.source, found.returns, step.part.path)


def _taken(plan: Plan, answers: Callable[[Step], Returns | None], step: Step, name: str) -> Taken | None:
    group = plan.groups.get(name)
    member = plan.index.get(name) if group is None else next(iter(group.values()))
    returns = None if member is None else answers(plan.agents[member])
    if returns is None or name == step.name or (step.name, name) in plan.dropped:
        return None
    return Taken(returns, group is not None and view_of(plan.agents, group, step).kind == "all")
