"""Declarations: agents, prompts, and plans."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL
    from agent_magic.declare.answers.reading import Fields, Items
    from agent_magic.declare.answers.returns import Returns, look_up
    from agent_magic.declare.answers.schema import brief
    from agent_magic.declare.baseline import one_agent
    from agent_magic.declare.cells import options_text, to_cell
    from agent_magic.declare.content import Attachment, Placed, TokenRule
    from agent_magic.declare.coordinator import PRESETS
    from agent_magic.declare.dag import build_dag
    from agent_magic.declare.declared import asked_apart
    from agent_magic.declare.each import Answers
    from agent_magic.declare.edges import PlanWarning
    from agent_magic.declare.flow import CONDITION
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.plan_json import plan_from_dict, plan_to_dict
    from agent_magic.declare.race import BEATEN
    from agent_magic.declare.resources import Held
    from agent_magic.declare.step import job_of, prompt_of
    from agent_magic.declare.tool import ToolResult, result_text, tools_of
    from agent_magic.declare.units import dollars, seconds

__getattr__ = lazy_names(
    __name__,
    {
        "Answers": "agent_magic.declare.each",
        "Attachment": "agent_magic.declare.content",
        "BEATEN": "agent_magic.declare.race",
        "CONDITION": "agent_magic.declare.flow",
        "DEFAULT_MAX_TOKENS": "agent_magic.declare.agent",
        "DEFAULT_MODEL": "agent_magic.declare.agent",
        "Fields": "agent_magic.declare.answers.reading",
        "Held": "agent_magic.declare.resources",
        "Items": "agent_magic.declare.answers.reading",
        "PRESETS": "agent_magic.declare.coordinator",
        "Placed": "agent_magic.declare.content",
        "Plan": "agent_magic.declare.plan",
        "PlanWarning": "agent_magic.declare.edges",
        "Returns": "agent_magic.declare.answers.returns",
        "TokenRule": "agent_magic.declare.content",
        "ToolResult": "agent_magic.declare.tool",
        "asked_apart": "agent_magic.declare.declared",
        "brief": "agent_magic.declare.answers.schema",
        "build_dag": "agent_magic.declare.dag",
        "dollars": "agent_magic.declare.units",
        "job_of": "agent_magic.declare.step",
        "look_up": "agent_magic.declare.answers.returns",
        "one_agent": "agent_magic.declare.baseline",
        "options_text": "agent_magic.declare.cells",
        "plan_from_dict": "agent_magic.declare.plan_json",
        "plan_to_dict": "agent_magic.declare.plan_json",
        "prompt_of": "agent_magic.declare.step",
        "result_text": "agent_magic.declare.tool",
        "seconds": "agent_magic.declare.units",
        "to_cell": "agent_magic.declare.cells",
        "tools_of": "agent_magic.declare.tool",
    },
)
