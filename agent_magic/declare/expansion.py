"""Expansion of declarations to steps: one per item, a place per possible item of an answer, a step per round.

```
%%agent work --each planner --most 40           work_0 ... work_39: places for the items of an answer
Do this: {{ item }}

%%agent draft --until "critic.ok" --rounds 3    draft_1, critic_1, draft_2, ...: the rounds of a loop
Sum up {{ data }}. {% if critic %}Your critic said: {{ critic.notes }}{% endif %}
```

A plan is frozen before it runs: places for later items are reserved, up to a required maximum, so estimates, budgets,
replays and forecasts know all that can happen.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.agent import Agent
from agent_magic.declare.each import REPEATS, ROUNDS, Part, members_of, places_of, warn_of_labels
from agent_magic.declare.grouping import check_names, group_steps
from agent_magic.declare.race import hedged_steps
from agent_magic.declare.step import is_step
from agent_magic.declare.template import condition_of
from agent_magic.declare.values import frozen, read_items
from agent_magic.errors import PlanError, UndefinedVariable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.step import Step
    from agent_magic.declare.values.items import Items

DEEPEST: Final = 2
_OF_PLACES = frozenset({"name", "part", "template"})


def expand(agents: Sequence[Step], values: Mapping[str, Any]) -> tuple[tuple[Step, ...], list[range]]:
    if not any(_stands_for_several(one) for one in agents):
        return tuple(agents), _places_in(agents)
    return _Expansion(agents, values).steps()


def _stands_for_several(one: Step) -> bool:
    if one.hedge is not None and one.hedges is None:
        return True
    return one.part is None and not (one.each is one.until is one.repeat is None)


def _places_in(steps: Sequence[Step]) -> list[range]:
    found, last = list[range](), None
    for number, one in enumerate(steps):
        if one.part is None or not one.part.source:
            last = None
        elif last is not None and _is_next(one, last):
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
            last = one
    return [one for one in found if len(one) > 1]


def _is_next(one: Step, first: Step) -> bool:
    part, other = one.part, first.part
    if part is None or other is None or type(one) is not type(first):
        return False
    if (part.group, part.source, part.path, part.most) != (other.group, other.source, other.path, other.most):
        return False
    return all(
        getattr(one, each.name) == getattr(first, each.name) for each in fields(one) if each.name not in _OF_PLACES
    )


class _Expansion:
    def __init__(self, agents: Sequence[Step], values: Mapping[str, Any]) -> None:
        self.values = values
        self.declared = {agent.name: agent for agent in agents}
        self._agents = agents
        self._rounds = _rounds_of(agents, self.declared)
        self._made: dict[str, list[Step]] = {}
        self._making: list[str] = []
        self._items: dict[str, Items] = {}
        self._shown: dict[str, list[tuple[Any, Any]]] = {}

    def steps(self) -> tuple[tuple[Step, ...], list[range]]:
        found, places = list["Step"](), list[range]()
        for agent in self._agents:
            here = len(found)
            found += self._steps_of(agent)
            most = agent.most or 0
            if agent.each is not None and most and self.declared[agent.name] is agent:
                places += [range(one, one + most) for one in range(here, len(found), most)]
        return tuple(found), places

    def _steps_of(self, agent: Step) -> list[Step]:
        if self.declared[agent.name] is not agent:  # one of two with one name, which the plan will say
            return [agent]
        if agent.name not in self._made:
            self._made[agent.name] = self._make(agent)
        return self._made[agent.name]

    def _make(self, agent: Step) -> list[Step]:
        if agent.name in self._rounds:
            head = self._rounds[agent.name]
            rounds = self.declared[head].rounds or 0
            parts = [Part(agent.name, f"{ROUNDS}{head}", one, one, None, rounds=rounds) for one in range(1, rounds + 1)]
            return [*members_of(agent, parts)]
        if agent.repeat is not None:
            parts = [Part(agent.name, f"{REPEATS}{agent.name}", one, one, None) for one in range(agent.repeat)]
            return [*members_of(agent, parts, repeat=None)]
        over = agent.each
        if over is None:
            return [agent] if agent.hedge is None or agent.hedges else hedged_steps(agent, [agent])
        if over.partition(".")[0] in self.declared and (over not in self.values or is_step(self.values[over])):
            return self._places(agent, over)
        return self._one_each(agent, over)

    def _one_each(self, agent: Step, over: str) -> list[Step]:
        if over not in self._items:
            if over not in self.values:
                raise UndefinedVariable(over, agent=agent.name, known=self.values, what="each of")
            self._items[over] = read_items(self.values[over], over, agent.name)
            warn_of_labels(over, len(self._items[over].found), self._items[over].labels)
        if agent.most is not None:
            message = f"Agent {agent.name!r} has most={agent.most}, and {over!r} is a value, whose items are counted."
            raise PlanError(f"{message} Leave it out.")
        items, levels, dtypes, _ = self._items[over]
        if not agent.is_task:  # a function takes a picture as it is
            if over not in self._shown:
                self._shown[over] = [(key, frozen(item, f"{over} {key}")) for key, item in items]
            items = self._shown[over]
        parts = [Part(agent.name, over, number, *one, levels, dtypes=dtypes) for number, one in enumerate(items)]
        if isinstance(agent, Agent) and agent.group is not None:
            check_names(agent, self.declared)
            values = {name: one for name, one in self.values.items() if name not in self.declared and not is_step(one)}
            return group_steps(agent, parts, values)
        if isinstance(agent, Agent) and agent.hedge is not None:
            return hedged_steps(agent, members_of(agent, parts, each=None))
        return [*members_of(agent, parts, each=None)]

    def _places(self, agent: Step, over: str) -> list[Step]:
        base, *path = over.split(".")
        source = self.declared[base]
        check_places(agent, over, source)
        if base in self._making or base == agent.name:
            raise PlanError(f"Agent {agent.name!r} is declared for each of what it is needed for itself: {over!r}.")
        self._making.append(agent.name)
        sources = self._steps_of(source)
        self._making.pop()
        of_loop = base in self._rounds  # the answer of its last round
        depth = 1 if of_loop or sources[0].part is None else 1 + _depth(sources[0].part)
        if depth > DEEPEST:
            message = f"Agent {agent.name!r} is declared for each of {over!r}: maps go {DEEPEST} deep, not deeper."
            raise PlanError(f"{message} Join the items in a task, and declare it for each of those.")
        most, found = agent.most or 0, list["Step"]()
        for one in sources[:1] if of_loop else sources:
            name, outer = (base, None) if of_loop else (one.name, one.part)
            number, options = len(found), {"source": name, "path": tuple(path), "most": most, "outer": outer}
            first = Part(agent.name, over, number, number, None, **cast("Any", options))
            found += places_of(agent, first, each=None)
        return found


def check_places(agent: Step, over: str, source: Step) -> None:
    """Refuse a step that cannot be declared for each item of another one's answer."""
    base = source.name
    for option in ("group", "hedge"):
        if (given := getattr(agent, option)) is not None:
            message = f"Agent {agent.name!r} has {option}={given} and each={over!r}, the items of an answer."
            value = f"items = run[{base!r}].value{''.join(f'.{one}' for one in over.split('.')[1:])}"
            hint = f"It is for the items of a value. Run {base!r} first, take its list in a cell"
            raise PlanError(f"{message} {hint}, {value}, and write --each items --{option} {given}.")
    if agent.most is None:
        message = f"Agent {agent.name!r} is declared for each of {over!r}, which is what {base!r} returns."
        hint = "Say how many items there may be: --most 40, or most=40."
        if source.each is not None:
            hint += f" For one per item of {source.each!r}, side by side with {base!r}, write --each {source.each}."
        raise PlanError(f"{message} {hint}")
    if not source.is_task and source.returns is None:
        message = f"Agent {agent.name!r} is declared for each of {over!r}, and {base!r} answers with text."
        raise PlanError(f"{message} Have it answer with a list: --returns list[str].")


