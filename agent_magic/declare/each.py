"""One declaration, many agents: one for each item of a list, a dict or a Series, or for each row of a DataFrame.

```
%%agent label --each reviews            label_0, label_1, ...: one agent for each row
Positive or negative? {{ item.text }}

%%agent check --each reviews            check_0 waits for label_0 only: both are for the same row
Is {{ label }} right for {{ item.text }}?

%%agent report                          waits for all of them, and uses all their answers
Sum up: {{ check }}
```

Items of an answer, and rounds of a loop, are groups too, whose members are reserved; see
`agent_magic.declare.expansion`.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from operator import call
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, TypeVar, cast

from agent_magic.declare.alike import Place, firsts
from agent_magic.declare.serialization import whole
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError, DuplicateAgent, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.step import Step
    from agent_magic.declare.task import Task

T = TypeVar("T", "Agent", "Task", "Step")
ITEM, KEY = "item", "key"
"""What prompts call the item, and its key: the row's label, the dict's key, or else its number from 0."""
OWN = frozenset({ITEM, KEY})
ROUNDS = "rounds of "
"""Before the name of the step that begins the rounds of a loop: over what its members are one group."""
REPEATS = "repetitions of "
"""The same before the name of what is asked several times."""
REQUESTS = "requests for "
"""The same before the name of a value several of whose items are asked for at once."""


class Row(dict[str, Any]):
    """A row of a frame. As text it has a line per column; `item.column` and `item["column"]` are one cell."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            meant = did_you_mean(name, self) or f" It has {', '.join(self)}."
            raise AttributeError(f"the row has no column {name!r}.{meant}") from None

    def __missing__(self, name: object) -> Any:
        """Return a column by its number: a frame without names has 0, 1, ... and a row their text."""
        if type(name) is int and str(name) in self:
            return self[str(name)]
        raise KeyError(name)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {whole(value)}" for name, value in self.items())


class Answers(tuple[Any, ...]):
    """The answers of a group, in the order of its items. As text they are separated by an empty line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(str(whole(one)) for one in self)


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
        source: The name of the step whose answer holds the item; empty where the item is known before the run.
        path: Where in that answer the items are: names of fields.
        place: The number of the item there, from 0.
        most: So many items may be there.
        outer: Which one of its group that step is, if it is one of a group.
        rounds: Of how many rounds of a loop this is one, whose numbers are from 1; 0 for an item.
        asks: At most how many items its request asks for at once, whose numbers, keys and items are then `item`; 0
            for a step of one item. See `agent_magic.declare.grouping`.
        asked: The name of the step whose request asked for this item too; empty where it has its own.
    """

    group: str
    over: str
    number: int
    key: Any
    item: Any
    levels: tuple[Any, ...] = ()
    source: str = ""
    path: tuple[str, ...] = ()
    place: int = 0
    most: int = 0
    outer: Part | None = None
    rounds: int = 0
    asks: int = 0
    asked: str = ""

    @property
    def is_reserved(self) -> bool:
        """Whether nobody knows before the run if the step is needed: a place for an item, or a later round."""
        return bool(self.source) or (self.rounds > 0 and self.number > 1)

    @property
    def has_item(self) -> bool:
        """Whether it is for an item, which rounds and repetitions are not."""
        return not self.rounds and not self.over.startswith(REPEATS)

    @property
    def is_counted(self) -> bool:
        """Whether its group is known by more than the items of a value: what an answer has, rounds, repetitions."""
        return bool(self.source) or not self.has_item

    @property
    def is_head(self) -> bool:
        """Whether it is of the step that begins the rounds of a loop."""
        return self.over == f"{ROUNDS}{self.group}"

    @property
    def values(self) -> dict[str, Any]:
        """What only the prompt of this agent can use, as far as it is known before the run."""
        return {} if self.source or not self.has_item else {ITEM: self.item, KEY: self.key}


def one_of(step: T, part: Part, **changes: Any) -> T:
    """Return the step for one part of a group, which is not checked again: the declaration was.

    Args:
        step: The agent or task as it was declared.
        part: Which one of the group it is.
        **changes: Other options that differ.
    """
    return members_of(step, [part], **changes)[0]


