"""The slots of a session: what all of its runs together may have under way.

A run has its own number, its policy's `concurrency`. Runs that go on at once, one in the background and one in a cell,
share as many slots as the larger of their numbers. While another run waits for a slot, a run takes no more than its
even share of them, so that neither starves; what one does not need the other may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Pool:
    """Shares slots among runs."""

    def __init__(self) -> None:
        self._seats: list[Seat] = []

    def join(self, most: int, wake: Callable[[], object]) -> Seat:
        """Take a run in.

        Args:
            most: How many requests it may have under way itself.
            wake: Called when it waits for a slot and may ask again.
        """
        seat = Seat(self, most, wake)
        self._seats.append(seat)
        return seat

    def has_room(self, seat: Seat) -> bool:
        """Tell whether this run may have one more."""
        if len(self._seats) == 1:
            return True
        size = max(one.most for one in self._seats)
        if sum(one.taken for one in self._seats) >= size:
            return False
        even = max(1, size // len(self._seats))
        return seat.taken < even or not any(one.waits for one in self._seats if one is not seat)

    def wake_others(self, seat: Seat) -> None:
        """Let the other runs ask again that wait."""
        for one in [one for one in self._seats if one is not seat and one.waits]:
            one.waits = False
            one.wake()

    def forget(self, seat: Seat) -> None:
        """Take in that a run is over."""
        self._seats = [one for one in self._seats if one is not seat]
        self.wake_others(seat)


class Seat:
    """One run's part of a pool.

    Attributes:
        most: How many requests it may have under way itself.
        taken: How many it has.
        waits: Whether it was refused, and has not been asked again since.
        wake: Called when it may ask again.
    """

    __slots__ = ("_pool", "most", "taken", "waits", "wake")

    def __init__(self, pool: Pool, most: int, wake: Callable[[], object]) -> None:
        self._pool, self.most, self.wake = pool, most, wake
        self.taken = 0
        self.waits = False

    def is_free(self) -> bool:
        """Tell whether there is a slot; where there is none, the run is woken when there may be."""
        free = self._pool.has_room(self)
        self.waits = not free
        return free

    def take(self) -> None:
        """Take a slot that is free."""
        self.taken += 1

    def give(self) -> None:
        """Give one back."""
        self.taken -= 1
        self._pool.wake_others(self)

    def leave(self) -> None:
        """Give all back: the run is over."""
        self._pool.forget(self)
