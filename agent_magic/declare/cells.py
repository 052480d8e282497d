r"""Agents as text: the options of a `%%agent` line, and the sections of a `%%agents` cell.

```
%%agents
What the plan is for: a comment, sent to nobody.

## facts (researcher) --model claude-sonnet-5-5
What is known about {{ topic }}?

## report (writer) --after review
Write a report of these facts: {{ facts }}
```

A heading is `## `, a name, a role in brackets if there is one, and options as in `%%agent`. The prompt is what stands
below, without the empty lines around it. As in Markdown, up to three blanks may stand before a heading. `#` and `###`
are prompt; a line of a prompt that begins with `## ` is written `\## `.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.agent import NAMES, Agent
from agent_magic.declare.condition import FLOW
from agent_magic.declare.each import REPEATS
from agent_magic.declare.grouping import declared_agent
from agent_magic.declare.hedge import declared_hedge
from agent_magic.errors import DeclarationError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent_magic.declare.each import Part
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

FLAGS: Mapping[str, str] = {
    "model": "--model",
    "max_tokens": "--max-tokens",
    "role": "--role",
    "context": "--context",
    "each": "--each",
    "group": "--group",
    "hedge": "--hedge",
    "effort": "--effort",
    "timeout_s": "--timeout",
    "system": "--system",
    "max_turns": "--max-turns",
    "save": "--save",
    "batch": "--batch",
    "escalate": "--escalate",
    **{option: f"--{option.replace('_', '-')}" for option in FLOW},
}
"""The options with one value, by the agent's field."""
WRITTEN: Mapping[str, str] = {"returns": "--returns", "check": "--check", "tools": "--tools"}
"""The options that name something of the notebook, which the agent remembers as it was written."""
LISTS: Mapping[str, str] = {
    **{option: f"--{option}" for option in NAMES},
    "uses_resources": "--uses",
    "writes": "--writes",
    "after": "--after",
}
MOST_WRITTEN = 200
"""The letters of a value that is written above a cell."""
SWITCHES: Mapping[str, str] = {"ask": "--ask", "cite": "--cite", "speculate": "--speculate"}

_HEADING = re.compile(r"##[ \t]+(?P<name>\w+)(?:[ \t]+\((?P<role>[^()]*)\))?(?P<options>[ \t]+-.*|[ \t]+#.*|[ \t]*)")
_MARK = re.compile(r"( {0,3})(\\*)##[ \t]")
_NEAR = re.compile(r"[ \t]*##(?!#)[ \t]*(?P<rest>.*)")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a `%%agents` cell.

    Attributes:
        name: The agent's name.
        line: Its heading as the line of a `%%agent` cell.
        prompt: Its prompt.
        number: The line of its heading in the cell; that of the magic is 1.
    """

    name: str
    line: str
    prompt: str
    number: int


def sections_of(text: str) -> tuple[str, list[Section]]:
    """Split the text of a `%%agents` cell.

    Args:
        text: What stands below the line of the magic.

    Returns:
        The comment before the first heading, and the sections.

    Raises:
        DeclarationError: A heading cannot be read, or there is none; the message names the line.
    """
    heads: list[tuple[int, str, str]] = []
    parts: list[list[str]] = [[]]
    for number, line in enumerate(text.split("\n"), 2):
        mark = _MARK.match(line)
        if mark is None or mark[2]:
            parts[-1].append(mark[1] + line[mark.end(1) + 1 :] if mark else line)
            continue
        heads.append((number, *_heading(line.lstrip(), number)))
        parts.append([])
    if not heads:
        hint = "Write a line such as ## facts (researcher), and its prompt below."
        hint = " ".join([*(f"{one[0].upper()}{one[1:]}." for one in near_headings(text)), hint])
        raise DeclarationError("A %%agents cell needs a heading for each agent, and has none.", hint=hint)
    comment, *prompts = ("\n".join(lines).strip("\n") for lines in parts)
    return comment.strip(), [
        Section(name, line, prompt, number) for (number, name, line), prompt in zip(heads, prompts, strict=True)
    ]


def near_headings(text: str) -> list[str]:
    """Return notes on the lines of a `%%agents` cell that look like headings and are prompt, such as `##name`."""
    notes: list[str] = []
    for number, line in enumerate(text.split("\n"), 2):
        near = _NEAR.fullmatch(line.rstrip())
        if near is not None and _MARK.match(line) is None and _HEADING.fullmatch(meant := f"## {near['rest']}"):
            notes.append(f"line {number} looks like a heading, and is prompt: write `{meant}`")
    return notes


def _heading(line: str, number: int) -> tuple[str, str]:
    """Return the agent's name, and the heading as the line of a `%%agent` cell."""
    found = _HEADING.fullmatch(line.rstrip())
    if found is None:
        hint = r"Write ## name (role) --options; in a prompt write \## or ###."
        raise DeclarationError(f"Line {number}: {line[:60]!r} is no heading of an agent.", hint=hint)
    role, options = found["role"], found["options"].strip()
    if role is not None and re.search(r"(^|\s)--role\b", options):
        raise DeclarationError(f"Line {number}: {found['name']} has (role) and --role.", hint="Give one of them.")
    return found["name"], " ".join(filter(None, [found["name"], role and f"--role {role.strip()}", options]))


