"""A plan as JSON, and back.

```
{
    "description": "...",
    "name": "...",
    "depth": 3,
    "agents": [{"name": "a", "prompt": "..."}, {"name": "b", "prompt": "use {{ a }}", "depends_on": ["a"]}],
    "values": {"topic": "..."},
}
```

`depends_on` takes names or places in the list. Parents a prompt names need not be in it. `contexts` may hold texts
with `{{ name }}` that agents share, by name; a plan that is written has them among its values. An agent with
`"each": "rows"` stands for one per item of that value; a plan that is written has those, each with its item in `part`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agent_magic.declare.agent import OPTIONS, Agent
from agent_magic.declare.context import Context
from agent_magic.declare.each import Part, Row, as_item
from agent_magic.declare.serialization import as_text, no_text
from agent_magic.declare.user_code import run_user_code
from agent_magic.errors import DeclarationError, PlanError, shown_value

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan

P = TypeVar("P", bound="Plan")


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Write a plan as plain data. A value that JSON cannot hold is written as its text in a prompt, or as its kind."""
    return {
        "name": plan.name,
        "description": plan.description,
        "depth": plan.depth,
        "on_cycle": plan.on_cycle,
        "on_missing": plan.on_missing,
        "agents": [_agent_to_dict(plan, agent) for agent in plan.agents],
        "values": {name: _plain(value) for name, value in plan.values.items()},
    }


def asks_the_same(plan: Plan, other: Plan) -> bool:
    """Tell whether two plans ask the same, by what goes out: a frame read twice is one, though pandas cannot say so."""
    one, two = plan_to_dict(plan), plan_to_dict(other)
    return all(one[part] == two[part] for part in ("agents", "values"))


def plan_from_dict(data: Mapping[str, Any], kind: type[P]) -> P:
    """Read a plan; `kind` is the class to make.

    Raises:
        PlanError: The data is not a plan; the message names the place.
    """
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"A plan is read from a mapping with 'agents' in it, not from {shown_value(data)}.")
    rows = data.get("agents")
    if not isinstance(rows, list) or not rows:
        raise PlanError("A plan needs a list 'agents' with at least one agent in it.")
    rows = cast("list[Any]", rows)
    names = [_name(row, place) for place, row in enumerate(rows)]
    values: Any = data.get("values") or {}
    if not isinstance(values, dict):
        raise PlanError(f"'values' is {values!r}; it has to be an object of names and values.")
    contexts: Any = data.get("contexts") or {}
    if not isinstance(contexts, dict):
        raise PlanError(f"'contexts' is {contexts!r}; it has to be an object of names and texts.")
    return kind(
        tuple(_agent_from_dict(row, place, names) for place, row in enumerate(rows)),
        cast("dict[str, Any]", values),
        name=data.get("name") or "agents",
        description=data.get("description") or "",
        on_cycle=data.get("on_cycle") or "error",
        on_missing=data.get("on_missing") or "error",
        contexts=[Context(name, text) for name, text in cast("dict[str, str]", contexts).items()],
    )


def plan_from_json(text: str, kind: type[P]) -> P:
    """Read a plan from JSON text; see `plan_from_dict`."""
    if not isinstance(text, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"A plan is read from JSON text, not from {shown_value(text)}. See Plan.from_dict for data.")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PlanError(f"This is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise PlanError("A plan is a JSON object with 'agents' in it.")
    return plan_from_dict(cast("dict[str, Any]", data), kind)


def _agent_to_dict(plan: Plan, agent: Agent) -> dict[str, Any]:
    options = {key: getattr(agent, key) for key in OPTIONS if getattr(agent, key) is not None}
    return {
        "name": agent.name,
        "prompt": agent.prompt,
        **options,
        **({} if agent.part is None else {"part": _part_to_dict(agent.part)}),
        "after": list(agent.after),
        "depends_on": list(plan.parents(agent.name)),
    }


def _part_to_dict(part: Part) -> dict[str, Any]:
    item = part.item
    plain = {name: _plain(cell) for name, cell in item.items()} if isinstance(item, Row) else _plain(item)
    return {"group": part.group, "over": part.over, "number": part.number, "key": _plain(part.key), "item": plain}


def _part_from_dict(row: dict[str, Any], place: int) -> Part | None:
    given: Any = row.get("part")
    if given is None:
        return None
    try:
        return Part(
            str(given["group"]), str(given["over"]), int(given["number"]), given.get("key"), as_item(given["item"])
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise PlanError(f"agents[{place}] has a 'part' without group, over, number and item.") from None


def _name(row: Any, place: int) -> str:
    if not isinstance(row, dict):
        raise PlanError(f"agents[{place}] is {row!r}; it has to be an object with 'name' and 'prompt'.")
    return str(cast("dict[str, Any]", row).get("name") or f"agent_{place}")


def _agent_from_dict(row: dict[str, Any], place: int, names: list[str]) -> Agent:
    prompt = row.get("prompt", row.get("task"))
    if not isinstance(prompt, str):
        raise PlanError(f"agents[{place}] ({names[place]!r}) has no 'prompt'.")
    options = {key: row[key] for key in OPTIONS if row.get(key) is not None}
    agent = Agent(names[place], prompt, **options, each=row.get("each"), part=_part_from_dict(row, place))
    after = _list(row, "after", place)
    if after is None:
        parents = [_parent(one, place, names) for one in _list(row, "depends_on", place) or ()]
        after = [parent for parent in parents if parent not in agent.uses]
    return replace(agent, after=tuple(after))


def _list(row: dict[str, Any], key: str, place: int) -> list[Any] | None:
    """Read a list of an agent, where it has one."""
    value = row.get(key)
    if value is None or isinstance(value, list):
        return cast("list[Any] | None", value)
    if isinstance(value, str):
        return list(value.split(","))
    raise PlanError(f"agents[{place}] has {key}={value!r}; it has to be a list of names.")


def _parent(reference: object, place: int, names: list[str]) -> str:
    """Read one entry of `depends_on`: a name, or a place in the list."""
    if isinstance(reference, bool) or not isinstance(reference, int):
        return str(reference)
    if not 0 <= reference < len(names):
        raise PlanError(f"agents[{place}] depends on {reference!r}; places go from 0 to {len(names) - 1}.")
    return names[reference]


def _plain(value: object) -> Any:
    """Return a value, or its text, or its kind: a function has neither, and a plan with one must be kept too."""
    try:
        return run_user_code(lambda: _as_json_value(value), no_text(value))
    except DeclarationError:
        return f"<{type(value).__name__}>"


def _as_json_value(value: object) -> Any:
    text = as_text(value)
    try:
        same = as_text(json.loads(json.dumps(value, allow_nan=False))) == text
    except (TypeError, ValueError):
        return text
    return value if same else text
