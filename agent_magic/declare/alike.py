"""Steps that are alike: the places reserved for the items of one answer, of which most may stay unused.

They differ in their names and in which item they are for, and in nothing else: who they wait for, who waits for them,
what they ask and of whom. Whatever prepares a plan or a run asks the first of them, and says of the others the same.
So thousands of places cost little more than one before they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.declare.step import Step

T = TypeVar("T")
_OWN = frozenset({"name", "part", "template"})
"""What places have of their own; a template is that of the prompt."""


class Copied:
    """A step that can be one of places; see `Place`."""

    __slots__ = ("_fill",)
    _fill: Callable[[Any], None]


class Place:
    """A step without its fields, but for its name: the first that is asked for fills in all, and it is a step.

    Of two thousand places a few are needed, and to fill in all of them cost more than the rest of making a plan.
    It is a class of its own, since `__getattr__` would make each field of every step cost twice as much.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker would then know of no wrong name

        def __getattr__(self, name: str) -> Any:
            """Return a field."""
            return getattr(self._filled(), name)

    def _filled(self) -> Any:
        """Fill the fields in. From then on its class is that of the step."""
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


def places_in(steps: Sequence[Step]) -> list[range]:
    """Return the numbers of places for the items of one answer, in steps that were made before: read, or selected.

    Args:
        steps: The steps of a plan.
    """
    found, last = list[range](), None
    for number, one in enumerate(steps):
        if one.part is None or not one.part.source:
            last = None
        elif last is not None and _is_next(one, last):
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
            last = one
    return [one for one in found if len(one) > 1]


def _is_next(one: Step, first: Step) -> bool:
    """Tell whether a place is for an item of the same answer as the first one, and differs in nothing else."""
    part, other = one.part, first.part
    if part is None or other is None or type(one) is not type(first):
        return False
    if (part.group, part.source, part.path, part.most) != (other.group, other.source, other.path, other.most):
        return False
    fields = [name for name in type(one).__slots__ if name not in _OWN]
    return all(getattr(one, name) == getattr(first, name) for name in fields)


def firsts(every: Sequence[T], alike: Sequence[range]) -> Sequence[T]:
    """Return one for each step, and of steps that are alike the first one's only.

    Args:
        every: One for each step.
        alike: The numbers of steps that are alike, in order.
    """
    if not alike:
        return every
    found, at = list[T](), 0
    for numbers in alike:
        found += every[at : numbers.start + 1]
        at = numbers.stop
    return [*found, *every[at:]]


def for_all(some: Sequence[T], alike: Sequence[range]) -> Sequence[T]:
    """Return one for each step: what `firsts` left out is as the first of its kind.

    Args:
        some: One for each of `firsts`.
        alike: The numbers of steps that are alike, in order.
    """
    if not alike:
        return some
    found, at = list[T](), 0
    for numbers in alike:
        first = at + numbers.start - len(found)
        found += some[at:first]
        found += [some[first]] * len(numbers)
        at = first + 1
    return [*found, *some[at:]]
