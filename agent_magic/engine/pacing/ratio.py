"""Corrects expectations by the answers' true use."""

from __future__ import annotations

from typing import Final

KEEP: Final = 0.97
"""The factor by which each answer lowers the weight of the earlier ones."""


class Ratio:
    """A quotient of two sums in which older answers count less, such as tokens used by tokens expected."""

    __slots__ = ("expected", "used")

    def __init__(self, expected: float, value: float = 1.0) -> None:
        self.expected, self.used = expected, expected * value

    @property
    def value(self) -> float:
        return self.used / self.expected

    @property
    def sums(self) -> tuple[float, float]:
        return self.expected, self.used

    def recall(self, expected: float, used: float) -> None:
        self.expected, self.used = expected, used

    def add(self, expected: float, used: float) -> None:
        self.expected = self.expected * KEEP + expected
        self.used = self.used * KEEP + used