def members_of(step: T, parts: Sequence[Part], **changes: Any) -> list[T]:
    """Return the step for each part of a group; see `one_of`.

    Of ten thousand rows, or places that may stay unused, nothing else costs as much as making each. So the fields are
    read once, and set by the slots themselves.

    Args:
        step: The agent or task as it was declared.
        parts: The parts.
        **changes: Other options that differ, for all of them.
    """
    kind = type(step)
    own = [name for name in kind.__slots__ if name not in {"name", "part"}]
    slots = [getattr(kind, name).__set__ for name in own]  # they are frozen
    values = [changes[name] if name in changes else getattr(step, name) for name in own]
    put_name, put_part = (getattr(kind, name).__set__ for name in ("name", "part"))
    found, put = list[T](), cast("Any", call)
    for part in parts:
        made = object.__new__(kind)
        deque[None](map(put, slots, repeat(made), values), maxlen=0)
        put_name(made, f"{part.group}_{part.number}")
        put_part(made, part)
        found.append(made)
    return found


def places_of(step: T, first: Part, **changes: Any) -> list[T]:
    """Return the step for each place that is reserved for an item of one answer; see `Place`.

    Args:
        step: The agent or task as it was declared.
        first: Which one of the group the first place is.
        **changes: Other options that differ, for all of them.
    """
    kind, found, new = type(step), list[T](), object.__new__
    own = [name for name in kind.__slots__ if name not in {"name", "part"}]
    slots = [getattr(kind, name).__set__ for name in own]  # they are frozen
    put, put_part = cast("Any", call), cast("Any", kind).part.__set__

    def fill(place: Any) -> None:
        number = int(place.name.rpartition("_")[2])
        values = [changes[name] if name in changes else getattr(step, name) for name in own]
        deque[None](map(put, slots, repeat(place), values), maxlen=0)
        put_part(place, replace(first, number=number, key=number, place=number - first.number))
        object.__setattr__(place, "__class__", kind)  # at last: another thread may ask meanwhile

    placed = _placed(kind)
    put_name, put_fill = (getattr(placed, name).__set__ for name in ("name", "_fill"))
    for number in range(first.number, first.number + first.most):
        made = new(placed)
        put_name(made, f"{first.group}_{number}")
        put_fill(made, fill)
        found.append(made)
    return found


@cache
def _placed(kind: Any) -> Any:
    """Return the class of places of steps of a class."""
    return type(Place.__name__, (Place, kind), {"__slots__": (), "__module__": __name__})


def count_items(value: object) -> int | None:
    """Return the number of items that a value has for `each`; `None` if it cannot be used."""
    try:
        return len(read_items(value, "", ""))
    except DeclarationError:
        return None


def first_item(value: object) -> object:
    """Return the first item that a value has for `each`; `None` if it has none."""
    try:
        return next((item for _, item in read_items(value, "", "")), None)
    except DeclarationError:
        return None


NAMES_ELSEWHERE = frozenset({"row", "it", "value", "element", "record", "each", "x"})
"""What other tools call an item."""


def hint_at_item(name: str, item: object) -> str:
    """Say how a prompt writes its item, which it calls otherwise, or a field of it; empty for other names."""
    if isinstance(item, Mapping) and name in item:
        return f"{{{{ {ITEM}.{name} }}}} is that of the item"
    return f"The item is {{{{ {ITEM} }}}}" if name in NAMES_ELSEWHERE else ""


def columns_missing(paths: Iterable[tuple[str | int, ...]], item: object) -> list[str]:
    """Say which columns a prompt takes of its row that the row has not, and which there are.

    Args:
        paths: What the prompt takes of names; see `agent_magic.declare.template`.
        item: The row.
    """
    if not isinstance(item, Row):
        return []
    taken = {path[1] for path in paths if len(path) > 1 and path[0] == ITEM and isinstance(path[1], str)}
    return [
        f"{{{{ {ITEM}.{name} }}}}: the row has no column {name!r}. It has {', '.join(item)}.{did_you_mean(name, item)}"
        for name in sorted(taken - {*item, *dir(Row)})
    ]


def read_items(value: object, name: str, agent: str, *, may_be_empty: bool = False) -> list[tuple[Any, Any]]:
    """Return the keys and items of a value.

    Raises:
        DeclarationError: It has none and has to, cannot be read twice in the same order, or raises something.
    """

    def failed(error: BaseException) -> DeclarationError:
        message = f"Agent {agent!r} cannot be run for each of {name!r}: reading it raised {reason_of(error)}."
        return DeclarationError(message, agent=agent, hint="Give it a list, a dict, a Series or a DataFrame.")

    found = run_user_code(lambda: _read(value, name, agent), failed)
    if not found and not may_be_empty:
        message = f"Agent {agent!r} is declared for each of {name!r}, which is empty."
        raise DeclarationError(message, agent=agent, hint="Fill it, or take the agent out.")
    return found


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
    return [(key, as_item(item)) for key, item in found]


