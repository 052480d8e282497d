"""Interactive orchestration of Claude agents in Jupyter and IPython.

`%load_ext agent_magic` in a notebook, `import agent_magic as am` in a script. Everything is loaded when first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from agent_magic.api import decompose
    from agent_magic.api.ledger import Ledger
    from agent_magic.api.plan import Plan, plan_for
    from agent_magic.api.reading import compare
    from agent_magic.api.run import Run
    from agent_magic.api.running import start
    from agent_magic.api.session import Session
    from agent_magic.api.sharing import share
    from agent_magic.api.simulating import start as Simulator  # noqa: N812 - called like a class
    from agent_magic.declare.agent import ROLES as roles  # noqa: N811 - a table that users fill
    from agent_magic.declare.agent import Agent
    from agent_magic.declare.context import Context
    from agent_magic.declare.resources import resource
    from agent_magic.declare.task import Task, first_of, task
    from agent_magic.declare.tool import ServerTool, Tool, tool
    from agent_magic.declare.values import image, pdf, text_file
    from agent_magic.engine.alerts import Alerts
    from agent_magic.engine.calls import Verdict
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.policy import Policy
    from agent_magic.errors import AgentMagicError
    from agent_magic.forecast.calibration import calibration
    from agent_magic.forecast.capacity import capacity, monthly, roi, speedup_bounds, tiers
    from agent_magic.live.driver import Controls
    from agent_magic.live.mcp import McpServer
    from agent_magic.live.people import Desk, Question
    from agent_magic.live.saving import save
    from agent_magic.measure.each import best, vote
    from agent_magic.measure.judge import judge
    from agent_magic.measure.telemetry import Telemetry
    from agent_magic.providers.anthropic.client import Claude
    from agent_magic.providers.chat.client import Chat
    from agent_magic.providers.dask.client import Dask
    from agent_magic.providers.dask.cluster import Autoscale
    from agent_magic.providers.pool import Pool
    from agent_magic.record.prices import TokenPrice
    from agent_magic.show.charts.tradeoff import tradeoff

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AgentMagicError",
    "Alerts",
    "Autoscale",
    "Chat",
    "Claude",
    "Context",
    "Controls",
    "Dask",
    "Desk",
    "Ledger",
    "Limits",
    "McpServer",
    "Plan",
    "Policy",
    "Pool",
    "Question",
    "Run",
    "ServerTool",
    "Session",
    "Simulator",
    "Task",
    "Telemetry",
    "TokenPrice",
    "Tool",
    "Verdict",
    "__version__",
    "best",
    "calibration",
    "capacity",
    "compare",
    "decompose",
    "first_of",
    "image",
    "judge",
    "load_ipython_extension",
    "monthly",
    "pdf",
    "plan_for",
    "resource",
    "roi",
    "roles",
    "save",
    "share",
    "speedup_bounds",
    "start",
    "task",
    "text_file",
    "tiers",
    "tool",
    "tradeoff",
    "unload_ipython_extension",
    "vote",
]

_PLACES = {
    "Agent": "agent_magic.declare.agent",
    "AgentMagicError": "agent_magic.errors",
    "Alerts": "agent_magic.engine.alerts",
    "Chat": "agent_magic.providers.chat.client",
    "Claude": "agent_magic.providers.anthropic.client",
    "Context": "agent_magic.declare.context",
    "Ledger": "agent_magic.api.ledger",
    "Limits": "agent_magic.engine.pacing.limits",
    "Controls": "agent_magic.live.driver",
    "Autoscale": "agent_magic.providers.dask.cluster",
    "Dask": "agent_magic.providers.dask.client",
    "Pool": "agent_magic.providers.pool",
    "McpServer": "agent_magic.live.mcp",
    "Plan": "agent_magic.api.plan",
    "Policy": "agent_magic.engine.policy",
    "Desk": "agent_magic.live.people",
    "Question": "agent_magic.live.people",
    "Run": "agent_magic.api.run",
    "Session": "agent_magic.api.session",
    "Simulator": "agent_magic.api.simulating:start",
    "ServerTool": "agent_magic.declare.tool",
    "Task": "agent_magic.declare.task",
    "Telemetry": "agent_magic.measure.telemetry",
    "Tool": "agent_magic.declare.tool",
    "Verdict": "agent_magic.engine.calls",
    "TokenPrice": "agent_magic.record.prices",
    "decompose": "agent_magic.api.decompose:",
    "plan_for": "agent_magic.api.plan",
    "resource": "agent_magic.declare.resources",
    "roles": "agent_magic.declare.agent:ROLES",
    "save": "agent_magic.live.saving",
    "task": "agent_magic.declare.task",
    "first_of": "agent_magic.declare.task",
    "tool": "agent_magic.declare.tool",
    "calibration": "agent_magic.forecast.calibration",
    "capacity": "agent_magic.forecast.capacity",
    "compare": "agent_magic.api.reading",
    "image": "agent_magic.declare.values",
    "judge": "agent_magic.measure.judge",
    "best": "agent_magic.measure.each",
    "vote": "agent_magic.measure.each",
    "pdf": "agent_magic.declare.values",
    "text_file": "agent_magic.declare.values",
    "tradeoff": "agent_magic.show.charts.tradeoff",
    "monthly": "agent_magic.forecast.capacity",
    "roi": "agent_magic.forecast.capacity",
    "tiers": "agent_magic.forecast.capacity",
    "speedup_bounds": "agent_magic.forecast.capacity",
    "share": "agent_magic.api.sharing",
    "start": "agent_magic.api.running",
}


__getattr__ = _lazy_names(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%agent`, `%%context` and `%agents` to IPython. Called by `%load_ext agent_magic`.

    Args:
        shell: The shell of IPython.
    """
    importlib.import_module("agent_magic.notebook.extension").load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take them away again. Called by `%unload_ext agent_magic`.

    Args:
        shell: The shell of IPython.
    """
    importlib.import_module("agent_magic.notebook.extension").unload(shell)
