"""A plan with other options for some of its agents: what a trial runs, and what an advice that is taken makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent_magic.declare.expansion import declared_names

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

CHANGED = ("model", "cascade", "escalate", "fallback", "effort")
"""The options that may differ: a model that is named takes the place of a cascade."""
P = TypeVar("P", bound="Plan")


def with_options(
    kind: type[P], plan: Plan, changes: Mapping[int, Mapping[str, Any]], *, without: Collection[int] = ()
) -> P:
    """Return a plan in which agents have other options.

    Args:
        kind: The class of the plan to make.
        plan: The plan.
        changes: The options by number of the agent, such as `{0: {"model": "claude-haiku-5-5"}}`.
        without: The numbers of agents that are left out; nothing that is kept may need them.
    """
    agents = [
        with_changes(agent, changes.get(number, {}))
        for number, agent in enumerate(plan.agents)
        if number not in without
    ]
    return kind(
        tuple(agents),
        plan.values,
        name=plan.name,
        description=plan.description,
        on_cycle=plan.on_cycle,
        on_missing=plan.on_missing,
        on_conflict=plan.on_conflict,
        notes=plan.notes,
    )


def with_changes(step: Step, options: Mapping[str, Any]) -> Step:
    """Return a step with other options. A model that is named takes the place of a cascade."""
    if options.get("model"):
        options = {"cascade": (), "escalate": None, "needs": (), "chosen": "", **options}
    return replace(step, **options)


def changed_options(before: Plan, after: Plan) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return what differs between the agents of two plans: by the name they were declared by, option, before and after.

    Args:
        before: A plan.
        after: The same with other options, and perhaps without some agents.
    """
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for agent, name in zip(before.agents, declared_names(before), strict=True):
        other = after.agents[after.index[agent.name]] if agent.name in after.index else None
        if other is None:
            found.setdefault(name, {})["dropped"] = (False, True)
            continue
        for option in CHANGED:
            pair = getattr(agent, option, None), getattr(other, option, None)
            if pair[0] != pair[1]:
                found.setdefault(name, {})[option] = pair
    return found
