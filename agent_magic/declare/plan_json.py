"""A plan as JSON, and back: `{"name": ..., "agents": [{"name": ..., "prompt": ...}, ...], "values": {...}}`.

Models write plans in this form. `prompt` may be called `task`; agents without a name are `agent_0`, `agent_1`, ... by
their place. `depends_on` takes names or places. The answers it names reach the prompt at `{{ previous_outputs }}`, or
else at its end, except for those that the prompt uses itself. `after` only orders.

`contexts` may hold texts that agents share, and an agent with `"each": "rows"` stands for one per item of that value; a
written plan has the results. `returns` is a JSON schema. Tools and tasks come without functions: such a plan can be
shown and replayed, not run. A picture or a document is the value `{"$attachment": {...}}`; bytes may be in
`attachments`, base64 by sha256.

An outline is a plan without the user's texts: steps, edges and options. A forecast needs no more, so what-ifs work
without texts and without Jinja2.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from agent_magic.declare.agent import BUILT_IN, Agent
from agent_magic.declare.answers.schema import schema_of
from agent_magic.declare.content import Attachment
from agent_magic.declare.context import Context
from agent_magic.declare.each import Part
from agent_magic.declare.grouping import item_step
from agent_magic.declare.options import AGENT, from_plain, to_plain
from agent_magic.declare.task import Task
from agent_magic.declare.template import condition_of, conditions_of
from agent_magic.declare.tool import FLAGS, ServerTool, Tool, Tools, recorded_tools
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import must_be
from agent_magic.declare.values import SCALARS, RenderError, Row, as_item, as_text, holds_content, packed_key, unpacked
from agent_magic.errors import DeclarationError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_magic.declare.context import Parts
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

P = TypeVar("P", bound="Plan")
LARGEST: Final = 1 << 63
"""Of larger integers Python may refuse to write the digits."""
NO_TEXT: Final = "."
"""Stands for a text in an outline."""
PREVIOUS = re.compile(r"\{\{\s*previous_outputs\s*\}\}")


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return plain data; a value without JSON is its text in a prompt, or its type."""
    return {
        "name": plan.name,
        "description": plan.description,
        "depth": plan.depth,
        "on_cycle": plan.on_cycle,
        "on_missing": plan.on_missing,
        **({} if plan.on_conflict == "wait" else {"on_conflict": plan.on_conflict}),
        "agents": [_agent_to_dict(plan, agent) for agent in plan.agents],
        "values": {name: _plain(value) for name, value in {**plan.values, **plan.shown}.items()},
    }


def asks_the_same(plan: Plan, other: Plan) -> bool:
    """Compare what two plans send, values by their text, since frames have no `==`."""
    one, two = plan_to_dict(plan), plan_to_dict(other)
    return all(one[part] == two[part] for part in ("agents", "values"))


