"""What answers teach of expectations that are off."""

from __future__ import annotations

from typing import Final

RECENT: Final = 0.97
"""What an answer's weight is multiplied with at every later answer, in what is learned from answers."""


class Ratio:
    """How much more is used than is expected, learned from answers."""

    __slots__ = ("_expected", "_used", "value")

    def __init__(self, weight: float, value: float = 1.0) -> None:
        self._expected, self._used, self.value = weight, weight * value, value

    @property
    def sums(self) -> tuple[float, float]:
        """What was expected and what was used, older answers counting less."""
        return self._expected, self._used

    def recall(self, expected: float, used: float) -> None:
        """Go on from what was learned earlier."""
        self._expected, self._used, self.value = expected, used, used / expected

    def add(self, expected: float, used: float) -> None:
        """Take in one answer."""
        self._expected = self._expected * RECENT + expected
        self._used = self._used * RECENT + used
        self.value = self._used / self._expected
