"""Past runs as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from agent_magic.record.ledger.runs import PastRun

RUNS: Mapping[str, str] = {
    "run": "Int64",
    "began_at": "datetime64[s, UTC]",
    "plan": "string",
    "state": "string",
    "agents": "Int64",
    "succeeded": "Int64",
    "calls": "Int64",
    "served": "Int64",
    "unknown": "Int64",
    "wall_s": "float64",
    "tokens": "Int64",
    "cost_usd": "float64",
    "saved_usd": "float64",
    "simulated": "bool",
}


def runs_frame(runs: Iterable[PastRun]) -> pd.DataFrame:
    """Return one row per run, in the order given; see `agent_magic.record.ledger.runs.PastRun` for its columns."""
    return make_frame([run._asdict() for run in runs], RUNS)
