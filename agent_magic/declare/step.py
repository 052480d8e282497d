"""The steps of a plan, and fingerprints of their prompts and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, cast

from agent_magic.declare.agent import Agent
from agent_magic.declare.task import Task
from agent_magic.declare.validation import instances_of

SHORT = 16
"""Digits of a fingerprint that is written beside each attempt."""
Step = Agent | Task
"""Both have the same fields, inapplicable ones empty."""


def is_step(value: object) -> bool:
    return isinstance(value, Agent | Task) or Task.declared(value) is not None


def steps_of(given: object) -> tuple[Any, ...]:
    """Return agents and tasks, with functions declared by `am.task` as their tasks."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        return instances_of("agents", given, Agent, Task)
    found = [Task.declared(one) or one for one in cast("Iterable[object]", given)]
    return instances_of("agents", found, Agent, Task)


def models_text(step: Step, model: str) -> str:
    """Write the model of a step: of a cascade `A → B`, else the model of its first request."""
    return " → ".join(step.cascade) if step.cascade else model


def job_of(agent: Agent) -> str:
    """Return the fingerprint of a request without model and row, to compare grades."""
    return _fingerprint(agent, agent.effort, agent.sent)


def prompt_of(step: Step) -> str:
    """Return the fingerprint of instructions without model, effort and row; empty for a task."""
    return "" if step.is_task else _fingerprint(cast("Agent", step), None, "")[:SHORT]


def cascade_of(step: Step) -> str:
    """Return the fingerprint of a cascade and of what escalates in it; empty without one."""
    if not step.cascade:
        return ""
    agent = cast("Agent", step)
    return digest([*agent.cascade, agent.escalate, agent.check and agent.check.name])[:SHORT]


def _fingerprint(agent: Agent, effort: str | None, sent: str) -> str:
    asked = [agent.prompt, agent.system_text, agent.context, effort, agent.schema, agent.tools_text]
    asked += [agent.cite, agent.attach, *([sent] if sent else [])]
    return digest(asked)


def digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