def _check_columns(columns: list[str], name: str, agent: str) -> None:
    """Raise if two columns have one name: a row has its cells by name."""
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        message = f"Agent {agent!r} is declared for each of {name!r}, which has the column {twice!r} more than once."
        raise DeclarationError(message, agent=agent, hint="Rename one, or leave it out.")


def levels_of(value: object) -> tuple[Any, ...]:
    """Return the names of the levels of a value's index, if it has several."""
    index: Any = value.index if _is_labelled(value) else None
    return tuple(index.names) if type(index).__name__ == "MultiIndex" else ()


def _is_labelled(value: object) -> TypeGuard[pd.Series[Any] | pd.DataFrame]:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "index")


def warn_of_labels(name: str, items: list[tuple[Any, Any]], value: object) -> None:
    """Warn if rows share a label: a join by label repeats them."""
    if _is_labelled(value) and not value.index.is_unique:
        labels = value.index.nunique(dropna=False)
        message = (
            f"{name!r} has {len(items)} rows and {labels} labels, so joining what run.each() returns to it repeats "
            f"rows. {name} = {name}.reset_index() first gives each its own."
        )
        warnings.warn(message, UserWarning, stacklevel=3)


def notes_on_missing(name: str, value: object, paths: Iterable[Sequence[str | int]]) -> list[str]:
    """Say which columns that a prompt takes have no value in some rows: it writes `nan` there, in silence.

    Args:
        name: The name of the frame.
        value: What the name stands for.
        paths: What the prompt takes, as names of fields.
    """
    if not _is_labelled(value) or not hasattr(value, "columns") or not value.columns.is_unique:
        return []
    taken = {path[1] for path in paths if len(path) > 1 and path[0] == ITEM}
    counts = {one: int(value[one].isna().sum()) for one in value.columns if one in taken}
    missing = [f"item.{one} ({count:,} of {len(value):,} rows)" for one, count in counts.items() if count]
    if not missing:
        return []
    fill = f"{name}.astype(object).fillna('unknown')"
    return [f"no value, where the prompt says nan or None: {', '.join(missing)}. {fill} says it otherwise"]


def as_item(value: Any) -> Any:
    """Return a dict as a `Row`, anything else as it is."""
    if not isinstance(value, dict) or isinstance(value, Row):
        return value
    return Row({str(name): cell for name, cell in cast("dict[Any, Any]", value).items()})


def groups_of(agents: Sequence[Step], places: Sequence[range] = ()) -> Mapping[str, Mapping[int, int]]:
    """Return the numbers of the agents of each group, by its name and the numbers of the items.

    Args:
        agents: The agents of a plan.
        places: The numbers of those that are places for the items of one answer, whose numbers follow one another.
    """
    found: dict[str, dict[int, int]] = {}
    many = {one.start: one for one in places}
    for number, agent in zip(firsts(range(len(agents)), places), firsts(agents, places), strict=True):
        if agent.part is not None:
            group, own = found.setdefault(agent.part.group, {}), agent.part.number
            group[own] = number
            if number in many:
                group.update(zip(range(own, own + len(many[number])), many[number], strict=True))
    for agent in agents if found else ():
        if agent.name in found and (agent.part is None or agent.part.group != agent.name):
            raise DuplicateAgent(agent.name)
    return MappingProxyType(found)


class View(NamedTuple):
    """What the name of a group means in one agent's prompt.

    Attributes:
        members: The members that are meant, in order.
        kind: `all` of them; the `same` one: for the item, or in the round, of the agent, none in the round before the
            first; or the `last` round that ran.
    """

    members: Sequence[int]
    kind: Literal["all", "same", "last"]


def view_of(agents: Sequence[Step], group: Mapping[int, int], agent: Step) -> View:
    """Return what the name of a group means in an agent's prompt. A selected plan may have only some of a group.

    The step that begins the rounds of a loop sees the others as they were in the round before, and so does each itself.
    """
    other, part = agents[next(iter(group.values()))].part, agent.part
    if other is None:
        return View((), "all")
    while part is not None and part.over != other.over:
        part = part.outer
    if part is None:
        return View(tuple(group.values()), "last" if other.rounds else "all")
    before = part.rounds > 0 and (part.is_head or part.group == other.group)
    same = group.get(part.number - before)
    return View(() if same is None else (same,), "same")
