"""The budget of a run: the worst case is set aside before a request is sent, and what it did not use comes back.

So siblings in flight cannot cross the cap together: what they may still cost is counted before they leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_magic.declare.units import dollars


@dataclass(frozen=True, slots=True)
class Worst:
    """The most that a request can use.

    Attributes:
        usd: Dollars; `None` where the price is unknown.
        tokens: Input and output.
    """

    usd: float | None
    tokens: int


def give_price(model: str) -> str:
    """Say how a model gets a price."""
    return f"Give it one: %agents prices {model} --input USD --output USD, or prices= of Plan.run."


class Budget:
    """Counts what is spent and what is set aside.

    Args:
        cap_usd: The most dollars; `None` is no limit.
        cap_tokens: The most tokens, input and output together; `None` is no limit.
    """

    def __init__(self, cap_usd: float | None = None, cap_tokens: int | None = None) -> None:
        self.cap_usd, self.cap_tokens = cap_usd, cap_tokens
        self.spent_usd, self.spent_tokens = 0.0, 0
        self._aside: dict[int, Worst] = {}

    @property
    def reserved_usd(self) -> float:
        """Dollars set aside for requests under way."""
        return sum(one.usd or 0.0 for one in self._aside.values())

    @property
    def reserved_tokens(self) -> int:
        """Tokens set aside for requests under way."""
        return sum(one.tokens for one in self._aside.values())

    @property
    def waiting_helps(self) -> bool:
        """Whether something is set aside that may come back."""
        return bool(self._aside)

    def fits(self, worst: Worst) -> bool:
        """Tell whether a request can be sent without any way to cross the cap."""
        usd, tokens = self.spent_usd + self.reserved_usd, self.spent_tokens + self.reserved_tokens
        fits_usd = self.cap_usd is None or (worst.usd is not None and usd + worst.usd <= self.cap_usd)
        return fits_usd and (self.cap_tokens is None or tokens + worst.tokens <= self.cap_tokens)

    def set_aside(self, agent: int, worst: Worst) -> None:
        """Count a request that leaves now."""
        self._aside[agent] = worst

    def settle(self, agent: int, usd: float | None, tokens: int | None) -> None:
        """Record what a request has used. What is unknown counts as its worst case: it may have been billed."""
        worst = self._aside.pop(agent, None)
        if worst is None:
            return
        self.spent_usd += (worst.usd or 0.0) if usd is None else usd
        self.spent_tokens += worst.tokens if tokens is None else tokens

    def why_not(self, worst: Worst, model: str) -> str:
        """Say why a request to a model cannot be sent."""
        if self.cap_usd is not None and worst.usd is None:
            return f"{model} has no known price, so it cannot be held within a budget. {give_price(model)}"
        if self.cap_usd is not None and self.spent_usd + self.reserved_usd + (worst.usd or 0.0) > self.cap_usd:
            spent, cap, most = dollars(self.spent_usd), dollars(self.cap_usd), dollars(worst.usd)
            return f"{spent} of {cap} are spent, and it may cost {most}"
        return f"{self.spent_tokens:,} of {self.cap_tokens:,} tokens are used, and it may take {worst.tokens:,}"
