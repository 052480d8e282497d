"""Decisions during a run: whether a step is needed when its parents are done.

If its condition is false, a step is *skipped*, with every step that depends on it. If it was reserved and is not needed
(a place without an item, a round after the loop's condition held), it is *unused*, and has no row in frames.

A step does not depend on members of a group it uses as a whole, rounds of a loop it is not in, steps it only waits for,
and names its prompt uses by `default` or `is defined`. Decisions are functions of answers alone, so a replay decides
the same.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from agent_magic.declare.each import ITEM, KEY, firsts, view_of
from agent_magic.declare.template import condition_of, holds
from agent_magic.declare.values import read_items
from agent_magic.errors import AgentMagicError, PlanError, shown_value

if TYPE_CHECKING:
    from agent_magic.declare.each import Part
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.declare.template import Template

CONDITION: Final = "Condition"
SKIPPED: Final = "Skipped"
"""Kind of steps skipped because another one did not succeed."""
UNUSED: Final = "Unused"


class _Missing: ...


MISSING: Final = _Missing()
"""The value of a name if its step was left out."""


class Left(NamedTuple):
    """Why a step does not run: `kind` is `CONDITION`, `UNUSED`, or the class of the error."""

    status: Literal["skipped", "unused", "failed"]
    why: str
    kind: str


class Flow:
    """Decides for the steps of one plan.

    Attributes:
        decides: The steps that may be left out, decided when their parents are done.
        optional: Per step, the parents it can do without.
        ahead_of: Parents that a step does not wait for, since it begins early.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self.names = plan, plan.names
        self._items: dict[tuple[str, tuple[str, ...]], tuple[Any, list[tuple[Any, Any]] | str]] = {}
        numbers = firsts(range(len(plan)), plan.dag.alike)
        self._steps = steps = [*zip(numbers, plan.firsts, strict=True)]
        decides = {number for number, one in steps if one.when is not None or is_reserved(one)}
        decides.update(*plan.dag.alike)
        self.races = {step: plan.dag.parents[step] for step, one in steps if one.race}
        may, optional = decides.union(*self.races.values()), dict[int, frozenset[int]]()
        alone = set(decides)  # those that may be left out although no other one has won
        alike = {one.start: one for one in plan.dag.alike}
        for step in reversed(plan.dag.backwards):
            unsure = may.intersection(plan.dag.parents[step])
            if not unsure:
                continue
            can, these = self._can_miss(step, unsure), alike.get(step, (step,))
            if can:
                optional.update(dict.fromkeys(these, frozenset(can)))
                decides.update(these)
            if unsure - can or any(name in plan.groups for names, _ in self._uses(step) for name in names):
                may.update(these)  # it needs one, or a group: see `_without_group`
                alone.update(these)
            elif step in self.races and alone.issuperset(plan.dag.parents[step]):
                may.add(step)
                alone.add(step)
        self.decides, self.optional = frozenset(decides | may), optional
        self._beside: dict[int, range] = {}
        for numbers in plan.dag.alike:
            self._beside |= dict.fromkeys(numbers if numbers.start not in optional else (), numbers)
        self._spare: dict[range, tuple[str, Any, int, Left]] = {}
        spans = {step: alike.get(step, (step,)) for step, one in steps if one.speculate}
        speculating = [one for these in spans.values() for one in these]
        self.ahead_of = {step: self._only_decide(step) for step in speculating}

    def _can_miss(self, step: int, unsure: set[int]) -> set[int]:
        plan, agent = self._plan, self._plan.agents[step]
        needed, can = set[int](), set[int]()
        for names, can_miss in self._uses(step):
            for name in names:
                if name in plan.groups:
                    view = view_of(plan.agents, plan.groups[name], agent)
                    found, whole = view.members, view.kind != "same"
                else:
                    found, whole = ([plan.index[name]] if name in plan.index else []), False
                (can if whole or name in can_miss else needed).update(found)
        part = agent.part
        if part is not None and part.source:
            needed.update(self._numbers(step, part.source))
        if part is not None and part.is_head and part.number > 1:
            needed.update(one for name in _until(plan, step).names for one in self._numbers(step, name))
        only_after = set(plan.dag.parents[step]) - needed - can
        return unsure & (can | only_after) - needed

    def _only_decide(self, step: int) -> frozenset[int]:
        """Return the parents that only a step's condition is about; refuse one with none."""
        agent = self._plan.agents[step]
        condition = condition_of(agent.when or "", agent.name).names
        decide = {one for name in condition for one in self._numbers(step, name)}
        needed = {one for name in (*agent.uses, *agent.after) for one in self._numbers(step, name)}
        only = decide.intersection(self._plan.dag.parents[step]) - needed
        if not only:
            message = (
                f"{agent.name!r} has speculate, and cannot begin before its condition, {agent.when!r}, is decided:"
            )
            raise PlanError(f"{message} its prompt uses the same answers. Leave speculate out.")
        return frozenset(only)

    def _uses(self, step: int) -> list[tuple[tuple[str, ...], frozenset[str]]]:
        """Return the names in a step's prompt and condition, and those each can do without."""
        agent = self._plan.agents[step]
        found = [(agent.uses, agent.can_miss)]
        if agent.when is not None:
            condition = condition_of(agent.when, agent.name)
            found.append((condition.names, condition.can_miss))
        return found

    def _numbers(self, step: int, name: str) -> list[int]:
        plan = self._plan
        if name in plan.groups:
            return list(view_of(plan.agents, plan.groups[name], plan.agents[step]).members)
        return [plan.index[name]] if name in plan.index else []

    def follows(self, step: int, left: Mapping[int, Left]) -> Left | None:
        """Return why a step is left out because of others; `None` if it is not."""
        optional = self.optional.get(step, ())
        parents = self._plan.dag.parents[step] if left else ()
        if step in self.races and all(one in left for one in parents):
            optional = ()
        why = next((left[one] for one in parents if one in left and one not in optional), None)
        return None if why is None else self._with_its_status(step, why)

    def _with_its_status(self, step: int, why: Left) -> Left:
        return why._replace(status="unused" if is_reserved(self._plan.agents[step]) else "skipped")

    def choose(self, step: int, answers: Mapping[str, Any], left: Mapping[int, Left]) -> Left | None:
        """Return why a step does not run although its parents are done; `None` if it does."""
        if step in self._beside and (spare := self._is_spare(step, answers, left)) is not None:
            return spare
        agent = self._plan.agents[step]
        try:
            return (
                self.follows(step, left)
                or self._without_round(step, answers, left)
                or self._without_group(step, left)
                or self._without_item(step, answers)
                or self._without_condition(step, answers)
            )
        except AgentMagicError as error:
            return Left("failed", f"{agent.name!r} cannot decide: {error}", type(error).__name__)
        except CancelledError:  # the user stopped the code of a condition, which may never end by itself
            return Left("failed", f"{agent.name!r} cannot decide: its condition was stopped", "Stopped")

    def _without_round(self, step: int, answers: Mapping[str, Any], left: Mapping[int, Left]) -> Left | None:
        plan, part = self._plan, self._plan.agents[step].part
        if part is None or part.number < 2 or not part.rounds:
            return None
        for parent in plan.dag.parents[step]:
            other = plan.agents[parent].part
            if parent in left and other is not None and (other.over, other.number) == (part.over, part.number):
                return left[parent]._replace(status="unused")
        if part.is_head:
            condition = _until(plan, step)
            if holds(condition, self._values(step, condition, answers)):
                said = f"{plan.agents[step].until} holds after round {part.number - 1}"
                return Left("unused", said, UNUSED)
        return None

    def least(self) -> dict[int, Left]:
        """Return the steps that the smallest run leaves out: one round, one item, no condition true."""
        found: dict[int, Left] = {}
        for step, one in enumerate(self._plan.agents):
            if is_reserved(one) and (one.part is None or one.hedges or one.part.place > 0 or one.part.rounds):
                found[step] = Left("unused", "not needed at the least", UNUSED)
            elif one.when is not None:
                found[step] = Left("skipped", f"condition is false: {one.when}", CONDITION)
        return self._following(found)

    def _following(self, left: Mapping[int, Left]) -> dict[int, Left]:
        """Add places for the items of left-out places, and dependent steps."""
        found = dict(left)
        for step in self._plan.dag.order:
            if step in self.decides and step not in found and (why := self.follows(step, found)) is not None:
                found[step] = why
        return found

    def at_most(self, rounds: int | None, most: int | None) -> dict[int, Left]:
        found: dict[int, Left] = {}
        for step, one in enumerate(self._plan.agents):
            part = one.part
            if part is not None and rounds is not None and part.rounds and part.number > rounds:
                found[step] = Left("unused", f"at most {rounds} rounds", UNUSED)
            elif part is not None and most is not None and part.source and part.place >= most:
                found[step] = Left("unused", f"at most {most} items", UNUSED)
        return found

    def likely(self, answered: Mapping[str, int], rounds: Mapping[str, int]) -> tuple[dict[int, Left], int]:
        """Return what most earlier runs left out, and the number of steps with evidence.

        A place is needed if it was answered at least half as often as the first of its kind, and a condition holds if
        its step was answered at least half as often as the steps it uses.
        """
        agents, found, known = self._plan.agents, dict[int, Left](), 0
        firsts = {_kind(one.part): one.name for one in agents if one.part is not None and _is_first(one.part)}
        for step, one in enumerate(agents):
            basis: list[str] = []
            if one.hedges is not None:  # of those nothing is known in most cases, and then they are not
                if 2 * answered.get(one.name, 0) <= answered.get(one.hedges, 0):
                    found[step] = Left("unused", "rarely needed", UNUSED)
                continue
            if one.part is not None and one.part.is_reserved and not _is_first(one.part):
                basis, left = [firsts.get(_kind(one.part), "")], Left("unused", "rarely needed before", UNUSED)
            elif one.when is not None:
                basis = [agents[parent].name for parent in self._plan.dag.parents[step]]
                left = Left("skipped", f"condition was mostly false: {one.when}", CONDITION)
            else:
                continue
            asked = max((answered.get(name, 0) for name in basis), default=0)
            if one.part is not None and one.part.rounds:
                most = rounds.get(one.part.group, 0)
                if 0 < most < one.part.number and 2 * answered.get(f"{one.part.group}_{most}", 0) >= asked:
                    continue
            known += asked > 0
            if 2 * answered.get(one.name, 0) < asked:
                found[step] = left
        return self._following(found), known

    def unmet(self, answers: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return loops that missed their condition in the last round: the first step, and the condition."""
        # A last round that has not ended or has failed excludes its loop.
        plan, found = self._plan, list[tuple[str, str]]()
        for step, one in self._steps:
            if one.part is None or not one.part.is_head or one.part.number < one.part.rounds or one.name not in answers:
                continue
            known: dict[str, Any] = {}
            try:
                for name in _until(plan, step).names:
                    last = plan.groups.get(name, {}).get(one.part.rounds)
                    known[name] = plan.meaning(step, name, answers) if last is None else answers[plan.names[last]]
                met = holds(_until(plan, step), known)
            except (KeyError, AgentMagicError):  # an answer that it is about is missing, or no value
                continue
            found += [] if met else [(one.part.group, one.until or "")]
        return found

    def _without_group(self, step: int, left: Mapping[int, Left]) -> Left | None:
        """Skip steps that use a group of which all is left out by a condition."""
        plan = self._plan
        for names, can_miss in self._uses(step) if step in self.optional else ():
            for name in names:
                view = view_of(plan.agents, plan.groups[name], plan.agents[step]) if name in plan.groups else None
                if view is None or (view.kind == "same" and name in can_miss):  # of its item, and it can do without
                    continue
                members = view.members
                why = next((left[one] for one in members if one in left and left[one].kind == CONDITION), None)
                if why is not None and all(one in left for one in members):
                    return self._with_its_status(step, why)
        return None

    def _items_at(self, step: int, answers: Mapping[str, Any]) -> list[tuple[Any, Any]] | str:
        """Read each source of places once: keys and items, or an error in words."""
        agent = self._plan.agents[step]
        part = agent.part
        if part is None:
            return []
        value = self._plan.meaning(step, part.source, answers)
        for name in part.path:
            named = isinstance(value, Mapping)
            value = cast("Mapping[str, Any]", value).get(name) if named else getattr(value, name, None)
        known = self._items.get((part.source, part.path))
        if known is None or known[0] is not value:
            known = self._items[part.source, part.path] = value, _items_of(value, part, agent.name)
        return known[1]

    def item_of(self, step: int, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return a place's item and key; a placeholder for an answer counts as one item."""
        part, found = self._plan.agents[step].part, self._items_at(step, answers)
        if part is None or isinstance(found, str) or not found:
            return {ITEM: "(item)", KEY: 0 if part is None else part.place}
        key, item = found[min(part.place, len(found) - 1)]
        return {ITEM: item, KEY: key}

    def _without_item(self, step: int, answers: Mapping[str, Any]) -> Left | None:
        """Leave out a place without an item; too many items are an error of the first place."""
        part = self._plan.agents[step].part
        if part is None or not part.source:
            return None
        found = self._items_at(step, answers)
        if isinstance(found, str):
            return Left("failed", found, "PlanError") if part.place == 0 else Left("unused", found, UNUSED)
        if len(found) > part.most:
            why = f"{part.over} has {len(found)} items, and most={part.most}: none of them was run. Raise --most."
            return Left("failed", why, "TooManyItems") if part.place == 0 else Left("unused", why, UNUSED)
        if part.place < len(found):
            return None
        many = "1 item" if len(found) == 1 else f"{len(found)} items"
        why = Left("unused", f"{part.over} has {many}", UNUSED)
        if step in self._beside and part.source in answers and part.source not in self._plan.groups:
            self._spare[self._beside[step]] = part.source, answers[part.source], step, why
        return why

    def _is_spare(self, step: int, answers: Mapping[str, Any], left: Mapping[int, Left]) -> Left | None:
        """Return why a place has no item if an earlier one has none."""
        known = self._spare.get(self._beside[step])
        if known is None or step < known[2] or answers.get(known[0]) is not known[1]:
            return None
        return known[3] if left.keys().isdisjoint(self._plan.dag.parents[step]) else None

    def _without_condition(self, step: int, answers: Mapping[str, Any]) -> Left | None:
        agent = self._plan.agents[step]
        if agent.when is None:
            return None
        condition = condition_of(agent.when, agent.name)
        if holds(condition, self._values(step, condition, answers)):
            return None
        return Left("skipped", f"condition is false: {agent.when}", CONDITION)

    def _values(self, step: int, condition: Template, answers: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: self._plan.meaning(step, name, answers) for name in condition.names}
        return {name: value for name, value in values.items() if value is not MISSING}


def is_reserved(step: Step) -> bool:
    """Return whether the need for a step is unknown before the run: a place, a later round, a hedge."""
    return step.hedges is not None or (step.part is not None and step.part.is_reserved)


def _is_first(part: Part) -> bool:
    return part.number == 1 if part.rounds else part.place == 0


def _kind(part: Part) -> tuple[str, str]:
    """Return what places, or rounds, that are needed one after another have in common."""
    return part.group, part.source


def _until(plan: Plan, step: int) -> Template:
    agent = plan.agents[step]
    return condition_of(agent.until or "", agent.name, "until")


def _items_of(value: Any, part: Part, agent: str) -> list[tuple[Any, Any]] | str:
    if value is None or isinstance(value, str | int | float):
        return f"{part.over} is no list: {shown_value(value)}"
    if isinstance(value, list):
        return list(enumerate(cast("list[Any]", value)))
    return read_items(value, part.over, agent, may_be_empty=True).found
