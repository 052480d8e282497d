"""Answers that were bought, so that an identical request is not bought again.

This one lives as long as the session. What is kept: complete answers with a `stop_reason`, by the fingerprint of their
request and the endpoint they came from, in order for repeated identical requests. Refusals, answers cut at
`max_tokens` and simulated answers are never served again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent_magic.record.answer import Answer

NOT_REUSED = frozenset({"refusal", "max_tokens", "model_context_window_exceeded", "pause_turn"})


class Ledger(Protocol):
    """Where answers are kept."""

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key, marked as from the ledger."""
        ...

    def keep(self, key: str, ordinal: int, answer: Answer) -> None:
        """Store a complete answer. It is stored when this returns."""
        ...


class MemoryLedger:
    """A ledger in memory."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int], Answer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key, marked as from the ledger."""
        answer = self._answers.get((key, ordinal))
        return replace(answer, source="ledger") if answer else None

    def keep(self, key: str, ordinal: int, answer: Answer) -> None:
        """Store a complete answer, unless it must not be served again."""
        if answer.source == "live" and answer.stop_reason not in NOT_REUSED:
            self._answers[key, ordinal] = answer
