"""Several items in one request, `--each reviews --returns Label --group 5`, each with its own answer.

The request, `label_request_0`, is the step with the cost: its prompt has each item's, numbered, and its type is a list
of the declared one, each with the number of its item. Missing, repeated and invalid answers are asked for again in the
same conversation: together while that settles some, at last one by one. Each item, `label_0`, is a step without a
request that takes its answer from the replies.

Nothing is used of a reply that numbers from 0 or adds items: no row ever shows the answer of another. Of items with the
same prompt one is asked; `apart` asks each, for `--identical each`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.answers.reading import Rows, numbered
from agent_magic.declare.answers.returns import Returns
from agent_magic.declare.answers.schema import not_by_item, schema_of, typical_chars
from agent_magic.declare.each import KEY, OWN, REQUESTS, Part, group_of
from agent_magic.declare.signature import NOTHING, Parameter
from agent_magic.declare.task import Task
from agent_magic.declare.values import fingerprint, is_frozen, single_use_in
from agent_magic.errors import AgentMagicError, InvalidAnswer, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.answers.returns import Check
    from agent_magic.declare.step import Step

REQUEST: Final = "_request"
_AGAIN: Final = "Answer again for these items alone, in the same form and with the same numbers; the others are kept."
_MISSING: Final = "the reply has no answer for this item"
_TWO: Final = "the reply has two answers for this item"
AUTO: Final = "auto"
MOST_TOGETHER: Final = 20
"""Maximum items of `auto`: the longer a list, the more a model leaves out. An assumption."""
MOST_CHARS: Final = 16_000
FILL: Final = 0.5
"""Share of `max_tokens` to fill: lengths vary, and a truncated reply loses all."""
CHARS_PER_TOKEN: Final = 4
AROUND: Final = 40
"""Characters around each answer in a reply: its number, and brackets."""


def size_of(agent: Agent, parts: Sequence[Part]) -> int:
    """Return the items per request: with `auto` as many as fit into a prompt and half of a reply, evenly."""
    if agent.group != AUTO:
        return int(agent.group or 1)
    typical = typical_chars(schema_of(agent.returns.schema)) / CHARS_PER_TOKEN
    per_answer = (agent.expect_out or typical) + AROUND / CHARS_PER_TOKEN
    longest = len(agent.prompt) + max((len(str(one.item)) for one in parts), default=0)
    reply = agent.max_tokens or DEFAULT_MAX_TOKENS
    most = max(1, min(int(FILL * reply / per_answer), MOST_CHARS // longest, MOST_TOGETHER))
    requests = max(1, math.ceil(len(parts) / most))
    return max(1, math.ceil(len(parts) / requests))


def check_names(agent: Agent, declared: Mapping[str, Step]) -> None:
    """Refuse another agent's answer for the same item in a prompt, since each item differs."""
    same = [name for name in agent.uses if name in declared and declared[name].each == agent.each]
    if same:
        message = f"Agent {agent.name!r} has group={agent.group} and takes {same[0]!r}, which has an answer per item."
        raise PlanError(f"{message} Leave group out, or put the answers beside the rows: rows.join(run.each(...)).")


def group_steps(agent: Agent, parts: Sequence[Part], values: Mapping[str, Any]) -> list[Step]:
    """Return requests and items' steps; of items with the same prompt one is asked."""
    firsts = dict["Hashable", int]()
    like = [firsts.setdefault(key, number) for number, key in enumerate(_prompts(agent, parts, values))]
    asking = [part for number, part in enumerate(parts) if like[number] == number]
    return _steps(agent, parts, like, size_of(agent, asking))


