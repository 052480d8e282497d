"""Equal steps: places reserved for the items of one answer, of which most may stay unused.

They differ only in names and item numbers, so the first of them is prepared and copied: thousands cost little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


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


def firsts(every: Sequence[T], alike: Sequence[range]) -> Sequence[T]:
    """Keep only the first of equal steps."""
    if not alike:
        return every
    found, at = list[T](), 0
    for numbers in alike:
        found += every[at : numbers.start + 1]
        at = numbers.stop
    return [*found, *every[at:]]


def for_all(some: Sequence[T], alike: Sequence[range]) -> Sequence[T]:
    """Repeat the first of equal steps; the inverse of `firsts`."""
    if not alike:
        return some
    found, at = list[T](), 0
    for numbers in alike:
        first = at + numbers.start - len(found)
        found += some[at:first]
        found += [some[first]] * len(numbers)
        at = first + 1
    return [*found, *some[at:]]
