"""What a run tells its gate: what each request may use before it leaves, and what it has used when it is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_magic.engine.asking import ask, model_of
from agent_magic.engine.breaker import Breakers, Fault
from agent_magic.engine.budget import Budget, Worst
from agent_magic.engine.prefix import shared_prefixes
from agent_magic.engine.room import LONGEST_TOKEN, OVERHEAD_TOKENS, Gate, Need
from agent_magic.errors import DeclarationError, Overloaded, RateLimited, Truncated, Unreachable, Unreadable
from agent_magic.live.leftover import one_line
from agent_magic.record.answer import CHARS_PER_TOKEN, Usage
from agent_magic.record.request import continued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.breaker import Blame
    from agent_magic.engine.key import Key
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Policy
    from agent_magic.live.known import Known
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Price
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Message, Request

REFUSED = 429
FAULTS = (Overloaded, Truncated, Unreachable, Unreadable)


class Admission:
    """The gate of one run, and the requests that were written to ask it.

    Args:
        plan: What runs.
        policy: How; its budget, if it has one.
        models: The model of each agent.
        timeouts_s: The seconds each agent has.
        prices: What tokens cost.
        pacer: Keeps the provider's limits; `None` keeps none.
        known: Answers that are there already and need no room; `None` has none.
        key: What is known of the client's key; `None` where it has none that could be refused.
        work_s: Per agent, expected seconds of work; `None` is unknown.

    Attributes:
        texts: The answers so far, by the agents' names.
        gate: Whom the conductor asks; `None` where nothing limits the run.
    """

    def __init__(  # noqa: PLR0913 - what `Driver` was given
        self,
        plan: Plan,
        policy: Policy,
        *,
        models: Sequence[str],
        timeouts_s: Sequence[float],
        prices: Prices,
        pacer: Pacer | None,
        known: Known | None = None,
        key: Key | None = None,
        work_s: Sequence[float] | None = None,
    ) -> None:
        self._known = known
        self._plan, self._policy, self._prices = plan, policy, prices
        self.texts: dict[str, str] = {}
        self._requests: dict[int, Request] = {}
        self._stopped: set[int] = set()
        self._messages: dict[int, tuple[Message, ...]] = {}
        self._counted: dict[int, int | None] = {}
        self._believed: dict[int, tuple[str, int, int | None]] = {}
        self._beyond: dict[bool, dict[str, int]] = {False: {}, True: {}}  # of bounds by bytes, and by counts
        has_budget = policy.budget_usd is not None or policy.budget_tokens is not None
        budget = Budget(policy.budget_usd, policy.budget_tokens) if has_budget else None
        burns = policy.max_usd_per_min is not None
        self._capped = has_budget or burns
        self._prefixes = shared_prefixes(plan, models, policy, work_s)
        self.gate: Gate | None = None
        if pacer is not None or budget is not None or self._prefixes is not None or burns or key is not None:
            breakers = Breakers(policy.breaker_share, policy.max_usd_per_min)
            self.gate = Gate(
                models,
                self._need,
                pacer=pacer,
                budget=budget,
                prefixes=self._prefixes,
                breakers=breakers,
                key=None if key is None or key.accepted else key,
                patience_s=timeouts_s,
            )

    def request(self, agent: int) -> Request:
        """Return the request of an agent whose parents are done.

        Raises:
            DeclarationError: Its prompt cannot be filled in.
            asyncio.CancelledError: The user stopped it while its prompt was rendered.
        """
        if agent in self._stopped:
            raise asyncio.CancelledError
        if agent in self._requests:
            return self._requests.pop(agent)
        ttl = None if self._prefixes is None else self._prefixes.ttl(agent)
        first = ask(self._plan, agent, self.texts, self._policy.timeout_s, ttl=ttl)
        return first._replace(messages=self._messages[agent]) if agent in self._messages else first

    def ahead(self, agent: int) -> Request:
        """Return the request of an agent that asked for room and has not left."""
        return self._requests[agent]

    def goes_on(self, agent: int, content: str | None) -> None:
        """Take in what an agent's next request goes on from: the blocks of its answer so far; `None` begins anew."""
        if content is None:
            self._messages.pop(agent, None)
        else:
            self._messages[agent] = continued(self._messages.get(agent, ()), content)
        self._counted.pop(agent, None)

    def counted(self, agent: int, tokens: int | None) -> None:
        """Take in how much input an agent's request has, by the API's count; `None` where that could not be had."""
        self._counted[agent] = tokens

    def heard(self, agent: int, stream: Stream, now: float) -> None:
        """Record that a reply has begun: it says how much room there is."""
        if self.gate is not None:
            if stream.status_code != REFUSED:  # what it says comes again when it is settled
                self.gate.heard(agent, stream.readings, now, stream.arrived)
            self.gate.replied(stream.status_code)

    def began(self, agent: int) -> bool:
        """Take in that an answer has begun: what it wrote to the cache can be read. Tell whether that makes room."""
        if self.gate is None or self._prefixes is None:
            return False
        self.gate.began(agent)
        return True

    def settle(
        self, agent: int, stream: Stream, usage: Usage | None, price: Price, error: BaseException | None, now: float
    ) -> None:
        """Give back what was set aside for a request."""
        if self.gate is None:
            return
        if error is not None or stream.status_code is not None:
            self.gate.replied(stream.status_code)
        else:
            self.gate.turned_back()
        if isinstance(error, RateLimited):
            self.gate.refused(agent, error.retry_after_s, error.limit, now, stream.readings)
        known = usage or Usage()
        self._learn(agent, known.total_input_tokens)
        self.gate.settle(
            agent,
            input_tokens=limited_tokens(known),
            total_tokens=total_tokens(known),
            read_tokens=known.cache_read_tokens,
            output_tokens=known.output_tokens,
            cost_usd=price.cost_usd,
            bad=_blame_of(stream, error),
            now=now,
        )

    def _need(self, agent: int) -> Need:
        try:
            request = self._requests.setdefault(agent, self.request(agent))
        except (DeclarationError, asyncio.CancelledError) as error:  # its attempt will end in the same, and be a result
            if isinstance(error, asyncio.CancelledError):  # the user stopped its prompt's code, which may never end
                self._stopped.add(agent)
            return Need(model_of(self._plan.agents[agent]), 0, 0, Worst(0.0, 0))
        if self._known is not None and self._known.is_there(agent, request, look=self._capped):
            return Need(request.model, 0, 0, Worst(0.0, 0), free=True)
        characters = sum(map(len, request.texts()))
        worst, least = self._worst(agent, request) if self._capped else (Worst(0.0, 0), None)
        tokens = characters // CHARS_PER_TOKEN + OVERHEAD_TOKENS
        shared = len(request.context or "") // CHARS_PER_TOKEN if request.cached else 0
        return Need(request.model, tokens, request.max_tokens, worst, shared_tokens=shared, least=least)

    def _worst(self, agent: int, request: Request) -> tuple[Worst, Worst | None]:
        """Return the most a request can use, no token being shorter than a byte; and if it is as short as can be.

        The latter is `None` where the request was counted.
        """
        size = len("".join(request.texts()).encode(errors="replace")) + OVERHEAD_TOKENS
        counted, beyond = self._counted.get(agent), self._beyond[False].get(request.model, 0)
        self._believed[agent] = request.model, size, counted
        size += beyond
        if counted is not None and not beyond:
            size = counted + self._beyond[True].get(request.model, 0)
        if agent in self._counted:
            return self._cost(request, size), None
        return self._cost(request, size), self._cost(request, size // LONGEST_TOKEN)

    def _learn(self, agent: int, input_tokens: int | None) -> None:
        """Take in how much input a request had. Where it was more than it could be, later ones may be so as well."""
        model, most, counted = self._believed.pop(agent, ("", 0, None))
        for is_counted, bound in ((False, most), (True, counted)):
            if input_tokens is not None and bound is not None and input_tokens > bound:
                known = self._beyond[is_counted]
                known[model] = max(known.get(model, 0), input_tokens - bound)

    def _cost(self, request: Request, size: int) -> Worst:
        """Return what a request uses that has this much input and fills its answer."""
        written = min(size, len((request.context or "").encode(errors="replace"))) if request.cached else 0
        usage = Usage(
            size - written,
            cache_write_tokens=written,
            output_tokens=request.max_tokens,
            cache_write_1h_tokens=written if request.ttl == "1h" else 0,
        )
        return Worst(self._prices.of(request.model, usage).cost_usd, size + request.max_tokens)


def _blame_of(stream: Stream, error: BaseException | None) -> Blame:
    """Return what an attempt says of the service and the network."""
    if isinstance(error, FAULTS):
        return Fault(one_line(error), reached=not isinstance(error, Unreachable) or error.sent)
    return None if stream.status_code is None else False  # what turns a request away with reason is alive


def limited_tokens(usage: Usage) -> int | None:
    """Return what counts against the input limit: uncached input and what is written to the cache, not what is read."""
    return None if usage.input_tokens is None else usage.input_tokens + (usage.cache_write_tokens or 0)


def total_tokens(usage: Usage) -> int | None:
    """Add input and output up; `None` where either is unknown."""
    total = usage.total_input_tokens
    return None if total is None or usage.output_tokens is None else total + usage.output_tokens
