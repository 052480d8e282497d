"""Evidence in a record, read once for many forecasts: its policy and limits, each agent's attempts, and speeds."""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.answers.schema import told_by
from agent_magic.declare.content import tokens_of
from agent_magic.declare.flow import CONDITION, SKIPPED
from agent_magic.declare.race import BEATEN
from agent_magic.engine.admission.prefix import context_tokens
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.engine.policy import Policy, batching_of, policy_from
from agent_magic.engine.requests import OVERHEAD_TOKENS
from agent_magic.engine.retry import FIRST_BACKOFF_S, JITTER, LONGEST_BACKOFF_S, STOPS_RUN, Failure
from agent_magic.engine.run import ASK_AGAIN
from agent_magic.errors import DeclarationError
from agent_magic.providers.anthropic import models as by_name
from agent_magic.providers.anthropic.models import DEFAULT_URL, SPEEDS_FROM, USUAL_SPEED, speed_of, token_density
from agent_magic.record.answer import CHARS_PER_TOKEN, ESCALATED, NOTHING_USED, TIMED, TOOL_USE, WITH_ANSWER
from agent_magic.record.facts import Facts, stretches
from agent_magic.record.history import Told
from agent_magic.record.results import sharers_of
from agent_magic.record.terms import Ceiling, Ceilings, ModelFacts, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.engine.policy import Schedule
    from agent_magic.measure.server import Needs
    from agent_magic.record.answer import Price, Usage
    from agent_magic.record.facts import Stretch, ToolCall
    from agent_magic.record.history import Past
    from agent_magic.record.results import AgentResult, Attempt, RunRecord


OTHERS: Final = "*"


def facts_of(terms: Terms | None, model: str) -> ModelFacts:
    known = None if terms is None else terms.models.get(model)
    return known or by_name.facts_of(model)


_SCHEDULES: Final[dict[str, Schedule]] = {"schedule": "sequential", "barrier": "layers", "group": "groups"}


def policy_of(record: RunRecord) -> tuple[Policy, tuple[str, ...]]:
    # A record without a readable policy still shows the concurrency, and waits for barriers and slots.
    if record.terms is not None:
        with suppress(DeclarationError):  # a file from a stranger may say anything
            return policy_from({"identical": "each", **record.terms.policy}), ()  # as all runs were that say nothing
    held, peak = record.facts.reasons, max(1, record.facts.peak)
    most = max((one.number for one in record.attempts), default=1)
    usual = Policy()
    concurrency = peak if "slot" in held else max(peak, usual.concurrency)
    found: list[Schedule] = [word for reason, word in _SCHEDULES.items() if reason in held]
    schedule: Schedule = found[0] if found else "ready"
    policy = Policy(concurrency, schedule, max_attempts=max(most, usual.max_attempts), identical="each", seed=0)
    words = [f"its policy was not recorded: concurrency {concurrency}, schedule {schedule} follow from its times"]
    if held.intersection(DIMENSIONS):
        words.append("it waited for rate limits that were not recorded: none are modelled")
    return policy, tuple(words)


def ceilings_for(
    record: RunRecord, asked: Mapping[str, Limits] | None, pools: Iterable[str]
) -> tuple[Ceilings, tuple[str, ...]]:
    learned: Ceilings = record.terms.after if record.terms is not None else {}
    if asked is None:
        left = sorted(set(pools) - set(learned))
        note = (f"no rate limits are known of {', '.join(left)}: none are modelled",) if learned and left else ()
        return {pool: learned[pool] for pool in pools if pool in learned}, note
    if not asked:
        return {}, ("no rate limits",)
    found: Ceilings = {}
    for pool in pools:
        limits = asked.get(pool) or asked.get(OTHERS)
        known = dict(learned.get(pool, {}))
        if limits is not None:
            for name, rate in limits.rates.items():
                if rate is not None:
                    known[name] = Ceiling(rate, max(1.0, rate / 60 * limits.burst_s))
        if known:
            found[pool] = known
    return found, ("the provider announces its limits and its buckets are full when the run begins",)


