"""One declaration, many agents: one for each item of a list, a dict or a Series, or for each row of a DataFrame.

```
%%agent label --each reviews            label_0, label_1, ...: one agent for each row
Positive or negative? {{ item.text }}

%%agent check --each reviews            check_0 waits for label_0 only: both are for the same row
Is {{ label }} right for {{ item.text }}?
```

For items of an answer and rounds of a loop, see `agent_magic.declare.expansion`. Places reserved for the items of one
answer differ only in name and number, so the first of them is prepared and copied: thousands cost little.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import repeat
from operator import call
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from agent_magic.declare.values import Row, find_name, is_lazy, read_table, whole
from agent_magic.errors import DuplicateAgent, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.declare.options import StepOptions

S = TypeVar("S")


class Copied:
    """A step that can be a `Place`."""

    __slots__ = ("_fill",)
    _fill: Callable[[Any], None]


class Place:
    """A step with only its name: the first access to another field turns it into a full step."""

    # Of two thousand places few are needed, and filling in all of them cost more than all other work for a plan. It
    # is a separate class, since `__getattr__` would double the cost of each field of every step.

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker would then know of no wrong name

        def __getattr__(self, name: str) -> Any:
            return getattr(self._filled(), name)

    def _filled(self) -> Any:
        one: Any = self
        one._fill(one)  # noqa: SLF001 - its own
        return one

    def __eq__(self, other: object) -> bool:
        return self._filled() == other

    def __hash__(self) -> int:
        return hash(self._filled())

    def __repr__(self) -> str:
        return repr(self._filled())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._filled().__reduce_ex__(protocol)


def firsts(every: Sequence[S], alike: Sequence[range]) -> Sequence[S]:
    """Keep only the first of equal steps."""
    if not alike:
        return every
    found, at = list[S](), 0
    for numbers in alike:
        found += every[at : numbers.start + 1]
        at = numbers.stop
    return [*found, *every[at:]]


def for_all(some: Sequence[S], alike: Sequence[range]) -> Sequence[S]:
    """Repeat the first of equal steps; the inverse of `firsts`."""
    if not alike:
        return some
    found, at = list[S](), 0
    for numbers in alike:
        first = at + numbers.start - len(found)
        found += some[at:first]
        found += [some[first]] * len(numbers)
        at = first + 1
    return [*found, *some[at:]]


T = TypeVar("T", bound="StepOptions")
ITEM, KEY = "item", "key"
"""The key is the row's label, the dict's key, or the item's number from 0."""
OWN = frozenset({ITEM, KEY})
ROUNDS = "rounds of "
"""Prefixes of `Part.over`: of a loop's first step, a repeated agent, a request for several items."""
REPEATS = "repetitions of "
REQUESTS = "requests for "


class Answers(tuple[Any, ...]):
    """The answers of a group in order; as text they are separated by an empty line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(str(whole(one)) for one in self)


@dataclass(frozen=True, slots=True)
class Part:
    """The position of an agent in its group.

    Attributes:
        over: The value with the items; groups over one value use each other's answer for the same item.
        number: Of an item from 0, of a round from 1.
        levels: Names of the levels of the value's index, if it has several; then `key` is a tuple.
        dtypes: The dtypes of that index, if the keys alone would give others.
        source: The step with the items in its answer; empty if the item is known before the run.
        path: Fields that lead to the items in that answer.
        place: Number of the item there from 0; in a request for several items from 1.
        most: Maximum items there.
        outer: The position of that step, if it is in a group itself.
        rounds: Number of rounds of the loop; 0 for an item.
        asks: Maximum items of its request, which are in `item`; 0 for one item.
        asked: The step with the request for this item; empty for a separate request.
        shares: True if an earlier item with the same prompt is asked instead.
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
    dtypes: tuple[Any, ...] = ()
    shares: bool = False

    @property
    def is_reserved(self) -> bool:
        """True if the need for it is unknown before the run: a place for an item, or a later round."""
        return bool(self.source) or (self.rounds > 0 and self.number > 1)

    @property
    def has_item(self) -> bool:
        """False for rounds and repetitions."""
        return not self.rounds and not self.over.startswith(REPEATS)

    @property
    def is_counted(self) -> bool:
        """True if no value gives the size of its group."""
        return bool(self.source) or not self.has_item

    @property
    def is_head(self) -> bool:
        """True for the first step of a loop."""
        return self.over == f"{ROUNDS}{self.group}"

    @property
    def values(self) -> dict[str, Any]:
        """Values that only this prompt can use, as far as known before the run."""
        return {} if self.source or not self.has_item else {ITEM: self.item, KEY: self.key}


