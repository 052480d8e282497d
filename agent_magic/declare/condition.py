"""Conditions: expressions of the template sandbox, `--when "review.score < 4"` and `--until "critic.ok"`."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from agent_magic.declare.each import OWN
from agent_magic.declare.template import Template
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.each import Part
    from agent_magic.declare.options import StepOptions

TRUE = "true"
ANSWER = "answer"
_SET = re.compile(r"(?<![=<>!])=(?!=)")
"""An assignment, never intended in a condition."""


@lru_cache(maxsize=1024)
def condition_of(text: str, agent: str = "", option: str = "when") -> Template:
    """Return a condition as a template that renders `TRUE` if it holds."""
    title = f"--{option} {text!r} of agent {agent!r}"
    example = "answer.confidence < 0.7" if option == "escalate" else "review.score < 4"
    hint = f'Write an expression over answers and values: --{option} "{example}".'
    if _SET.search(text):
        hint = f'Two equals signs compare: --{option} "review.score == 4".'
    if "{%" in text or "%}" in text or "{{" in text:
        raise DeclarationError(f"{title} is no expression: it has braces.", agent=agent, hint=hint)
    found = Template.parse(f"{{% if {text} %}}{TRUE}{{% endif %}}", agent=agent, title=title, hint=hint)
    if "len" in found.names:
        written = re.sub(r"\blen\(\s*([\w.]+)\s*\)", r"\1 | length", text)
        hint = f'A filter counts: --{option} "{written if written != text else "report | length > 5"}".'
        raise DeclarationError(f"{title} calls len(), which a condition cannot.", agent=agent, hint=hint)
    if not found.names:
        raise DeclarationError(f"{title} names no answer and no value.", agent=agent, hint=hint)
    return found


def check_flow(step: StepOptions) -> None:
    error = partial(DeclarationError, agent=step.name)
    for option in ("when", "until"):
        if (text := getattr(step, option)) is not None:
            condition_of(text, step.name, option)
    if step.until is not None and step.rounds is None:
        raise error(f"{step.name!r} has until and no rounds.", hint="Say how many there may be: --rounds 3.")
    if step.until is None and step.rounds is not None:
        raise error(f"{step.name!r} has rounds and no until.", hint='Say when it is done: --until "critic.ok".')
    if step.repeat is not None and (step.each is not None or step.until is not None):
        raise error(f"{step.name!r} has repeat beside each or until.", hint="Give one of them.")
    if step.most is not None and step.each is None and step.part is None:
        raise error(f"{step.name!r} has most and no each.", hint="Say of what: --each planner.steps --most 40.")


def deciding_names(step: StepOptions) -> tuple[str, ...]:
    conditions = [(step.when, "when"), (step.until, "until")]
    names = [name for text, option in conditions if text for name in condition_of(text, step.name, option).names]
    return tuple(dict.fromkeys([*(() if step.each is None else (step.each.partition(".")[0],)), *names]))


def without_own(names: tuple[str, ...], each: str | None, part: Part | None) -> tuple[str, ...]:
    """Leave out a step's own item."""
    if each is None and (part is None or not part.has_item):
        return names
    return tuple(name for name in names if name not in OWN)


def holds(condition: Template, values: Mapping[str, object]) -> bool:
    return condition.render(values).text == TRUE
