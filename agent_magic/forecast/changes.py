"""Work made longer, shorter or into a batch, and what tokens cost under changed prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from agent_magic.forecast.work import SAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.forecast.work import Try, Work
    from agent_magic.record.answer import Price, Usage
    from agent_magic.record.prices import Prices

BATCH_S: Final = 3600.0
"""How long a batch takes. Source: the vendor's page on batches: most finish in less than an hour."""
End = Literal["low", "likely", "high"]


class Pricing:
    """Prices tokens, each sum once.

    Args:
        prices: What tokens cost.
        factor: What every sum is multiplied with.
        costs: Sums that are known already; new ones are added.
        recorded: Whether an attempt that repeats a recorded one costs what that did.
    """

    def __init__(
        self, prices: Prices, factor: float, costs: dict[tuple[object, ...], Price], *, recorded: bool
    ) -> None:
        self._prices, self._factor, self._costs, self.recorded = prices, factor, costs, recorded

    def of(self, model: str, usage: Usage | None) -> Price:
        """Return what tokens of a model cost."""
        if usage is None:
            return self._prices.of(model, None)
        key = (
            id(self._prices),
            self._factor,
            model,
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.cache_write_1h_tokens,
        )
        found = self._costs.get(key)
        if found is None:
            found = self._prices.of(model, usage)
            if found.cost_usd is not None and self._factor != 1.0:
                found = found._replace(cost_usd=found.cost_usd * self._factor)
            self._costs[key] = found
        return found


def scaled(work: Work, end: End) -> Work:
    """Return an agent's work at the low or the high end of its range."""
    if end == "likely" or (work.time == SAME and work.output == SAME):
        return work
    side = 0 if end == "low" else 1
    last = work.tries[-1]
    first_s = None if last.first_s is None else last.first_s * work.time[side]
    streamed_s = last.takes_s - (last.first_s or 0.0)
    output = last.output_tokens
    longer = work.output[side]
    if output is not None:
        output = min(round(output * longer), max(work.max_tokens, output))
        longer = output / last.output_tokens if last.output_tokens else longer
    takes_s = (first_s or 0.0) + streamed_s * longer * work.time[side]
    return work._replace(
        tries=(*work.tries[:-1], last._replace(first_s=first_s, takes_s=takes_s, output_tokens=output))
    )


def paced(works: Sequence[Work | None], faster: Mapping[int, float]) -> tuple[Work | None, ...]:
    """Return the work of agents whose requests take longer or shorter by a factor; their tokens stay."""
    return tuple(
        work
        if work is None or agent not in faster
        else work._replace(tries=tuple(_longer(one, faster[agent]) for one in work.tries))
        for agent, work in enumerate(works)
    )


def _longer(one: Try, factor: float) -> Try:
    first_s = None if one.first_s is None else one.first_s * factor
    return one._replace(first_s=first_s, takes_s=one.takes_s * factor)


def batched(work: Work) -> Work:
    """Return an agent's work in a batch: its last attempt, an hour long."""
    last = work.tries[-1]
    return work._replace(tries=(last._replace(local_s=0.0, first_s=None, takes_s=BATCH_S, usage=None, price=None),))
