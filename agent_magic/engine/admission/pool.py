"""The slots of a session: what all of its runs together may have under way.

A run has its own number, its policy's `concurrency`. Runs that go on at once, one in the background and one in a cell,
share as many slots as the larger of their numbers. A slot that is free goes to the run that has the fewest, of those
that wait for one; of equal ones to the one that has waited longest. So none starves, and what one does not need the
others may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Pool:
    """Shares slots among runs."""

    def __init__(self) -> None:
        self._seats: list[Seat] = []
        self._waiting: list[Seat] = []  # who has waited longest comes first
        self._offered: tuple[Seat, int] | None = None  # whose turn it is, and how many it had then

    def join(self, most: int, wake: Callable[[], bool]) -> Seat:
        """Take a run in.

        Args:
            most: How many requests it may have under way itself.
            wake: Called when there is a slot that it has waited for, and when there is news for all. It asks again at
                once, if it still wants one, or returns `False` and asks later.
        """
        seat = Seat(self, most, wake)
        self._seats.append(seat)
        return seat

    def has_room(self, seat: Seat) -> bool:
        """Tell whether this run may have one more. Where it may not, it waits for one."""
        if len(self._seats) == 1:
            return True
        seat.asked = True
        if self._free() > 0 and (self._offered == (seat, seat.taken) or self._first((*self._waiting, seat)) is seat):
            if seat in self._waiting:
                self._waiting.remove(seat)
            return True
        if seat not in self._waiting:
            self._waiting.append(seat)
        return False

    def offer(self) -> None:
        """Let the runs that wait have what is free. Call it when a run has decided what it takes itself."""
        if self._waiting and self._offered is None:
            try:
                self._offer()
            finally:
                self._offered = None

    def _offer(self) -> None:
        later: list[Seat] = []  # each of them will ask for a slot, and finds one
        while self._free() > len(later) and (here := [one for one in self._waiting if one not in later]):
            seat = self._first(here)
            seat.asked, self._offered = False, (seat, seat.taken)
            if not seat.wake():
                later.append(seat)
            elif not seat.asked and seat in self._waiting:  # it wants none any more; it may even be over
                self._waiting.remove(seat)

    def news(self, seat: Seat) -> None:
        """Let all runs but one ask again: what it heard concerns them too."""
        for other in [one for one in self._seats if one is not seat]:
            other.wake()

    def forget(self, seat: Seat) -> None:
        """Record that a run is over."""
        self._seats = [one for one in self._seats if one is not seat]
        self._waiting = [one for one in self._waiting if one is not seat]
        self.offer()

    def _free(self) -> int:
        return max((one.most for one in self._seats), default=0) - sum(one.taken for one in self._seats)

    @staticmethod
    def _first(seats: list[Seat] | tuple[Seat, ...]) -> Seat:
        """Return the one that has the fewest; of equal ones the first."""
        return min(seats, key=lambda one: one.taken)


class Seat:
    """One run's part of a pool.

    Attributes:
        most: How many requests it may have under way itself.
        taken: How many it has.
        asked: Whether it has asked for a slot since it was offered one.
        wake: Called when it may ask again; see `Pool.join`.
    """

    __slots__ = ("_pool", "asked", "most", "taken", "wake")

    def __init__(self, pool: Pool, most: int, wake: Callable[[], bool]) -> None:
        self._pool, self.most, self.wake = pool, most, wake
        self.taken = 0
        self.asked = False

    def is_free(self) -> bool:
        """Tell whether there is a slot; where there is none, the run is woken when there may be."""
        return self._pool.has_room(self)

    def take(self) -> None:
        """Take a slot that is free."""
        self.taken += 1

    def give(self) -> None:
        """Give one back. The run may ask for it again itself before it is offered."""
        self.taken -= 1

    def offer(self) -> None:
        """Let the other runs have what this one has left."""
        self._pool.offer()

    def news(self) -> None:
        """Let the other runs ask again: what this one heard concerns them too."""
        self._pool.news(self)

    def leave(self) -> None:
        """Give all back: the run is over."""
        self._pool.forget(self)