def known_to(pacer: Pacer, record: RunRecord) -> None:
    if record.terms is not None:
        pacer.recall(record.terms.before, record.terms.learned)


MANY: Final = 1_000_000
"""A repeated failure uses up the policy's attempts."""
NO_REQUEST: Final = (False, False, None, None, None)
NOTHING_SENT: Final[dict[str, Any]] = {
    "output_tokens": None,
    "input_tokens": None,
    "characters": 0,
    "size": 0,
    "per_character": 0.0,
    "text_characters": 0,
    "context": None,
    "prefix": 0,
    "prefix_counted": False,
    "shared": 0,
    "context_size": 0,
    "warm": False,
}
NOTHING_ALONE: Final = MappingProxyType[int, "Needs"]({})
CONTINUES: Final = Failure("the answer was paused, and goes on", MANY)
BEATEN_BY_OTHERS: Final = Failure("others of its race answered first", kind=BEATEN)

NOT_IN_BATCH: Final = "NotInBatch"
FAULTS: Final = frozenset({"Overloaded", "Truncated", "Unreachable", "Unreadable"})
"""Failures by the service or the network, as a live run's circuit breaker counts them."""
REFUSAL_S: Final = 0.05
"""Seconds until a 429 arrives, if the run has seen none."""
LOCAL_REFUSAL_S: Final = 0.01
"""The same from the mock server on the same machine, over HTTP and with the SDK."""


class Tried(NamedTuple):
    """One recorded attempt."""

    local_s: float  # from admission to sending
    first_s: float | None  # from sending to the first token, if any
    takes_s: float  # from sending to the end
    failure: Failure | None
    refused: bool
    late: bool  # aborted at its deadline
    usage: Usage | None
    price: Price | None
    status: int | None
    tools: str = ""  # called after it, in words
    tools_s: float = 0.0  # in which any of them ran
    model: str = ""  # empty if all of the agent's attempts ask its own
    by_batch: bool = False
    capped: str = ""  # the stop reason of an answer that a cap on turns cut
    grown: int = 0  # bytes sent beyond those of the agent's first request: the conversation so far
    caches: bool = False  # its conversation is written to the cache
    adds: int = 0  # bytes that its reply and the results of its calls add to the next request
    next_model: str = ""  # that was to be asked after it, but was not


class Seen(NamedTuple):
    """Evidence about one agent."""

    name: str
    model: str
    effort: str | None
    max_tokens: int
    tries: tuple[Tried, ...]  # without those stopped by a person
    answered: bool  # the last one has an answer that was passed on
    timed: bool  # their seconds are a model's work
    output_tokens: int | None
    input_tokens: int | None
    characters: int
    size: int  # bytes of its first request, the upper bound of its tokens
    per_character: float
    text_characters: int
    context: str | None
    prefix: int  # tokens of its context
    prefix_counted: bool
    shared: int  # the same as estimated before asking
    context_size: int  # upper bound of these
    warm: bool  # its context was in the cache when the run began
    is_task: bool = False
    asked_s: float = 0.0
    attached: tuple[Attachment, ...] = ()
    attached_tokens: tuple[int, int] = (0, 0)  # of attachments other than text, likely and at most
    grown: int = 0  # bytes of its conversation among its characters

    @property
    def moved(self) -> bool:
        return bool(self.tries) and bool(self.tries[-1].model)


def seen_of(record: RunRecord) -> list[Seen]:
    batched, live = _batched(record)
    found = [_seen(record, number, number in batched, falls_back=live) for number in range(len(record.results))]
    for number, leader in enumerate(sharers_of(record)):
        result = record.results[number]
        if leader is not None and (result.is_shared or not result.attempts):  # alone it would have asked itself
            found[number] = found[leader]._replace(name=found[number].name)
    wrote = {
        (one.model, one.context)
        for one in found
        if any(step.usage and step.usage.cache_write_tokens for step in one.tries)
    }
    found = [one._replace(warm=one.warm and (one.model, one.context) not in wrote) for one in found]
    counted = {(one.model, one.context): one.prefix for one in found if one.prefix_counted}
    return [
        one._replace(prefix=counted[one.model, one.context], prefix_counted=True)
        if not one.prefix_counted and (one.model, one.context) in counted
        else one
        for one in found
    ]


