"""What a plan is made of."""

from __future__ import annotations

from agent_magic.declare.agent import Agent
from agent_magic.declare.task import Task

Step = Agent | Task
"""An agent asks a model, a task calls a Python function. Each has what the other has; what does not apply is empty."""
