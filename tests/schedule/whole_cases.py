"""Scenes that once broke a rule, each with what it broke."""

from __future__ import annotations

from agent_magic.schedule.policy import Policy
from tests.schedule.whole import Asked, Scene

OPUS = "claude-opus-5"

TWO_LINES_OF_ONE_CLASS = Scene(
    ((), (), (), (), ()),
    (
        Asked(3.75, 1_400, 10_000, timeout_s=5.0),
        Asked(6.25, 6_775, 1_475, group="context", timeout_s=5.0, guess=0.25),
        Asked(0.0625, 7_250, 6_975, model=OPUS, timeout_s=5.0),
        Asked(1.4375, 7_725, 3_875, ("hang",), timeout_s=60.0, guess=8.0),
        Asked(23.625, 5_725, 6_400, timeout_s=60.0),
    ),
    Policy(2, "layers", max_attempts=4, seed=1, deadline_s=30.0),
    (60.0, 20_000.0, 200_000.0),
    told=True,
)
"""A line that had lost its turn was told to ask again at a time that had come: it asked without end."""

CASES = {"two lines of one class": TWO_LINES_OF_ONE_CLASS}