def _batched(record: RunRecord) -> tuple[frozenset[int], bool]:
    """Return the steps that went by batch, and whether what fails there is asked live."""
    policy, _ = policy_of(record)
    batching = batching_of(record.plan, policy)
    return frozenset(() if batching is None else batching.steps), policy.batch_fallback == "live"


def seen_alone(record: RunRecord, seen: Sequence[Seen], alone: Mapping[int, Needs]) -> list[Seen]:
    batched, live = _batched(record)
    return [
        one
        if one.is_task or not one.tries
        else one._replace(
            tries=tuple(_tries(record.results[number], alone, may_batch=number in batched, falls_back=live))
        )
        for number, one in enumerate(seen)
    ]


def rows_of(record: RunRecord) -> Iterator[Past]:
    simulated, told = record.simulated, Told(record)  # looks at every result
    for attempt in record.facts.timed:
        if (row := told.past(attempt, simulated=simulated)) is not None:
            yield row


def _seen(record: RunRecord, number: int, may_batch: bool, *, falls_back: bool) -> Seen:  # noqa: FBT001 - private
    result, agent = record.results[number], record.plan.agents[number]
    if agent.is_task:
        return _task(result)
    asked = result.attempts[-1] if result.attempts else None
    answer = result.answer if asked is not None and asked.error is None else None
    if answer is not None and result.status not in WITH_ANSWER:
        unused = answer.stop_reason == TOOL_USE or result.kind == BEATEN  # it was over before
        answer = None if unused or _fails_later(result) else answer
    if asked is not None and _was_to_go_on(result, asked):
        answer = None
    usage = answer.usage if answer else None
    context, rule = record.plan.context_of(number), facts_of(record.terms, result.model).token_rule
    text, attached = _sent(record, number)
    tokens, shared = tokens_of(attached, rule), context_tokens(context, rule)
    total = usage.total_input_tokens if usage else None
    known = shared[0] if total is None else total
    cached = ((usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)) if usage and agent.context else 0
    grown = _grown(asked, result) if asked is not None and asked.request.tools else 0
    of_text = max(0, total - tokens[0]) if total else 0
    per_character = of_text / len(text) if of_text and text else 1 / CHARS_PER_TOKEN
    return Seen(
        result.name,
        result.model,
        asked.request.effort if asked else agent.effort,
        agent.max_tokens or DEFAULT_MAX_TOKENS,
        tuple(_tries(result, NOTHING_ALONE, may_batch=may_batch, falls_back=falls_back)),
        answered=answer is not None,
        timed=answer is not None and asked is not None and asked.is_timed,
        output_tokens=usage.output_tokens if usage else None,
        input_tokens=total,
        characters=len(text),
        size=_size(text) + tokens[1] - grown,
        per_character=per_character,
        text_characters=len(answer.text) if answer else 0,
        context=agent.context,
        prefix=cached or (round(len(context) * per_character) if isinstance(context, str) else min(shared[0], known)),
        prefix_counted=cached > 0,
        shared=shared[0],
        context_size=shared[1],
        warm=bool(usage and usage.cache_read_tokens),
        asked_s=sum(_seconds(one) for one in result.away() if one.reason == "person") if result.calls else 0.0,
        attached=attached,
        attached_tokens=tokens,
        grown=grown,
    )


def _task(result: AgentResult) -> Seen:
    ended = [one for one in result.calls if one.ended is not None and one.status != "cancelled"]
    tries = tuple(
        Tried(0.0, None, one.duration_s or 0.0, _call_failure(one, result, last=one is ended[-1]), *NO_REQUEST)
        for one in ended
    )
    return Seen(result.name, "", None, 0, tries, answered=True, timed=True, **NOTHING_SENT, is_task=True)


def _call_failure(call: ToolCall, result: AgentResult, *, last: bool) -> Failure | None:
    if call.error is None:
        return None
    final = last and not result.last_backoff_s
    return Failure(call.error, 1 if final else MANY, kind=call.kind or "")


