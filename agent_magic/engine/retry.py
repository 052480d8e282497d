"""What follows an attempt: which failures a retry can mend and when, how many may run at once, other responses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.units import seconds
from agent_magic.errors import (
    Capped,
    LeftOut,
    NotInBatch,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    Truncated,
    UnexpectedToolUse,
    Unreachable,
    Unreadable,
)
from agent_magic.record.answer import CUT, PAUSED, TOOL_USE
from agent_magic.record.events import on_grid

if TYPE_CHECKING:
    from collections.abc import Container

    from agent_magic.engine.policy import Policy
    from agent_magic.record.answer import Answer


FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 8.0
JITTER = 0.25
"""Waits are lengthened by up to this share, so that agents refused together do not return together."""
TWICE = 2
"""Attempts after a truncated or garbled reply, which may have been billed."""
GONE = 404
"""The model is retired or unknown."""
STOPS_RUN = frozenset({401, 402})
"""The key or account is refused, for every agent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, as the conductor sees it."""

    why: str
    attempts: int = 1  # maximum for this kind of failure; 1 is final
    retry_after_s: float | None = field(default=None, kw_only=True)
    waits_s: float | None = field(default=None, kw_only=True)  # as recorded, in a forecast
    counts: bool = field(default=True, kw_only=True)  # False for a demand to wait, which uses up no attempt
    stops_run: bool = field(default=False, kw_only=True)  # every other agent would fail too
    crowded: bool = field(default=False, kw_only=True)  # too many concurrent requests may be the cause
    kind: str = field(default="", kw_only=True)
    fault: bool = field(default=False, kw_only=True)  # the service or network is to blame
    reached: bool = field(default=True, kw_only=True)  # there was a connection
    limit: str | None = field(default=None, kw_only=True)  # named by a 429
    falls_back: bool = field(default=False, kw_only=True)  # another model might answer


def failure_of(error: BaseException, max_attempts: int) -> Failure:
    kind = type(error).__name__
    why = " ".join(f"{kind}: {error}".split()).strip(": ")
    match error:
        case RateLimited(final=True) | RateLimited(again=False):
            return Failure(why, kind=kind, stops_run=error.final, limit=error.limit)
        case RateLimited(retry_after_s=wait):  # the pacer slows down to the limit: only the deadline is the end of it
            counts = max_attempts == 1
            return Failure(why, max_attempts, kind=kind, retry_after_s=wait, counts=counts, limit=error.limit)
        case Overloaded(retry_after_s=wait):
            return Failure(why, max_attempts, kind=kind, retry_after_s=wait, crowded=True, fault=True, falls_back=True)
        case Unreachable(final=final):
            most = 1 if final else max_attempts
            return Failure(why, most, kind=kind, stops_run=final, crowded=True, fault=True, reached=error.sent)
        case Truncated() | Unreadable():  # if final, the next one would be paid for nothing too
            most = 1 if isinstance(error, Unreadable) and error.final else TWICE
            return Failure(why, min(most, max_attempts), kind=kind, fault=True)
        case NotInBatch(again=True) | LeftOut():  # of several endpoints there is one less each time
            return Failure(why, max_attempts, kind=kind, counts=isinstance(error, NotInBatch) or max_attempts == 1)
        case Rejected(status=status):
            return Failure(why, kind=kind, stops_run=status in STOPS_RUN, falls_back=status == GONE)
        case _:
            return Failure(why, kind=kind)


def backoff_s(failure: Failure, attempt: int, random: Random) -> float:
    # A server's `retry-after` says that earlier attempts fail, so it is only lengthened: by jitter, and to the
    # ordinary backoff if that is longer, for example if our clock runs ahead of a date.
    wait = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempt - 1, 10))
    if failure.waits_s is not None:
        return failure.waits_s
    return max(failure.retry_after_s or 0.0, wait) + wait * JITTER * random.random()


class _Verdict(NamedTuple):
    """The reaction to a response; by default it is passed on."""

    failure: Failure | None = None  # the reason not to pass it on
    continues: bool = False  # another request continues it
    capped: str = ""  # why none may; the partial answer is passed on


PASSED_ON = _Verdict()
KEPT = "the text so far is kept"


def judge(answer: Answer, turns: int, policy: Policy, most: int, *, is_last: bool = False) -> _Verdict:
    if answer.stop_reason == PAUSED:
        return _paused(answer, turns, policy, most)
    if answer.stop_reason == TOOL_USE and is_last:
        more = "Raise --max-turns." if turns >= most else "The budget had no room for more: raise --budget."
        return _capped(f"The model asks for more tools in its last turn ({turns}); {KEPT}. {more}", policy)
    if answer.stop_reason == TOOL_USE:
        why = "The model asks for a tool call (tool_use), but names none, or this agent has no tools."
        return _Verdict(failure_of(UnexpectedToolUse(why), 1))
    if answer.stop_reason == "refusal" and policy.on_refusal == "fail":
        category = f" ({answer.refusal})" if answer.refusal else ""
        return _Verdict(failure_of(Refused(f"The model declined to answer{category}.", category=answer.refusal), 1))
    if answer.stop_reason in CUT and policy.on_max_tokens == "fail":
        return _Verdict(failure_of(Capped(f"The answer was cut ({answer.stop_reason}). {CUT[answer.stop_reason]}"), 1))
    return PASSED_ON


def _paused(answer: Answer, turns: int, policy: Policy, most: int) -> _Verdict:
    if answer.content is None:
        return _capped(f"The answer was paused (pause_turn) with nothing in it to go on from; {KEPT}.", policy)
    if turns >= most:
        return _capped(f"The answer was paused (pause_turn) {turns} times; {KEPT}. Raise --max-turns.", policy)
    return _Verdict(continues=True)


def _capped(why: str, policy: Policy) -> _Verdict:
    if policy.on_max_tokens == "fail":
        return _Verdict(failure_of(Capped(why), 1))
    return _Verdict(capped=f"Capped: {why}")


class Tries:
    """Counts the attempts of each agent; of `own` ones, tasks, only the failures say how many they have."""

    def __init__(self, count: int, policy: Policy, seed: int | None, own: Container[int] = frozenset()) -> None:
        self._most, self._own = policy.max_attempts, own
        self._seed = seed if policy.seed is None else policy.seed
        self._made = [0] * count
        self._free: dict[int, int] = {}
        self._turned: set[int] = set()
        self.until_s: dict[int, float] = {}

    def launched(self, agent: int) -> int:
        number = self._made[agent] = self._made[agent] + 1
        return number

    def made(self, agent: int) -> int:
        return self._made[agent]

    def turned(self, agent: int) -> None:
        self._free[agent] = self._free.get(agent, 0) + 1
        self._turned.add(agent)
        self.until_s.pop(agent, None)

    def moved(self, agent: int) -> None:
        self.forget(agent)
        self._turned.add(agent)

    def has_turned(self, agent: int) -> bool:
        return agent in self._turned

    def next_s(self, agent: int, failure: Failure, now: float, deadline_s: float | None) -> float | str:
        if not failure.counts:
            self._free[agent] = self._free.get(agent, 0) + 1
        if self.left(agent, failure) <= 0:
            return failure.why
        made = self._made[agent]
        chance = Random(None if self._seed is None else f"{self._seed} {agent} {made}")  # whatever else has failed
        until_s = on_grid(now + backoff_s(failure, made, chance))  # as it is recorded, so that a forecast waits as long
        if deadline_s is not None and until_s >= deadline_s:
            return f"{failure.why} (the next try would come in {seconds(until_s - now)}, after the deadline)"
        self.until_s[agent] = until_s
        self._turned.discard(agent)
        return until_s

    def left(self, agent: int, failure: Failure) -> int:
        most = failure.attempts if agent in self._own else min(failure.attempts, self._most)
        return most - self.counted(agent)

    def counted(self, agent: int) -> int:
        return self._made[agent] - self._free.get(agent, 0)

    def held_by(self, agent: int, reason: str) -> str:
        if agent in self._turned:
            return reason
        return "backoff" if agent in self.until_s else reason or "retry"

    def forget(self, agent: int) -> None:
        self._free[agent] = self._made[agent]
        self.until_s.pop(agent, None)
        self._turned.discard(agent)


LATEST: Final = 8
LEAST: Final = 3
SHARE: Final = 0.5


class Slots:
    """The concurrency of a run: the policy's, reduced when failures show that it is too high.

    When an agent has one attempt left and half of the latest attempts failed by overload, requests go one at a time.
    Once all such last attempts are over, each answer doubles the concurrency. 429s do not count.
    """

    def __init__(self, most: int) -> None:
        self._most = self.width = most
        self._latest: deque[bool] = deque(maxlen=LATEST)
        self.last_tries: set[int] = set()

    def answered(self, agent: int) -> None:
        self._latest.append(False)
        if self.width < self._most:
            self.last_tries.discard(agent)
            if not self.last_tries:
                self.width = min(self._most, self.width * 2)

    def ended(self, agent: int) -> None:
        self.last_tries.discard(agent)

    def failed(self, agent: int, failure: Failure, *, tries_left: int) -> None:
        self._latest.append(failure.crowded)
        if not failure.crowded or tries_left != 1:
            return
        if self.width > 1:
            if len(self._latest) < LEAST or sum(self._latest) < SHARE * len(self._latest):
                return
            self.width = 1
        self.last_tries.add(agent)
