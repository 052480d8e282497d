"""Who answers in a forecast: the modelled work of each agent, behind the modelled provider's limits and cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from agent_magic.engine.admission.budget import Worst
from agent_magic.engine.admission.room import Need
from agent_magic.engine.contract import Outcome, WithoutCalls
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.engine.requests import LONGEST_TOKEN, OVERHEAD_TOKENS
from agent_magic.engine.retry import Failure
from agent_magic.forecast.evidence import CONTINUES
from agent_magic.forecast.provider import Refusal
from agent_magic.forecast.virtual import NEVER, Flight
from agent_magic.record.answer import NOT_BILLED, NOTHING_USED, PAUSED, Answer, Price, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.engine.admission.prefix import Prefixes
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.forecast.provider import Input, Provider
    from agent_magic.forecast.work import Try, Work
    from agent_magic.record.request import Request

OK: Final = 200
TOO_MANY_REQUESTS: Final = 429
NOTHING: Final = Worst(0.0, 0)


class Pricing(Protocol):
    """Says what tokens cost.

    Attributes:
        recorded: Whether an attempt that repeats a recorded one costs what that did.
    """

    recorded: bool

    def of(self, model: str, usage: Usage | None) -> Price:
        """Return what tokens of a model cost."""
        ...


class _Flight(Flight):
    """A modelled request under way."""

    __slots__ = ("attempt", "billed", "readings", "refusal")

    def __init__(self, step: int, started_s: float, attempt: Try) -> None:
        first_s = None if attempt.first_s is None else started_s + attempt.first_s
        super().__init__(step, started_s, first_s, started_s + attempt.takes_s)
        self.attempt = attempt
        self.billed: Input | None = None
        self.refusal: Refusal | None = None
        self.readings: Readings = NO_READINGS


class ModelledService:
    """Answers as the works say, as far as the modelled provider lets it.

    Args:
        works: Per agent, what it will do; `None` for one that is left out.
        provider: Admits requests, and bills their input.
        entries: Per agent, the cache entry it asks for; `None` asks for none.
        price: What tokens cost.
        max_attempts: The most attempts of an agent.
    """

    abort_s = 0.0

    def __init__(
        self,
        works: Sequence[Work | None],
        provider: Provider,
        entries: Sequence[str | None],
        price: Pricing,
        *,
        max_attempts: int,
    ) -> None:
        self._works, self._provider, self._entries, self._price = works, provider, entries, price
        self._max_attempts = max_attempts
        self._place = [0] * len(works)

    def _work(self, step: int) -> Work:
        work = self._works[step]
        if work is None:
            raise RuntimeError(f"agent {step} was left out")
        return work

    def _attempt(self, step: int) -> Try:
        tries = self._work(step).tries
        return tries[min(self._place[step], len(tries) - 1)]

    def delay_s(self, step: int) -> float:
        """Return how long the agent's next request takes to be written."""
        return self._attempt(step).local_s

    def count(self, request: Request) -> int | None:
        """Count nothing: what a request has is known here."""
        del request
        return None

    def send(self, step: int, request: Request, now: float) -> _Flight:
        """Let a request in, or refuse it."""
        del request
        work, attempt = self._work(step), self._attempt(step)
        flight = _Flight(step, now, attempt)
        if attempt.input_tokens is not None and not attempt.turned_away:
            billed = self._provider.take(work.pool, attempt.input_tokens, now, self._entries[step], work.prefix)
            if isinstance(billed, Refusal):
                flight.refusal, flight.first_s, flight.until_s = billed, None, now + self._provider.refusal_s
            else:
                flight.billed = billed
        flight.readings = self._provider.readings(work.pool, now)
        return flight

    def begin(self, flight: _Flight, now: float) -> tuple[int, Readings]:
        """Begin a reply: what it says of limits is here, and what it wrote to the cache can be read."""
        self._opened(flight, now)
        return flight.attempt.status or OK, flight.readings

    def end(self, flight: _Flight, now: float) -> Outcome:
        """End a request as its attempt says."""
        attempt, step = flight.attempt, flight.step
        if flight.refusal is not None:
            return self._refused(flight, flight.refusal)
        self._place[step] += 1
        failure = attempt.failure
        if not flight.begun and failure is None:  # nobody streamed it: it begins and ends at once
            self._opened(flight, now)
        usage = _usage_of(attempt, flight.billed)
        price = self._price_of(step, attempt, usage)
        served = attempt.input_tokens == 0 and failure is None  # the answer was there already: nothing was sent
        status = None if served else attempt.status if failure not in {None, CONTINUES} else OK
        readings = None if flight.begun and failure is None else flight.readings  # read when it began
        if failure is None or failure is CONTINUES:
            stop_reason = "end_turn" if failure is None else PAUSED
            answer = Answer("", stop_reason, usage=usage, model=self._work(step).model, source="forecast", content="[]")
            return Outcome(answer, None, status, usage, "forecast", "", readings, price)
        return Outcome(None, failure, status, usage, None, "", readings, price)

    def abort(self, flight: _Flight, now: float) -> Outcome:
        """Cut a request: what had arrived of it is billed."""
        usage = _usage_of(flight.attempt, flight.billed, share=_share(flight, now))
        price = self._price_of(flight.step, flight.attempt, usage)
        return Outcome(None, None, OK if flight.begun else None, usage, None, "", None, price)

    def _opened(self, flight: _Flight, now: float) -> None:
        written = flight.billed is not None and flight.billed.written > 0
        entry = self._entries[flight.step] if written else None
        made = flight.attempt.output_tokens or 0
        self._provider.began(self._work(flight.step).pool, (now, flight.until_s, made), entry, flight.started_s)

    def _refused(self, flight: _Flight, refusal: Refusal) -> Outcome:
        """Answer 429."""
        failure = Failure(
            f"RateLimited: {refusal.limit} (429)",
            self._max_attempts,
            retry_after_s=refusal.retry_after_s,
            counts=self._max_attempts == 1,  # as in `failure_of`
            kind="RateLimited",
            limit=refusal.limit,
        )
        return Outcome(None, failure, TOO_MANY_REQUESTS, NOTHING_USED, None, "", flight.readings, NOT_BILLED)

    def _price_of(self, step: int, attempt: Try, usage: Usage) -> Price:
        if self._price.recorded and attempt.price is not None and usage is attempt.usage:
            return attempt.price
        return self._price.of(self._work(step).model, usage)


