"""The alerts of a run as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.measure.frames import frame_of, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from agent_magic.engine.alerts import Episode
    from agent_magic.record.results import RunRecord

ALERTS = table("rule at_s finished_s measured worst wanted")
"""`run.alerts`. `measured` is the value that broke the rule, `worst` the maximum of the episode, `wanted` the
threshold; `finished_s` is `NA` if the rule was still broken at the end.
"""


def alerts_frame(record: RunRecord, episodes: Iterable[Episode]) -> pd.DataFrame:
    """Return one row per episode, in order of start; columns are `ALERTS`."""
    rows = [
        {
            "rule": str(one.rule),
            "at_s": one.at_s,
            "finished_s": one.ended_s,
            "measured": one.measured,
            "worst": one.worst,
            "wanted": one.rule.most,
        }
        for one in episodes
    ]
    return frame_of(rows, ALERTS, record)
