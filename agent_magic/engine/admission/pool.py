"""Slots shared by the runs of a session, as many as the largest `concurrency` among them.

A free slot goes to the waiting run with the fewest slots, among equals to the longest waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Pool:
    """Shares slots among runs."""

    def __init__(self) -> None:
        self._seats: list[Seat] = []
        self._waiting: list[Seat] = []  # who has waited longest comes first
        self._offered: tuple[Seat, int] | None = None  # the run that is next, and how many it had then

    def join(self, most: int, wake: Callable[[], bool]) -> Seat:
        """Add a run; `wake` is called when a slot is free and after news, and returns False if the run asks later."""
        seat = Seat(self, most, wake)
        self._seats.append(seat)
        return seat

    def has_room(self, seat: Seat) -> bool:
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
        for other in [one for one in self._seats if one is not seat]:
            other.wake()

    def forget(self, seat: Seat) -> None:
        self._seats = [one for one in self._seats if one is not seat]
        self._waiting = [one for one in self._waiting if one is not seat]
        self.offer()

    def _free(self) -> int:
        return max((one.most for one in self._seats), default=0) - sum(one.taken for one in self._seats)

    @staticmethod
    def _first(seats: list[Seat] | tuple[Seat, ...]) -> Seat:
        return min(seats, key=lambda one: one.taken)


class Seat:
    """One run's share of a pool."""

    __slots__ = ("asked", "most", "pool", "taken", "wake")

    def __init__(self, pool: Pool, most: int, wake: Callable[[], bool]) -> None:
        self.pool, self.most, self.wake = pool, most, wake
        self.taken = 0
        self.asked = False

    def take(self) -> None:
        self.taken += 1

    def give(self) -> None:
        """Return a slot; the run may take it again before it is offered."""
        self.taken -= 1


PATIENCE_S: Final = 0.5
"""A refusal comes at once; only an answer takes longer."""
REFUSED: Final = frozenset({401, 402, 403})


class Key:
    """State of one client's key, shared by its runs."""

    def __init__(self) -> None:
        self.accepted = False
        self._until_s: float | None = None

    def wait_until_s(self, now: float) -> float | None:
        return self._until_s if self._until_s is not None and now < self._until_s else None

    def left(self, now: float) -> None:
        if self._until_s is None:
            self._until_s = now + PATIENCE_S

    def turned_back(self) -> None:
        """Let another request go first: this one was not sent, since its answer was available."""
        if not self.accepted:
            self._until_s = None

    def replied(self, status: int | None) -> None:
        if status in REFUSED:
            self._until_s = None  # the next one, of another run, is sent first again
        else:
            self.accepted = True
