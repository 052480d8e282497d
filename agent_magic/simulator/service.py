"""What the server decides: from the bytes of a request to the reply, with limits, cache and script. It has no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from random import Random

from agent_magic.simulator.answer import compose
from agent_magic.simulator.ask import Ask
from agent_magic.simulator.behaviour import USUAL, Behaviour, BehaviourError, Rule, apply, markers
from agent_magic.simulator.caching import PromptCache, Visit
from agent_magic.simulator.catalog import MODELS
from agent_magic.simulator.faults import Case, with_fault
from agent_magic.simulator.journal import Entry, Journal
from agent_magic.simulator.latency import REAL, Latency
from agent_magic.simulator.problem import Problem, invalid
from agent_magic.simulator.quota import USUAL_ALLOWANCE, Allowance, Pool, Quota
from agent_magic.simulator.reply import Reply, reply_to, whole
from agent_magic.simulator.validation import read_ask
from agent_magic.simulator.wire import Result, encode

MESSAGES = "/v1/messages"
ORGANIZATION = "org_simulated"
ERROR_STATUS = 400


@dataclass(frozen=True, slots=True)
class Settings:
    """How the simulator behaves.

    Attributes:
        seed: Changes every text and every duration.
        latency: How long answers take.
        allowance: The rate limits.
        script: Scripted answers, the first that matches wins.
    """

    seed: int = 0
    latency: Latency = REAL
    allowance: Allowance = USUAL_ALLOWANCE
    script: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is being answered.

    Attributes:
        reply: What to send.
        visit: Its use of the prompt cache; `None` if it has none.
        pool: The limits its output counts against; `None` if there are none.
    """

    reply: Reply
    visit: Visit | None = None
    pool: Pool | None = None


class Service:
    """Answers requests; holds all state of the simulator. It has no clock: the time comes in, monotonic seconds."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        """Start with full buckets, an empty cache and an empty journal."""
        self.settings = settings
        self.journal = Journal(now_s)
        self.cache = PromptCache()
        self._quota = Quota(settings.allowance)
        self._numbers = count(1)
        self._used: Counter[tuple[str, ...]] = Counter()

    def exchange(self, body: bytes, entry: Entry, now_s: float) -> Exchange:
        """Decide how a message request is answered.

        Args:
            body: The bytes of the request.
            entry: Its record; what becomes known is noted in it.
            now_s: When it arrived.

        Raises:
            Problem: It is answered with an error.
        """
        ask = read_ask(body)
        entry.model, entry.stream = ask.model.id, ask.stream
        entry.told(ask.prompt)
        behaviour = self._behaviour(ask)
        entry.fault = behaviour.fault
        _raise_scripted(behaviour)
        visit = self.cache.visit(ask, now_s)
        pool = self._admit(ask, visit, now_s)
        entry.billed(visit.usage.uncached, visit.usage.written, visit.usage.read)
        result = self._result(ask, behaviour, visit)
        return Exchange(with_fault(Case(reply_to(result), result, behaviour)), visit, pool)

    def count_tokens(self, body: bytes, entry: Entry) -> Exchange:
        """Answer a `count_tokens` request.

        Raises:
            Problem: It is answered with an error.
        """
        ask = read_ask(body, counting=True)
        entry.model, entry.input_tokens = ask.model.id, ask.input_tokens
        entry.told(ask.prompt)
        return Exchange(whole(200, encode({"input_tokens": ask.input_tokens})))

    def headers(self, entry: Entry, now_s: float) -> dict[str, str]:
        """Return the headers every response has; the limits are there once the model is known."""
        found = {
            "request-id": entry.request_id,
            "anthropic-organization-id": ORGANIZATION,
            "x-agent-magic-simulated": "1",
        }
        model = MODELS.get(entry.model or "") if entry.route == MESSAGES else None
        pool = self._quota.pool(model.pool, now_s) if model else None
        return {**found, **pool.headers(now_s, datetime.now(UTC))} if pool else found

    def error(self, problem: Problem, entry: Entry) -> Exchange:
        """Answer with a problem, and note it."""
        entry.error = problem.kind
        return Exchange(problem_reply(problem, entry.request_id))

    def reset(self, now_s: float) -> None:
        """Go back to the state of the start; answers under way are finished."""
        self.journal.reset(now_s)
        self.cache.reset()
        self._quota.reset()
        self._used.clear()

    def _behaviour(self, ask: Ask) -> Behaviour:
        try:
            found = markers(ask.prompt)
        except BehaviourError as error:
            raise invalid(f"simulator: {error}") from None
        script = enumerate(self.settings.script)
        base = next((rule.behaviour for place, rule in script if self._holds(place, rule, ask)), USUAL)
        return apply(base, [each for each in found if self._allowed(each.times, ask.model.id, ask.prompt, each.text)])

    def _holds(self, place: int, rule: Rule, ask: Ask) -> bool:
        return bool(rule.pattern.search(ask.prompt)) and self._allowed(rule.times, f"line {place}")

    def _allowed(self, times: int | None, *key: str) -> bool:
        """Count a use of something that may be used so many times, and say if it may still."""
        if times is None:
            return True
        self._used[key] += 1
        return self._used[key] <= times

    def _admit(self, ask: Ask, visit: Visit, now_s: float) -> Pool | None:
        pool = self._quota.pool(ask.model.pool, now_s)
        denial = pool.admit(visit.usage.limited, now_s) if pool else None
        if denial:
            text = f"This request would exceed your rate limit of {denial.per_minute} {denial.limit}"
            raise Problem(429, f"{text} for {ask.model.name}.", retry_after_s=denial.retry_after_s)
        return pool

    def _result(self, ask: Ask, behaviour: Behaviour, visit: Visit) -> Result:
        # Text and timing have generators of their own, so that a changed text does not change the clock.
        content = f"{self.settings.seed}:{ask.digest().hex()}"
        pace = Random(f"pace:{content}")
        text = Random(f"text:{content}")
        timing = self.settings.latency.draw(ask.model.family, pace, ttft_s=behaviour.ttft_s, pace=behaviour.pace)
        message_id = f"msg_sim_{next(self._numbers):010d}"
        return Result(message_id, ask, compose(ask, behaviour, text), visit.usage, timing)


def problem_reply(problem: Problem, request_id: str) -> Reply:
    """Return the response to a problem: the documented error body, and `retry-after` where it has one."""
    reply = whole(problem.status, encode(problem.body(request_id)), at_s=problem.after_s)
    if problem.retry_after_s is None:
        return reply
    return replace(reply, headers=(("retry-after", str(problem.retry_after_s)),))


def _raise_scripted(behaviour: Behaviour) -> None:
    """Answer with the error that a script or a marker asks for; a status under 400 asks for none."""
    status = behaviour.status or 0
    if status < ERROR_STATUS or behaviour.fault is not None:
        return
    raise Problem(
        status,
        behaviour.message or "This error was asked for.",
        kind=behaviour.error,
        code=behaviour.error_code,
        retry_after_s=behaviour.retry_after,
        after_s=behaviour.ttft_s or 0.0,
    )
