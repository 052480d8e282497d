"""A token bucket with continuous refill. It has no clock: the time comes in as an argument."""

from __future__ import annotations


class Bucket:
    """Holds up to `capacity`, refills at `per_minute / 60` a second, and may go into debt.

    An amount larger than the capacity passes when the bucket is full, and the rest is owed: a single large request is
    slow, never impossible. Over any stretch of time `t` the amount passed is at most
    `capacity + per_minute / 60 * t`, plus the debt of the one request that overdrew.

    Attributes:
        per_minute: The announced limit.
        capacity: What may pass at once after a pause; at least one.
    """

    __slots__ = ("_at_s", "_level", "capacity", "per_minute")

    def __init__(self, per_minute: float, capacity: float, now_s: float = 0.0) -> None:
        """Start full at `now_s`."""
        self.per_minute = per_minute
        self.capacity = max(1.0, capacity)
        self._level = self.capacity
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """Return what is there now; negative while something is owed."""
        passed_s = max(0.0, now_s - self._at_s)
        return min(self.capacity, self._level + passed_s * self.per_minute / 60)

    def take(self, amount: float, now_s: float) -> None:
        """Take an amount out, into debt if there is less."""
        self._level = self.level(now_s) - amount
        self._at_s = max(self._at_s, now_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return the seconds until an amount may pass, 0 if it may now.

        Args:
            amount: What the request needs; more than the capacity counts as the capacity.
            now_s: The time.
        """
        missing = min(amount, self.capacity) - self.level(now_s)
        return max(0.0, missing * 60 / self.per_minute)

    def full_in_s(self, now_s: float) -> float:
        """Return the seconds until the bucket is full."""
        return (self.capacity - self.level(now_s)) * 60 / self.per_minute
