"""What steps use of each other: who waits for whom, by the names in prompts and tasks, and the fields of typed answers.

A field that is not there is found when declared, not when paid for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent_magic.declare.answers.returns import Returns
from agent_magic.declare.answers.schema import alternatives_of, brief, fields_of, items_of, lacking, reached, schema_of
from agent_magic.declare.dag import Dag, build_dag
from agent_magic.declare.each import OWN, firsts, group_of, hint_at_item, view_of
from agent_magic.declare.grouping import declared_name
from agent_magic.declare.template import condition_of, conditions_of
from agent_magic.declare.values import check_values
from agent_magic.errors import DeclarationError, PlanError, UndefinedField, UndefinedVariable, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.declare.step import Step


class PlanWarning(UserWarning):
    """An edge was dropped from a plan, as its options allow."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One agent waits for another.

    `kind` is `prompt` if the answer goes into the child's prompt, `continues` if the child goes on in the parent's
    conversation, `after` if only the order counts.
    """

    parent: str
    child: str
    kind: Literal["prompt", "continues", "after"]


class Edges:
    """The edges of a plan: `inputs` are parents in prompts, `dropped` pairs of agent and missing parent."""

    def __init__(
        self,
        agents: Sequence[Step],
        index: Mapping[str, int],
        groups: Mapping[str, Mapping[int, int]],
        values: Mapping[str, Any],
        *,
        drop: bool,
        places: Sequence[range] = (),
    ) -> None:
        self.agents, self.index, self.groups, self.values, self.drops = agents, index, groups, values, drop
        self.parents: list[list[int]] = []
        self.inputs: list[tuple[str, ...]] = []
        self.used: dict[str, Any] = {}
        self.dropped: list[tuple[str, str]] = []
        # All places for an answer have the same edges if no group has one per place: of thousands few are needed.
        self.alike = tuple(
            one
            for one in places
            if not drop and groups.keys().isdisjoint((*agents[one.start].reads, *agents[one.start].after))
        )
        more = {one.start: len(one) - 1 for one in self.alike}
        for agent in firsts(agents, self.alike):
            inputs = tuple(name for name in self._members(agent, agent.uses) if self._is_input(agent, name))
            after = [name for name in self._members(agent, agent.after) if self._is_parent(agent, name)]
            if agent.when is not None or agent.part is not None:
                inputs, deciding = self._deciding(agent, inputs)
                after += deciding
            if agent.context is not None:
                self._use(agent, agent.context, what="the context", known=values)
            self.inputs.append(inputs)
            self.parents.append([index[name] for name in dict.fromkeys((*inputs, *after))])
            if others := more.get(len(self.parents) - 1):
                self.inputs += self.inputs[-1:] * others
                self.parents += self.parents[-1:] * others

    def _deciding(self, agent: Step, inputs: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
        """Add the source of a step's item, and the names in its conditions."""
        part, found = agent.part, list[str]()
        if part is not None and part.source:
            inputs = tuple(dict.fromkeys((*inputs, *self._members(agent, (part.source,)))))
        if agent.when is not None:
            names = condition_of(agent.when, agent.name).names
            found += [name for name in self._members(agent, names) if self._is_input(agent, name)]
        if part is not None and part.is_head and agent.until is not None:
            for name in self._members(agent, condition_of(agent.until, agent.name, "until").names):
                before = self._is_input(agent, name)  # in the first round only its values are kept
                found += [name] if before and part.number > 1 else []
        return inputs, found

    def _members(self, agent: Step, names: Sequence[str]) -> Iterable[str]:
        """Replace groups by the members that are meant."""
        if not self.groups:
            return names
        found: dict[str, None] = {}
        for name in names:
            meant = view_of(self.agents, self.groups[name], agent).members if name in self.groups else None
            found.update(dict.fromkeys([name] if meant is None else [self.agents[one].name for one in meant]))
        return found

    def _is_input(self, agent: Step, name: str) -> bool:
        """Return whether a name in a prompt is a parent; if not, drop it, or raise."""
        if name in self.index and (name != agent.name or name not in self.values):
            return self._is_other(agent, name)
        if self.drops and name not in self.values:
            self._drop(agent.name, name)
        else:
            self._use(agent, name, known=[*self.index, *self.values])
        return False

    def _use(self, agent: Step, name: str, *, known: Iterable[str], what: str = "") -> None:
        if name not in self.values and name in agent.optional:
            return
        if name not in self.values:
            hint = "" if agent.part is None else hint_at_item(name, agent.part.item)
            if agent.part is not None and name in OWN:  # which a prompt may use
                hint = "A condition is about answers; leave such items out of the list in a cell"
            task = declared_name(agent) if agent.is_task and not what else ""
            raise UndefinedVariable(name, agent=declared_name(agent), task=task, known=known, what=what, hint=hint)
        if name not in self.used:
            check_values([name], self.values, f"{'Task' if agent.is_task else 'Agent'} {declared_name(agent)!r}")
            self.used[name] = self.values[name]

    def _is_parent(self, agent: Step, name: str) -> bool:
        """Return whether a name in `after` is a parent; drop an unknown one, or raise."""
        if name in self.index:
            return self._is_other(agent, name)
        if not self.drops:
            raise UnknownAgent(name, known=self.index, wanted_by=agent.name)
        self._drop(agent.name, name)
        return False

    def _is_other(self, agent: Step, name: str) -> bool:
        """Return whether a name is not the agent's own; drop that, or raise."""
        if name != agent.name or not self.drops:
            return True
        self._drop(agent.name, name)
        return False

    def _drop(self, agent: str, missing: str) -> None:
        self.dropped.append((agent, missing))
        warnings.warn(f"Edge dropped: {agent!r} no longer waits for {missing!r}.", PlanWarning, stacklevel=6)

    def in_declared_order(self) -> Dag:
        """Chain all agents; edges that point backwards are dropped with a warning each."""
        for number, agent in enumerate(self.agents):
            for parent in self.parents[number]:
                if parent >= number:
                    self._drop(agent.name, self.agents[parent].name)
            earlier = [parent for parent in self.parents[number] if parent < number]
            names = {self.agents[parent].name for parent in earlier}
            self.inputs[number] = tuple(name for name in self.inputs[number] if name in names)
            self.parents[number] = earlier if not number or number - 1 in earlier else [*earlier, number - 1]
        return build_dag(self.parents)