def _prompts(agent: Agent, parts: Sequence[Part], values: Mapping[str, Any]) -> Iterator[Hashable]:
    """Yield each item's prompt, or the item if the prompt has another step's answer."""
    own = {*agent.template.names} - OWN
    found = {name: values[name] for name in own if name in values}
    known = {name: one for name, one in found.items() if is_frozen(one) and single_use_in(one) is None}
    for number, part in enumerate(parts):
        try:
            if known.keys() == own:
                yield agent.template.render({**known, **part.values})
            else:
                yield fingerprint([part.item, part.key if KEY in agent.template.names else None]) or number
        except (AgentMagicError, KeyError):  # said where all prompts are checked
            yield number


def apart(steps: Iterable[Step]) -> list[Step]:
    """Return steps with each item asked, those with the same prompt too."""
    steps = list(steps)
    sharing = {one.part.group for one in steps if one.part is not None and one.part.shares}
    requests = {declared_name(one): one for one in reversed(steps) if one.part is not None and one.part.asks}
    found: list[Step] = []
    for step in steps:
        name = declared_name(step)
        if name not in sharing:
            found.append(step)
        elif (request := requests.pop(name, None)) is not None and request.part is not None:
            parts = [one.part for one in steps if one.part is not None and one.part.group == name]
            found += _steps(
                declared_agent(cast("Agent", request), request.part), parts, range(len(parts)), request.part.asks
            )
    return found


def _steps(agent: Agent, parts: Sequence[Part], like: Sequence[int], size: int) -> list[Step]:
    """Return requests and items' steps; `like` has the place of the item that asks for each."""
    asking = [place for place, first in enumerate(like) if first == place]
    requests = request_steps(agent, [parts[place] for place in asking], size)
    at = {place: divmod(number, size) for number, place in enumerate(asking)}
    found: list[Step] = [*requests]
    for place, (part, first) in enumerate(zip(parts, like, strict=True)):
        request, number = at[first]
        asked = replace(part, asked=requests[request].name, place=number + 1, shares=first != place)
        found.append(item_step(asked, requests[request]))
    return found


def request_steps(agent: Agent, parts: Sequence[Part], size: int) -> list[Agent]:
    group, over = f"{agent.name}{REQUEST}", f"{REQUESTS}{agent.each}"
    found: list[Agent] = []
    returns = agent.returns.of_several
    for number, first in enumerate(range(0, len(parts), size)):
        items = [[index, one.key, one.item] for index, one in enumerate(parts[first : first + size], 1)]
        part = Part(group, over, number, number, items, asks=size)
        options: dict[str, Any] = {"each": None, "group": None, "returns": returns, "part": part}
        expected = None if agent.expect_out is None else agent.expect_out * len(items)
        found.append(replace(agent, name=f"{group}_{number}", expect_out=expected, **options))
    return found


def declared_name(step: Step) -> str:
    """Return a step's declared name: of a request, its agent's."""
    name = group_of(step)
    return name.removesuffix(REQUEST) if step.part is not None and step.part.asks else name


def declared_agent(request: Agent, part: Part) -> Agent:
    each = part.over.removeprefix(REQUESTS)
    options: dict[str, Any] = {"each": each, "group": part.asks, "returns": _one_of(request), "part": None}
    expected = None if request.expect_out is None else round(request.expect_out / max(1, len(part.item)))
    return replace(request, name=part.group.removesuffix(REQUEST), expect_out=expected, **options)


def _one_of(request: Step) -> Returns:
    """Return the type of one answer: as declared, or of a record by the schema."""
    kind: Returns = request.returns
    return kind.each or Returns.of(not_by_item(schema_of(kind.schema)), agent=request.name)


def item_step(part: Part, request: Agent) -> Task:
    asks = request.part.asks if request.part is not None else 1
    returns = _one_of(request)
    numbers = range(1, 1 + (len(request.part.item) if request.part is not None else 1))
    number = part.place or part.number % asks + 1  # as older recordings have it
    take = partial(_take, number, numbers, returns, request.check)
    takes = (Parameter(part.asked, NOTHING, NOTHING),)
    name = f"{part.group}_{part.number}"
    return Task(name, take, priority=request.priority, part=part, returns=returns, takes=takes)


