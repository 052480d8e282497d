"""Declarations: agents, prompts, and plans."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.declare.agent import DEFAULT_MODEL
    from agent_magic.declare.answers.reading import Fields
    from agent_magic.declare.answers.returns import Returns
    from agent_magic.declare.baseline import one_agent
    from agent_magic.declare.cells import to_cell
    from agent_magic.declare.content import Attachment
    from agent_magic.declare.dag import build_dag
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.plan_json import plan_from_dict, plan_to_dict
    from agent_magic.declare.step import prompt_of
    from agent_magic.declare.tool import tools_of

__getattr__ = lazy_names(
    __name__,
    {
        "Attachment": "agent_magic.declare.content",
        "DEFAULT_MODEL": "agent_magic.declare.agent",
        "Fields": "agent_magic.declare.answers.reading",
        "Plan": "agent_magic.declare.plan",
        "Returns": "agent_magic.declare.answers.returns",
        "build_dag": "agent_magic.declare.dag",
        "one_agent": "agent_magic.declare.baseline",
        "plan_from_dict": "agent_magic.declare.plan_json",
        "plan_to_dict": "agent_magic.declare.plan_json",
        "prompt_of": "agent_magic.declare.step",
        "to_cell": "agent_magic.declare.cells",
        "tools_of": "agent_magic.declare.tool",
    },
)