TEXT = Returns('{"type": "string"}')
"""The type of answers for which none is declared."""


def answers_of(step: Step) -> Returns | None:
    """Return the type of a step's answers: text by default, `None` if unknown."""
    is_text = step.returns is None and not (step.is_task or step.cite or step.tools)  # those may hold more than words
    return TEXT if is_text else step.returns


class Taken(NamedTuple):
    """The type of a name in a step; with `several` the name means all answers of a group, by number."""

    returns: Returns
    several: bool = False


def check_fields(step: Step, type_of: Callable[[str], Taken | None]) -> None:
    """Raise for the first field a step uses that an answer's type does not have."""
    conditions = conditions_of(step)
    compared = [(option, path) for option, one in conditions.items() for path in one.numbers]
    for option, (name, *path) in compared:
        found = type_of(str(name))
        if found is not None and not found.several and _is_text(found.returns, path):
            what, agent, text = ".".join(map(str, (name, *path))), group_of(step), getattr(step, option)
            raise DeclarationError(
                f"--{option} {text!r} of agent {agent!r} compares {what}, which is a text, with a number.",
                agent=agent,
                hint=f"Count its letters, {what} | length, or have a number answered: --returns int.",
            )
    for name, *path in (path for one in (step.template, *conditions.values()) for path in one.paths):
        found = type_of(str(name)) if path else None
        if found is None:
            continue
        if found.several and not isinstance(path[0], int):  # a loop over them takes one, or a number does
            continue
        _check_path(step, found.returns, str(name), path[1:] if found.several else path)


def check_items(step: Step, source: str, returns: Returns, path: Sequence[str]) -> None:
    """Raise if a step is declared for each item of a value that is no list."""
    _check_path(step, returns, source, path)
    places = [one for place in reached(schema_of(returns.schema), path) for one in alternatives_of(place)]
    if not places or not all(one.get("type") in _NO_LISTS or fields_of(one) for one in places):
        return
    name, over = group_of(step), ".".join([source, *path])
    lists = [field for one in places for field, of in fields_of(one).items() if any(map(items_of, alternatives_of(of)))]
    message = (
        f"Agent {name!r} is declared for each of {over!r}, which is not a list but {' | '.join(map(brief, places))}."
    )
    hint = f"Take a list in it: --each {over}.{lists[0]}." if lists else "Have it answer with one: --returns list[str]."
    raise PlanError(f"{message} {hint}")


_NO_LISTS = frozenset({"string", "integer", "number", "boolean", "null"})


def _is_text(returns: Returns, path: Sequence[str | int]) -> bool:
    if not all(isinstance(one, str) for one in path):
        return False
    places = [one for place in reached(schema_of(returns.schema), [*map(str, path)]) for one in alternatives_of(place)]
    return bool(places) and all(one.get("type") == "string" for one in places)


def _check_path(step: Step, returns: Returns, name: str, path: Sequence[str | int]) -> None:
    lacks = lacking(schema_of(returns.schema), path)
    if lacks is not None:
        kind = "a text; --returns TYPE gives answers fields" if returns is TEXT else lacks.kind
        raise UndefinedField(lacks.field, of=f"{name}{lacks.of}", agent=group_of(step), known=lacks.known, kind=kind)
