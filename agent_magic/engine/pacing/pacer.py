"""The pacer keeps requests inside the provider's rate limits, nearly without being told them.

Pure: no clock, no tasks, no network. The time comes in as an argument, in seconds of one monotonic clock for all runs
that share the pacer. The same events and the same seed give the same answers.

```
ask --- Hold(reason, until_s): ask again then, and whenever an answer came
 |
 `- Ticket --- heard(readings) --- finished(usage)     usage None: failed, or not known
      |
      `------- refused(retry_after, limit, readings)   429
```

How it works, per model class:

1. Nothing known: one request goes; when its reply begins, or after half a second, seven others. As long as no
   header tells a limit, a window grows while it is used up and unhurt, and is halved once per episode of refusals.
2. Response headers tell limits. From then on three buckets mirror the server's: requests and input are taken when a
   request goes, output when it is expected to be counted. `remaining` and usage correct them.
3. The capacity is not told. The most that was ever seen in a bucket certainly fits; `reset` bounds it.
4. What is saved up in a bucket is spent at a pace that falls as it runs out. So nothing leaves together, also after
   a refusal: `retry-after` closes the class, and then its waiters leave one by one.
5. What goes missing without explanation is what others take with the same key. Up to half is left to them.

Source: the vendor's page on rate limits: token buckets with continuous refill, also enforced over shorter intervals;
separate per model class; cache reads do not count as input; `max_tokens` does not count as output; `retry-after`:
earlier retries fail. A 529 says nothing of our own limits: give its ticket to `finished` with `None`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from agent_magic.engine.admission.room import Hold
from agent_magic.engine.pacing.limits import NO_READINGS, Limits, class_of
from agent_magic.engine.pacing.pool import Pool, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.engine.pacing.health import PoolHealth
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.record.terms import Ceilings, Learned

__all__ = ["Hold", "Pacer", "Ticket"]

NO_LIMITS: Final = Limits()


class Pacer:
    """Says when the next request may leave. One for everything that uses the same key.

    Args:
        limits: What the user says of the limits, by model or model class. A lower limit than the server's is kept; a
            higher one gives way to what the server announces.
        seed: Makes the jitter repeatable.
    """

    def __init__(self, limits: Mapping[str, Limits] | None = None, seed: int | None = None) -> None:
        self._limits = {class_of(model): each for model, each in (limits or {}).items()}
        self._random = Random(seed)
        self._classes: dict[str, Pool] = {}
        self._pools: dict[str, Pool] = {}

    def ask(
        self, model: str, input_tokens: int, output_tokens: int, now: float, *, kind: str = "", queue: int = 0
    ) -> Ticket | Hold:
        """Ask to send the request that is the first of its queue for this model class.

        A request that is held keeps its place: what flows in is saved for it, however large it is. Ask for nothing
        behind it. Queues that share the pacer take turns.

        Args:
            model: The model.
            input_tokens: The uncached input that is expected.
            output_tokens: The output that is expected, not `max_tokens`. Expectations that are off by a factor are
                learned from answers, so any guess will do.
            now: The time.
            kind: Which requests have outputs alike, such as those of one agent's template.
            queue: Who asks: a number per run.
        """
        pool = self._pools.get(model) or self._pool(model)
        return pool.ask(input_tokens, output_tokens, now, kind, queue)

    def forgo(self, model: str, queue: int) -> None:
        """Record that a queue that was held will not ask again soon: something else holds it, or it is over.

        Args:
            model: The model it asked for.
            queue: Who asked.
        """
        if model in self._pools:
            self._pools[model].forgo(queue)

    def heard(
        self, ticket: Ticket, readings: Readings, now: float, arrived: Callable[[float], int] | None = None
    ) -> None:
        """Record what a response says of the limits, as soon as its headers are here. Not for a 429: see `refused`.

        Args:
            ticket: The request's.
            readings: What it says, if anything.
            now: The time.
            arrived: Says how many characters of the answer have arrived at a time; asked now and then until it ends.
                `None` if nobody can.
        """
        ticket.pool.heard(ticket, readings, now, arrived)

    def finished(self, ticket: Ticket, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        """Record that a request is over, in whichever way but a 429.

        Args:
            ticket: The request's. A second time is ignored.
            input_tokens: The input that counts: `input_tokens + cache_creation_input_tokens`. `None` if not known.
            output_tokens: The output. `None` if not known.
            now: The time.
        """
        ticket.pool.finished(ticket, input_tokens, output_tokens, now)

    def refused(
        self,
        ticket: Ticket,
        retry_after_s: float | None,
        limit: str | None,
        now: float,
        readings: Readings = NO_READINGS,
    ) -> None:
        """Record a 429.

        Args:
            ticket: The request's.
            retry_after_s: Seconds in which nothing of this class will be let in; `None` if not said.
            limit: Which limit refused it: `requests`, `input`, `output`, `ramp` where the load grew too fast, `None`
                if not known.
            now: The time.
            readings: What the response says of the limits.
        """
        ticket.pool.refused(ticket, retry_after_s, limit, readings, now)

    def health(self, now: float) -> dict[str, PoolHealth]:
        """Say per model class how much of each limit was used over the last minute."""
        return {name: pool.health(name, now) for name, pool in self._classes.items()}

    def ceilings(self) -> Ceilings:
        """Return the limits that are known, by model class."""
        return {name: found for name, pool in self._classes.items() if (found := pool.ceilings())}

    def learned(self, now: float) -> dict[str, Learned]:
        """Return what answers have taught so far, by model class."""
        return {name: pool.learned(now) for name, pool in self._classes.items()}

    def recall(self, learned: Mapping[str, Learned], now: float, *, levels: bool = True) -> None:
        """Go on from what was learned earlier.

        Args:
            learned: That, by model class.
            now: The time.
            levels: Whether to believe that as much is left of each limit as was then.
        """
        for name, each in learned.items():
            self._pool(name).recall(each, now, levels=levels)

    @property
    def given(self) -> dict[str, Limits]:
        """What the user says of the limits, by model class."""
        return self._limits

    def _pool(self, model: str) -> Pool:
        name = class_of(model)
        pool = self._classes.get(name)
        if pool is None:
            pool = self._classes[name] = Pool(self._limits.get(name, NO_LIMITS), self._random)
        self._pools[model] = pool
        return pool
