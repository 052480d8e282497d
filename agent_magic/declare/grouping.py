"""Several items in one request, and each its own answer again.

```
%%agent label --each reviews --returns Label --group 5
Positive or negative? {{ item.text }}          label_request_0, ...: a request for five rows;  label_0, ...: a row each
```

The request is the step that costs: its prompt has that of each item, with a number, and its type is a list of the
declared one, each with the number of its item. So it is seen what is missing, doubled, out of order or of another
type; that alone is asked for once more, in the same conversation. Each item then is a step without a request, which
takes its answer out of the reply, or fails where there is none: the others stay.

With `--group auto` as many are put together as fit; see `size_of`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.each import OWN, REQUESTS, Part
from agent_magic.declare.returns import Returns
from agent_magic.declare.schema import of_item, schema_of, typical_chars
from agent_magic.declare.signature import NOTHING, Parameter
from agent_magic.declare.task import Task
from agent_magic.declare.validation import listed, must_be
from agent_magic.declare.values import Fields, as_json, plain
from agent_magic.errors import DeclarationError, InvalidAnswer, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.returns import Check
    from agent_magic.declare.step import Step

REQUEST: Final = "_request"
_HEAD: Final = (
    "Do what each of these items says, apart from the others. Give exactly one answer for each item, with its number."
)
_AGAIN: Final = "Answer again for these items alone, in the same form and with the same numbers; the others are kept."
_NOT_WITH: Final = ("repeat", "until", "when", "tools", "save", "cascade", "escalate", "ask", "cite")
"""What is about one answer, and a request has several."""


AUTO: Final = "auto"
MOST_TOGETHER: Final = 20
"""So many items `auto` puts together at most: the longer a list, the more of it a model leaves out. An assumption."""
MOST_CHARS: Final = 16_000
"""So long their prompts are together at most."""
FILL: Final = 0.5
"""So much of `max_tokens` their answers are to fill: lengths vary, and a reply that is cut loses all of them."""
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


def asking(prompt: str) -> str:
    """Return the template of a request for several items, by the prompt for one."""
    inside = f'<item number="{{{{ number }}}}">\n{prompt}\n</item>'
    return f"{_HEAD}\n{{% for number, key, item in item %}}\n{inside}\n{{% endfor %}}"


def check_group(agent: Agent) -> None:
    """Raise `DeclarationError` where an agent with `group` cannot be asked for several items at once."""
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
    other = next((option for option in _NOT_WITH if getattr(agent, option)), "")
    other = other or next(("attach" for name in listed(agent.attach) if name in OWN), "")
    if other:
        hint = "It is for one answer, and a request has several: leave one of them out."
        raise DeclarationError(f"{what} and {other}.", agent=agent.name, hint=hint)


def check_names(agent: Agent, declared: Mapping[str, Step]) -> None:
    """Raise `PlanError` where a prompt takes what another agent answers for the same item: each has its own."""
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
    take = partial(_take, part.number % asks + 1, returns, request.check)
    takes = (Parameter(part.asked, NOTHING, NOTHING),)
    name = f"{part.group}_{part.number}"
    return Task(name, take, priority=request.priority, part=part, returns=returns, takes=takes)


def _take(number: int, one: Returns, check: Check | None, /, **reply: list[Fields]) -> Any:
    """Return the answer for the item with a number, as plain data.

    Raises:
        InvalidAnswer: The reply has none, or none that fits.
    """
    (found,) = reply.values()
    answer, wrong = _chosen(number, found, one, check)
    if wrong:
        raise InvalidAnswer(f"{wrong}; it was asked for twice")
    return plain(answer)


def _chosen(number: int, found: Sequence[Fields], one: Returns, check: Check | None) -> tuple[Any, str]:
    """Return the first answer for an item that fits; or what is wrong with the last that does not.

    Never a later one in place of one that fits: asked for what is missing, a model may number anew.
    """
    wrong = "the reply has no answer of its type for this item"
    for answer in (each.answer for each in found if each.item == number):
        wrong = _wrong_with(answer, one, check)
        if not wrong:
            return answer, ""
    return None, wrong


def _wrong_with(answer: Any, one: Returns, check: Check | None) -> str:
    """Say what the class of an answer, or its check, does not like; empty where both take it."""
    value = answer
    try:
        if one.adapter is not None:
            value = one.value(as_json(answer if isinstance(answer, Fields) else {"value": answer}))
        if check is not None:
            check.run(value)
    except InvalidAnswer as error:
        return str(error)
    return ""


def taken_apart(agent: Step, text: str) -> tuple[int, InvalidAnswer | None]:
    """Return for how many items a reply has an answer that fits, and what is wrong with the others, if any."""
    items = agent.part.item if agent.part is not None else ()
    returns: Returns = agent.returns
    found: list[Fields] = returns.value(text) if text.strip() else []
    one = _one_of(agent)
    chosen = {number: _chosen(number, found, one, agent.check)[1] for number, *_ in items}
    wrong = "; ".join(f"item {number}: {why}" for number, why in chosen.items() if why)
    again = f"{_AGAIN} What is wrong: {wrong}."
    return sum(not why for why in chosen.values()), InvalidAnswer(wrong, again=again) if wrong else None
