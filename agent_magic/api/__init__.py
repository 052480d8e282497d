"""The public classes, loaded on first use.

The modules here have a method per question, and call the rooms that answer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.api import decompose
    from agent_magic.api.choosing import choose, with_models
    from agent_magic.api.ledger import Ledger
    from agent_magic.api.plan import Plan, plan_for
    from agent_magic.api.run import Run
    from agent_magic.api.running import start
    from agent_magic.api.session import Session
    from agent_magic.api.sharing import share
    from agent_magic.api.simulating import start as start_simulator
    from agent_magic.declare.agent import Agent
    from agent_magic.declare.context import Context
    from agent_magic.engine.policy import Policy
    from agent_magic.live.driver import Controls
    from agent_magic.providers.anthropic.client import Claude
    from agent_magic.record.cassette.reading import read_cassette
    from agent_magic.record.ledger.store import MEMORY
    from agent_magic.record.prices import Prices, TokenPrice
    from agent_magic.record.request import Request
    from agent_magic.simulator.child import SimulatorError

__all__ = [
    "MEMORY",
    "Agent",
    "Claude",
    "Context",
    "Controls",
    "Ledger",
    "Plan",
    "Policy",
    "Prices",
    "Request",
    "Run",
    "Session",
    "SimulatorError",
    "TokenPrice",
    "choose",
    "decompose",
    "plan_for",
    "read_cassette",
    "share",
    "start",
    "start_simulator",
    "with_models",
]

__getattr__ = lazy_names(
    __name__,
    {
        "MEMORY": "agent_magic.record.ledger.store",
        "Agent": "agent_magic.declare.agent",
        "Claude": "agent_magic.providers.anthropic.client",
        "Context": "agent_magic.declare.context",
        "Controls": "agent_magic.live.driver",
        "Ledger": "agent_magic.api.ledger",
        "Plan": "agent_magic.api.plan",
        "Policy": "agent_magic.engine.policy",
        "Prices": "agent_magic.record.prices",
        "Request": "agent_magic.record.request",
        "Run": "agent_magic.api.run",
        "Session": "agent_magic.api.session",
        "SimulatorError": "agent_magic.simulator.child",
        "TokenPrice": "agent_magic.record.prices",
        "choose": "agent_magic.api.choosing",
        "decompose": "agent_magic.api.decompose:",
        "plan_for": "agent_magic.api.plan",
        "read_cassette": "agent_magic.record.cassette.reading",
        "share": "agent_magic.api.sharing",
        "start": "agent_magic.api.running",
        "start_simulator": "agent_magic.api.simulating:start",
        "with_models": "agent_magic.api.choosing",
    },
)
