"""The fingerprint of a run's frames: equal where every number is, whoever answered."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from agent_magic.measure.frames import agents_frame, attempts_frame, layers_frame, summary_frame, texts_series

if TYPE_CHECKING:
    from agent_magic.record.results import RunRecord

WHO = "source"
"""The column that says who answered: a replay differs from its run in it, and in nothing else."""


def fingerprint(record: RunRecord, *, texts: bool = True) -> dict[str, str]:
    """Return a sha256 per frame of a run, over its CSV without the column of sources.

    Args:
        record: The run.
        texts: Whether texts count, the answers' and the errors'.
    """
    frames = {
        "agents": agents_frame(record),
        "attempts": attempts_frame(record),
        "layers": layers_frame(record),
        "summary": summary_frame(record),
    }
    left_out = [WHO] if texts else [WHO, "error"]
    found = {name: frame.drop(columns=left_out, errors="ignore").to_csv() for name, frame in frames.items()}
    if texts:
        found["texts"] = texts_series(record).to_csv()
    return {name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for name, text in found.items()}