def _take(number: int, numbers: Sequence[int], one: Returns, check: Check | None, /, **reply: Rows) -> Any:
    (rows,) = reply.values()
    found = _settled(rows.text, numbers, one, check, only=number)
    if number not in found.kept:
        raise InvalidAnswer(f"{found.wrong[number]}; it was asked for again")
    return found.kept[number]


class _Settled:
    """Answers settled so far, and the numbers for the next reply, if asking again can help."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.kept, self.wrong, self.asked = dict[int, str](), dict.fromkeys(numbers, _MISSING), [*numbers]
        self._numbers, self._replies, self._in_vain = {*numbers}, 0, set[int]()

    def add(self, reply: Sequence[tuple[int | None, str]], wrong_with: Callable[[int, str], str]) -> None:
        before, done = len(self.kept), not self.wrong
        given = Counter(number for number, _ in reply)
        twice = {number for number, times in given.items() if times > 1}
        known = given.keys() <= {*self.asked} or given.keys() == self._numbers
        if not known or (twice and not given.keys() >= {*self.asked}):
            said = ", ".join("?" if number is None else str(number) for number, _ in reply)
            why = f"asked for {', '.join(map(str, self.asked))}, the reply numbers its answers {said}"
            self.wrong |= dict.fromkeys(self.asked, why)
            reply = ()
        for number, answer in cast("Sequence[tuple[int, str]]", reply):
            if done and self.kept.get(number) != answer:  # nothing was to be asked any more
                self.kept.pop(number, None)
                self.wrong[number] = _TWO
            elif not done and number in self.wrong:
                self.wrong[number] = _TWO if number in twice else wrong_with(number, answer)
                if not self.wrong[number]:
                    self.kept[number] = answer
                    del self.wrong[number]
        self._ask_next(some=len(self.kept) > before)

    def _ask_next(self, *, some: bool) -> None:
        """Request all open items the first time and while that settles some; then one by one."""
        self._replies += 1
        if len(self.asked) == 1 and self._replies > 1 and not some:
            self._in_vain.update(self.asked)
        left = [number for number in self.wrong if number not in self._in_vain]
        together, hopeless = some or self._replies == 1, not self.kept and self._in_vain
        self.asked = left if together else [] if hopeless else left[:1]


def _settled(text: str, numbers: Sequence[int], one: Returns, check: Check | None, only: int | None = None) -> _Settled:
    """Return the settled answers; a reply that has lost count is not used."""
    found, replies = _Settled(numbers), numbered(text)

    def wrong_with(number: int, answer: str) -> str:
        return _wrong_with(answer, one, check) if len(replies) > 1 or only in {None, number} else _MISSING

    for reply in replies:
        found.add(reply, wrong_with)
    return found


def _wrong_with(answer: str, one: Returns, check: Check | None) -> str:
    try:
        value = one.of_row(answer)
        if check is not None:
            check.run(value)
    except InvalidAnswer as error:
        return str(error)
    return ""


def taken_apart(agent: Step, text: str) -> tuple[int, InvalidAnswer | None]:
    # Its `again` has the rows to request again; it is empty if that cannot help.
    numbers = [number for number, *_ in (agent.part.item if agent.part is not None else ())]
    found = _settled(text, numbers, _one_of(agent), agent.check)
    if not found.wrong:
        return len(found.kept), None
    asked = {number: found.wrong[number] for number in found.asked}
    again = f"{_AGAIN} What is wrong: {_wrong_items(asked)}."
    return len(found.kept), InvalidAnswer(_wrong_items(found.wrong), again=again if asked else "")


def _wrong_items(wrong: Mapping[int, str]) -> str:
    reasons, items = {*wrong.values()}, ", ".join(map(str, wrong))
    if len(reasons) == 1 and len(wrong) > 1:
        return f"items {items}: {reasons.pop()}"
    return "; ".join(f"item {number}: {why}" for number, why in wrong.items())
