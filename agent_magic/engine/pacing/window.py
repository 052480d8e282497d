"""What may be under way of a model class while no limit of it is known."""

from __future__ import annotations

from typing import Final

from agent_magic.engine.admission.key import PATIENCE_S
from agent_magic.engine.admission.room import Hold

FIRST_WINDOW: Final = 8
"""Requests under way while there is no reply, or a first one that told no limit."""
FIRST_GROWTH: Final = 1.5
"""How many more go with every reply until the first refusal; then one."""
KNEE: Final = 0.85
"""After a refusal the window grows back fast to this share of what was refused, then slowly."""
RAMP: Final = 0.25
"""How much slower it all grows once the server has said that it grew too fast."""
POLL_S: Final = 0.25
"""How often to look whether the window has room."""


class Window:
    """Bounds what is under way while no limit is known.

    The headers of the first reply tell the limits, as soon as it begins. So one request leaves alone, and nobody waits
    for its reply longer than `PATIENCE_S`: then up to `FIRST_WINDOW` are under way. A limit so low that it refuses some
    of those costs nothing but their wait; a longer silence would cost the first run of every session. Where the reply
    tells no limit, the window grows while it is used up and nothing is refused, and is halved once per episode of
    refusals.

    Attributes:
        size: How many may be under way after the first reply.
        growth: How much faster or slower than usual everything grows.
        quiet: Whether no reply has come yet.
    """

    __slots__ = ("_hurt", "_knee", "_pressed", "_until_s", "growth", "quiet", "size")

    def __init__(self) -> None:
        self.size, self.growth, self.quiet = float(FIRST_WINDOW), 1.0, True
        self._knee, self._pressed, self._hurt = float("inf"), False, False
        self._until_s = 0.0

    def hold(self, under_way: int, now: float) -> Hold | None:
        """Say what holds one more; `None` lets it go."""
        if self.quiet:
            if not under_way:
                self._until_s = now + PATIENCE_S
                return None
            if now < self._until_s:
                return Hold("limits", self._until_s)
        if under_way < self.size:
            return None
        self._pressed = True
        return Hold("limits" if self.quiet else "slot", now + POLL_S)

    def widen(self, under_way: int) -> None:
        """Allow more under way after a reply, if what is allowed was used up."""
        if self._pressed:
            growth = self.growth if self._hurt else FIRST_GROWTH
            self.size += growth if self.size < self._knee else growth / self.size
            self._pressed = under_way + 1 >= self.size

    def refused(self, *, ramp: bool) -> None:
        """Take in the first refusal of an episode, whatever limits are known."""
        self._hurt = True
        if ramp:
            self.growth = RAMP

    def cut(self, under_way: int, *, ramp: bool) -> None:
        """Allow half as much."""
        self._knee = 1.0 if ramp else KNEE * (under_way + 1)
        self.size = max(1.0, (under_way + 1) / 2)

    def recall(self, size: float) -> None:
        """Go on from what was learned earlier: a reply had come."""
        self.size, self.quiet = size, False
