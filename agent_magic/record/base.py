"""Baselines of a run: the same job, measured in another way."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["one agent", "one after another"]
"""`one agent`: the whole job in one request. `one after another`: the same agents, never two at once."""


class Base(NamedTuple):
    """A measured run of the same job.

    Attributes:
        wall_s: Wall time.
        cost_usd: Cost; `None` if unknown.
        tokens: Input and output tokens; `None` if unknown.
        simulated: True if its answers are simulated.
    """

    wall_s: float
    cost_usd: float | None
    tokens: int | None
    simulated: bool
