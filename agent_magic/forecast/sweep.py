"""Real runs at several concurrencies, beside what the first of them would have forecast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from agent_magic.errors import DeclarationError, shown_value
from agent_magic.measure.metrics import summarize
from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import pandas as pd

    from agent_magic.engine.policy import Policy
    from agent_magic.record.results import RunRecord

SWEEP: Mapping[str, str] = {
    "concurrency": "Int64",
    "wall_s": "float64",
    "forecast_s": "float64",
    "error": "float64",
    "speedup": "float64",
    "agent_s": "float64",
    "mean_concurrency": "float64",
    "efficiency": "float64",
    "refused": "Int64",
    "tokens": "Int64",
    "cost_usd": "float64",
    "succeeded": "Int64",
}


class Forecastable(Protocol):
    """Whatever has a record and can be asked what it would have taken: a run."""

    @property
    def record(self) -> RunRecord:
        """What happened."""
        ...

    def forecast(self, policy: Policy | None = None) -> Forecastable:
        """Forecast another policy."""
        ...


R = TypeVar("R", bound=Forecastable)


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Generic[R]):
    """Real runs of one plan, one per concurrency.

    Attributes:
        runs: The runs, in the order they were made.
        frame: One row per run; columns are `SWEEP`; see `sweep_frame`.
    """

    runs: tuple[R, ...]
    frame: pd.DataFrame

    def __repr__(self) -> str:
        return f"Sweep: {len(self.runs)} runs\n{self.frame.round(4).to_string(index=False)}"


def sweep_frame(
    records: Sequence[RunRecord], concurrency: Sequence[int], forecast_s: Sequence[float | None]
) -> pd.DataFrame:
    """Put measured runs beside their forecasts. One row per run, in the order they were made.

    Columns are `SWEEP`: `forecast_s` from the durations of the first run, under this run's concurrency; `error` is
    `forecast_s / wall_s - 1`, and holds what the provider did differently from run to run; `speedup` is the measured
    wall time at concurrency 1 over this one's, `NaN` where 1 was not among them; `refused` counts 429s.
    """
    summaries = [summarize(record) for record in records]
    ones = [one.wall_s for one, slots in zip(summaries, concurrency, strict=True) if slots == 1]
    slow_s = ones[0] if ones else None
    rows: list[dict[str, object]] = []
    for record, slots, guess, summary in zip(records, concurrency, forecast_s, summaries, strict=True):
        wall_s = summary.wall_s
        rows.append(
            {
                **{name: getattr(summary, name, None) for name in SWEEP},
                "concurrency": slots,
                "forecast_s": guess,
                "error": guess / wall_s - 1 if guess is not None and wall_s else None,
                "speedup": slow_s / wall_s if slow_s is not None and wall_s else None,
                "refused": sum(one.status_code == 429 for one in record.attempts),
            }
        )
    return make_frame(rows, SWEEP)


async def make_sweep(
    run: Callable[[Policy], Awaitable[R]],
    concurrency: Iterable[int],
    policy: Policy,
) -> Sweep[R]:
    """Run once at each concurrency, and put each run beside its forecast from the first.

    Args:
        run: Runs the plan under a policy, for real.
        concurrency: How many at once, a run each, in this order.
        policy: What stays the same.

    Raises:
        DeclarationError: The concurrencies are no list, or one cannot work; nothing was sent.
    """
    if not isinstance(concurrency, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError(
            f"concurrency={shown_value(concurrency)} is no list.", hint="Give one such as [1, 2, 4]."
        )
    slots = list(concurrency)
    policies = [replace(policy, concurrency=each) for each in slots]
    runs = [await run(each) for each in policies]
    guesses = [summarize(runs[0].forecast(each).record).wall_s for each in policies] if runs else []
    return Sweep(tuple(runs), sweep_frame([one.record for one in runs], slots, guesses))
