"""The answers of an earlier run, taken over where an agent asks for the same once more.

A run that was cut, or had failures, goes on like that: what succeeded is not asked again. An agent whose request has
changed is asked, and its descendants too where its answer differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.record.ledger.base import NOT_REUSED
from agent_magic.record.results import CAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.declare.plan import Plan
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord


class Earlier:
    """What may be taken over from a run.

    A simulated answer stays one; what was bought comes as from the ledger. Refusals are never taken over.

    Args:
        record: The earlier run.
        endpoint: Where requests go now. Another server's answers are not taken over.
        plan: What runs now.
        again: Only these agents of it run again, with what they wait for and what waits for them, although some of
            them may have succeeded; `None` is all that did not.

    Attributes:
        again: The agents that are asked again although they may have succeeded.
        left_out: The agents without an answer that do not run again.

    Raises:
        UnknownAgent: `again` names one that is not in the plan.
    """

    def __init__(self, record: RunRecord, endpoint: str, *, plan: Plan, again: Iterable[str] | None = None) -> None:
        numbers = None if again is None else plan.numbers(again)
        self.again = frozenset(plan.agents[number].name for number in numbers or ())
        self._answers: dict[str, tuple[Request, Answer]] = {}
        for result in record.results if record.origin == endpoint else ():
            answer = result.answer
            if answer is None or answer.stop_reason in NOT_REUSED:
                continue
            if result.status == "succeeded" or answer.stop_reason in CAPPED:  # cut then is cut now, for nothing
                self._answers[result.name] = _same(result.attempts[-1].request), _kept(answer)

        self.left_out: tuple[str, ...] = ()
        if numbers is not None:
            around = {*numbers, *plan.dag.ancestors(numbers), *plan.dag.descendants(numbers)}
            others = [one.name for number, one in enumerate(plan.agents) if number not in around]
            self.left_out = tuple(name for name in others if name not in self._answers)

    def find(self, agent: str, request: Request) -> Answer | None:
        """Return the agent's answer if it asks for the same as then."""
        if agent in self.again or agent not in self._answers:
            return None
        asked, answer = self._answers[agent]
        return answer if _same(request) == asked else None


def _same(request: Request) -> Request:
    """Leave out what does not change an answer."""
    return request._replace(cached=False, timeout_s=0.0, ttl="5m", messages=())


def _kept(answer: Answer) -> Answer:
    return replace(answer, source="ledger") if answer.source == "live" else answer
