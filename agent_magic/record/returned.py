"""What the steps of a run returned, as conditions and tasks take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.record.results import RunRecord


class Returned(Mapping[str, Any]):
    """What agents and tasks returned, by their names; without those that did not. Values are read when asked for.

    Args:
        record: The run.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        number = self._record.plan.index[name]
        result = self._record.results[number]
        if result.status == "succeeded":
            return result.value
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
