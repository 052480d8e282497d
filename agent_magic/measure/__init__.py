"""What runs mean: their numbers and frames, their grades, and the model of their servers."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.measure import compare, judge, service, trial, truths
    from agent_magic.measure.compare import diff_frame, record_of, todo_frame
    from agent_magic.measure.contexts import contexts_frame
    from agent_magic.measure.each import OF_EACH, answers_frame, each_frame
    from agent_magic.measure.frames import (
        agents_frame,
        alerts_frame,
        attempts_frame,
        events_frame,
        kernel_frame,
        layers_frame,
        runs_frame,
        summary_frame,
        texts_series,
        tool_calls_frame,
    )
    from agent_magic.measure.intervals import mean_interval, running_interval, share_interval, student_quantile
    from agent_magic.measure.metrics import slack_s, summarize
    from agent_magic.measure.path import find_path, savings_frame
    from agent_magic.measure.server import CONSTANT, Needs, Server
    from agent_magic.measure.server_fit import Observed, fit
    from agent_magic.measure.service import to_requeue
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
        "alerts_frame": "agent_magic.measure.frames",
        "answers_frame": "agent_magic.measure.each",
        "attempts_frame": "agent_magic.measure.frames",
        "compare": "agent_magic.measure.compare:",
        "contexts_frame": "agent_magic.measure.contexts",
        "diff_frame": "agent_magic.measure.compare",
        "each_frame": "agent_magic.measure.each",
        "events_frame": "agent_magic.measure.frames",
        "find_path": "agent_magic.measure.path",
        "fit": "agent_magic.measure.server_fit",
        "judge": "agent_magic.measure.judge:",
        "kernel_frame": "agent_magic.measure.frames",
        "layers_frame": "agent_magic.measure.frames",
        "mean_interval": "agent_magic.measure.intervals",
        "record_of": "agent_magic.measure.compare",
        "running_interval": "agent_magic.measure.intervals",
        "runs_frame": "agent_magic.measure.frames",
        "savings_frame": "agent_magic.measure.path",
        "service": "agent_magic.measure.service:",
        "share_interval": "agent_magic.measure.intervals",
        "slack_s": "agent_magic.measure.metrics",
        "student_quantile": "agent_magic.measure.intervals",
        "summarize": "agent_magic.measure.metrics",
        "summary_frame": "agent_magic.measure.frames",
        "texts_series": "agent_magic.measure.frames",
        "to_requeue": "agent_magic.measure.service",
        "todo_frame": "agent_magic.measure.compare",
        "tool_calls_frame": "agent_magic.measure.frames",
        "trial": "agent_magic.measure.trial:",
        "truths": "agent_magic.measure.truths:",
    },
)
