"""Real runs at several concurrencies, beside forecasts from the first of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from agent_magic.declare.units import plural, seconds
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.measure.frames import make_frame
from agent_magic.measure.metrics import summarize
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import pandas as pd

    from agent_magic.engine.policy import Policy
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.results import RunRecord

SWEEP: Mapping[str, str] = {
    "concurrency": "Int64",
    "wall_s": "Float64",
    "forecast_s": "Float64",
    "wall_error": "Float64",
    "speedup": "Float64",
    "tokens": "Int64",
    "cost_usd": "Float64",
    "mean_concurrency": "Float64",
    "efficiency": "Float64",
    "agent_s": "Float64",
    "rate_limited": "Int64",
    "succeeded": "Int64",
}


class Forecastable(Protocol):
    """A run with a record and what-ifs."""

    @property
    def record(self) -> RunRecord: ...

    def forecast(self, policy: Policy | None = None) -> Forecastable: ...


R = TypeVar("R", bound=Forecastable)


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Shown, Generic[R]):
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
    """Compare measured runs with their forecasts; one row per run, columns are `SWEEP`.

    `forecast_s` is from the durations of the first run; `wall_error` includes the provider's variation between runs;
    `speedup` is `NA` without a run at 1.
    """
    summaries = [summarize(record) for record in records]
    slow_s = next((one.wall_s for one, slots in zip(summaries, concurrency, strict=True) if slots == 1), None)
    rows = [
        {
            **asdict(summary),
            "concurrency": slots,
            "forecast_s": guess,
            "wall_error": guess / summary.wall_s - 1 if guess is not None and summary.wall_s else None,
            "speedup": slow_s / summary.wall_s if slow_s is not None and summary.wall_s else None,
        }
        for summary, slots, guess in zip(summaries, concurrency, forecast_s, strict=True)
    ]
    return make_frame(rows, SWEEP, verdict=_verdict(summaries, concurrency))


def _verdict(summaries: Sequence[Summary], concurrency: Sequence[int]) -> str:
    known = [(one.wall_s, place) for place, one in enumerate(summaries) if one.wall_s is not None]
    if not known:
        return f"{plural(len(summaries), 'run')}, none finished"
    wall_s, place = min(known)
    fastest = f"concurrency {concurrency[place]:,} is the fastest, {seconds(wall_s)}: sweep.runs[{place}] is that run"
    return f"{plural(len(summaries), 'run')} · {fastest}"


async def make_sweep(
    run: Callable[[Policy], Awaitable[R]],
    concurrency: Iterable[int],
    policy: Policy,
) -> Sweep[R]:
    if not isinstance(concurrency, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError(f"concurrency must be a list such as [1, 2, 4], got {shown_value(concurrency)}.")
    slots = list(concurrency)
    policies = [replace(policy, concurrency=each) for each in slots]
    runs = [await run(each) for each in policies]
    guesses = [summarize(runs[0].forecast(each).record).wall_s for each in policies] if runs else []
    return Sweep(tuple(runs), sweep_frame([one.record for one in runs], slots, guesses))
