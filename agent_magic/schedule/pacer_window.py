"""What may be under way of a model class while no limit of it is known."""

from __future__ import annotations

from typing import Final

from agent_magic.schedule.hold import Hold

FIRST_STEP_S: Final = 1.3
"""Before the first reply twice as many may be under way after each such time. A limit per minute may be counted by the
second: then 50 a minute, a limit so low that few keys have a lower one, is one in 1.2 s, and a tenth of a second is for
those that overtake each other on their way."""
FIRST_WINDOW: Final = 8
"""Requests under way after a first reply that told no limit."""
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

    The headers of the first reply tell the limits, as soon as it begins. Until then one request is under way, so that a
    low limit refuses none. A refusal comes at once, so silence says that there is room, and nothing should hang on a
    single reply: after each `FIRST_STEP_S` twice as many may be under way, up to `FIRST_WINDOW`. Where the reply tells
    no limit, the window grows while it is used up and nothing is refused, and is halved once per episode of refusals.

    Attributes:
        size: How many may be under way after the first reply.
        growth: How much faster or slower than usual everything grows.
        quiet: Whether no reply has come yet.
    """

    __slots__ = ("_early", "_hurt", "_knee", "_next_s", "_pressed", "growth", "quiet", "size")

    def __init__(self) -> None:
        self.size, self.growth, self.quiet = float(FIRST_WINDOW), 1.0, True
        self._knee, self._pressed, self._hurt = float("inf"), False, False
        self._early, self._next_s = 0, 0.0

    def hold(self, under_way: int, now: float) -> Hold | None:
        """Say what holds one more; `None` lets it go."""
        if not self.quiet:
            if under_way < self.size:
                return None
            self._pressed = True
            return Hold("slot", now + POLL_S)
        if not self._early or (now >= self._next_s and self._early < FIRST_WINDOW):
            self._early, self._next_s = max(1, 2 * self._early), now + FIRST_STEP_S
        if under_way < self._early:
            return None
        return Hold("limits", self._next_s if self._early < FIRST_WINDOW else now + FIRST_STEP_S)

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
