"""Baselines of a run: the same job, measured in another way."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal, NamedTuple

Kind = Literal["one agent", "one after another"]
"""`one agent`: the whole job in one request. `one after another`: the same agents, never two at once."""


class Base(NamedTuple):
    """A measured run of the same job, or the mean of several.

    Attributes:
        wall_s, cost_usd: The mean of `made`; the cost is `None` if one is unknown.
        tokens: Input and output tokens of the last run.
        asked: Model and token cap of its single agent; only equal ones are averaged.
        made: Seconds and dollars of each run, by its `uid`. Empty in files of before repeated baselines.
    """

    wall_s: float
    cost_usd: float | None
    tokens: int | None
    simulated: bool
    asked: str = ""
    made: Mapping[str, tuple[float, float | None]] = {}

    def repeated(self, before: Base | None) -> Base:
        """Return the mean of this and of earlier ones that asked the same."""
        if before is None or (before.asked, before.simulated) != (self.asked, self.simulated):
            return self
        made = {**before.made, **self.made}
        costs = [cost for _, cost in made.values() if cost is not None]
        mean = fmean(costs) if len(costs) == len(made) else None
        return self._replace(wall_s=fmean(wall_s for wall_s, _ in made.values()), cost_usd=mean, made=made)
