"""Identical requests of one run: which rows ask the same, so that one answer serves them all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord


def rows_of(plan: Plan, number: int) -> str:
    """Return the name of a step's group of rows that may share answers, if any."""
    step = plan.agents[number]
    if step.is_task or step.part is None or not step.part.has_item:
        return ""
    if plan.flow is not None and number in plan.flow.ahead_of:
        return ""
    return step.part.group if all(one.pure for one in step.tools.functions) else ""


class Same:
    """The key of a row's request. Equal keys share an answer."""

    # Fingerprints are compared only if prompts are equal, since most are not.

    __slots__ = ("_hash", "_key", "_more", "_request")

    def __init__(self, request: Request, *more: Hashable) -> None:
        self._request, self._more, self._key = request, more, ""
        self._hash = hash((request.model, request.prompt, more))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return NotImplemented
        return self is other or (self._more == other._more and self.key == other.key)

    @property
    def key(self) -> str:
        if not self._key:
            self._key = self._request.key("")
        return self._key


def same_of(plan: Plan, number: int, request: Request, *, fresh: bool = False) -> Same | None:
    rows = rows_of(plan, number)
    return Same(request, rows, fresh) if rows else None


def sharers_of(record: RunRecord) -> list[int | None]:
    plan, first = record.plan, dict[Hashable, int]()
    if record.same is not None:
        return [*record.same]
    bought = sorted(range(len(plan)), key=lambda step: record.results[step].is_shared)
    found: list[int | None] = [None] * len(plan)
    for step in bought if not record.redacted else ():
        attempts = record.results[step].attempts
        if attempts and (same := same_of(plan, step, attempts[0].request)) is not None:
            found[step] = first.setdefault(same, step)
    return found
