"""Settlement of finished requests: return the reserve and count the use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.flow import SKIPPED
from agent_magic.declare.race import NO_ANSWER
from agent_magic.engine.admission.breaker import Fault
from agent_magic.record.answer import NOT_BILLED, NOTHING_USED, PAID_BEFORE, Usage
from agent_magic.record.events import AgentEnded, AttemptEnded, new_tuple
from agent_magic.record.prices import of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.engine.admission.breaker import Blame
    from agent_magic.engine.admission.gate import Gate
    from agent_magic.engine.contract import Outcome, Requests
    from agent_magic.engine.retry import Failure
    from agent_magic.record.answer import Price
    from agent_magic.record.facts import Attempt
    from agent_magic.record.results import RunRecord

CANCELLED = "cancelled"
FREE = frozenset({PAID_BEFORE, NOT_BILLED})
"""Price sources that cost nothing now."""


class Settlement:
    """Settles the requests of one run; `learners` are called with the seconds that an answer took."""

    def __init__(
        self,
        record: RunRecord,
        requests: Requests,
        gate: Gate | None,
        price: Callable[[str, Usage | None], Price],
        learners: Sequence[Callable[[int, float], None]] = (),
    ) -> None:
        self._learners = learners
        self._record, self._requests, self._gate, self._price = record, requests, gate, price
        self.granted: dict[int, tuple[float, str]] = {}

    def is_sent(self, step: int) -> bool:
        return step in self.granted or self.under_way(step) is not None

    def under_way(self, step: int) -> Attempt | None:
        attempts = self._record.results[step].attempts
        return attempts[-1] if attempts and attempts[-1].ended is None else None

    def settle(self, step: int, outcome: Outcome, failure: Failure | None, now: float) -> None:
        answer, usage = outcome.answer, outcome.usage
        attempts = self._record.results[step].attempts
        attempt = attempts[-1] if attempts else None
        if attempt is None or attempt.ended is not None:  # nothing was sent
            self.granted.pop(step, None)
            if self._gate is not None:
                self._gate.turned_back(step)
                self._give_back(step, NOTHING_USED, NOT_BILLED, None, now)
            return
        model = attempt.begun.request.model
        price = outcome.price or (NOT_BILLED if usage is NOTHING_USED else self._priced(step, model, usage))
        if self._gate is not None:
            if failure is not None and failure.kind == "RateLimited":
                self._gate.refused(step, failure.retry_after_s, failure.limit, outcome.readings, now)
            by = "" if answer is None else answer.model
            self._give_back(step, usage, price, _blame(outcome, failure), now, model=by)
            self._gate.ended(step, outcome.status, answered=failure is not None)  # lets other runs go, so it comes last
        why, kind = (None, None) if answer is not None else ("stopped", CANCELLED)
        if failure is not None:
            why, kind = failure.why, failure.kind
        ended = (
            now,
            step,
            attempt.begun.number,
            answer,
            why,
            kind,
            outcome.partial,
            usage,
            price,
            outcome.source,
            outcome.status,
            outcome.worker,
        )
        self._record.add(new_tuple(AttemptEnded, ended))
        if self._learners and failure is None and answer is not None:
            bought_before = outcome.source == "ledger" or price == PAID_BEFORE
            if not (bought_before or answer.batch):
                for learn in self._learners:
                    learn(step, now - attempt.begun.at_s)

    def _priced(self, step: int, model: str, usage: Usage | None) -> Price:
        price, batching = self._price(model, usage), self._requests.batching
        return of_batch(price, usage) if batching is not None and step in batching.now else price

    def _give_back(
        self, step: int, usage: Usage | None, price: Price, bad: Blame, now: float, *, model: str = ""
    ) -> None:
        """Replace the reserve by the use; without a final count the reserve stays."""
        known, is_final = usage or Usage(), price in FREE or (usage is not None and usage.is_final)
        self._requests.used(step, known, model)
        if self._gate is not None:
            self._gate.settle(step, known, price.cost_usd if is_final else None, bad, now, is_final=is_final)


def _blame(outcome: Outcome, failure: Failure | None) -> Blame:
    if failure is not None and failure.fault:
        return Fault(failure.why, reached=failure.reached)
    return None if outcome.status is None else False  # what refuses a request with a reason is alive


def skipped(record: RunRecord, step: int, cause: int, now: float) -> AgentEnded:
    """Return the end of a step skipped because of others: any failed parent, or all parents of a race."""
    if not record.plan.agents[step].race:
        return AgentEnded(now, step, "skipped", f"{record.results[cause].name!r} did not succeed", SKIPPED)
    others = [one for parent in record.plan.dag.parents[step] if (one := record.results[parent]).status != "unused"]
    if len(others) == 1:  # of a hedge that was not used
        return AgentEnded(now, step, others[0].status, others[0].error, others[0].kind)
    told = "; ".join(f"{one.name}: {one.error or one.status}" for one in others)
    return AgentEnded(now, step, "failed", f"nobody answered. {told}", NO_ANSWER)