def options_text(agent: Agent, *, without: str = "") -> str:
    """Write an agent's options as they stand in its cell.

    Args:
        agent: The agent.
        without: A field that is written elsewhere.

    Raises:
        PlanError: A line cannot hold what it has.
    """
    held: dict[str, Any] = {name: getattr(agent, name) for name in (*FLAGS, *LISTS, *SWITCHES)}
    named: dict[str, Any] = {name: one for name in WRITTEN if (one := getattr(agent, name))}
    kept = {name: one for name, one in named.items() if one.written}
    if Agent(agent.name, agent.prompt, **held, **kept) != agent:
        lost = ", ".join(named.keys() - kept.keys())
        why = f"a cell cannot name its {lost}" if lost else "it has an option without a place there"
        raise PlanError(f"Agent {agent.name!r} cannot be written as a cell: {why}.")
    held |= {"priority": agent.priority or None}
    left_out = {without, "model" if agent.cascade else ""}  # a cascade begins with it
    words = [(flag, held[name]) for name, flag in FLAGS.items() if name not in left_out]
    words += [(flag, kept[name].written) for name, flag in WRITTEN.items() if name in kept]
    words += [(flag, ",".join(held[name]) or None) for name, flag in LISTS.items()]
    told = [f"{flag} {_quoted(value, agent.name)}" for flag, value in words if value is not None]
    return " ".join([*told, *(flag for name, flag in SWITCHES.items() if held[name])])


def race_text(step: Step) -> str:
    """Write the options of a race as they stand in its cell."""
    return f"--first-of {','.join(step.parameters)}"


def _quoted(value: object, agent: str) -> str:
    text = str(value)
    if re.fullmatch(r"[\w.,:/@%+-]+", text):
        return text
    if "\n" in text or ("'" in text and '"' in text):
        raise PlanError(f"Agent {agent!r} cannot be written as a cell: an option has a line break, or both quotes.")
    return f"'{text}'" if '"' in text else f'"{text}"'


def declared(plan: Plan) -> Iterator[Step]:
    """Yield a plan's steps as they were declared: those for each item, and the rounds of a loop, are one again."""
    seen: set[str] = set()
    raced = {one.hedges: one for one in plan.agents if isinstance(one, Agent) and one.hedges is not None}
    for step in plan.agents:
        if step.race and step.parameters[0] in raced:
            again = declared_hedge(raced[step.parameters[0]])
            if again.name not in seen:
                seen.add(again.name)
                yield again
        elif step.hedges is not None or step.name in raced:  # its race stands for it
            continue
        elif step.part is None:
            yield step
        elif step.part.group not in seen:
            seen.add(step.part.group)
            if step.part.asked:  # its request stands for it
                continue
            yield _whole(step, step.part, len(plan.groups[step.part.group]))


def _whole(step: Step, part: Part, members: int) -> Step:
    """Return the step that a member of a group was declared by."""
    again = part.over.startswith(REPEATS)
    if isinstance(step, Agent) and part.asks:
        return declared_agent(step, part)
    over: dict[str, Any] = {"repeat": members} if again else {} if part.rounds else {"each": part.over}
    return replace(step, name=part.group, part=None, **over)


def to_cell(steps: Iterable[Step], *, name: str = "agents", description: str = "") -> str:
    """Write agents as one `%%agents` cell. Values and contexts are the notebook's, and not in it.

    Args:
        steps: The agents as they were declared; see `declared`.
        name: Their plan.
        description: The comment above them.

    Raises:
        PlanError: A step is a function, or has options that a cell cannot hold.
    """
    head = "%%agents" if name == "agents" else f"%%agents --plan {name}"
    parts = [f"{head}\n{_escaped(description)}".strip()]
    for step in steps:
        if step.race:
            parts.append(f"## {step.name} {race_text(step)}")
            continue
        if not isinstance(step, Agent):
            raise PlanError(f"{step.name!r} is a function, and a %%agents cell holds agents only.")
        role = f" ({step.role})" if step.role else ""
        words = " ".join(filter(None, [f"## {step.name}{role}", options_text(step, without="role")]))
        parts.append(f"{words}\n{_escaped(step.prompt)}")
    return "\n\n".join(parts) + "\n"


def values_note(plan: Plan) -> str:
    """Say what to define before the cell of a plan is run: short values as Python, others by their names."""
    values = plan.values
    plain = {name: repr(one) for name, one in values.items() if isinstance(one, str | int | float | bool)}
    short = {name: text for name, text in plain.items() if len(text) <= MOST_WRITTEN}
    lines = [f"    {name} = {text}" for name, text in short.items()]
    others = [name for name in values if name not in short]
    if others:
        lines.append(f"    globals().update(plan.values)  # of this plan, in a variable plan: {', '.join(others)}")
    known = {*values, *plan.names, *plan.groups}
    over = dict.fromkeys((step.each or "").split(".")[0] for step in declared(plan))
    lines += [f"    {name} = ...  # the items" for name in over if name and name not in known]
    return "\n".join(["Its prompts use values. Define them first, in a cell above:", *lines]) if lines else ""


def _escaped(text: str) -> str:
    marks = ((line, _MARK.match(line)) for line in text.strip("\n").split("\n"))
    return "\n".join(line if mark is None else f"{mark[1]}\\{line[mark.end(1) :]}" for line, mark in marks)
