"""Results of a run's steps as conditions and tasks see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_magic.declare.each import ROUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.record.results import RunRecord


def capped_loops(record: RunRecord) -> list[tuple[str, str]]:
    """Return the step that begins each, and its unmet condition."""
    # No status says it, since every step of such a loop has answered: it is read from the answers, so that older
    # recordings have it too. Without the texts of the answers nothing is known.
    flow = record.plan.flow
    if flow is None or record.redacted or record.forecast is not None:
        return []
    return flow.unmet(Returned(record))


def capped_steps(record: RunRecord) -> dict[int, str]:
    """Those of the last rounds of such loops, each with the unmet condition."""
    overs = {f"{ROUNDS}{name}": until for name, until in capped_loops(record)}
    parts = [one.part for one in record.plan.agents] if overs else []
    return {
        step: overs[one.over]
        for step, one in enumerate(parts)
        if one is not None and one.over in overs and one.number == one.rounds
    }


class Returned(Mapping[str, Any]):
    """What agents and tasks returned, by their names, read on access."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        number = self._record.plan.index[name]
        result = self._record.results[number]
        if result.status == "succeeded":
            return result.meaning
        if result.status == "capped":
            return self._record.plan.meaning_of(number, result.text)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        number = self._record.plan.index.get(name) if isinstance(name, str) else None
        return number is not None and self._record.results[number].status in {"succeeded", "capped"}

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._record.plan.names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
