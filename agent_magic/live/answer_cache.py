"""Answers that need not be bought again: those of an earlier run, and those in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.live.earlier import Earlier
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request


class AnswerCache:
    """Finds answers that are there already.

    Args:
        plan: What runs.
        endpoint: Where requests go: part of the key under which answers are kept.
        ledger: Answers bought before; `None` has none.
        earlier: Answers of an earlier run; `None` takes none over.
        fresh: Ask again what the ledger has.
    """

    def __init__(
        self, plan: Plan, endpoint: str, ledger: Ledger | None, earlier: Earlier | None, *, fresh: bool
    ) -> None:
        self._plan, self._endpoint, self._ledger, self._earlier = plan, endpoint, ledger, earlier
        self._fresh = fresh
        self._ordinals: dict[str, int] = {}
        self._passed_over: dict[str, int] = {}
        self._hedged = {one.hedges for one in plan.agents if one.hedges is not None}
        self._keys: dict[tuple[Any, ...], tuple[str, int]] = {}
        self._taken: dict[int, dict[str, Answer | None]] = {}

    def taken_over(self, agent: int, request: Request) -> Answer | None:
        """Return the answer of the earlier run, if the agent asks for the same as then."""
        if self._earlier is None or request.messages:
            return None
        taken = self._taken.setdefault(agent, {})  # by the model that is asked
        if request.model not in taken:
            taken[request.model] = self._earlier.find(self._plan.agents[agent].name, request)
        return taken[request.model]

    def is_there(self, agent: int, request: Request) -> bool:
        """Tell whether the answer is there already, so that nothing will be sent."""
        return self.find(agent, request) is not None

    def find(self, agent: int, request: Request) -> Answer | None:
        """Return the answer that is there already, of the earlier run or in the ledger."""
        taken = self.taken_over(agent, request)
        if taken is not None or self._ledger is None or self.is_fresh(agent):
            return taken
        return self._ledger.find(*self.key(agent, request))

    def is_fresh(self, agent: int) -> bool:
        """Tell whether the agent is to be asked whatever the ledger has."""
        if self._fresh or self._earlier is None:
            return self._fresh
        name = self._plan.agents[agent].name
        return name in self._earlier.again or name in self._earlier.unfit

    def paid_before(self, agent: int, answer: Answer) -> bool:
        """Tell whether an answer was there already."""
        return answer.source == "ledger" or any(one is answer for one in self._taken.get(agent, {}).values())

    def key(self, agent: int, request: Request) -> tuple[str, int]:
        """Return the request's fingerprint, and how many agents of this run asked the same before."""
        place = agent, request.model, request.effort, request.tool_choice, request.messages  # what a run can change
        known = self._keys.get(place)
        if known is None:
            key = request.key(self._endpoint)
            known = self._keys[place] = key, self._ordinal(agent, key)
        return known

    def _ordinal(self, agent: int, key: str) -> int:
        """Number a request among those that ask the same.

        Of two of a hedge the ledger has one answer, that which came first. It serves the first one to ask again.
        """
        if key in self._passed_over:
            return self._passed_over.pop(key)
        ordinal = self._ordinals.get(key, 0)
        self._ordinals[key] = ordinal + 1
        if self._ledger is None or self._plan.names[agent] not in self._hedged or self.is_fresh(agent):
            return ordinal
        if self._ledger.find(key, ordinal) is not None or self._ledger.find(key, ordinal + 1) is None:
            return ordinal
        self._passed_over[key] = ordinal
        self._ordinals[key] = ordinal + 2
        return ordinal + 1
