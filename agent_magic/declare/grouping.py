"""Several items in one request, each with its own answer.

```
%%agent label --each reviews --returns Label --group 5
Positive or negative? {{ item.text }}          label_request_0, ...: a request for five rows;  label_0, ...: a row each
```

The request is the step with the cost: its prompt has each item's, numbered, and its type is a list of the declared one,
each with the number of its item. So missing and invalid answers are detected, and only those are asked for once more in
the same conversation. Each item is a step without a request, which takes its answer from the reply, or fails without
one; the others stay.

A model that numbers from 0, repeats a number or adds items has lost count. Nothing of such a reply is used, and all its
items are asked again: no row ever shows the answer of another.

`--group auto` puts as many together as fit; see `size_of`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.answers.reading import Rows, numbered
from agent_magic.declare.answers.returns import Returns
from agent_magic.declare.answers.schema import of_item, schema_of, typical_chars
from agent_magic.declare.each import OWN, REQUESTS, Part
from agent_magic.declare.options import beside
from agent_magic.declare.signature import NOTHING, Parameter
from agent_magic.declare.task import Task
from agent_magic.declare.validation import listed, must_be
from agent_magic.errors import DeclarationError, InvalidAnswer, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.answers.returns import Check
    from agent_magic.declare.step import Step

REQUEST: Final = "_request"
_HEAD: Final = (
    "Do what each of these items says, apart from the others. Give exactly one answer for each item, with its number."
)
_AGAIN: Final = "Answer again for these items alone, in the same form and with the same numbers; the others are kept."
_MISSING: Final = "the reply has no answer for this item"
AUTO: Final = "auto"
MOST_TOGETHER: Final = 20
"""Maximum items of `auto`: the longer a list, the more a model leaves out. An assumption."""
MOST_CHARS: Final = 16_000
"""Maximum characters of their prompts together."""
FILL: Final = 0.5
"""Share of `max_tokens` to fill: lengths vary, and a truncated reply loses all."""
CHARS_PER_TOKEN: Final = 4
AROUND: Final = 40
"""The characters that a reply has around each answer: its number, and brackets."""


def size_of(agent: Agent, parts: Sequence[Part], max_tokens: int) -> int:
    """Return for how many items a request asks.

    With `auto` that is as many as fit into half of a reply, by what `expect_out` says one answer takes or else by its
    type, into a prompt of `MOST_CHARS`, and no more than `MOST_TOGETHER`; all requests then ask for about as many.

    Args:
        agent: The agent.
        parts: Its items.
        max_tokens: The most output tokens of its replies.
    """
    if agent.group != AUTO:
        return int(agent.group or 1)
    typical = typical_chars(schema_of(agent.returns.schema)) / CHARS_PER_TOKEN
    per_answer = (agent.expect_out or typical) + AROUND / CHARS_PER_TOKEN
    longest = len(agent.prompt) + max((len(str(one.item)) for one in parts), default=0)
    most = max(1, min(int(FILL * max_tokens / per_answer), MOST_CHARS // longest, MOST_TOGETHER))
    requests = max(1, math.ceil(len(parts) / most))
    return max(1, math.ceil(len(parts) / requests))


def asks_for_length(agent: Agent) -> bool:
    """Return True if the group size depends on an unknown length of answers."""
    return agent.group == AUTO and agent.expect_out is None


def with_length(agent: Agent, tokens: int) -> Agent:
    """Return an agent with this expected length of one item's answer."""
    return replace(agent, expect_out=tokens)


def asking(prompt: str) -> str:
    """Return the template of a request for several items, by the prompt for one."""
    inside = f'<item number="{{{{ number }}}}">\n{prompt}\n</item>'
    return f"{_HEAD}\n{{% for number, key, item in item %}}\n{inside}\n{{% endfor %}}"


def check_group(agent: Agent) -> None:
    """Raise `DeclarationError` if an agent with `group` cannot be asked for several items at once."""
    if agent.group is None:
        return
    group: Any = agent.group
    if group != AUTO and (not isinstance(group, int) or isinstance(group, bool) or group < 1):
        error = partial(DeclarationError, agent=agent.name)
        raise must_be(f"group of agent {agent.name!r}", "an integer >= 1, or 'auto'", group, error=error)
    what = f"Agent {agent.name!r} has group={agent.group}"
    if agent.each is None:
        raise DeclarationError(f"{what} and no each.", agent=agent.name, hint="Say of what: --each reviews --group 5.")
    if agent.returns is None:
        hint = "Give the type of one answer, --returns str or a class of yours: texts could not be told apart."
        raise DeclarationError(f"{what} and answers with text.", agent=agent.name, hint=hint)
    other = beside(agent, "group")
    other = other or next(("attach" for name in listed(agent.attach) if name in OWN), "")
    if other:
        hint = "It is for one answer, and a request has several: leave one of them out."
        raise DeclarationError(f"{what} and {other}.", agent=agent.name, hint=hint)


def check_names(agent: Agent, declared: Mapping[str, Step]) -> None:
    """Raise `PlanError` if a prompt uses another agent's answer for the same item, since each item differs."""
    same = [name for name in agent.uses if name in declared and declared[name].each == agent.each]
    if same:
        message = f"Agent {agent.name!r} has group={agent.group} and takes {same[0]!r}, which has an answer per item."
        raise PlanError(f"{message} Leave group out, or put the answers beside the rows: rows.join(run.each(...)).")


