"""The steps of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from agent_magic.declare.agent import Agent
from agent_magic.declare.task import Task
from agent_magic.declare.validation import instances_of

Step = Agent | Task
"""An agent asks a model, a task calls a Python function. Both have the same fields; inapplicable ones are empty."""


def is_step(value: object) -> bool:
    """Return whether a variable holds a step, or a function that was declared as one by `am.task`: no items of it."""
    return isinstance(value, Agent | Task) or Task.declared(value) is not None


def steps_of(given: object) -> tuple[Any, ...]:
    """Return agents and tasks as a tuple; a function that was declared by `am.task` is its task.

    Raises:
        PlanError: It is something else.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        return instances_of("agents", given, Agent, Task)
    found = [Task.declared(one) or one for one in cast("Iterable[object]", given)]
    return instances_of("agents", found, Agent, Task)
