"""Work of each agent in a forecast: recorded attempts if nothing changed, else modelled ones."""

from __future__ import annotations

from functools import cached_property, partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from agent_magic.declare.content import tokens_of
from agent_magic.declare.units import plural
from agent_magic.errors import some_of
from agent_magic.forecast.evidence import (
    BEATEN_BY_OTHERS,
    ENOUGH,
    FAULTS,
    HIGH,
    LOW,
    NOT_IN_BATCH,
    RANK,
    UNSURE,
    UNSURE_EFFORT,
    Speeds,
    Timing,
    facts_of,
    needed_tokens,
    quantile,
    refusal_s_of,
    rows_of,
    seen_alone,
    seen_of,
    timing_of,
    tokens_factor,
)
from agent_magic.measure.server import CONSTANT, NEVER, NO_NEEDS, Needs
from agent_magic.measure.server_fit import Observed, asked_at, at_of, fit, is_forecast
from agent_magic.record.answer import CHARS_PER_TOKEN, ESCALATED
from agent_magic.record.events import TICKS_PER_S
from agent_magic.record.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.engine.retry import Failure
    from agent_magic.forecast.evidence import Basis, Seen, Tried
    from agent_magic.measure.server import At, Server
    from agent_magic.measure.server_fit import Fit
    from agent_magic.record.answer import Price, Usage
    from agent_magic.record.results import Attempt, RunRecord

PRIOR_OUTPUT_TOKENS: Final = 500
SAME: Final = (1.0, 1.0)
OK: Final = 200
LIVE_ONLY: Final = FAULTS | {"RateLimited", "Late"}
End = Literal["low", "likely", "high"]


class Try(NamedTuple):
    """One future attempt."""

    local_s: float  # from admission to sending
    first_s: float | None  # from sending to the first token, if any
    takes_s: float  # from sending to the end
    failure: Failure | None
    input_tokens: int | None
    output_tokens: int | None
    usage: Usage | None = None  # of the recorded attempt; `None` if something changed
    price: Price | None = None
    status: int | None = OK
    tools: str = ""  # called after it, in words
    tools_s: float = 0.0
    model: str = ""  # if it differs between the agent's attempts; else empty
    pool: str = ""
    batch_s: float | None = None  # of its recorded batch; `None` if it was live
    cut_s: float | None = None  # from sending to a recorded abort, to which `usage` belongs
    searches: int = 0
    read: int = 0  # input from the cache of its conversation
    written: int = 0
    capped: str = ""  # see `Tried`
    grown: int = 0  # see `Tried`
    caches: bool = False

    @property
    def turned_away(self) -> bool:
        return self.failure is not None and self.input_tokens == 0

    @property
    def is_worked_on(self) -> bool:
        """True if a server works on it: it begins to answer, and was not answered before."""
        return self.input_tokens != 0 and self.takes_s < NEVER and (self.failure is None or self.first_s is not None)

    def sent(self, batch_s: float | None) -> Try:
        # Recorded usage and cost count if it is sent in the recorded way.
        if (batch_s is None) != (self.batch_s is None):
            self = self._replace(usage=None, price=None)  # noqa: PLW0642 - the same, with less known
        if batch_s is None:
            return self
        return self._replace(local_s=0.0, first_s=None, takes_s=batch_s if self.batch_s is None else self.batch_s)

    def fits(self, *, by_batch: bool) -> bool:
        """Return whether it is possible: a batch has no failures of single requests, and vice versa."""
        kind = "" if self.failure is None else self.failure.kind
        if by_batch:
            return self.batch_s is not None or kind not in LIVE_ONLY
        return kind != NOT_IN_BATCH

    def longer(self, factor: float) -> Try:
        first_s = None if self.first_s is None else self.first_s * factor
        return self._replace(first_s=first_s, takes_s=self.takes_s * factor)


class Rewritten(NamedTuple):
    """A changed prompt with the same answer: characters saved, and the context that a part of it becomes.

    `size` are bytes, the upper bound of that part's tokens, `tokens` those of it as a file.
    """

    spared: int = 0
    context: str | None = None
    characters: int = 0
    size: int = 0
    tokens: int = 0