def _seconds(one: Stretch) -> float:
    return 0.0 if one.end_s is None else one.end_s - one.start_s


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _sent(record: RunRecord, number: int) -> tuple[str, tuple[Attachment, ...]]:
    result = record.results[number]
    if not result.attempts:
        return sent_ahead(record.plan, record, number)
    request = result.attempts[-1].request
    attached = request.files
    if request.tools:  # texts of documents are among them
        return "".join(request.texts()), attached
    after = (request.system or "") + (request.context or "") + (told_by(request.schema) or request.schema)
    return "".join([request.prompt, after, *(one.text for one in attached)]), attached


def sent_ahead(plan: Plan, record: RunRecord, number: int) -> tuple[str, tuple[Attachment, ...]]:
    parts = {name: plan[name].part for name in plan.inputs[number]}
    taken = [name for name, part in parts.items() if not (part and part.rounds and record[name].is_left_out)]
    answers = {name: plan.meaning_of(plan.index[name], record[name].text) for name in taken}
    agent = plan.agents[number]
    prompt, placed, _ = plan.prompt_ahead(number, answers)
    context = plan.context_of(number)
    after = (agent.system_text or "") + (context if isinstance(context, str) else "") + agent.tools_text
    after += told_by(agent.schema) or agent.schema
    attached = tuple(one.attachment for one in placed)
    return "".join([prompt, after, *(one.text for one in attached)]), attached


def _tries(result: AgentResult, alone: Mapping[int, Needs], *, may_batch: bool, falls_back: bool) -> Iterator[Tried]:
    """Read the attempts of an agent."""
    attempts = result.attempts
    next_model = _next_model(result)
    moved = bool(next_model or Facts(attempts).models - {result.model})
    for index, attempt in enumerate(attempts):
        beaten = attempt.kind == "cancelled" and result.kind in {BEATEN, CONDITION, SKIPPED}
        if attempt.ended_s is None or (attempt.kind == "cancelled" and not beaten):
            continue  # a person stopped it: a forecast goes on
        last = index == len(attempts) - 1
        waited_s = result.last_backoff_s if last else attempts[index + 1].backoff_s
        moves = not last and attempts[index + 1].model != attempt.model
        to_go_on = last and _was_to_go_on(result, attempt)
        final = ((last and not to_go_on) or moves) and not waited_s
        last = last and not to_go_on
        went_on = not last and attempt.answer is not None and attempt.kind is None
        calls = [one for one in result.calls if one.turn == attempt.number and not one.is_own]
        away = stretches(calls, attempt.ended_s) if calls else ()
        by_batch = _went_by_batch(attempt, may_batch=may_batch)
        may_batch = may_batch and not (falls_back and attempt.answer is None)
        first_s, takes_s = attempt.ttft_s, attempt.ended_s - attempt.started_s
        if (needs := alone.get(id(attempt))) is not None:
            first_s, takes_s = None if first_s is None else needs.before_s, needs.before_s + needs.after_s
        yield Tried(
            attempt.started_s - attempt.granted_s,
            first_s,
            takes_s,
            CONTINUES
            if went_on
            else BEATEN_BY_OTHERS
            if beaten
            else Failure(result.error or "", kind=result.kind or "")
            if last and attempt.error is None and _fails_later(result)
            else None
            if attempt.error is None
            else _failure(attempt, waited_s, final=final, moves=moves),
            attempt.kind == "RateLimited",
            attempt.kind == "Late",
            attempt.usage,
            attempt.price,
            attempt.status_code,
            ", ".join(dict.fromkeys(one.tool for one in calls)),
            sum(_seconds(one) for one in away if one.kind == "tool"),
            attempt.model if moved else "",
            by_batch,
            attempt.answer.stop_reason if last and attempt.answer is not None and result.status == "capped" else "",
            _grown(attempt, result) if attempt.request.messages else 0,
            attempt.request.cached_turns,
            _adds(attempt, calls) if to_go_on else 0,
            next_model if attempt is attempts[-1] else "",
        )


