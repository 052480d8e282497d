"""What steps take of typed answers: fields that are not there are found when declared, not when paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.declare.answers.returns import Returns
from agent_magic.declare.answers.schema import alternatives_of, brief, fields_of, items_of, lacking, reached, schema_of
from agent_magic.declare.condition import condition_of
from agent_magic.declare.each import group_of
from agent_magic.errors import DeclarationError, PlanError, UndefinedField

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_magic.declare.step import Step

Path = tuple[str | int, ...]
TEXT = Returns('{"type": "string"}')
"""The type of answers for which none is declared."""


def answers_of(step: Step) -> Returns | None:
    """Return the type of a step's answers: text by default, `None` if unknown."""
    is_text = step.returns is None and not (step.is_task or step.cite or step.tools)  # those may hold more than words
    return TEXT if is_text else step.returns


class Taken(NamedTuple):
    """The type of a name in a step; with `several` the name means all answers of a group, by number."""

    returns: Returns
    several: bool = False


def taken_paths(step: Step) -> Iterator[Path]:
    """Yield the paths that a step uses in its prompt and conditions, such as `("review", "score")`."""
    if not step.is_task:
        yield from step.template.paths
    for text, option in ((step.when, "when"), (step.until, "until")):
        yield from condition_of(text, step.name, option).paths if text is not None else ()


def _compared(step: Step) -> Iterator[tuple[str, Path]]:
    """Yield the paths that a step's conditions compare with a number, after the condition's text."""
    for text, option in ((step.when, "when"), (step.until, "until")):
        if text is not None:
            yield from ((f"--{option} {text!r}", path) for path in condition_of(text, step.name, option).numbers)


def check_fields(step: Step, type_of: Callable[[str], Taken | None]) -> None:
    """Raise for the first field a step uses that an answer's type does not have."""
    for written, (name, *path) in _compared(step):
        found = type_of(str(name))
        if found is not None and not found.several and _is_text(found.returns, path):
            what, agent = ".".join(map(str, (name, *path))), group_of(step)
            raise DeclarationError(
                f"{written} of agent {agent!r} compares {what}, which is a text, with a number.",
                agent=agent,
                hint=f"Count its letters, {what} | length, or have a number answered: --returns int.",
            )
    for name, *path in taken_paths(step):
        found = type_of(str(name)) if path else None
        if found is None:
            continue
        if found.several and not isinstance(path[0], int):  # a loop over them takes one, or a number does
            continue
        _check_path(step, found.returns, str(name), path[1:] if found.several else path)


def check_items(step: Step, source: str, returns: Returns, path: Sequence[str]) -> None:
    """Raise if a step is declared for each item of a value that is no list."""
    _check_path(step, returns, source, path)
    places = [one for place in reached(schema_of(returns.schema), path) for one in alternatives_of(place)]
    if not places or not all(one.get("type") in _NO_LISTS or fields_of(one) for one in places):
        return
    name, over = group_of(step), ".".join([source, *path])
    lists = [field for one in places for field, of in fields_of(one).items() if any(map(items_of, alternatives_of(of)))]
    message = (
        f"Agent {name!r} is declared for each of {over!r}, which is not a list but {' | '.join(map(brief, places))}."
    )
    hint = f"Take a list in it: --each {over}.{lists[0]}." if lists else "Have it answer with one: --returns list[str]."
    raise PlanError(f"{message} {hint}")


_NO_LISTS = frozenset({"string", "integer", "number", "boolean", "null"})


def _is_text(returns: Returns, path: Sequence[str | int]) -> bool:
    if not all(isinstance(one, str) for one in path):
        return False
    places = [one for place in reached(schema_of(returns.schema), [*map(str, path)]) for one in alternatives_of(place)]
    return bool(places) and all(one.get("type") == "string" for one in places)


def _check_path(step: Step, returns: Returns, name: str, path: Sequence[str | int]) -> None:
    lacks = lacking(schema_of(returns.schema), path)
    if lacks is not None:
        kind = "a text; --returns TYPE gives answers fields" if returns is TEXT else lacks.kind
        raise UndefinedField(lacks.field, of=f"{name}{lacks.of}", agent=group_of(step), known=lacks.known, kind=kind)