def _depth(part: Part) -> int:
    own = 1 if part.source else 0
    return own if part.outer is None else own + _depth(part.outer)


def names_before(step: Step) -> set[str]:
    over = () if step.each is None else (step.each.partition(".")[0],)
    return {*step.uses, *step.after, *over, *(name for one in (step.when,) if one for name in condition_of(one).names)}


def _rounds_of(agents: Sequence[Step], declared: Mapping[str, Step]) -> dict[str, str]:
    """Return the steps from a loop's first step to its condition, each with that first step."""
    found: dict[str, str] = {}
    heads = [agent for agent in agents if agent.until is not None and agent.part is None]
    before = {agent.name: names_before(agent) & declared.keys() for agent in agents} if heads else {}
    for head in heads:
        forward = _forward(head.name, before)
        after_head = _after(head.name, forward)
        ends = set(condition_of(head.until or "").names) & after_head
        if not ends:
            message = f"The loop of {head.name!r} ends on {head.until!r}, which does not depend on {head.name!r}."
            raise PlanError(f"{message} It would never change: name a step that uses {{{{ {head.name} }}}}.")
        body = {name for name in after_head if name in ends or ends & _after(name, forward)}
        for name in sorted(body, key=list(declared).index):
            if name in found or (declared[name].until is not None and name != head.name):
                other = found.get(name, name)
                message = f"The loops of {head.name!r} and {other!r} have {name!r} in common."
                raise PlanError(f"{message} Loops cannot be nested: run the inner one as one agent with check=.")
            one = declared[name]
            if one.each is not None or one.repeat is not None or one.hedge is not None:
                over = "a hedge" if one.hedge else "repeat" if one.each is None else f"each of {one.each!r}"
                message = f"{name!r} is in the loop of {head.name!r} and declared with {over}."
                hint = "Rounds are of single steps. In the loop ask for all items in one answer, --returns list[...]"
                raise PlanError(f"{message} {hint}, or put {name!r} behind it: it then takes the last round.")
            found[name] = head.name
    return found


def in_rounds(head: str, before: Mapping[str, set[str]]) -> set[str]:
    return _after(head, _forward(head, before))


def _forward(head: str, before: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return who uses what in one round, without what comes from the round before."""
    return {name: set() if name == head else names - {name} for name, names in before.items()}


def _after(start: str, before: Mapping[str, set[str]]) -> set[str]:
    found, grown = {start}, True
    while grown:
        more = {name for name, names in before.items() if name not in found and names & found}
        grown = bool(more)
        found |= more
    return found
