"""What runs mean: their numbers and frames, their grades, and the model of their servers."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.measure.frames import agents_frame, attempts_frame, summary_frame
    from agent_magic.measure.intervals import share_interval, student_quantile
    from agent_magic.measure.metrics import slack_s, summarize
    from agent_magic.measure.server import Server
    from agent_magic.measure.trial import Setting, Trial

__getattr__ = lazy_names(
    __name__,
    {
        "Server": "agent_magic.measure.server",
        "Setting": "agent_magic.measure.trial",
        "Trial": "agent_magic.measure.trial",
        "agents_frame": "agent_magic.measure.frames",
        "attempts_frame": "agent_magic.measure.frames",
        "share_interval": "agent_magic.measure.intervals",
        "slack_s": "agent_magic.measure.metrics",
        "student_quantile": "agent_magic.measure.intervals",
        "summarize": "agent_magic.measure.metrics",
        "summary_frame": "agent_magic.measure.frames",
    },
)