def request_steps(agent: Agent, parts: Sequence[Part], size: int) -> list[Agent]:
    """Return the requests of an agent.

    Args:
        agent: The agent.
        parts: Its items.
        size: For how many of them each asks at most.
    """
    group, over = f"{agent.name}{REQUEST}", f"{REQUESTS}{agent.each}"
    found: list[Agent] = []
    returns = agent.returns.of_several
    for number, first in enumerate(range(0, len(parts), size)):
        items = [[place, one.key, one.item] for place, one in enumerate(parts[first : first + size], 1)]
        part = Part(group, over, number, number, items, asks=size)
        options: dict[str, Any] = {"each": None, "group": None, "returns": returns, "part": part}
        expected = None if agent.expect_out is None else agent.expect_out * len(items)
        found.append(replace(agent, name=f"{group}_{number}", expect_out=expected, **options))
    return found


def declared_agent(request: Agent, part: Part) -> Agent:
    """Return the agent that a request for several items was declared by."""
    each = part.over.removeprefix(REQUESTS)
    options: dict[str, Any] = {"each": each, "group": part.asks, "returns": _one_of(request), "part": None}
    expected = None if request.expect_out is None else round(request.expect_out / max(1, len(part.item)))
    return replace(request, name=part.group.removesuffix(REQUEST), expect_out=expected, **options)


def _one_of(request: Step) -> Returns:
    """Return the type of one answer: as it was declared, or of a record by the schema."""
    kind: Returns = request.returns
    return kind.each or Returns.of(of_item(schema_of(kind.schema)), agent=request.name)


def item_steps(requests: Sequence[Agent], parts: Sequence[Part]) -> list[Task]:
    """Return the steps of the items: each takes its answer out of the reply of its request."""
    of = [request for request in requests for _ in (request.part.item if request.part is not None else ())]
    return [item_step(replace(part, asked=one.name), one) for one, part in zip(of, parts, strict=True)]


def item_step(part: Part, request: Agent) -> Task:
    """Return the step of one item.

    Args:
        part: The item; its `asked` is the name of the request.
        request: What asks for it.
    """
    asks = request.part.asks if request.part is not None else 1
    returns = _one_of(request)
    numbers = range(1, 1 + (len(request.part.item) if request.part is not None else 1))
    take = partial(_take, part.number % asks + 1, numbers, returns, request.check)
    takes = (Parameter(part.asked, NOTHING, NOTHING),)
    name = f"{part.group}_{part.number}"
    return Task(name, take, priority=request.priority, part=part, returns=returns, takes=takes)


def _take(number: int, numbers: Sequence[int], one: Returns, check: Check | None, /, **reply: Rows) -> Any:
    """Return the answer for the item with a number, as the model wrote it: the JSON of one answer.

    Raises:
        InvalidAnswer: The reply has none, or none that fits.
    """
    (rows,) = reply.values()
    kept, wrong = _settled(rows.text, numbers, one, check, only=number)
    if number not in kept:
        raise InvalidAnswer(f"{wrong[number]}; it was asked for twice")
    return kept[number]


def _settled(
    text: str, numbers: Sequence[int], one: Returns, check: Check | None, only: int | None = None
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the JSON of the accepted answers by item number, and the errors of the others.

    A reply is read if each of its numbers occurs once and was asked for: in the first request all, later the ones with
    errors. A later reply may also answer all; accepted answers stay.

    Args:
        text: The replies.
        numbers: The numbers of the items.
        one: The type of one answer.
        check: The check of one answer.
        only: The only number that matters; with one reply, the others need not be checked.
    """
    kept, wrong = dict[int, str](), dict.fromkeys(numbers, _MISSING)
    replies = numbered(text)
    for reply in replies:
        given = [number for number, _ in reply]
        if len({*given}) < len(given) or not ({*given} <= wrong.keys() or {*given} == {*numbers}):
            asked = ", ".join(map(str, wrong))
            said = ", ".join("?" if number is None else str(number) for number in given)
            wrong = dict.fromkeys(wrong, f"asked for {asked}, the reply numbers its answers {said}")
            continue
        for number, answer in cast("list[Any]", reply):
            if not wrong and kept[number] != answer:  # nothing was to be asked any more
                wrong[number] = "the reply has two different answers for this item"
                del kept[number]
            elif number in wrong and (len(replies) > 1 or only in {None, number}):
                wrong[number] = _wrong_with(answer, one, check)
                if not wrong[number]:
                    kept[number] = answer
                    del wrong[number]
    return kept, wrong


def _wrong_with(answer: str, one: Returns, check: Check | None) -> str:
    """Return the error of an answer by its class or check; empty if both accept it."""
    try:
        value = one.of_row(answer)
        if check is not None:
            check.run(value)
    except InvalidAnswer as error:
        return str(error)
    return ""


def taken_apart(agent: Step, text: str) -> tuple[int, InvalidAnswer | None]:
    """Return the number of accepted answers in a reply, and the error of the others, if any.

    Raises:
        InvalidAnswer: It has no JSON.
    """
    numbers = [number for number, *_ in (agent.part.item if agent.part is not None else ())]
    kept, faults = _settled(text, numbers, _one_of(agent), agent.check)
    if not faults:
        return len(kept), None
    reasons = {*faults.values()}
    items = ", ".join(map(str, faults))
    wrong = (
        f"items {items}: {reasons.pop()}"
        if len(reasons) == 1 and len(faults) > 1
        else "; ".join(f"item {number}: {why}" for number, why in faults.items())
    )
    return len(kept), InvalidAnswer(wrong, again=f"{_AGAIN} What is wrong: {wrong}.")
