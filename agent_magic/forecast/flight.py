"""A request of a forecast that is under way, and how much of its answer has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.forecast.provider import Input, Refusal
    from agent_magic.forecast.work import Try

PIECE: Final = 24
"""Characters that arrive at once, about: the first of them are the first token."""
TICK_S: Final = 1e-6
"""No answer takes less."""


class Flight:
    """A request under way."""

    __slots__ = (
        "begun",
        "billed",
        "cut",
        "first_s",
        "granted_s",
        "held_by",
        "number",
        "readings",
        "refusal",
        "started_s",
        "step",
        "until_s",
    )

    def __init__(self, number: int, held_by: str, granted_s: float, step: Try) -> None:
        self.number, self.held_by, self.granted_s, self.step = number, held_by, granted_s, step
        self.started_s = granted_s + step.local_s
        self.first_s = None if step.first_s is None else self.started_s + step.first_s
        self.until_s = self.started_s + step.takes_s
        self.billed: Input | None = None
        self.refusal: Refusal | None = None
        self.readings: Readings = NO_READINGS
        self.begun = False
        self.cut = ""

    def arrived(self, begun_s: float, began_s: float) -> Callable[[float], int]:
        """Return who says how many characters of an answer that begins now have arrived, by a clock.

        Args:
            begun_s: When it begins.
            began_s: When the run began by that clock.
        """
        characters, takes_s = CHARS_PER_TOKEN * (self.step.output_tokens or 0), max(self.until_s - begun_s, TICK_S)
        pieces = max(1, characters // PIECE)

        def at(now: float) -> int:
            past = min(1.0, (now - began_s - begun_s) / takes_s)
            return characters * (1 + int(past * (pieces - 1))) // pieces

        return at
