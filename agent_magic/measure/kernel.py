"""The kernel during a run as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.measure.frames import frame_of, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.record.results import RunRecord

KERNEL = table("at_s cpu_share rss_mb lag_s")
"""`run.kernel`. `cpu_share` is of one core, `lag_s` the delay of the event loop."""


def kernel_frame(record: RunRecord, samples: Sequence[Mapping[str, float | None]]) -> pd.DataFrame:
    """Return one row per sample; columns are `KERNEL`. Empty for a run read from a file."""
    return frame_of(samples, KERNEL, record)
