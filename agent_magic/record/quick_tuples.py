"""Named tuples at half the cost, for the few of which a run makes one per agent."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar, cast

T = TypeVar("T", bound=tuple[object, ...])


class Making(Protocol):
    """Constructor of a named tuple."""

    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T:
        """Make one of this kind. It takes all fields, in order, and does not check them."""
        ...


new_tuple: Final = cast("Making", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
"""`new_tuple(Kind, (field, ...))` is `Kind(field, ...)`, which goes through a function of the class to the same end."""
