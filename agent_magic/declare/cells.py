r"""Agents as text: the options of a `%%agent` line, and the sections of a `%%agents` cell.

A section's heading is `## `, a name, an optional role in brackets, and options as in `%%agent`; its prompt is the text
below. As in Markdown, up to three blanks may precede a heading; a prompt line that begins with `## ` is written `\## `.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.agent import Agent
from agent_magic.declare.declared import declared
from agent_magic.declare.options import AGENT, flag_of, unescaped
from agent_magic.errors import DeclarationError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.declare.options import Form, Option
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step

ORDER: Final[tuple[tuple[Form, ...], ...]] = (("value", "texts", "pairs"), ("notebook",), ("names",), ("switch",))
MOST_WRITTEN = 200
"""Characters of a value written above a cell."""

_HEADING = re.compile(
    r"##[ \t]+(?P<name>\w+|\{[^{}]*\}|\$[\w.]+)(?:[ \t]+\((?P<role>[^()]*)\))?"
    r"(?P<options>[ \t]+[-#\\\u2010-\u201f\u2212].*|[ \t]*)"
)
_MARK = re.compile(r"( {0,3})(\\*)##[ \t]")
_NEAR = re.compile(r"[ \t]*##(?!#)[ \t]*(?P<rest>.*)")
_DIRECTIVE = r"""
    (?:(?:ignore|skip|noqa|(?:dis|en)able)(?:[\[=:-].*)? | on | off | true | false)$
    | [\w.-]+=\S | \+[A-Z] | \[[\w."'-]*(?:,[ \t]*[\w."'-]+)*\]$ | [A-Z]+\d+(?:,[ \t]*[A-Z]+\d+)*$
"""
"""Text after `# word:` for a tool, never prose: `skip`, `off`, `key=value`, `E501`."""
_TOOL_LINE = re.compile(
    rf"""\#[ \t]*(?:
        \|                                                         # Quarto, nbdev: #| echo: false
        | @[A-Za-z_]+\b                                            # Colab forms, hidden cells: #@title Ask
        | ![A-Za-z]                                                # Polyglot notebooks: #!ignore; no #!/bin/sh
        | NBVAL_[A-Z_]+\b | PYTEST_VALIDATE_IGNORE_OUTPUT\b        # nbval
        | %% | -{{3,}}$ | [+-][ \t]*(?:\{{.*\}}|$)                    # jupytext, editors: # %% [markdown], # +, # ---
        | \+[ \t]+(?:\[\w+\]|[\w.-]+=["'\[{{])                      # jupytext: # + [markdown], # + tags=["x"]
        | In\[[ \d]*\]: | <\w*cell>$                             # nbconvert, IPython
        | (?:export[is]?|hide(?:[_-]\w+)*|collapse(?:[_-]\w+)*|default_(?:exp|cls_lvl)[ ].*)$  # nbdev, fastpages
        | (?:noqa|type|pragma|fmt|ruff|mypy|pylint|flake8|pyright|isort|black|yapf|autopep8|pytype|ty|nosec|nbqa
            |doctest|coverage|cython|coding|vim?|[cn]spell|codespell|spell-checker
            |nb\w+|jupyter|jupytext|papermill|marimo|quarto)[ \t]*[:=]
        | [a-z][\w.-]*:[ \t]*(?:{_DIRECTIVE})                      # whatever tool: # sometool: skip
        | no(?:qa|sec|sonar|semgrep)\b[ \t]*(?:\[.*)?$ | NO(?:QA|SONAR)\b | pyre-\w+ | -\*-.*-\*- | nbqa\b
        | (?:end)?region\b | COMMAND[ \t]-{{5,}} | DBTITLE\b | MAGIC\b | Databricks[ ]notebook[ ]source$
    )""",
    re.VERBOSE,
)
"""A comment for another tool at the top of a cell; another `# word: text` may be a heading, and is prompt."""


def without_tool_lines(text: str) -> tuple[str, list[str]]:
    """Split a cell's text from the lines for other tools at its top, such as `#| echo: false`."""
    lines, taken = text.split("\n"), list[str]()
    for number, line in enumerate(lines):
        plain = line.strip().lstrip("\ufeff")  # a byte order mark, in a cell from a file
        if _TOOL_LINE.match(plain):
            taken.append(plain)
        elif plain:
            return "\n".join(lines[number:]) if taken else text, taken
    return "" if taken else text, taken


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a `%%agents` cell; the magic's line is number 1."""

    name: str
    line: str
    prompt: str
    number: int


def sections_of(text: str) -> tuple[str, list[Section]]:
    """Split a cell into the comment before the first heading, and the sections."""
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
    """Return notes on prompt lines that look like headings, such as `##name`."""
    notes: list[str] = []
    for number, line in enumerate(text.split("\n"), 2):
        near = _NEAR.fullmatch(line.rstrip())
        if near is not None and _MARK.match(line) is None and _HEADING.fullmatch(meant := f"## {near['rest']}"):
            notes.append(f"line {number} looks like a heading, and is prompt: write `{meant}`")
    return notes


def _heading(line: str, number: int) -> tuple[str, str]:
    found = _HEADING.fullmatch(line.rstrip())
    if found is None:
        hint = r"Write ## name (role) --options; in a prompt write \## or ###."
        raise DeclarationError(f"Line {number}: {line[:60]!r} is no heading of an agent.", hint=hint)
    role, options = found["role"], found["options"].strip()
    if role is not None and re.search(r"(^|\s)--role\b", options):
        raise DeclarationError(f"Line {number}: {found['name']} has (role) and --role.", hint="Give one of them.")
    return found["name"], " ".join(filter(None, [found["name"], role and f"--role {role.strip()}", options]))


def options_text(agent: Agent, *, without: str = "") -> str:
    rows = [row for row in AGENT.values() if row.help]
    held: dict[str, Any] = {row.name: getattr(agent, row.name) for row in rows if row.form != "notebook"}
    named: dict[str, Any] = {row.name: getattr(agent, row.name) for row in rows if row.form == "notebook"}
    named = {name: value for name, value in named.items() if value}
    kept = {name: one for name, one in named.items() if one.written}
    if Agent(agent.name, agent.prompt, **held, **kept) != agent:
        lost = ", ".join(named.keys() - kept.keys())
        why = f"a cell cannot name its {lost}" if lost else "it has an option without a place there"
        raise PlanError(f"Agent {agent.name!r} cannot be written as a cell: {why}.")
    held |= {name: one.written for name, one in kept.items()}
    left_out = {without, "model" if agent.cascade else ""}  # a cascade begins with it
    words: list[str] = []
    for row in (row for forms in ORDER for row in rows if row.form in forms and row.name not in left_out):
        value, flag = held.get(row.name), flag_of(row)
        if row.form == "switch":
            words += [flag] * bool(value)
        elif value is not None and value != row.default:
            words += [f"{flag} {_quoted(one, agent.name)}" for one in _written(row, value)]
    return " ".join(words)


def _written(row: Option, value: Any) -> list[Any]:
    if row.form == "texts":
        return [unescaped(one) for one in value]
    if row.form == "pairs":
        return [f"{name}={json.dumps(one)}" for name, one in value.items()]
    return [",".join(value) if row.form == "names" else value]


def race_text(step: Step) -> str:
    return f"--first-of {','.join(step.parameters)}"


def _quoted(value: object, agent: str) -> str:
    text = str(value)
    if re.fullmatch(r"[\w.,:/@%+-]+", text):
        return text
    if "\n" in text or ("'" in text and '"' in text):
        raise PlanError(f"Agent {agent!r} cannot be written as a cell: an option has a line break, or both quotes.")
    return f"'{text}'" if '"' in text else f'"{text}"'


def to_cell(steps: Iterable[Step], *, name: str = "agents", description: str = "") -> str:
    """Write one `%%agents` cell, or raise `PlanError` for a step that it cannot hold."""
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
    """Return a note of values to define first: short ones as Python, others by name."""
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
