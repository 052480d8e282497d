"""One declaration, many agents: one for each item of a list, a dict or a Series, or for each row of a DataFrame.

```
%%agent label --each reviews            label_0, label_1, ...: one agent for each row
Positive or negative? {{ item.text }}

%%agent check --each reviews            check_0 waits for label_0 only: both are for the same row
Is {{ label }} right for {{ item.text }}?

%%agent report                          waits for all of them, and uses all their answers
Sum up: {{ check }}
```
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from agent_magic.declare.pictures import frozen
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError, DuplicateAgent, PlanError, UndefinedVariable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from agent_magic.declare.step import Step

ITEM, KEY = "item", "key"
"""What prompts call the item, and its key: the row's label, the dict's key, or else its number from 0."""
OWN = frozenset({ITEM, KEY})


class Row(dict[str, Any]):
    """A row of a frame. As text it has a line per column; `{{ item.column }}` is one cell."""

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.items())


class Answers(tuple[Any, ...]):
    """The answers of a group, in the order of its items. As text they are separated by an empty line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


@dataclass(frozen=True, slots=True)
class Part:
    """Which one of a group of agents an agent is.

    Attributes:
        group: The name that the group was declared by.
        over: The name of the value whose items the group is for. In the prompt of an agent, the name of another group
            over the same value is the answer for the same item.
        number: The number of the item, from 0.
        key: The key of the item; see `KEY`.
        levels: The names of the levels of the value's index, if it has several; then `key` is a tuple.
        item: The item: a `Row`, or what a list or a dict holds.
    """

    group: str
    over: str
    number: int
    key: Any
    item: Any
    levels: tuple[Any, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """What only the prompt of this agent can use."""
        return {ITEM: self.item, KEY: self.key}


def expand(agents: Sequence[Step], values: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return agents, each of those declared with `each` replaced by one per item.

    Raises:
        DeclarationError: The value has no items, or cannot be read twice in the same order.
        UndefinedVariable: There is no such value.
        PlanError: It is an agent.
    """
    if all(agent.each is None for agent in agents):
        return tuple(agents)
    names = {agent.name for agent in agents}
    read: dict[str, list[tuple[Any, Any]]] = {}
    shown: dict[str, list[tuple[Any, Any]]] = {}
    found: list[Step] = []
    for agent in agents:
        over = agent.each
        if over is None:
            found.append(agent)
            continue
        if over not in read:
            if over not in values:
                raise _not_a_value(agent.name, over, names, values)
            read[over] = _items(values[over], over, agent.name)
            _warn_of_labels(over, read[over], values[over])
        levels = _levels(values[over])
        items = read[over]
        if not agent.is_task:  # a function takes a picture as it is
            items = shown[over] = shown.get(over) or [(key, frozen(item, f"{over} {key}")) for key, item in items]
        parts = [Part(agent.name, over, number, *one, levels) for number, one in enumerate(items)]
        found += [replace(agent, name=f"{agent.name}_{part.number}", each=None, part=part) for part in parts]
    return tuple(found)


def count_items(value: object) -> int | None:
    """Return the number of items that a value has for `each`; `None` if it cannot be used."""
    try:
        return len(_items(value, "", ""))
    except DeclarationError:
        return None


def _not_a_value(agent: str, over: str, names: Collection[str], values: Mapping[str, Any]) -> PlanError:
    if over not in names:
        return UndefinedVariable(over, agent=agent, known=values, what="each of")
    return PlanError(
        f"Agent {agent!r} is declared for each of {over!r}, which is an agent. Name the value that it is declared for "
        f"each of: then {{{{ {over} }}}} is its answer for the same item."
    )


def _items(value: object, name: str, agent: str) -> list[tuple[Any, Any]]:
    """Return the keys and items of a value.

    Raises:
        DeclarationError: It has none, cannot be read twice in the same order, or raises something.
    """

    def failed(error: BaseException) -> DeclarationError:
        message = f"Agent {agent!r} cannot be run for each of {name!r}: reading it raised {reason_of(error)}."
        return DeclarationError(message, agent=agent, hint="Give it a list, a dict, a Series or a DataFrame.")

    return run_user_code(lambda: _read(value, name, agent), failed)


def _read(value: object, name: str, agent: str) -> list[tuple[Any, Any]]:
    shown: Any = value
    library, kind = type(value).__module__.partition(".")[0], type(value).__name__
    found: list[tuple[Any, Any]]
    if library == "pandas" and kind == "DataFrame":
        _check_columns([str(column) for column in shown.columns], name, agent)
        found = list(zip(shown.index.tolist(), shown.to_dict("records"), strict=True))
    elif library == "pandas" and hasattr(shown, "items"):
        found = list(zip(shown.index.tolist(), shown.tolist(), strict=True))
    elif hasattr(shown, "tolist") and not isinstance(value, str | bytes):
        found = list(enumerate(cast("list[Any]", shown.tolist())))
    elif isinstance(value, Mapping):
        found = list(cast("Mapping[Any, Any]", value).items())
    elif isinstance(value, Collection) and not isinstance(value, str | bytes | set | frozenset):
        found = list(enumerate(cast("Collection[Any]", value)))
    else:
        message = f"Agent {agent!r} cannot be run for each of {name!r}, whose type is {kind}."
        raise DeclarationError(message, agent=agent, hint="Give it a list, a dict, a Series or a DataFrame.")
    if not found:
        message = f"Agent {agent!r} is declared for each of {name!r}, which is empty."
        raise DeclarationError(message, agent=agent, hint="Fill it, or take the agent out.")
    return [(key, as_item(item)) for key, item in found]


def _check_columns(columns: list[str], name: str, agent: str) -> None:
    """Raise if two columns have one name: a row has its cells by name."""
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        message = f"Agent {agent!r} is declared for each of {name!r}, which has the column {twice!r} more than once."
        raise DeclarationError(message, agent=agent, hint="Rename one, or leave it out.")


def _levels(value: object) -> tuple[Any, ...]:
    index: Any = value.index if _is_labelled(value) else None
    return tuple(index.names) if type(index).__name__ == "MultiIndex" else ()


def _is_labelled(value: object) -> TypeGuard[pd.Series[Any] | pd.DataFrame]:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "index")


def _warn_of_labels(name: str, items: list[tuple[Any, Any]], value: object) -> None:
    """Warn if rows share a label: a join by label repeats them."""
    if _is_labelled(value) and not value.index.is_unique:
        labels = value.index.nunique(dropna=False)
        message = (
            f"{name!r} has {len(items)} rows and {labels} labels, so joining what run.each() returns to it repeats "
            f"rows. {name} = {name}.reset_index() first gives each its own."
        )
        warnings.warn(message, UserWarning, stacklevel=3)


def as_item(value: Any) -> Any:
    """Return a dict as a `Row`, anything else as it is."""
    if not isinstance(value, dict) or isinstance(value, Row):
        return value
    return Row({str(name): cell for name, cell in cast("dict[Any, Any]", value).items()})


def groups_of(agents: Sequence[Step]) -> Mapping[str, Mapping[int, int]]:
    """Return the numbers of the agents of each group, by its name and the numbers of the items."""
    found: dict[str, dict[int, int]] = {}
    for number, agent in enumerate(agents):
        if agent.part is not None:
            found.setdefault(agent.part.group, {})[agent.part.number] = number
    for agent in agents if found else ():
        if agent.name in found and (agent.part is None or agent.part.group != agent.name):
            raise DuplicateAgent(agent.name)
    return MappingProxyType(found)


def members_of(agents: Sequence[Step], group: Mapping[int, int], agent: Step) -> Collection[int]:
    """Return the members of a group that its name means in an agent's prompt: all, or the one for the same item.

    A selected plan may have only some of a group.
    """
    if agent.part is None or not side_by_side(agents, group, agent):
        return group.values()
    same = group.get(agent.part.number)
    return () if same is None else (same,)


def side_by_side(agents: Sequence[Step], group: Mapping[int, int], agent: Step) -> bool:
    """Return whether an agent and a group were declared for each item of the same value."""
    other = agents[next(iter(group.values()))].part
    return agent.part is not None and other is not None and agent.part.over == other.over