class ModelledRequests(WithoutCalls):
    """What the requests of a forecast use.

    Args:
        works: What the agents do; `None` for one that is left out.
        requests: What each asks.
        limit_classes: The models whose rate limits each shares.
        prefixes: Who shares a context with whom; `None` shares none.
        price: What tokens cost; `None` where nothing counts dollars or tokens.
        held: The agents whose answers are there already.
    """

    def __init__(
        self,
        works: Sequence[Work | None],
        requests: Sequence[Request],
        limit_classes: Sequence[str],
        prefixes: Prefixes | None,
        price: Pricing | None,
        held: frozenset[int] = frozenset(),
    ) -> None:
        self._works, self._requests, self.prefixes, self._price, self._held = works, requests, prefixes, price, held
        self.models, self.limit_classes = [request.model for request in requests], limit_classes
        self.checked = dict[int, bool]()
        self._needs: dict[int, Need] = {}

    def write(self, step: int) -> Request:
        """Return what the agent asks."""
        return self._requests[step]

    def need(self, step: int) -> Need:
        """Return what an agent's request will use."""
        found = self._needs.get(step)
        if found is None:
            worst, least = NOTHING, None
            if self._price is not None:
                size = self._work(step).size + OVERHEAD_TOKENS
                worst, least = (self._worst(step, self._price, most) for most in (size, size // LONGEST_TOKEN))
            found = self._needs[step] = self._need(step, worst, least)
        return found

    def count(self, step: int) -> bool:
        """Know an agent's input, as a live run does that has it counted. Nobody waits for that here."""
        if self._price is not None:
            work = self._work(step)
            known = (one.input_tokens for one in work.tries if one.input_tokens)
            size = next(known, work.size + OVERHEAD_TOKENS)
            self._needs[step] = self._need(step, self._worst(step, self._price, size), None)
        return False

    def to_count(self) -> Sequence[tuple[int, Request]]:
        """Return nothing."""
        return ()

    def counted(self, step: int, tokens: int | None) -> None:
        """Do nothing: nothing is counted."""

    def used(self, step: int, usage: Usage) -> None:
        """Do nothing: bounds are known."""

    def fault(self, step: int, answer: Answer) -> None:
        """Return nothing: what did not fit when it was recorded is a turn of the work."""

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        """Do nothing: the next attempt of the work is the next turn."""

    def answered(self, step: int, text: str) -> None:
        """Do nothing: prompts are as they were."""

    def _work(self, step: int) -> Work:
        work = self._works[step]
        if work is None:
            raise RuntimeError(f"agent {step} was left out")
        return work

    def _need(self, step: int, worst: Worst, least: Worst | None) -> Need:
        work = self._work(step)
        shared = work.shared if self.prefixes is not None and self.prefixes.name(step) is not None else 0
        free = step in self._held
        return Need(work.model, work.need, work.max_tokens, worst, free=free, shared_tokens=shared, least=least)

    def _worst(self, step: int, price: Pricing, size: int) -> Worst:
        """Return what a request uses that fills its answer, as a live run reserves it."""
        work = self._work(step)
        ttl = None if self.prefixes is None else self.prefixes.ttl(step)
        written = 0 if ttl is None else min(size, work.context_size)
        usage = Usage(
            size - written,
            cache_write_tokens=written,
            output_tokens=work.max_tokens,
            cache_write_1h_tokens=written if ttl == "1h" else 0,
        )
        return Worst(price.of(work.model, usage).cost_usd, size + work.max_tokens)


def _usage_of(attempt: Try, billed: Input | None, share: float = 1.0) -> Usage:
    """Return the tokens of an attempt: those recorded where it is billed as it was."""
    if billed is None or attempt.output_tokens is None:
        return attempt.usage or Usage()
    made = round(attempt.output_tokens * share)
    known = attempt.usage
    if (
        known is not None
        and made == known.output_tokens
        and (known.input_tokens, known.cache_read_tokens or 0, known.cache_write_tokens or 0) == billed[:3]
        and known.cache_write_1h_tokens == billed.written_1h
    ):
        return known
    return Usage(
        billed.uncached,
        cache_read_tokens=billed.read,
        cache_write_tokens=billed.written,
        output_tokens=made,
        cache_write_1h_tokens=billed.written_1h,
        estimated=share < 1.0,
    )


def _share(flight: Flight, now: float) -> float:
    """Return how much of an answer had come when it was cut."""
    if flight.until_s == NEVER:
        return 1.0  # what had come is what was recorded
    if flight.first_s is None or flight.until_s <= flight.first_s:
        return 0.0
    return min(1.0, max(0.0, (now - flight.first_s) / (flight.until_s - flight.first_s)))
