"""What a run is measured against: the same job done another way, for real."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["one agent", "one after another"]
"""`one agent`: the whole job in one request. `one after another`: the same agents, never two at once."""


class Base(NamedTuple):
    """A measured run of the same job.

    Attributes:
        wall_s: What it took.
        cost_usd: What it cost; `None` is unknown.
        tokens: What it used, input and output; `None` is unknown.
        simulated: Whether its answers are simulated.
    """

    wall_s: float
    cost_usd: float | None
    tokens: int | None
    simulated: bool