def plan_from_json(text: str, kind: type[P]) -> P:
    if not isinstance(text, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong("The plan", "JSON text", text, " Plan.from_dict takes data.")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PlanError(f"The plan is not JSON: {error}.") from None
    return plan_from_dict(data, kind)


def plan_from_dict(data: Mapping[str, Any], kind: type[P], file_of: Callable[[str], bytes] | None = None) -> P:
    """Return a plan from plain data, by default with the attachments' bytes in it."""
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong("The plan", "an object with 'agents'", data)
    rows: Any = data.get("agents")
    if not isinstance(rows, list) or not rows:
        raise _wrong("'agents'", "a list with at least one agent", cast("object", rows))
    parts: dict[str, dict[str, Any]] = {}
    for part in ("values", "contexts"):
        parts[part] = data.get(part) or {}
        if not isinstance(parts[part], dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _wrong(f"'{part}'", "an object of names", parts[part])
    on_missing = data.get("on_missing") or "error"
    rows = cast("list[Any]", rows)
    names = [_name(row, index) for index, row in enumerate(rows)]
    agents: list[Step] = []
    fed: list[str] = []
    file_of = file_of or _reader_of(data.get("attachments") or {})
    parts["values"] = {name: _with_files(value, file_of) for name, value in parts["values"].items()}
    for index, row in enumerate(rows):
        agent = _agent_from_dict(row, index, names, file_of, drop=on_missing == "drop")
        fed += [agent.name] if not agent.is_task and agent.prompt != row.get("prompt", row.get("task")) else []
        agents.append(agent)
    agents = _with_items_taken(agents)
    note = f"depends_on adds the answers of their parents to the prompts of {', '.join(fed)}"
    return kind(
        tuple(agents),
        parts["values"],
        name=data.get("name") or "agents",
        description=data.get("description") or "",
        on_cycle=data.get("on_cycle") or "error",
        on_missing=on_missing,
        on_conflict=data.get("on_conflict") or "wait",
        contexts=[Context(name, text) for name, text in parts["contexts"].items()],
        notes=[note] if fed else [],
    )


def _wrong(what: str, must: str, value: object, hint: str = "") -> Exception:
    return must_be(what, must, value, hint, error=PlanError)


def _agent_to_dict(plan: Plan, agent: Step) -> dict[str, Any]:
    if isinstance(agent, Task):
        return {**agent.to_dict(), **_edges_to_dict(plan, agent)}
    options = {name: value for name, value in to_plain(agent).items() if name not in {"each", "after"}}
    if agent.role and BUILT_IN.get(agent.role) != agent.role_text:  # of the user's: another reader may not have it
        options["system"] = agent.role_text
        del options["role"]
    return {
        "name": agent.name,
        "prompt": agent.prompt,
        **options,
        **({} if agent.returns is None else {"returns": agent.schema}),
        **({"tools": [_tool_to_dict(one) for one in agent.tools]} if agent.tools else {}),
        **_edges_to_dict(plan, agent),
    }


def _edges_to_dict(plan: Plan, step: Step) -> dict[str, Any]:
    part = {} if step.part is None else {"part": part_to_dict(step.part)}
    return {**part, "after": list(step.after), "depends_on": list(plan.parents(step.name))}


def _tool_to_dict(tool: Tool | ServerTool) -> dict[str, Any]:
    if isinstance(tool, ServerTool):
        return tool.definition()
    flags = {flag: True for flag in FLAGS if getattr(tool, flag)}
    return {**tool.definition(), **flags, **({"source_sha": tool.source_sha} if tool.source_sha else {})}


def part_to_dict(part: Part) -> dict[str, Any]:
    item = part.item
    plain = [[number, _key(key), _item(one)] for number, key, one in item] if part.asks else _item(item)
    found = {"group": part.group, "over": part.over, "number": part.number, "key": _key(part.key), "item": plain}
    found |= {"levels": _key(part.levels)} if part.levels else {}
    found |= {"dtypes": [*map(str, part.dtypes)]} if part.dtypes else {}
    reserved = {"source": part.source, "place": part.place, "most": part.most, "rounds": part.rounds}
    reserved |= {"asks": part.asks, "asked": part.asked, "shares": part.shares}
    found |= {name: value for name, value in reserved.items() if value} | ({"path": [*part.path]} if part.path else {})
    return found if part.outer is None else {**found, "outer": {**part_to_dict(part.outer), "item": None}}


def _with_items_taken(steps: list[Step]) -> list[Step]:
    """Make items of a common request take their answers from the reply again."""
    requests = {one.name: one for one in steps if isinstance(one, Agent) and one.part is not None and one.part.asks}
    return [
        item_step(one.part, requests[one.part.asked]) if one.part is not None and one.part.asked in requests else one
        for one in steps
    ]


def _key(key: Any) -> Any:
    """Return a row's key as plain data with its type, so that answers still fit beside the rows."""
    if type(key) in SCALARS:
        return key
    found = packed_key(key)
    return _plain(key) if found is None else found


def _item(item: Any) -> Any:
    return {name: _plain(cell) for name, cell in item.items()} if isinstance(item, Row) else _plain(item)


def _part_from_dict(row: dict[str, Any], index: int) -> Part | None:
    given: Any = row.get("part")
    if given is None:
        return None
    try:
        asks, item = int(given.get("asks", 0)), given["item"]
        return Part(
            str(given["group"]),
            str(given["over"]),
            int(given["number"]),
            unpacked(given.get("key")),
            [[int(number), unpacked(key), as_item(one)] for number, key, one in item] if asks else as_item(item),
            levels=unpacked(given.get("levels") or ()),
            source=str(given.get("source", "")),
            path=tuple(map(str, given.get("path", ()))),
            outer=_part_from_dict({"part": given.get("outer")}, index),
            place=int(given.get("place", 0)),
            most=int(given.get("most", 0)),
            rounds=int(given.get("rounds", 0)),
            asks=asks,
            asked=str(given.get("asked", "")),
            dtypes=tuple(map(str, given.get("dtypes", ()))),
            shares=given.get("shares") is True,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise PlanError(f"agents[{index}] has a 'part' without group, over, number and item.") from None


def _name(row: Any, index: int) -> str:
    if not isinstance(row, dict):
        raise _wrong(f"agents[{index}]", "an object with 'name' and 'prompt'", row)
    return str(cast("dict[str, Any]", row).get("name") or f"agent_{index}")


def _agent_from_dict(
    row: dict[str, Any], index: int, names: Sequence[str], file_of: Callable[[str], bytes], *, drop: bool
) -> Step:
    if isinstance(row.get("part"), dict):
        row = {**row, "part": _with_files(row["part"], file_of)}
    if row.get("kind") == "task":
        return _task_from_dict(row, index)
    prompt = row.get("prompt", row.get("task"))
    if not isinstance(prompt, str):
        raise _wrong(f"The prompt of agents[{index}] ({names[index]!r})", "a str", prompt)

    def wrong(option: str, must: str, value: object) -> Exception:
        return _wrong(f"{option!r} of agents[{index}]", must, value)

    options = from_plain(Agent, {**row, "after": None}, wrong)
    returns = row.get("returns")
    if isinstance(returns, str):  # as text, which keeps the order of fields
        returns = schema_of(returns)
    if returns is not None and not isinstance(returns, dict):
        raise _wrong(f"'returns' of agents[{index}]", "a JSON schema", returns)
    more: dict[str, Any] = {"part": _part_from_dict(row, index)}
    if row.get("tools"):
        more["tools"] = _tools_from_list(row["tools"], index)
    agent = Agent(names[index], prompt, **options, returns=returns, **more)
    after = _list(row, "after", index)
    if after is not None:
        return replace(agent, after=tuple(after))
    parents = [_parent(one, index, names, drop=drop) for one in _list(row, "depends_on", index) or ()]
    others = [one for one in dict.fromkeys(parents) if one not in agent.uses]
    known = [one for one in others if one in names and one != agent.name]
    if known or PREVIOUS.search(prompt):
        agent = replace(agent, prompt=_with_answers(prompt, known))
    return replace(agent, after=tuple(one for one in others if one not in known))


def _tools_from_list(given: Any, index: int) -> Tools:
    try:
        return recorded_tools(given)
    except (AttributeError, KeyError, TypeError, ValueError, DeclarationError) as error:
        raise PlanError(f"'tools' of agents[{index}] are not definitions of tools: {error}.") from None


def _task_from_dict(row: dict[str, Any], index: int) -> Task:
    try:
        return Task.from_dict(row, _part_from_dict(row, index))
    except (AttributeError, KeyError, TypeError, ValueError, DeclarationError) as error:
        raise PlanError(f"agents[{index}] is no task: {error}.") from None


def _with_answers(prompt: str, parents: Sequence[str]) -> str:
    answers = "\n\n".join(f"## {name}\n{{{{ {name} }}}}" for name in parents)
    if PREVIOUS.search(prompt):
        return PREVIOUS.sub(lambda _: answers, prompt)
    return f"{prompt}\n\nPrevious outputs:\n\n{answers}"


def _list(row: dict[str, Any], key: str, index: int) -> list[Any] | None:
    value = row.get(key)
    if value is None or isinstance(value, list):
        return cast("list[Any] | None", value)
    if isinstance(value, str):
        return [one.strip() for one in value.split(",")]
    raise _wrong(f"'{key}' of agents[{index}]", "a list", value)


def _parent(reference: object, index: int, names: Sequence[str], *, drop: bool) -> str:
    if isinstance(reference, str) and reference.isdecimal():
        reference = int(reference)  # a name cannot be a number
    if isinstance(reference, bool) or not isinstance(reference, int):
        return str(reference)
    if 0 <= reference < len(names):
        return names[reference]
    if drop:
        return f"agent_{reference}"  # an agent that does not exist: the plan drops the edge, and warns
    raise _wrong(f"'depends_on' of agents[{index}]", f"places from 0 to {len(names) - 1}, or names", reference)


def attachments_of(plan: Plan) -> dict[str, Attachment]:
    items = [agent.part.item for agent in plan.agents if agent.part is not None]
    return _found_in([*plan.values.values(), *plan.shown.values(), *items])


def _found_in(values: Iterable[Any]) -> dict[str, Attachment]:
    found: dict[str, Attachment] = {}
    todo = [*values]
    while todo:
        one = todo.pop(0)
        if isinstance(one, Attachment):
            found.setdefault(one.sha256, one)
        elif holds_content(one):
            todo += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
    return found


def with_files(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: _plain(value) if holds_content(value) else value for name, value in values.items()}
    found = files_to_json(_found_in(values.values()))
    return {"values": plain, **({"attachments": found} if found else {})}


def files_to_json(attachments: Mapping[str, Attachment]) -> dict[str, str]:
    return {name: base64.b64encode(one.data).decode() for name, one in attachments.items() if one.data}


def _reader_of(data: object) -> Callable[[str], bytes]:
    """Return a reader of `files_to_json`, which checks the sha256."""
    if not isinstance(data, dict):
        raise _wrong("'attachments'", "an object of base64 by sha256", data)
    found: dict[str, bytes] = {}
    for name, text in cast("dict[str, Any]", data).items():
        with suppress(ValueError, TypeError):
            one = base64.b64decode(text, validate=True)
            if hashlib.sha256(one).hexdigest() == name:
                found[name] = one
    return lambda name: found.get(name, b"")


def _with_files(value: Any, file_of: Callable[[str], bytes]) -> Any:
    if isinstance(value, list):
        return [_with_files(one, file_of) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = cast("dict[str, Any]", value)
    if set(named) != {"$attachment"} or not isinstance(named["$attachment"], dict):
        return {name: _with_files(one, file_of) for name, one in named.items()}
    given = cast("dict[str, Any]", named["$attachment"])
    try:
        words = {name: str(given[name]) for name in ("kind", "media_type", "sha256", "title")}
        sizes = {name: int(given[name]) for name in ("size", "width", "height", "pages")}
    except (KeyError, TypeError, ValueError):
        raise PlanError("An attachment lacks its kind, media_type, sha256, title or sizes.") from None
    kind: Literal["image", "document"] = "image" if words.pop("kind") == "image" else "document"
    return Attachment(kind, **cast("Any", {**words, **sizes}), data=file_of(words["sha256"]))


def _plain(value: object) -> Any:
    """Return plain data, or a value's text or type: a plan with a function must be kept too."""
    if type(value) in SCALARS and not (type(value) is int and abs(value) > LARGEST):
        return value
    if isinstance(value, Attachment):
        return {"$attachment": {name: getattr(value, name) for name in value.KEPT}}
    if holds_content(value) and isinstance(value, dict | list | tuple):
        if isinstance(value, dict):
            return {str(name): _plain(one) for name, one in cast("dict[Any, object]", value).items()}
        return [_plain(one) for one in cast("list[object]", value)]

    def failed(error: BaseException) -> RenderError:
        return RenderError(reason_of(error))

    try:
        return run_user_code(lambda: _json_or_text(value), failed)
    except RenderError:
        return f"<{type(value).__name__}>"


def _json_or_text(value: object) -> Any:
    text = as_text(value)
    try:
        same = as_text(json.loads(json.dumps(value, allow_nan=False))) == text
    except (TypeError, ValueError):
        return text
    return value if same else text


def outline_of(plan: Plan, replaced: Callable[[str], str], prompts: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Return plain data for `plan_from_dict`, with only these prompts."""
    prompts = prompts or {}
    conditions = [text for one in plan.agents for text in (one.when, one.until) if text is not None]
    values = {name: NO_TEXT for text in conditions for name in condition_of(text).names if not _is_step(plan, name)}
    contexts = {one.context: _context_text(plan.context_of(at)) for at, one in enumerate(plan.agents) if one.context}
    return {
        "name": plan.name,
        "on_cycle": plan.on_cycle,
        "on_missing": plan.on_missing,
        "agents": [_outlined(plan, one, prompts.get(at, NO_TEXT)) for at, one in enumerate(plan.agents)],
        "values": {**values, **{str(name): replaced(text) for name, text in contexts.items()}},
    }


def _context_text(context: str | Parts | None) -> str:
    if isinstance(context, str | None):
        return context or ""
    return " ".join(one if isinstance(one, str) else one.label for one in context)


def _is_step(plan: Plan, name: str) -> bool:
    return name in plan.index or name in plan.groups


def _outlined(plan: Plan, step: Step, prompt: str) -> dict[str, Any]:
    uses = [name for name in step.uses if _is_step(plan, name)]
    found: dict[str, Any] = {"name": step.name, "after": list(step.after)}
    for option, condition in conditions_of(step).items():
        found[option] = " and ".join(_asked(condition.names, condition.can_miss))
    if step.part is not None:
        found["part"] = {**part_to_dict(step.part), "key": step.part.number, "item": None, "asks": 0}
        for name in ("levels", "dtypes"):
            found["part"].pop(name, None)
    if not isinstance(step, Agent):
        known = {"rounds": step.rounds, "priority": step.priority, "timeout_s": step.timeout_s, "race": step.race}
        optional = sorted(step.optional.intersection(uses))
        return {**found, **_said(known), "kind": "task", "parameters": uses, "optional": optional}
    can_miss = step.can_miss if plan.flow is not None else frozenset[str]()
    if step.context is not None and step.schema:  # agents of other types share no cache
        schemas = sorted({one.schema for one in plan.agents if isinstance(one, Agent)})
        # Shorter than any other: missing length can be filled up, excess cannot be taken away.
        found["returns"] = {"type": "object", "properties": {str(schemas.index(step.schema)): {"enum": [1]}}}
    if step.cascade:
        found["escalate"] = "answer"
    batch = step.batch or ("off" if step.tools.functions else None)
    answers = "".join(f"{{{{ {name} }}}}" for name in _asked(uses, can_miss))
    known = {name: value for name, value in to_plain(step).items() if AGENT[name].outlined}
    return {**found, **_said({**known, "batch": batch}), "prompt": prompt + answers}


def _asked(names: Iterable[str], can_miss: frozenset[str]) -> list[str]:
    return [f"{name} | default('')" if name in can_miss else name for name in names]


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value}