def _fails_later(result: AgentResult) -> bool:
    """Return whether a step failed after its answer had come, such as by a person's denial, and not by a deadline."""
    return result.status == "failed" and result.kind != "Late"


def _grown(attempt: Attempt, result: AgentResult) -> int:
    first, request = result.attempts[0].request, attempt.request
    return _size("".join(request.texts())) - _size("".join(first.texts()))


def _adds(attempt: Attempt, calls: Sequence[ToolCall]) -> int:
    said = "" if attempt.answer is None else attempt.answer.content or attempt.answer.text
    results = "".join(one.ended.result for one in calls if one.ended is not None)
    return _size(said + results + (f"{ASK_AGAIN} {attempt.error}" if attempt.error else ""))


def _was_to_go_on(result: AgentResult, attempt: Attempt) -> bool:
    """Return whether another turn was to follow its last one, before a budget, a deadline or others ended it."""
    if attempt.kind == "InvalidAnswer":
        return result.kind != attempt.kind
    kept = result.status == "succeeded" or result.kind == "Capped"
    return attempt.asks_for_more and attempt.kind is None and not kept


def _next_model(result: AgentResult) -> str:
    """Return the model that a cascade was to ask next, before a budget, a deadline or others ended it."""
    last = result.attempts[-1] if result.attempts else None
    if last is None or last.kind != ESCALATED or last.model not in (models := [result.model, *result.other_models]):
        return ""
    return "".join(models[models.index(last.model) + 1 :][:1])


def _went_by_batch(attempt: Attempt, *, may_batch: bool) -> bool:
    """Return whether an attempt was batched: its answer tells, for a failure the policy does."""
    if attempt.answer is not None:
        return bool(attempt.answer.batch) and attempt.source in TIMED and not attempt.is_served
    return may_batch or attempt.kind == NOT_IN_BATCH


def _failure(attempt: Attempt, waited_s: float, *, final: bool, moves: bool) -> Failure:
    """Convert a recorded failure for the engine: repeated, and after a wait, as recorded."""
    why, kind, fault = attempt.error or "", attempt.kind or "", attempt.kind in FAULTS
    reached = not (kind == "Unreachable" and attempt.status_code is None and attempt.usage == NOTHING_USED)
    crowded = kind in {"Overloaded", "Unreachable"}
    if final:
        stops = attempt.status_code in STOPS_RUN
        falls_back, crowded = moves and kind != ESCALATED, moves and crowded
        return Failure(
            why,
            kind=kind,
            fault=fault,
            reached=reached,
            stops_run=stops,
            crowded=crowded,
            falls_back=falls_back,
        )
    usual_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempt.number - 1, 10))
    demanded = waited_s > usual_s * (1 + JITTER)  # only a server's own demand makes it longer
    told_s = waited_s - usual_s * JITTER / 2 if demanded else None
    counts = kind != "RateLimited"
    return Failure(
        why,
        MANY,
        retry_after_s=told_s,
        waits_s=waited_s,
        counts=counts,
        crowded=crowded,
        kind=kind,
        fault=fault,
        reached=reached,
    )


def refusal_s_of(record: RunRecord) -> float:
    took_s = [one.duration_s for one in record.facts.rate_limited if one.duration_s is not None]
    return median(took_s) if took_s else LOCAL_REFUSAL_S if record.simulated else REFUSAL_S


def needed_tokens(characters: int) -> int:
    return characters // CHARS_PER_TOKEN + OVERHEAD_TOKENS


Basis = Literal["measured", "ledger", "pilot", "assumed"]
"""Basis of a number: this run, earlier answers, other agents' answers in a pilot, or an assumption."""
SURE_BY: Final = {
    "measured": "measured",
    "ledger": "from earlier answers",
    "pilot": "from a pilot",
    "assumed": "partly assumed",
}
"""The least basis of numbers, in words."""
RANK: Final[dict[Basis, int]] = {"measured": 0, "ledger": 1, "pilot": 2, "assumed": 3}

