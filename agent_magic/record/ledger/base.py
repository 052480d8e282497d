"""Answers that were bought, so that an identical request is not bought again; the contract of whatever keeps them.

A *ledger* keeps answers and runs; a *journal* is what it takes in of one run. Each attempt goes this way:

```
planned -> started -> finished | failed | cancelled | unknown
```

`planned` is every agent of the run's plan without an attempt. `started` is kept before a request is sent, `finished`
before its answer is shown, priced or passed on. `unknown` is what was under way when its kernel was killed: it may have
been billed.

Answers are kept by the fingerprint of their request, which the endpoint is part of, in order for repeated identical
requests. Refusals are never served again, simulated answers only where that was asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent_magic.record.answer import PAID_BEFORE, PAUSED
from agent_magic.record.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.record.answer import Answer
    from agent_magic.record.results import RunRecord

NOT_REUSED = frozenset({"refusal", PAUSED})
"""Stop reasons of answers that are bought again. One cut at `max_tokens` is served: it would be cut the same again."""


class Busy(NamedTuple):
    """Somebody else is buying this very answer. Ask again a little later."""

    by: str


class PastRun(NamedTuple):
    """One run of a ledger, in one row.

    Attributes:
        run: Its number, for `open`.
        began_at: When, in UTC, as ISO text.
        plan: The plan's name.
        state: `running`, `finished`, `cut`, or `lost` where its kernel was killed.
        agents: How many the plan has.
        succeeded: How many of them have a complete answer that was not refused.
        calls: Requests that were sent; answers served from the ledger are none.
        served: Answers that had been bought before.
        unknown: Requests that were under way when the kernel was killed: they may have been billed.
        wall_s: First ready to last finished; `None` where the run was lost.
        tokens: All tokens of the requests sent, where known.
        cost_usd: Dollars of the requests sent whose price is known; `None` where there is none.
        saved_usd: What the answers that were served would have cost at list price; `None` where there are none.
        simulated: Whether made-up answers are among them.
    """

    run: int
    began_at: str
    plan: str
    state: str
    agents: int
    succeeded: int
    calls: int
    served: int
    unknown: int
    wall_s: float | None
    tokens: int | None
    cost_usd: float | None
    saved_usd: float | None
    simulated: bool


class Journal(Protocol):
    """What a ledger takes in of one run. All of it is called on the loop of the run."""

    def ask(self, agent: int, number: int, key: str, ordinal: int, *, fresh: bool) -> Answer | Busy | None:
        """Look an answer up, or take note that the agent's request goes out now.

        Args:
            agent: The agent's number.
            number: The number of its attempt, from 1.
            key: The fingerprint of the request.
            ordinal: How many equal requests of this run came before.
            fresh: Buy it even if it was bought before.

        Returns:
            The answer, marked as from the ledger; `Busy` where another run is buying it; `None` to send the request,
            which is kept as started.

        Raises:
            LedgerError: The start cannot be kept, so nothing may be sent.
        """
        ...

    def keep(self, agent: int, number: int, answer: Answer, at_s: float) -> None:
        """Store a complete answer. Twice is as good as once, and a second call waits until it is stored.

        A kill of this process cannot lose it from here on; a large one from the end of `on_disk` on. Nobody sees it
        before that.
        """
        ...

    async def on_disk(self, agent: int, number: int) -> None:
        """Return when an answer that was kept would outlive a failure of power too. Who wait together wait once."""
        ...

    def write(self) -> None:
        """Store what the run's record says by now."""
        ...

    def close(self) -> None:
        """Store the rest; the run is over."""
        ...


class Ledger(Protocol):
    """Where answers and runs are kept."""

    def __len__(self) -> int:
        """Count the answers that can be served again."""
        ...

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key, marked as from the ledger."""
        ...

    def keep(self, key: str, ordinal: int, answer: Answer) -> None:
        """Store a complete answer. It is stored when this returns."""
        ...

    def begin(self, record: RunRecord) -> Journal:
        """Take in a run that is about to begin."""
        ...

    def past_runs(self) -> Sequence[PastRun]:
        """Return every run, the newest first."""
        ...

    def record_of(self, run: int) -> RunRecord:
        """Bring a run back.

        Raises:
            LedgerError: There is none of this number.
        """
        ...


def is_reusable(answer: Answer, *, simulated: bool = False) -> bool:
    """Tell whether an answer may be served again: bought (or made up, where `simulated`), whole, and no refusal.

    A paused one is no whole answer, but what goes on from it is bought once only if it is served again.
    """
    bought = answer.source == "live" or (simulated and answer.source == "simulated")
    goes_on = answer.stop_reason == PAUSED and answer.content is not None
    return bought and (goes_on or answer.stop_reason not in NOT_REUSED)


def past_run(number: int, record: RunRecord) -> PastRun:
    """Sum a run up from its record."""
    attempts = record.attempts
    sent = [one for one in attempts if one.price != PAID_BEFORE]
    used = [one.usage for one in sent if one.usage is not None]
    totals = [(one.total_input_tokens, one.output_tokens) for one in used]
    tokens = [given + produced for given, produced in totals if given is not None and produced is not None]
    costs = [one.price.cost_usd for one in sent if one.price is not None and one.price.cost_usd is not None]
    ready = [one.ready_s for one in record.results if one.ready_s is not None]
    ends = [one.finished_s for one in record.results if one.attempts and one.finished_s is not None]
    return PastRun(
        number,
        record.began_at.isoformat(timespec="seconds"),
        record.plan.name,
        "running" if record.ended_s is None else "cut" if record.cut else "finished",
        len(record.results),
        sum(one.status == "succeeded" for one in record.results),
        len(sent),
        len(attempts) - len(sent),
        0,
        max(ends) - min(ready) if ends and ready and record.ended_s is not None else None,
        sum(tokens) if tokens else None,
        math.fsum(costs) if costs else None,
        saved_usd(record),
        record.simulated,
    )


def saved_usd(record: RunRecord) -> float | None:
    """Return what a run's answers from the ledger would have cost at list price; `None` where there are none."""
    prices = Prices(tell=lambda _: None)
    served = [one for one in record.attempts if one.price == PAID_BEFORE]
    costs = [prices.of(one.model, one.usage).cost_usd for one in served]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None
