"""What runs mean: their numbers and frames, their grades, and the model of their servers."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.measure.each import OF_EACH
    from agent_magic.measure.frames import (
        agents_frame,
        attempts_frame,
        events_frame,
        layers_frame,
        summary_frame,
        texts_series,
        tool_calls_frame,
    )
    from agent_magic.measure.intervals import mean_interval, running_interval, share_interval, student_quantile
    from agent_magic.measure.metrics import slack_s, summarize
    from agent_magic.measure.server import CONSTANT, Needs, Server
    from agent_magic.measure.server_fit import Observed, fit
    from agent_magic.measure.trial import Setting, Trial

__getattr__ = lazy_names(
    __name__,
    {
        "CONSTANT": "agent_magic.measure.server",
        "Needs": "agent_magic.measure.server",
        "OF_EACH": "agent_magic.measure.each",
        "Observed": "agent_magic.measure.server_fit",
        "Server": "agent_magic.measure.server",
        "Setting": "agent_magic.measure.trial",
        "Trial": "agent_magic.measure.trial",
        "agents_frame": "agent_magic.measure.frames",
        "attempts_frame": "agent_magic.measure.frames",
        "events_frame": "agent_magic.measure.frames",
        "fit": "agent_magic.measure.server_fit",
        "layers_frame": "agent_magic.measure.frames",
        "mean_interval": "agent_magic.measure.intervals",
        "running_interval": "agent_magic.measure.intervals",
        "share_interval": "agent_magic.measure.intervals",
        "slack_s": "agent_magic.measure.metrics",
        "student_quantile": "agent_magic.measure.intervals",
        "summarize": "agent_magic.measure.metrics",
        "summary_frame": "agent_magic.measure.frames",
        "texts_series": "agent_magic.measure.frames",
        "tool_calls_frame": "agent_magic.measure.frames",
    },
)
