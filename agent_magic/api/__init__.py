"""What a user holds: `Agent`, `Context`, `Plan`, `Policy`, `Claude`, `Session`, `Run`, `Ledger`, `share`."""

from agent_magic.api import decompose
from agent_magic.api.goals import plan_for
from agent_magic.api.ledger import Ledger
from agent_magic.api.plan import Plan, start
from agent_magic.api.run import Run
from agent_magic.api.session import Session
from agent_magic.api.sharing import share
from agent_magic.declare.agent import Agent
from agent_magic.declare.context import Context
from agent_magic.engine.policy import Policy
from agent_magic.live.controls import Controls
from agent_magic.providers.anthropic.client import Claude
from agent_magic.record.prices import TokenPrice
from agent_magic.record.request import Request

__all__ = [
    "Agent",
    "Claude",
    "Context",
    "Controls",
    "Ledger",
    "Plan",
    "Policy",
    "Request",
    "Run",
    "Session",
    "TokenPrice",
    "decompose",
    "plan_for",
    "share",
    "start",
]
