"""The answers of an earlier run, taken over where an agent asks for the same once more.

A run that was cut, or had failures, goes on like that: what succeeded is not asked again. An agent whose request has
changed is asked, and its descendants too where its answer differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.record.ledger import NOT_REUSED
from agent_magic.record.results import CAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord


class Earlier:
    """What may be taken over from a run.

    A simulated answer stays one; what was bought comes as from the ledger. Refusals are never taken over.

    Args:
        record: The earlier run.
        endpoint: Where requests go now. Another server's answers are not taken over.
        again: Agents that are asked again although they succeeded.
        cut_too: Whether answers cut at `max_tokens` that were passed on are taken over.
    """

    def __init__(self, record: RunRecord, endpoint: str, *, again: Iterable[str] = (), cut_too: bool = False) -> None:
        self.again = frozenset(again)
        never = NOT_REUSED - CAPPED if cut_too else NOT_REUSED
        self._answers: dict[str, tuple[Request, Answer]] = {}
        for result in record.results if record.origin == endpoint else ():
            answer = result.answer
            if result.status == "succeeded" and answer is not None and answer.stop_reason not in never:
                self._answers[result.name] = _same(result.attempts[-1].request), _kept(answer)

    def find(self, agent: str, request: Request) -> Answer | None:
        """Return the agent's answer if it asks for the same as then."""
        if agent in self.again or agent not in self._answers:
            return None
        asked, answer = self._answers[agent]
        return answer if _same(request) == asked else None

    def left_out(self, plan_names: Iterable[str], wanted: Iterable[str]) -> list[str]:
        """Return the agents of a plan that have no answer here and are not among those wanted."""
        wanted = set(wanted)
        return [name for name in plan_names if name not in wanted and name not in self._answers]


def _same(request: Request) -> Request:
    """Leave out what does not change an answer."""
    return request._replace(cached=False, timeout_s=0.0)


def _kept(answer: Answer) -> Answer:
    return replace(answer, source="ledger") if answer.source == "live" else answer
