"""The budget of a run.

The worst case of a request is reserved before it is sent, so concurrent ones never cross the cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_magic.declare.units import dollars
from agent_magic.record.answer import Usage
from agent_magic.record.prices import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.record.answer import Price


@dataclass(frozen=True, slots=True)
class Worst:
    """The most a request can use."""

    usd: float | None  # `None` if the price is unknown
    tokens: int  # input and output


NOTHING = Worst(0.0, 0)


def worst_case(
    size: int,
    output_tokens: int,
    price_of: Callable[[Usage], Price],
    *,
    shared: int,
    ttl: str | None,
    caches: bool,
    searches: int,
    by_batch: bool,
) -> Worst:
    """Price `size` tokens of input, of which the shared context is written to the cache, or with `caches` all."""
    context = min(size, shared)
    written = size if caches else context
    usage = Usage(
        size - written,
        cache_write_tokens=written,
        output_tokens=output_tokens,
        cache_write_1h_tokens=context if ttl == "1h" else 0,
        searches=searches,
    )
    price = price_of(usage)
    return Worst((of_batch(price, usage) if by_batch else price).cost_usd, size + output_tokens)


def give_price(model: str) -> str:
    return f"Give it one: %agents prices {model} --input USD --output USD, or prices= of Plan.run."


class Budget:
    """Tracks spending and reserves; `untold_usd` is the part of `spent_usd` that only may be billed."""

    def __init__(self, cap_usd: float | None = None, cap_tokens: int | None = None) -> None:
        self.cap_usd, self.cap_tokens = cap_usd, cap_tokens
        self.spent_usd, self.spent_tokens = 0.0, 0
        self.untold_usd = 0.0
        self._aside: dict[int, Worst] = {}

    @property
    def reserved_usd(self) -> float:
        return sum(one.usd or 0.0 for one in self._aside.values())

    @property
    def reserved_tokens(self) -> int:
        return sum(one.tokens for one in self._aside.values())

    @property
    def waiting_helps(self) -> bool:
        return bool(self._aside)

    def fits(self, worst: Worst) -> bool:
        usd, tokens = self.spent_usd + self.reserved_usd, self.spent_tokens + self.reserved_tokens
        fits_usd = self.cap_usd is None or (worst.usd is not None and usd + worst.usd <= self.cap_usd)
        return fits_usd and (self.cap_tokens is None or tokens + worst.tokens <= self.cap_tokens)

    def set_aside(self, agent: int, worst: Worst) -> None:
        self._aside[agent] = worst

    def settle(self, agent: int, usd: float | None, tokens: int | None) -> None:
        """Record the use of a request; unknown use counts as its worst case, since it may have been billed."""
        worst = self._aside.pop(agent, NOTHING)
        if usd is None:
            self.untold_usd += worst.usd or 0.0
        self.spent_usd += (worst.usd or 0.0) if usd is None else usd
        self.spent_tokens += worst.tokens if tokens is None else tokens

    def why_not(self, worst: Worst, model: str) -> str:
        if self.cap_usd is not None and worst.usd is None:
            return f"{model} has no known price, so it cannot be held within a budget. {give_price(model)}"
        if self.cap_usd is not None and self.spent_usd + self.reserved_usd + (worst.usd or 0.0) > self.cap_usd:
            spent, cap, most = dollars(self.spent_usd), dollars(self.cap_usd), dollars(worst.usd)
            untold = f" (up to {dollars(self.untold_usd)} of that for requests whose cost the server did not report)"
            return f"{spent} of {cap} are spent{untold if self.untold_usd else ''}, and it may cost {most}"
        return f"{self.spent_tokens:,} of {self.cap_tokens:,} tokens are used, and it may take {worst.tokens:,}"
