"""A plan in a plan: its steps join, and its name is the answer of its last step.

If the value `research` is a plan with the steps `sources` and `notes`, a prompt with `{{ research }}` gives the steps
`research__sources` and `research__notes`, as scikit-learn names them. All names used by the steps of a plan are local
to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.each import OWN, REPEATS, REQUESTS, ROUNDS, Part, group_of
from agent_magic.declare.signature import is_async
from agent_magic.declare.task import Task
from agent_magic.declare.template import Template, condition_of, renamed_names
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

MAX_DEPTH: Final = 3
BOX: Final = "__"
_EXPRESSION = re.compile(r"\A\{\{ (.*) \}\}\Z", re.DOTALL)


def box_of(name: str) -> str:
    box, inside, step = name.partition(BOX)
    return box if inside and box and step else ""


def last_step(steps: Sequence[Step]) -> Step:
    """Return the step that answers for the plan: the last declared one."""
    first = {one.hedges for one in steps}
    for step in reversed(steps):
        if step.hedges is None and step.name not in first and not (step.part is not None and step.part.asks):
            return step
    return steps[-1]


def last_in(steps: Iterable[Step], box: str) -> Step | None:
    inside = [one for one in steps if one.name.startswith(f"{box}{BOX}")]
    return last_step(inside) if inside else None


def join(
    agents: Iterable[Step], values: Mapping[str, Any], plans: Mapping[str, Plan]
) -> tuple[tuple[Step, ...], dict[str, Any]]:
    """Add the steps of used plans, before maps and loops are expanded."""
    outer = tuple(agents)
    declared = {one.name for one in outer}
    wanted = {name for one in outer for name in (*one.reads, *one.after)}
    inner: list[Step] = []
    kept = {name: value for name, value in values.items() if name not in plans}
    means: dict[str, str] = {}
    for box, plan in plans.items():
        if box not in wanted or box in declared:
            continue
        names = _names_in(plan, box)
        inner += [renamed(one, names) for one in plan.agents]
        kept |= {names.get(name, name): value for name, value in plan.values.items()}
        last = last_step(plan.agents)
        means[box] = names[group_of(last)]
    return (*inner, *(renamed(one, means) for one in outer)), kept


def _names_in(plan: Plan, box: str) -> dict[str, str]:
    for name in plan.names:
        boxes = [box, *name.split(BOX)[:-1]]
        if box in boxes[1:]:
            message = f"The plan {box!r} holds an earlier version of itself: its step {name!r}."
            raise PlanError(f"{message} Give the plan inside another name.")
        if len(boxes) > MAX_DEPTH:
            message = f"{BOX.join([box, name])!r} is {len(boxes)} plans deep, and {MAX_DEPTH} are the most."
            raise PlanError(f"{message} Join two of them into one plan.")
    found = {*plan.names, *plan.groups, *plan.values}
    found |= {name for one in plan.agents for name in (*one.reads, *one.after)}
    return {name: f"{box}{BOX}{name}" for name in found - OWN}


def renamed(step: Step, names: Mapping[str, str]) -> Step:
    if names.keys().isdisjoint(
        {step.name, *step.reads, *step.after, *([] if step.part is None else [step.part.group])}
    ):
        return step
    changes: dict[str, Any] = {
        "name": names.get(step.name, step.name),
        "after": tuple(names.get(name, name) for name in step.after),
        "each": None if step.each is None else _path(step.each, names),
        "part": None if step.part is None else _part(step.part, names),
    }
    for option in ("when", "until"):
        text = getattr(step, option)
        changes[option] = None if text is None else _condition(text, option, step.name, names)
    if isinstance(step, Task):
        takes = tuple(replace(one, name=names.get(one.name, one.name)) for one in step.takes or ())
        called = {names[one.name]: one.name for one in step.takes or () if one.name in names}
        given = step.function
        if called and not step.is_recorded:
            given = (_AsyncRenamed if is_async(given) else _Renamed)(given, called)
        return replace(step, **changes, function=given, takes=takes)
    written = Template.parse(step.prompt, agent=step.name)  # not as a request for several items has it
    changes["prompt"] = renamed_names(written, names)
    changes["attach"] = tuple(names.get(name, name) for name in step.attach)
    changes["hedges"] = None if step.hedges is None else names.get(step.hedges, step.hedges)
    changes["continues"] = None if step.continues is None else names.get(step.continues, step.continues)
    changes["context"] = None if step.context is None else names.get(step.context, step.context)
    return replace(step, **changes)


def _path(text: str, names: Mapping[str, str]) -> str:
    """Rename the first name of `planner.steps`."""
    base, dot, rest = text.partition(".")
    return f"{names.get(base, base)}{dot}{rest}"


def _condition(text: str, option: str, agent: str, names: Mapping[str, str]) -> str:
    before = condition_of(text, agent, option)
    made = renamed_names(replace(before, text=f"{{{{ {text} }}}}", pieces=()), names)
    found = _EXPRESSION.match(made)
    return text if found is None else found[1]


def _part(part: Part, names: Mapping[str, str]) -> Part:
    over = _path(part.over, names)
    for kind in (ROUNDS, REPEATS, REQUESTS):
        if part.over.startswith(kind):
            over = kind + _path(part.over.removeprefix(kind), names)
    return replace(
        part,
        group=names.get(part.group, part.group),
        over=over,
        source=names.get(part.source, part.source),
        asked=names.get(part.asked, part.asked),
        outer=None if part.outer is None else _part(part.outer, names),
    )


@dataclass(frozen=True, slots=True)
class _Renamed:
    """Calls a function by renamed parameters; can be pickled if the function can."""

    function: Callable[..., Any]
    names: Mapping[str, str]

    def __call__(self, **arguments: Any) -> Any:
        return self.function(**{self.names.get(name, name): value for name, value in arguments.items()})


@dataclass(frozen=True, slots=True)
class _AsyncRenamed(_Renamed):
    async def __call__(self, **arguments: Any) -> Any:
        return await self.function(**{self.names.get(name, name): value for name, value in arguments.items()})


def boxes_of(names: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if box := box_of(name):
            found.setdefault(box, []).append(number)
    return found
