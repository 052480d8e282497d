"""Conditions: expressions of the template sandbox, `--when "review.score < 4"` and `--until "critic.ok"`."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from agent_magic.declare.each import OWN
from agent_magic.declare.options import beside
from agent_magic.declare.template import Template
from agent_magic.declare.units import seconds
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.each import Part
    from agent_magic.declare.step import Step

TRUE = "true"
_SET = re.compile(r"(?<![=<>!])=(?!=)")
"""An assignment, never intended in a condition."""


@lru_cache(maxsize=1024)
def condition_of(text: str, agent: str = "", option: str = "when") -> Template:
    """Return a condition (`when`, `until` or `escalate`) as a template that renders `TRUE` if it holds."""
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


def check_flow(step: Step) -> None:
    """Raise `DeclarationError` for an unreadable condition, and for options that need or exclude each other."""
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


def check_speculate(step: Step) -> None:
    """Raise `DeclarationError` if a step with `speculate` has no condition, or effects that cannot be undone."""
    if not step.speculate:
        return
    error = partial(DeclarationError, agent=step.name)
    if step.when is None:
        raise error(
            f"{step.name!r} has speculate and no when.", hint='Say what it need not wait for: --when "review.ok".'
        )
    other = beside(step, "speculate")
    other = other or ("batch" if step.batch == "on" else "")
    if other:
        hint = "What it does may be thrown away: leave one of them out."
        raise error(f"{step.name!r} has speculate and {other}.", hint=hint)


def flow_notes(step: Step) -> list[str]:
    """Return a line for each option that decides whether, how often, and in how many requests a step runs."""
    found = [f"the first answer of {', '.join(step.parameters)}"] if step.race else []
    ahead = ", begins before that is known" if step.speculate else ""
    found += [f"runs only when {step.when}{ahead}"] if step.when else []
    found += [f"asked {step.repeat} times"] if step.repeat else []
    found += (
        [f"runs again until {step.until}, at most {step.rounds} round{'s' * (step.rounds != 1)}"] if step.until else []
    )
    many = "as many of them as fit" if step.group == "auto" else f"at most {step.group} of them"
    found += [f"{many} in a request"] if step.group else []
    if step.hedge is not None and step.hedges is None:
        overdue = step.hedge if isinstance(step.hedge, str) else seconds(step.hedge)
        found.append(f"asked again when overdue ({overdue}): the first answer counts")
    return found


def deciding_names(step: Step) -> tuple[str, ...]:
    """Return the names that decide whether and how often a step runs: in its conditions and `each`."""
    conditions = [(step.when, "when"), (step.until, "until")]
    names = [name for text, option in conditions if text for name in condition_of(text, step.name, option).names]
    return tuple(dict.fromkeys([*(() if step.each is None else (step.each.partition(".")[0],)), *names]))


def without_own(names: tuple[str, ...], each: str | None, part: Part | None) -> tuple[str, ...]:
    """Return the names that a step uses of others: its item is its own."""
    if each is None and (part is None or not part.has_item):
        return names
    return tuple(name for name in names if name not in OWN)


def holds(condition: Template, values: Mapping[str, object]) -> bool:
    """Return whether a condition is true.

    Raises:
        DeclarationError: It cannot be evaluated: a name or a field is missing, or types do not fit.
    """
    return condition.render(values).text == TRUE
