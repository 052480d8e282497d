"""Answers that need not be bought again: the user's own, those of an earlier run, and those in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.errors import InvalidAnswer
from agent_magic.record.request import same_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Equal
    from agent_magic.live.earlier import Earlier
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request, Same
    from agent_magic.record.results import RunRecord


class AnswerCache:
    """Finds stored answers; with `record`, answers that this run found invalid are bought again."""

    def __init__(
        self,
        plan: Plan,
        endpoint: str,
        ledger: Ledger | None,
        earlier: Earlier | None,
        *,
        fresh: bool,
        identical: Equal = "once",
        record: RunRecord | None = None,
    ) -> None:
        self._plan, self._endpoint, self._ledger, self._earlier = plan, endpoint, ledger, earlier
        self._fresh, self._once, self._record = fresh, identical == "once", record
        self._ordinals: dict[str, int] = {}
        self._shared: dict[Same, int] = {}
        self._passed_over: dict[str, int] = {}
        self._hedged = {one.hedges for one in plan.agents if one.hedges is not None}
        self._keys: dict[tuple[Any, ...], tuple[str, int]] = {}
        self._taken: dict[int, dict[str, Answer | None]] = {}
        self._kept_edits: Mapping[tuple[str, str], Answer] = {} if ledger is None else ledger.edits.read()
        self._edits = {**({} if earlier is None else earlier.edits), **self._kept_edits}
        self._edited = {agent for agent, _ in self._edits} - (frozenset() if earlier is None else earlier.again)

    def taken_over(self, agent: int, request: Request) -> Answer | None:
        if request.goes_on or (self._earlier is None and not self._edited):
            return None
        taken = self._taken.setdefault(agent, {})  # by the model that is asked
        if request.model not in taken:
            taken[request.model] = self._own(agent, request)
        return taken[request.model]

    def _own(self, agent: int, request: Request) -> Answer | None:
        name = self._plan.agents[agent].name
        if name in self._edited and (edit := self._edits.get((name, self.key(agent, request)[0]))) is not None:
            return edit
        return None if self._earlier is None else self._earlier.find(name, request)

    def adopt(self, agent: int, request: Request, answer: Answer) -> None:
        place = self._plan.agents[agent].name, self.key(agent, request)[0]
        if self._ledger is not None and self._kept_edits.get(place) is answer:  # not one of an earlier run in memory
            self._ledger.edits.adopt(*place, answer)

    def is_there(self, agent: int, request: Request) -> bool:
        return self.find(agent, request) is not None

    def find(self, agent: int, request: Request) -> Answer | None:
        taken = self.taken_over(agent, request)
        if taken is not None or self._ledger is None or self.buys_anew(agent, request):
            return taken
        return self._ledger.find(*self.key(agent, request))

    def is_fresh(self, agent: int) -> bool:
        if self._fresh or self._earlier is None:
            return self._fresh
        name = self._plan.agents[agent].name
        return name in self._earlier.again or name in self._earlier.unfit

    def buys_anew(self, agent: int, request: Request) -> bool:
        if self.is_fresh(agent):
            return True
        earlier = () if self._record is None or request.goes_on else self._record.results[agent].attempts
        return any(one.kind == InvalidAnswer.__name__ for one in earlier)

    def paid_before(self, agent: int, answer: Answer) -> bool:
        return answer.source == "ledger" or any(one is answer for one in self._taken.get(agent, {}).values())

    def key(self, agent: int, request: Request) -> tuple[str, int]:
        """Return the request's fingerprint, and its number among identical ones of this run."""
        place = agent, request.model, request.effort, request.tool_choice, request.messages  # varies in a run
        known = self._keys.get(place)
        if known is None:
            key = request.key(self._endpoint)
            known = self._keys[place] = key, self._ordinal_of(agent, request, key)
        return known

    def _ordinal_of(self, agent: int, request: Request, key: str) -> int:
        """Number a request among identical ones; those that share an answer have one number."""
        same = same_of(self._plan, agent, request) if self._once and not request.goes_on else None
        if same is None:
            return self._ordinal(agent, key)
        if same not in self._shared:
            self._shared[same] = self._ordinal(agent, key)
        return self._shared[same]

    def _ordinal(self, agent: int, key: str) -> int:
        # Of the two requests of a hedge the ledger has one answer, the first to come. It serves the first to
        # ask again.
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