def one_of(step: T, part: Part, **changes: Any) -> T:
    return members_of(step, [part], **changes)[0]


def members_of(step: T, parts: Sequence[Part], **changes: Any) -> list[T]:
    # Nothing else costs as much as creating each of ten thousand rows. So the fields are read once, and set by the
    # slots themselves.
    kind = type(step)
    own = [one.name for one in fields(cast("Any", kind)) if one.name not in {"name", "part"}]
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
    """Return a `Place` for each item that one answer may have."""
    kind, found, new = type(step), list[T](), object.__new__
    own = [one.name for one in fields(cast("Any", kind)) if one.name not in {"name", "part"}]
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
    return type(Place.__name__, (Place, kind), {"__slots__": (), "__module__": __name__})


NAMES_ELSEWHERE = frozenset({"row", "it", "value", "element", "record", "each", "x"})


def hint_at_item(name: str, item: object) -> str:
    if isinstance(item, Mapping) and name in item:
        return f"{{{{ {ITEM}.{name} }}}} is that of the item"
    return f"The item is {{{{ {ITEM} }}}}" if name in NAMES_ELSEWHERE else ""


def columns_missing(paths: Iterable[tuple[str | int, ...]], item: object) -> list[str]:
    if not isinstance(item, Row):
        return []
    taken = {path[1] for path in paths if len(path) > 1 and path[0] == ITEM and isinstance(path[1], str)}
    return [
        f"{{{{ {ITEM}.{name} }}}}: the row has no column {name!r}. It has {', '.join(item)}.{did_you_mean(name, item)}"
        for name in sorted(taken - {*dir(Row)})
        if find_name(name, item) is None
    ]


def warn_of_labels(name: str, rows: int, labels: int) -> None:
    """Warn if rows share a label: a join by label repeats them."""
    if labels < rows:
        message = (
            f"{name!r} has {rows} rows and {labels} labels, so joining what run.each() returns to it repeats "
            f"rows. {name} = {name}.reset_index() first gives each its own."
        )
        warnings.warn(message, UserWarning, stacklevel=3)


def notes_on_missing(name: str, value: object, paths: Iterable[Sequence[str | int]]) -> list[str]:
    """Return notes on used columns without a value in some rows, which would silently become `nan`."""
    table = None if is_lazy(value) else read_table(value)
    if table is None or table.ndim == 1 or not table.columns.is_unique:
        return []
    taken = {path[1] for path in paths if len(path) > 1 and path[0] == ITEM}
    counts = {one: int(table[one].isna().sum()) for one in table.columns if one in taken}
    missing = [f"item.{one} ({count:,} of {len(table):,} rows)" for one, count in counts.items() if count]
    if not missing:
        return []
    own = type(table).__module__.partition(".")[0] == type(value).__module__.partition(".")[0]
    fill = f"{name}.astype(object).fillna('unknown')" if own else f"{{{{ item.{next(iter(counts))} or 'unknown' }}}}"
    return [f"no value, where the prompt says nan or None: {', '.join(missing)}. {fill} replaces that"]


def groups_of(agents: Sequence[StepOptions], places: Sequence[range] = ()) -> Mapping[str, Mapping[int, int]]:
    """Return the agents' numbers by group name and item number."""
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
    """The meaning of a group's name in a prompt: `all`, the `same` item or round, or the `last` round."""

    members: Sequence[int]
    kind: Literal["all", "same", "last"]


def group_of(step: StepOptions) -> str:
    """Return the name of a step's group, else its own."""
    return step.name if step.part is None else step.part.group


def view_of(agents: Sequence[StepOptions], group: Mapping[int, int], agent: StepOptions) -> View:
    """Return the meaning of a group's name; a selected plan may have only some of a group."""
    # The first step of a loop's round, and each step itself, see the others as in the round before.
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
