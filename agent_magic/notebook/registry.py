"""The agents and contexts declared in cells, and their stale answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agent_magic.declare.agent import Agent
from agent_magic.declare.context import Context
from agent_magic.declare.dag import build_dag
from agent_magic.declare.declared import with_changes
from agent_magic.declare.expansion import in_rounds, names_before
from agent_magic.declare.task import Task
from agent_magic.declare.template import deciding_names
from agent_magic.errors import DeclarationError, UnknownAgent
from agent_magic.notebook.front_end import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from agent_magic.declare.step import Step

T = TypeVar("T", Agent | Task, Context)


@dataclass(frozen=True, slots=True)
class Declared(Generic[T]):
    """An agent or a context, its cell, and all names that the cell declared."""

    value: T
    cell: Cell
    together: tuple[str, ...] = ()


class Registry:
    """The agents and contexts of one plan, in order of first declaration; `common` has more contexts."""

    def __init__(self, name: str, common: Registry | None = None) -> None:
        self.name, self._common = name, common
        self._agents: dict[str, Declared[Step]] = {}
        self._contexts: dict[str, Declared[Context]] = {}
        self._adopted: dict[str, Step] = {}

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    @property
    def agents(self) -> tuple[Step, ...]:
        return tuple(one.value for one in self._agents.values())

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Its contexts in declared order, then used common ones."""
        own = tuple(one.value for one in self._contexts.values())
        if self._common is None:
            return own
        taken = {*self._contexts, *self._agents}
        named = {name for agent in self.agents for name in agent.reads} - taken
        return (*own, *(one for one in self._common.contexts if one.name in named))

    def declare(
        self, agent: Step, cell: Cell, *, ran: Collection[str], variables: Collection[str], cycles: bool
    ) -> list[str]:
        """Replace an agent of the same name or cell, unless it closes a cycle; return notes."""
        notes = _take_back(self._contexts, cell, "context")
        if agent.name in self._contexts:
            raise _taken(agent.name, "a context", "an agent")
        self._check_unused(agent.name, cell, "the answer of agent")
        old, (table, said) = self._agents.get(agent.name), _with(self._agents, agent, cell)
        gone = [name for name, one in table.items() if one.together and _is_of(one, cell)]  # it was a cell of several
        table = {name: one for name, one in table.items() if name not in gone}
        said += _dropped(gone)
        if not cycles:
            _check_cycle(table, variables)
        self._agents = table
        changed = old is None or old.value != agent
        said += _twins(table, agent) if old is None and cell.id is None else []
        return [*notes, *said, *(self.stale_note(agent.name, ran) if changed else [])]

    def declare_all(
        self, agents: Sequence[Step], cell: Cell, *, ran: Collection[str], variables: Collection[str], cycles: bool
    ) -> list[str]:
        wanted = {agent.name: agent for agent in agents}
        for name in wanted:
            if name in self._contexts and not _is_of(self._contexts[name], cell):
                raise _taken(name, "a context", "an agent")
            self._check_unused(name, cell, "the answer of agent")
        gone = [name for name, one in self._agents.items() if _is_of(one, cell) and name not in wanted]
        old, notes = self._agents, _dropped(gone)
        table = {name: one for name, one in old.items() if name not in gone}
        moved = [name for name in wanted if name in table and not _is_of(table[name], cell)]
        notes += [f"replaces {', '.join(moved)} of another cell"] if moved and cell.id is not None else []
        table |= {name: Declared(agent, cell, tuple(wanted)) for name, agent in wanted.items()}
        notes += _left_of(old, wanted, table)
        if not cycles:
            _check_cycle(table, variables)
        notes += _take_back(self._contexts, cell, "context")
        self._agents = table
        changed = [name for name, agent in wanted.items() if name in old and old[name].value != agent]
        stale = dict.fromkeys(other for name in changed for other in self.descendants(name) if other in ran)
        return [*notes, *([f"now stale: {', '.join(stale)}"] if stale else [])]

    def declare_context(
        self, context: Context, cell: Cell, *, ran: Collection[str], check: Callable[[], object] | None = None
    ) -> list[str]:
        """Replace a context of the same name or cell, unless `check` fails; return notes."""
        name = context.name
        notes = _take_back(self._agents, cell, "agent")
        if name in self._agents:
            raise _taken(name, "an agent", "a context")
        for used in context.uses:
            if used in self._agents or used in self._contexts:
                raise _shared(name, used, "the answer of agent" if used in self._agents else "the context")
        self._check_unused(name, cell, "the context")
        if check is not None:
            check()
        old, (self._contexts, said) = self._contexts.get(name), _with(self._contexts, context, cell)
        changed = old is not None and old.value != context
        return [*notes, *said, *(self.stale_note(name, ran) if changed else [])]

    def _check_unused(self, name: str, cell: Cell, kind: str) -> None:
        for one in self._contexts.values():
            if name in one.value.uses and not _is_of(one, cell):
                raise _shared(one.value.name, name, kind)

    def adopt(self, namespace: Mapping[str, Any]) -> list[str]:
        """Add steps in variables that declared ones use: `clean = am.Task("clean", tidy)`, `{{ clean }}`; return notes.

        A task that uses a declared step is added too. A step is removed when its variable holds another value.
        """
        notes: list[str] = []
        for name, step in [*self._adopted.items()]:
            if name not in self._agents or self._agents[name].value is not step:
                del self._adopted[name]
            elif namespace.get(name) is not step:
                del self._adopted[name], self._agents[name]
        todo = [name for agent in self.agents for name in (*agent.reads, *agent.after)]
        tasks = {name: one for name, one in [*namespace.items()] if isinstance(one, Task) and one.name == name}
        while todo or (todo := [name for name, one in tasks.items() if name not in self._known and self._feeds(one)]):
            name = todo.pop()
            step = namespace.get(name)
            if name in self._known or not isinstance(step, Agent | Task):
                continue
            if step.name != name:
                notes.append(f"{{{{ {name} }}}} is the step {step.name!r}: give both one name, {step.name} = ...")
                continue
            self._agents[name] = Declared(step, Cell())
            self._adopted[name] = step
            todo += [*step.reads, *step.after]
        return notes

    def _feeds(self, task: Task) -> bool:
        return any(name in self._agents for name in (*task.reads, *task.after))

    def has_context(self, name: str) -> bool:
        return name in self._contexts

    def sharing(self, name: str) -> tuple[Step, ...]:
        return tuple(agent for agent in self.agents if agent.context == name)

    def drop(self, names: Iterable[str]) -> None:
        """Remove agents and contexts, all or none."""
        names = list(names)
        for name in names:
            if name not in self._agents and name not in self._contexts:
                raise UnknownAgent(name, known=[*self._agents, *self._contexts])
        for name in names:
            self._agents.pop(name, None)
            self._contexts.pop(name, None)

    def change(self, name: str, **options: Any) -> None:
        """Give a declared agent other options; its cell stays its cell."""
        if name not in self._agents:
            raise UnknownAgent(name, known=self._agents)
        one = self._agents[name]
        self._agents[name] = replace(one, value=with_changes(one.value, options))

    def snapshot(self) -> Callable[[], None]:
        kept = dict(self._agents)

        def restore() -> None:
            self._agents = kept

        return restore

    def clear(self) -> None:
        self._agents.clear()
        self._contexts.clear()

    def of_cells(self, cell_ids: Collection[str], executed: Mapping[str, str | None] | None = None) -> tuple[str, ...]:
        """Return the names declared by these cells."""
        every, last = [*self._agents.items(), *self._contexts.items()], executed or {}
        return tuple(
            name
            for name, one in every
            if one.cell.id is not None
            and (one.cell.id in cell_ids or last.get(one.cell.id, one.cell.execution) != one.cell.execution)
        )

    def values(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        used = {name for agent in self.agents for name in agent.reads}
        used |= {name for context in self.contexts for name in context.uses}
        return {name: namespace[name] for name in sorted(used) if name in namespace}

    def variables(self, agent: Step) -> list[str]:
        return [name for name in agent.template.whole if name not in self._known]

    @property
    def _known(self) -> set[str]:
        common = () if self._common is None else self._common._contexts  # noqa: SLF001 - of the same class
        return {*self._agents, *self._contexts, *common}

    def undefined(self, agent: Step, namespace: Mapping[str, Any]) -> tuple[str, ...]:
        known = self._known
        wanted = [name for name in agent.reads if name not in agent.optional and ":" not in name]
        lacking = [name for name in wanted if name not in known and name not in namespace]
        return tuple(dict.fromkeys([*lacking, *(name for name in agent.after if name not in self._agents)]))

    def parents(self, agent: Step) -> tuple[tuple[str, str], ...]:
        """Return the agent's parents so far, each with the source of the edge."""
        used = [
            (name, "continues" if name == agent.continues else "prompt")
            for name in agent.uses
            if name in self._agents and name != agent.name
        ]
        order = [(name, "after") for name in agent.after if name in self._agents and name not in agent.uses]
        known = {name for name, _ in (*used, *order)}
        each = (agent.each or "").partition(".")[0]
        names = [name for name in deciding_names(agent) if name in self._agents and name not in known]
        decides = [(name, "each" if name == each else "when" if agent.until is None else "until") for name in names]
        return (*used, *order, *decides)

    def descendants(self, name: str) -> tuple[str, ...]:
        """Return all agents that wait for `name`, or use that context."""
        found: list[str] = []
        todo = [name]
        while todo:
            parent = todo.pop()
            for child, one in self._agents.items():
                if parent in (*one.value.reads, *one.value.after) and child not in found and child != name:
                    found.append(child)
                    todo.append(child)
        return tuple(child for child in self._agents if child in found)

    def stale_note(self, name: str, ran: Collection[str]) -> list[str]:
        others = [other for other in self.descendants(name) if other in ran]
        return [f"now stale: {', '.join(others[:5])}" + (" …" if len(others) > 5 else "")] if others else []


def resources_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the resources of MCP servers that steps attach, as `server:name`."""
    return tuple(dict.fromkeys(name for one in steps for name in one.attach if ":" in name))


def variable_of(prompt: str) -> str:
    """Return the variable that holds a server's prompt `server:name`."""
    return "prompt_" + re.sub(r"\W", "_", prompt)


def steps_in_variables(namespace: Mapping[str, Any]) -> str:
    """Return advice on steps that only variables hold, such as a plan's in Python."""
    found = [name for name, one in namespace.items() if isinstance(one, Agent | Task) and one.name == name]
    if not found:
        return ""
    return (
        f" The variable {found[0]} holds a step, which runs only if a declared agent uses it. Run it by "
        f"await am.Plan([{found[0]}]).run(), or declare it: @am.task above a function, %%agent for a prompt."
    )


def _is_of(one: Declared[Any], cell: Cell) -> bool:
    return cell.id is not None and one.cell.id == cell.id


def _dropped(names: Sequence[str]) -> list[str]:
    return [f"dropped {', '.join(names)}, which the cell had before"] if names else []


def _left_of(
    old: Mapping[str, Declared[Step]], wanted: Iterable[str], table: Mapping[str, Declared[Step]]
) -> list[str]:
    """Return a note of other names that the cell had declared."""
    # That cell may have been edited, in front ends without cell ids, or copied: only the user knows.
    beside = dict.fromkeys(name for one in wanted if one in old for name in old[one].together)
    left = [name for name in beside if name in table and table[name] is old.get(name)]
    if not left:
        return []
    verb = "stays" if len(left) == 1 else "stay"
    return [f"{', '.join(left)} {verb} declared, from an earlier cell, and will run too: %agents drop {' '.join(left)}"]


def _twins(table: Mapping[str, Declared[Step]], agent: Step) -> list[str]:
    """Return a note of another agent with the same text, if it is unknown which cell was renamed."""
    if isinstance(agent, Task):
        return []
    others = [name for name, one in table.items() if name != agent.name and isinstance(one.value, Agent)]
    same = [name for name in others if replace(table[name].value, name=agent.name) == agent]
    has = "has" if len(same) == 1 else "have"
    told = f"{', '.join(same)} {has} the same text; if this cell was renamed: %agents drop {' '.join(same)}"
    return [told] if same else []


def _with(table: dict[str, Declared[T]], value: T, cell: Cell) -> tuple[dict[str, Declared[T]], list[str]]:
    old, renamed = table.get(value.name), _earlier_name(table, value.name, cell)
    place = value.name if old is not None else renamed
    made: dict[str, Declared[T]] = {}
    for name, one in table.items():
        if name == place:
            made[value.name] = Declared(value, cell)
        elif name != renamed:
            made[name] = one
    made.setdefault(value.name, Declared(value, cell))
    if renamed:
        return made, [f"renamed from {renamed!r}"]
    elsewhere = old is not None and old.value != value and cell.id is not None and old.cell.id not in {None, cell.id}
    return made, ["replaces the declaration of another cell"] if elsewhere else []


def _earlier_name(table: Mapping[str, Declared[T]], name: str, cell: Cell) -> str | None:
    """Return the name this cell had declared before."""
    if cell.id is None:
        return None
    others = [(other, one.cell.execution) for other, one in table.items() if one.cell.id == cell.id]
    if len(others) != 1 or others[0][0] == name or others[0][1] == cell.execution:
        return None
    return others[0][0]


def _take_back(table: dict[str, Declared[T]], cell: Cell, kind: str) -> list[str]:
    before = [one for one in table.items() if cell.id is not None and one[1].cell.id == cell.id]
    mine = [name for name, one in before if one.cell.execution != cell.execution]
    for name in mine:
        del table[name]
    return [f"in place of the {kind} {', '.join(mine)}"] if mine else []


def _check_cycle(table: Mapping[str, Declared[Step]], variables: Collection[str]) -> None:
    # A prompt that uses its agent's name means the variable with that name, if there is one.
    names = list(table)
    index = {name: number for number, name in enumerate(names)}
    before = {name: names_before(one.value) for name, one in table.items()}
    parents: list[list[int]] = []
    for name in names:
        agent = table[name].value
        used = [
            one for one in (*agent.uses, *agent.after, *deciding_names(agent)) if one != name or one not in variables
        ]
        again = in_rounds(name, before) if agent.until is not None else ()
        parents.append([index[one] for one in dict.fromkeys(used) if one in index and one not in again])
    build_dag(parents, names)


def _shared(context: str, used: str, kind: str) -> DeclarationError:
    return DeclarationError(
        f"Context {context!r} uses {kind} {used!r}, but has to be the same for all who share it.",
        hint="A context takes variables; answers go into prompts.",
    )


def _taken(name: str, held: str, wanted: str) -> DeclarationError:
    return DeclarationError(
        f"{name!r} is {held} already and cannot be {wanted} too: prompts that name it could mean either.",
        hint=f"Give it another name, or drop the other: %agents drop {name}.",
    )
