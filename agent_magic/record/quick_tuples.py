"""Named tuples at half the cost, for the few of which a run makes one per agent."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar, cast

T = TypeVar("T", bound=tuple[object, ...])


class Making(Protocol):
    """Constructor of a named tuple."""

    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T:
        """Create one of this kind from all fields in order, unchecked."""
        ...


new_tuple: Final = cast("Making", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]
"""Same as `Kind(field, ...)`, which calls a Python function of the class to the same end."""