class Work(NamedTuple):
    """Work of one agent."""

    name: str
    model: str
    pool: str
    tries: tuple[Try, ...]  # without those the modelled provider refuses itself
    max_tokens: int
    need: int  # input reported to the pacer
    size: int  # upper bound of the input tokens of its first request
    prefix: int
    shared: int  # the part of `need` in its context
    context_size: int
    warm: bool
    time: tuple[float, float]  # range of its durations, as factors
    output: tuple[float, float]  # range of its answer's length, as factors
    is_task: bool = False
    shares: str | None = None  # a context that replaces the plan's

    @property
    def moves(self) -> bool:
        return self.tries[0].model != self.tries[-1].model

    @property
    def is_sure(self) -> bool:
        return self.time == SAME and self.output == SAME

    @property
    def there(self) -> Work:
        """The same with its answer in the ledger: nothing is sent, and no time passes."""
        only = Try(0.0, 0.0, 0.0, None, 0, 0)
        return self._replace(tries=(only,), need=0, size=0, prefix=0, shared=0, context_size=0, pool="", time=SAME)

    def scaled(self, end: End) -> Work:
        if end == "likely" or self.is_sure:
            return self
        side = 0 if end == "low" else 1
        last = self.tries[-1]
        first_s = None if last.first_s is None else last.first_s * self.time[side]
        streamed_s = last.takes_s - (last.first_s or 0.0)
        output = last.output_tokens
        longer = self.output[side]
        if output is not None:
            output = min(round(output * longer), max(self.max_tokens, output))
            longer = output / last.output_tokens if last.output_tokens else longer
        takes_s = (first_s or 0.0) + streamed_s * longer * self.time[side]
        changed = last._replace(first_s=first_s, takes_s=takes_s, output_tokens=output)
        return self._replace(tries=(*self.tries[:-1], changed))

    def paced(self, factor: float) -> Work:
        return self._replace(tries=tuple(one.longer(factor) for one in self.tries))

    def rewritten(self, change: Rewritten, per_character: float) -> Work:
        """Return a copy of this work for a different prompt, given the prompt's tokens per character."""
        less = round(change.spared * per_character)
        tries = tuple(
            one if not one.input_tokens else one._replace(input_tokens=max(1, one.input_tokens - less), usage=None)
            for one in self.tries
        )
        found = self._replace(
            tries=tries if less else self.tries,
            need=max(0, self.need - change.spared // CHARS_PER_TOKEN),
            size=max(0, self.size - change.spared),
        )
        if change.context is None:
            return found
        prefix = round(change.characters * per_character) + change.tokens
        estimated = change.characters // CHARS_PER_TOKEN + change.tokens
        return found._replace(
            shares=change.context, prefix=prefix, shared=estimated, context_size=change.size, warm=False
        )


Fits = dict[tuple[object, ...], "Mapping[At, Fit]"]


class Works(NamedTuple):
    """The work of a plan."""

    agents: tuple[Work | None, ...]
    basis: Basis
    words: tuple[str, ...]


class Evidence:
    """Evidence of a record and earlier answers, for many what-ifs."""

    def __init__(
        self,
        record: RunRecord,
        history: History | None = None,
        fits: Fits | None = None,
        servers: Mapping[At, Fit] | None = None,
    ) -> None:
        self._fits: Fits = {} if fits is None else fits
        self._drawn_by = servers
        self.record, self.simulated = record, record.simulated
        self.seen = seen_of(record)
        self.refusal_s = refusal_s_of(record)
        self._own: dict[At, tuple[list[Attempt], Observed]] = {
            at: ([attempt for attempt, _ in found], Observed([one for _, one in found], drawn=self.is_forecast))
            for at, found in asked_at(record).items()
        }
        self._needs: dict[tuple[At, Server], list[Needs]] = {}
        self._runs = [*(() if history is None else history.runs_at(record.origin))]
        own = list(rows_of(record)) if servers is None else []
        known, rows = {row.bare for row in own}, history or ()
        earlier = [row for row in rows if row.simulated == self.simulated and row.bare not in known]
        self.history = History([*earlier, *own])
        self.speeds = Speeds(self.history)
        lengths = [one.output_tokens for one in self.seen if one.output_tokens is not None]
        self.usual_output = round(median(lengths)) if lengths else None
        self._works: dict[tuple[object, ...], Works] = {}

    @cached_property
    def is_forecast(self) -> bool:
        return is_forecast(self.record)

    @cached_property
    def servers(self) -> Mapping[At, Fit]:
        if self._drawn_by is not None:
            return {at: one for at, one in self._drawn_by.items() if at in self._own}
        observed = {at: [] if self.is_forecast else [own] for at, (_, own) in self._own.items()}
        for run in reversed(self._runs):  # newer answers count more
            if run.uid == self.record.uid:
                continue
            for at, exchanges in run.at(partial(at_of, self.record)).items():
                if at in observed:
                    observed[at].append(Observed(exchanges))
        key = self.record.uid, len(self.record.events), *(run.uid for run in self._runs)
        if key not in self._fits:
            self._fits.clear()
            self._fits[key] = {at: fit(runs) for at, runs in observed.items() if runs}
        return self._fits[key]

    @cached_property
    def is_shared(self) -> bool:
        return any(not one.likely.is_constant for one in self.servers.values())

    @cached_property
    def caught(self) -> int:
        """Number of answers in flight while the client stood still."""
        return sum(len(one.caught) for _, one in self._own.values())

    @cached_property
    def seen_alone(self) -> list[Seen]:
        return seen_alone(self.record, self.seen, self.alone({at: one.likely for at, one in self.servers.items()}))

    def alone(self, models: Mapping[At, Server]) -> dict[int, Needs]:
        found: dict[int, Needs] = {}
        for at, (attempts, observed) in self._own.items():
            needs = observed.needs(models.get(at, CONSTANT))
            found.update({id(attempt): each for attempt, each in zip(attempts, needs, strict=True)})
        return found

    def needs_of(self, at: At, model: Server) -> list[Needs]:
        found = self._needs.get((at, model))
        if found is None:
            attempts, observed = self._own[at]
            model = model if self._drawn_by is None else CONSTANT
            found = self._needs[at, model] = [NO_NEEDS] * len(self.seen)
            index = self.record.plan.index
            for attempt, each in zip(attempts, observed.needs(model), strict=True):
                number = index[attempt.agent]
                before_s, after_s = found[number]
                found[number] = Needs(before_s + each.before_s, after_s + each.after_s)
        return found

    @property
    def models(self) -> set[str]:
        return {row.model for row in self.history} | {one.model for one in self.seen}

    def works(
        self,
        models: Mapping[int, str],
        efforts: Mapping[int, str | None],
        dropped: frozenset[int],
        limited: frozenset[str],
        by_batch: frozenset[int] = frozenset(),
        left: frozenset[int] = frozenset(),
        *,
        alone: bool = False,
    ) -> Works:
        """Return the work of every agent; recorded 429s of `limited` model classes are skipped."""
        of_agents = tuple(sorted(models.items())), tuple(sorted(efforts.items(), key=str))
        key = (*of_agents, dropped, limited, by_batch, left, alone)
        found = self._works.get(key)
        if found is None:
            found = self._works[key] = _Modelling(
                self, models, efforts, dropped, limited, by_batch, left, alone=alone
            ).all()
        return found


class _Modelling:
    def __init__(
        self,
        evidence: Evidence,
        models: Mapping[int, str],
        efforts: Mapping[int, str | None],
        dropped: frozenset[int],
        limited: frozenset[str],
        by_batch: frozenset[int],
        left: frozenset[int],
        *,
        alone: bool,
    ) -> None:
        self.evidence, self.seen = evidence, list(evidence.seen_alone if alone else evidence.seen)
        self.models, self.efforts, self.dropped, self.limited = models, efforts, dropped, limited
        self.left, self.by_batch = left, by_batch
        self.text_scale: dict[int, float] = {}
        self.basis: Basis = "measured"
        self.words: dict[str, None] = {}
        self.assumed_answers: list[str] = []
        self.earlier: dict[str, dict[str, int]] = {}  # evidence of earlier answers: by whom, how many

    def all(self) -> Works:
        dag = self.evidence.record.plan.dag
        works: list[Work | None] = [None] * len(self.seen)
        for agent in dag.order:
            if agent not in self.dropped and (agent not in self.left or self._was_begun(agent)):
                works[agent] = self.one(agent)
        if self.evidence.record.plan.flow is not None and (self.models or self.efforts):
            self.say("conditions, items and rounds as recorded, which another model may decide otherwise", "assumed")
        for words, counts in self.earlier.items():
            self.say(f"{some_of([*counts], 3)}: {words} ({plural(sum(counts.values()), 'earlier answer')})", "ledger")
        if self.assumed_answers:
            self.say(f"{some_of(self.assumed_answers, 3)}: no answer was recorded, forecast as if it came", "assumed")
        return Works(tuple(works), self.basis, tuple(self.words))

    def _was_begun(self, agent: int) -> bool:
        flow = self.evidence.record.plan.flow
        return flow is not None and agent in flow.ahead_of and bool(self.seen[agent].tries)

    def say(self, words: str, basis: Basis) -> None:
        self.words[words] = None
        if RANK[basis] > RANK[self.basis]:
            self.basis = basis

    def one(self, agent: int) -> Work:
        seen = self.seen[agent]
        if seen.is_task:
            return self._task(seen)
        if agent in self.models and seen.moved:
            seen = self.seen[agent] = of_one_model(seen, self.models[agent])
        if seen.asked_s:
            self.say("the time in which a person was asked is left out", "measured")
        if any(one.tools for one in seen.tries) and self.models.get(agent, seen.model) != seen.model:
            self.say(f"{seen.name}: the same tool calls as recorded, which another model may not make", "assumed")
        model = self.models.get(agent, seen.model)
        factor = 1.0 if model == seen.model or self.evidence.simulated else tokens_factor(seen.model, model)
        if factor != 1.0:
            words = f"{model} makes about {factor:.2f} tokens of each one of {seen.model}, as the vendor says"
            self.say(words, "assumed")
        facts = facts_of(self.evidence.record.terms, model)
        pool, change = facts.limit_class, self._text_change(agent)
        attached = tokens_of(seen.attached, facts.token_rule)
        if attached != seen.attached_tokens:
            self.say(f"pictures and PDFs counted anew for {model}, by the vendor's rule", "assumed")
        tries, time, output = self._tries(agent, model, pool, factor, change)
        if tries[-1].model:
            terms = self.evidence.record.terms
            tries = tuple(one._replace(pool=facts_of(terms, one.model).limit_class) for one in tries)
        if seen.context is not None:  # its cache is modelled with the others that share it
            tries = tuple(one._replace(read=0, written=0) for one in tries)
        elif tries[0].read and self._continues_another(agent, model):
            first = tries[0]
            tries = (first._replace(read=0, written=first.read + first.written, usage=None, price=None), *tries[1:])
        return Work(
            seen.name,
            model,
            pool,
            tries,
            seen.max_tokens,
            needed_tokens(max(0, seen.characters + change)) + attached[0],
            max(0, seen.size + change - seen.attached_tokens[1] + attached[1]),
            round(seen.prefix * factor),
            seen.shared,
            seen.context_size,
            warm=seen.warm,
            time=time,
            output=output,
        )

    def _continues_another(self, agent: int, model: str) -> bool:
        """Return whether an agent continues a conversation of another model."""
        plan = self.evidence.record.plan
        name = plan.continued(agent, {})
        parent = None if name is None else plan.index[name]
        return parent is not None and self.models.get(parent, self.seen[parent].model) != model

    def _task(self, seen: Seen) -> Work:
        tries = tuple(Try(0.0, None, one.takes_s, one.failure, 0, 0) for one in seen.tries)
        if not tries:
            self.say(f"{seen.name}: a task that never ran, forecast as if it took no time", "assumed")
            tries = (Try(0.0, None, 0.0, None, 0, 0),)
        return Work(seen.name, "", "", tries, 0, 0, 0, 0, 0, 0, warm=False, time=SAME, output=SAME, is_task=True)

    def _text_change(self, agent: int) -> int:
        change = 0.0
        plan = self.evidence.record.plan
        for name in plan.inputs[agent]:
            parent = plan.index[name]
            if parent in self.left or (parent in self.dropped and self._has_stand_in(parent)):
                continue
            if parent in self.dropped:
                change -= self.seen[parent].text_characters
                self.say(f"prompts without the answer of {name!r} are shorter by it", "measured")
            elif (scale := self.text_scale.get(parent, 1.0)) != 1.0:
                change += self.seen[parent].text_characters * (scale - 1)
        return round(change)

    def _has_stand_in(self, step: int) -> bool:
        part = self.evidence.record.plan.agents[step].part
        if part is None or not part.rounds:
            return False
        return any(one not in self.dropped for one in self.evidence.record.plan.groups[part.group].values())

    def _tries(
        self, agent: int, model: str, pool: str, factor: float, change: int
    ) -> tuple[tuple[Try, ...], tuple[float, float], tuple[float, float]]:
        seen = self.seen[agent]
        effort = self.efforts.get(agent, seen.effort)
        recorded = [one for one in seen.tries if not (one.refused and pool in self.limited)]
        same = model == seen.model and effort == seen.effort
        cut = recorded.pop() if recorded and recorded[-1].failure is BEATEN_BY_OTHERS else None
        given = None if seen.input_tokens is None else self._input(seen, seen.input_tokens, model, factor, change)
        failed = [
            self._alone(agent, model, _failing(one, factor, same=same)) for one in recorded if one.failure is not None
        ]
        if seen.answered and seen.timed:
            last = recorded[-1]
            if same and not change:
                return (*failed, _answering(last, given, seen.output_tokens)), SAME, SAME
            output, spread = self._output(agent, model, effort, factor)
            answer, time = self._changed(seen, last, model, output, factor)
            known = {"capped": last.capped, **_cached(last, factor), **_sent(last)}
            answer = answer._replace(input_tokens=given, model=last.model, **known)
            return (*failed, answer), time, spread
        last = cut or (recorded[-1] if recorded else None)
        ended_by = None if last is None or last is cut or last.next_model else last.failure
        if ended_by is not None and ended_by.attempts == 1:
            return tuple(failed), SAME, SAME  # it fails again as it did
        output, spread = self._output(agent, model, effort, factor)
        if cut is not None and same:
            self.say(f"{seen.name}: aborted, so it takes at least that long", "assumed")
        elif not seen.answered:
            self.assumed_answers.append(seen.name)
        made = self._guess(output, seen.max_tokens)
        again = bool(recorded) and recorded[-1].by_batch and agent in self.by_batch
        timing = self._timing(agent, model, asked=not again)
        if given is None:
            grown = last.grown + last.adds - seen.grown if last else 0
            given = self._given(seen, change + grown, factor)
        answer = Try(0.0, timing.ttft_s, timing.ttft_s + made / timing.pace, None, given, made)
        if last is not None:
            known = {"searches": _searches(last), **_sent(last)}
            answer = answer._replace(model=last.next_model or last.model, **known)
            if last.by_batch and last.failure is None:
                usage, price = (last.usage, last.price) if same and not change else (None, None)
                answer = answer._replace(batch_s=last.takes_s, usage=usage, price=price, status=last.status)
        if cut is not None and same:
            # with the same beginning, and a later end
            first_s = answer.first_s if cut.first_s is None else cut.first_s
            takes_s = max(answer.takes_s, cut.takes_s + 1 / TICKS_PER_S)
            known = {"local_s": cut.local_s, "usage": cut.usage, "price": cut.price, "cut_s": cut.takes_s}
            answer = answer._replace(first_s=first_s, takes_s=takes_s, **known)
        return (*failed, answer), SAME if again else (timing.low, timing.high), spread

    def _alone(self, agent: int, model: str, attempt: Try) -> Try:
        """Return an attempt of a batch with the time that it would take live: the batch's tells nothing of it."""
        if attempt.batch_s is None:
            return attempt
        timing, made = (
            self._timing(agent, attempt.model or model, asked=agent not in self.by_batch),
            attempt.output_tokens,
        )
        first_s = timing.ttft_s if made else None
        return attempt._replace(first_s=first_s, takes_s=timing.ttft_s + (made or 0) / timing.pace)

    def _input(self, seen: Seen, tokens: int, model: str, factor: float, change: int) -> int:
        before = seen.attached_tokens[0]
        after = tokens_of(seen.attached, facts_of(self.evidence.record.terms, model).token_rule)[0]
        own = min(before, tokens)  # a page has as many tokens as its text needs: the rule says how many are usual
        text = round((tokens - own + change * seen.per_character) * factor)
        return max(0, text + (after if before == own else round(after * own / before)))

    def _guess(self, output: int | None, most: int) -> int:
        if output is not None:
            return output
        usual = self.evidence.usual_output
        if usual is None:
            self.say(f"answers without an earlier one have {PRIOR_OUTPUT_TOKENS} tokens", "assumed")
            usual = PRIOR_OUTPUT_TOKENS
        return min(usual, most)

    def _given(self, seen: Seen, change: int, factor: float) -> int:
        self.say(f"{seen.name}: input counted by its characters", "assumed")
        return round(max(0, seen.characters + change) * seen.per_character * factor)

    def _timing(self, agent: int, model: str, *, asked: bool) -> Timing:
        own = timing_of(self.evidence.history.of_agent(self.evidence.record.plan.agents[agent], model))
        if own is not None:
            if asked:
                name = self.seen[agent].name
                self.earlier.setdefault(f"speed of their own answers by {model}", {})[name] = own.answers
            return own
        timing, basis, words = self.evidence.speeds.of(model)
        if asked:
            self.say(words, basis)
        return timing

    def _output(
        self, agent: int, model: str, effort: str | None, factor: float
    ) -> tuple[int | None, tuple[float, float]]:
        seen = self.seen[agent]
        same = model == seen.model and effort == seen.effort
        if same and seen.answered:
            return seen.output_tokens, SAME
        earlier = self.evidence.history.of_agent(self.evidence.record.plan.agents[agent], model)
        lengths = sorted(row.output_tokens for row in earlier if row.effort == effort and row.output_tokens is not None)
        if lengths:
            self.earlier.setdefault(f"length of their own answers by {model}", {})[seen.name] = len(lengths)
            length = median(lengths)
            if seen.output_tokens and length:
                self.text_scale[agent] = length / (seen.output_tokens * factor)
            return round(length), _spread(lengths, length)
        if seen.output_tokens is None:
            return None, UNSURE
        if effort != seen.effort:
            self.say(f"effort {effort or 'default'}: answers assumed as long as recorded", "assumed")
            return min(round(seen.output_tokens * factor), seen.max_tokens), UNSURE_EFFORT
        self.say("another model's answers as long as the recorded ones", "measured")
        return min(round(seen.output_tokens * factor), seen.max_tokens), UNSURE

    def _changed(
        self, seen: Seen, last: Tried, model: str, output: int | None, factor: float
    ) -> tuple[Try, tuple[float, float]]:
        first_by, pace_by, time = 1.0, 1.0, SAME
        if model != seen.model:
            first_by, pace_by, timing, basis, words = self.evidence.speeds.change(seen.model, model)
            self.say(words, basis)
            time = timing.low, timing.high
        longer = output / seen.output_tokens if output is not None and seen.output_tokens else factor
        first_s = None if last.first_s is None else last.first_s * first_by
        streamed_s = (last.takes_s - (last.first_s or 0.0)) * longer / pace_by
        takes_s = (first_s or 0.0) + streamed_s
        return Try(last.local_s, first_s, takes_s, None, None, output, searches=_searches(last)), time


def of_one_model(seen: Seen, model: str) -> Seen:
    """Return the evidence about an agent as if it had asked one model."""
    # That model's answer counts, even if it was escalated; otherwise the last one.
    escalated = [one.model for one in seen.tries if one.failure is not None and one.failure.kind == ESCALATED]
    used = model if model in escalated else seen.tries[-1].model
    tries = [one._replace(model="", next_model="") for one in seen.tries if one.model == used]
    answer = tries[-1]
    if used in escalated:
        answer = tries[-1] = answer._replace(failure=None)
    usage = answer.usage if answer.failure is None else None
    found = seen._replace(model=used, tries=tuple(tries))
    if usage is None:
        return found
    return found._replace(answered=True, output_tokens=usage.output_tokens, input_tokens=usage.total_input_tokens)


def _answering(one: Tried, given: int | None, output: int | None) -> Try:
    answer = Try(one.local_s, one.first_s, one.takes_s, None, given, output, one.usage, one.price, one.status)
    known = {"capped": one.capped, **_cached(one, 1.0), **_sent(one)}
    return answer._replace(model=one.model, searches=_searches(one), **known)


def _failing(one: Tried, factor: float, *, same: bool) -> Try:
    usage = one.usage
    given = usage.total_input_tokens if usage else None
    made = usage.output_tokens if usage else None
    return Try(
        one.local_s,
        one.first_s,
        float("inf") if one.late else one.takes_s,
        one.failure,
        None if given is None else round(given * factor),
        None if made is None else round(made * factor),
        usage if same else None,
        one.price if same else None,
        one.status,
        one.tools,
        one.tools_s,
        one.model,
        batch_s=one.takes_s if one.by_batch else None,
        searches=_searches(one),
    )._replace(**_cached(one, factor), grown=one.grown, caches=one.caches)


def _sent(one: Tried) -> dict[str, Any]:
    return {"grown": one.grown + one.adds, "caches": one.caches}


def _cached(one: Tried, factor: float) -> dict[str, int]:
    if one.usage is None:
        return {}
    read, written = one.usage.cache_read_tokens or 0, one.usage.cache_write_tokens or 0
    return {"read": round(read * factor), "written": round(written * factor)}


def _searches(one: Tried) -> int:
    return one.usage.searches if one.usage else 0


def _spread(ordered: Sequence[int], middle: float) -> tuple[float, float]:
    if len(ordered) < ENOUGH or not middle:
        return UNSURE
    return quantile(ordered, LOW) / middle, quantile(ordered, HIGH) / middle
