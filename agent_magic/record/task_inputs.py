"""Inputs of a task as fingerprints: they tell if it would do the same as in another run.

Values without a storable form, or too large to read each time, have none.
"""

from __future__ import annotations

import dis
import json
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.each import OWN, view_of
from agent_magic.declare.signature import defined, source_sha
from agent_magic.declare.task import Task
from agent_magic.declare.values import DIGITS, digest, fingerprint
from agent_magic.record.answer import WITH_ANSWER
from agent_magic.record.results import Returned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.record.results import AgentResult, RunRecord

UNKNOWN = ""


class Taken:
    """Returns the inputs, which must have ended, of a run's tasks."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._variables: dict[str, str] = {}

    def of(self, step: int) -> dict[str, str]:
        plan = self._record.plan
        found = {name: self._one(step, name) for name in plan.takes(step)}
        task = plan.agents[step]
        return variables_of(task.function) | found if isinstance(task, Task) else found

    def _one(self, step: int, name: str) -> str:
        plan = self._record.plan
        given = plan.source_of(step, name)
        if isinstance(given, str):
            return _of_result(self._record[given])
        if given is not None:
            every = [_of_result(self._record[one]) for one in given]
            return UNKNOWN if UNKNOWN in every else digest("".join(every))
        part = plan.agents[step].part
        if part is not None and name in part.values:
            return fingerprint(part.values[name])
        if part is not None and part.source and name in OWN:  # an item of what another step returned
            return fingerprint(plan.meaning(step, name, Returned(self._record)))
        if name in plan.groups:  # the last round that ran, as the run has decided
            members = view_of(plan.agents, plan.groups[name], plan.agents[step]).members
            ran = [one for one in members if self._record.results[one].status in WITH_ANSWER]
            return _of_result(self._record.results[ran[-1]]) if ran else UNKNOWN
        if name not in self._variables:
            self._variables[name] = fingerprint(plan.values[name])
        return self._variables[name]


def variables_of(function: object, seen: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return those read by a function's code and by the functions it calls."""
    # Its own variables, such as those of a closure, are excluded, since it often changes them itself.
    own = defined(function)
    if not isinstance(own, FunctionType):
        return {}
    found: dict[str, str] = {}
    for name in _names_in(own.__code__) - seen:
        value = own.__globals__.get(name)
        if isinstance(value, FunctionType) and value.__globals__ is own.__globals__:
            found[name] = source_sha(value)[:DIGITS]
            found |= variables_of(value, seen | found.keys() | {name})
        elif name in own.__globals__ and (known := fingerprint(value)):
            found[name] = known
    return found


@lru_cache(maxsize=1024)
def _names_in(code: CodeType) -> frozenset[str]:
    """Return those that code reads but does not define."""
    read_, written_ = (
        {one.argval for one in dis.get_instructions(code) if one.opname == name}
        for name in ("LOAD_GLOBAL", "STORE_GLOBAL")
    )
    inside = (_names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(read_.union(*inside) - written_)


def written(found: Mapping[str, str]) -> str:
    return json.dumps(dict(found), ensure_ascii=True) if found else ""


def read(text: str) -> dict[str, str]:
    """Read the inputs of a task; other text, such as removed text, gives nothing."""
    try:
        data: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    known = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return {name: value for name, value in known.items() if isinstance(value, str)}


def differing(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the values that differ; unknown ones do not count."""
    return [name for name, one in now.items() if recorded.get(name) and one and recorded[name] != one]


def _of_result(result: AgentResult) -> str:
    if not result.is_task:
        return digest(result.text)
    packed = result.calls[-1].ended.value if result.calls and result.calls[-1].ended else None
    return UNKNOWN if packed is None else digest(packed)