ENOUGH: Final = 5
"""Answers needed to use their own spread as the range; with fewer, a range is assumed."""
LOW, HIGH = 0.1, 0.9
UNSURE: Final = (0.5, 2.0)
"""Assumed range of a duration: half to twice."""
UNSURE_EFFORT: Final = (0.25, 4.0)
"""Range of an answer's length at an untried effort."""
UNSURE_SERVER: Final = (0.04, 4.0)
"""Range of a duration at an unknown address that has not answered yet, such as a gateway or a local model."""
LEAST_TOKENS: Final = 8
"""Shorter answers tell nothing about pace."""


class Timing(NamedTuple):
    """The speed of a model, from `answers`, 0 for an assumption; `low` and `high` are ratios to the likely duration."""

    ttft_s: float
    pace: float
    answers: int = 0
    low: float = UNSURE[0]
    high: float = UNSURE[1]


def tokens_factor(old: str, new: str) -> float:
    return token_density(new) / token_density(old)


def timing_of(rows: Sequence[Past]) -> Timing | None:
    streamed = [
        (row.ttft_s, row.output_tokens / (row.api_s - row.ttft_s))
        for row in rows
        if not row.elsewhere
        and row.ttft_s is not None
        and row.output_tokens is not None
        and row.output_tokens >= LEAST_TOKENS
        and row.api_s > row.ttft_s
    ]
    if not streamed:
        return None
    paces = sorted(pace for _, pace in streamed)
    pace = median(paces)
    low, high = UNSURE
    if len(paces) >= ENOUGH:
        low, high = pace / quantile(paces, HIGH), pace / quantile(paces, LOW)
    return Timing(median(first for first, _ in streamed), pace, len(streamed), low, high)


def quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


class Speeds:
    """Speeds of models, from earlier answers or assumptions."""

    def __init__(self, rows: Iterable[Past], time_factor: float = 1.0, origin: str = "") -> None:
        self._factor = time_factor
        self._is_foreign = "://" in origin and origin.rstrip("/") != DEFAULT_URL and time_factor == 1.0
        by_model: dict[str, list[Past]] = {}
        for row in rows:
            by_model.setdefault(row.model, []).append(row)
        self._known = {model: found for model, each in by_model.items() if (found := timing_of(each))}

    def of(self, model: str) -> tuple[Timing, Basis, str]:
        known = self._known.get(model)
        if known is not None:
            answers = "1 earlier answer" if known.answers == 1 else f"{known.answers} earlier answers"
            return known, "ledger", f"{model}: speed of {answers}"
        assumed = speed_of(model)
        if assumed is not None:
            words = f"{model}: speed of the {assumed.family} family in {SPEEDS_FROM}"
        else:
            assumed, usual = USUAL_SPEED, USUAL_SPEED.family.title()
            words = f"{model}: speed unknown, assumed that of {usual} in {SPEEDS_FROM}"
        times = "" if self._factor == 1.0 else f", {self._factor:g} of it as the mock server is set"
        timing = Timing(assumed.ttft_s * self._factor, assumed.pace / self._factor)
        if self._is_foreign and not self._known:
            (low, high), times = UNSURE_SERVER, ", taken as a 25th to four times: this server has not answered yet"
            timing = timing._replace(low=low, high=high)
        return timing, "assumed", words + times

    def change(self, old: str, new: str) -> tuple[float, float, Timing, Basis, str]:
        before, after = self._known.get(old), self._known.get(new)
        if before is not None and after is not None:
            answers = "1 earlier answer" if after.answers == 1 else f"{after.answers} earlier answers"
            words = f"{new}: speed of {answers}"
            first = after.ttft_s / before.ttft_s if before.ttft_s > 0 else 1.0
            return first, after.pace / before.pace, after, "ledger", words
        was, will = speed_of(old), speed_of(new)
        if was is None or will is None:
            words = f"{new}: speed unknown, assumed as fast as {old}"
            return 1.0, 1.0, Timing(0.0, 1.0), "assumed", words
        words = f"{new}: speed relative to {old} by their families in {SPEEDS_FROM}"
        return will.ttft_s / was.ttft_s, will.pace / was.pace, Timing(will.ttft_s, will.pace), "assumed", words
