"""Expected use and time of each agent before a run, and the basis of each number."""

from __future__ import annotations

from math import ceil
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.answers.schema import schema_of, typical_chars
from agent_magic.declare.content import tokens_of
from agent_magic.declare.tool import Tool
from agent_magic.engine.policy import BATCH_MOST_S, BATCH_S
from agent_magic.engine.requests import OVERHEAD_TOKENS
from agent_magic.forecast.evidence import ENOUGH, HIGH, LOW, UNSURE, Speeds, facts_of, quantile, tokens_factor
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.history import History, kin_of
from agent_magic.record.prices import SEARCH_USD

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.forecast.evidence import Basis
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import History, Past
    from agent_magic.record.request import Kind, Request
    from agent_magic.record.terms import Terms


ASSUMED_OUTPUT_TOKENS: Final = 500
"""Length of an unseen answer, capped at `max_tokens`."""
UNSEEN: Final = (0.25, 4.0)
"""Assumed range of a length: a quarter to four times."""
MIDDLE: Final = 0.5
ASSUMED_TURNS: Final = 3.0
"""Requests of an agent with tools and no history, from 1 to `max_turns`."""
ASSUMED_SEARCHES: Final = 1
"""Searches of an agent that may search the web, from none to one request's maximum."""
ASSUMED_RESULT_TOKENS: Final = 400

InputBasis = Literal["counted", "estimated", "ledger"]
"""`counted` by the API, `estimated` by characters and parents' answers, or in the `ledger`."""


class Span(NamedTuple):
    """An unknown number: low, likely, high."""

    low: float
    likely: float
    high: float

    @classmethod
    def around(cls, value: float, factors: tuple[float, float]) -> Span:
        return cls(value * factors[0], value, value * factors[1])

    @classmethod
    def of(cls, values: Sequence[float], factors: tuple[float, float] = UNSURE) -> Span:
        """Return the 10th, 50th and 90th percentile; of fewer than five values, an assumed range."""
        ordered = sorted(values)
        if len(ordered) >= ENOUGH:
            return cls(*(quantile(ordered, share) for share in (LOW, MIDDLE, HIGH)))
        return cls.around(quantile(ordered, MIDDLE), factors)


NOTHING: Final = Span(0.0, 0.0, 0.0)
ONE: Final = Span(1.0, 1.0, 1.0)
DECLARED: Final = "as declared, taken as half to twice"


class Guess(NamedTuple):
    """Expected use and time of one agent."""

    own: int  # tokens of its prompt without parents' answers
    input: Span
    output: Span
    seconds: Span  # from the request to the end of the answer
    first_s: float  # likely seconds to the first token
    cap: int
    most_input: int  # if every parent's answer fills its `max_tokens`
    aside: tuple[int, int]  # input reserved by a run with a budget, likely and at most
    held: bool  # its answer is in the ledger, so that nothing is sent
    input_basis: InputBasis
    output_basis: Basis
    seconds_basis: Basis
    words: tuple[str, ...]  # the basis of its numbers
    is_task: bool = False
    answer: Span = NOTHING  # tokens of its last turn, which children read
    most_output: int = 0  # if every possible turn fills its `max_tokens`
    by_batch: bool = False
    searches: Span = NOTHING
    last: Span = NOTHING  # input of its last request
    said: Span = NOTHING  # tokens of its conversation without prompts: answers, calls and results
    most_said: int = 0  # if every possible turn fills its `max_tokens`
    read: Span = NOTHING  # input from the cache of its conversation
    written: Span = NOTHING


def guess_all(  # noqa: PLR0913 - all that a guess stands on
    plan: Plan,
    requests: Sequence[Request],
    held: Sequence[Answer | None],
    counted: Sequence[int | None] | None,
    history: History,
    pilot: Collection[str] = (),
    *,
    terms: Terms | None = None,
    max_turns: int = 10,
    left: Sequence[Container[int]] = ((), (), ()),
    there: Sequence[Answer | None] = (),
) -> list[Guess]:
    """Return the expected use and time of every agent; a pilot's agents are evidence about others of their models.

    `left` has the steps not needed at each end, `there` the answers within the requests.
    """
    there, continued = there or held, plan.in_conversations
    speeds = Speeds(history, history.time_factor, history.origin)
    sizes = _sizes(requests, counted or [None] * len(plan), terms)
    tried = [row for row in history if row.agent in pilot]
    shared: dict[
        tuple[str, str, str | None, float | None, int | None, str], _Seen
    ] = {}  # of agents without earlier answers, once per group
    found: dict[int, Guess] = {}
    for agent in plan.dag.order:
        request = requests[agent]
        step = plan.agents[agent]
        if step.is_task:
            found[agent] = _task(step)
            continue
        if held[agent] is not None:
            found[agent] = _held(request)
            continue
        name = step.name
        before = [
            _Parent(
                found[one], tokens_factor(requests[one].model, request.model), at, _continues(step, plan.agents[one])
            )
            for one, at in _read_by(plan, agent, left)
            if there[one] is None
        ]
        turns, cache = _turns(step, max_turns, history), None
        least = facts_of(terms, request.model).min_cacheable_tokens if step.tools or agent in continued else None
        if least is not None:
            cache = _Cache(least, _begun(plan, agent, left, found, requests, sizes, least))
        if own := history.of_agent(step):
            guess = _guess(request, before, sizes[agent], _seen(step, request, own, tried), speeds)
            found[agent] = _searching(_in_turns(guess, turns, cache), step, own)
            continue
        key = (kin_of(name), request.model, request.effort, step.expect, step.expect_out, step.prompt)
        if key not in shared:
            kin = history.of_kin(step)
            shared[key] = _seen(step, request, kin, tried)._replace(piloted=any(row.agent in pilot for row in kin))
        guess = _guess(request, before, sizes[agent], shared[key], speeds)
        guess = _in_turns(_by_kin(guess, piloted=shared[key].piloted), turns, cache)
        found[agent] = _searching(guess, step, history.of_kin(step)) if step.tools_text else guess
    return [found[agent] for agent in range(len(plan))]


class _Parent(NamedTuple):
    """A parent with its answer, or `continued` conversation; `by` is the ratio of the models' tokens."""

    guess: Guess
    by: float
    at: tuple[bool, ...]
    continued: bool

    def tokens(self, end: int) -> float:
        return (self.guess.said if self.continued else self.guess.answer)[end] * self.by if self.at[end] else 0.0

    @property
    def most(self) -> float:
        return (self.guess.most_said if self.continued else self.guess.cap) * self.by if self.at[-1] else 0.0


def _continues(step: Step, parent: Step) -> bool:
    return step.continues is not None and step.continues in {parent.name, parent.part and parent.part.group}


class _Cache(NamedTuple):
    least: int
    begun: Span


def _begun(
    plan: Plan,
    agent: int,
    left: Sequence[Container[int]],
    found: Mapping[int, Guess],
    requests: Sequence[Request],
    sizes: Sequence[_Size],
    least: int,
) -> Span:
    # Another model finds nothing. An answer of the ledger may be older than the cache: only the low end reads it.
    ends = [0.0, 0.0, 0.0]
    for one, at in _read_by(plan, agent, left):
        if _continues(plan.agents[agent], plan.agents[one]) and requests[one].model == requests[agent].model:
            last = Span(sizes[one].tokens, 0.0, 0.0) if found[one].held else found[one].last
            ends = [
                tokens if is_read and tokens >= least else known
                for known, tokens, is_read in zip(ends, last, at, strict=True)
            ]
    return Span(*ends)


def _read_by(plan: Plan, agent: int, left: Sequence[Container[int]]) -> list[tuple[int, tuple[bool, ...]]]:
    parents = [plan.index[name] for name in plan.inputs[agent]]
    parts = {one: plan.agents[one].part for one in parents}
    last: list[dict[str, int]] = [{} for _ in left]
    for one, part in parts.items():
        for end, without in enumerate(left):
            if part is not None and part.rounds and one not in without:
                last[end][part.group] = one
    return [
        (
            one,
            tuple(
                one not in without and (part is None or not part.rounds or last[end][part.group] == one)
                for end, without in enumerate(left)
            ),
        )
        for one, part in parts.items()
    ]


def _held(request: Request) -> Guess:
    words = ("its answer is in the ledger",)
    cap = request.max_tokens or DEFAULT_MAX_TOKENS
    return Guess(
        0, NOTHING, NOTHING, NOTHING, 0.0, cap, 0, (0, 0), held=True, input_basis="ledger", output_basis="ledger",
        seconds_basis="ledger", words=words,
    )  # fmt: skip


class _Attached(NamedTuple):
    likely: int = 0
    most: int = 0
    words: tuple[str, ...] = ()


def _attached(request: Request, terms: Terms | None) -> _Attached:
    if not request.files:
        return _Attached()
    rule = facts_of(terms, request.model).token_rule
    every = request.files
    likely, most = tokens_of(every, rule)
    pages = sum(one.pages for one in every)
    words: tuple[str, ...] = ()
    if rule is not None and pages:
        words = (f"input: {pages:,} PDF pages taken as {rule.page_tokens[0]:,} tokens each, until counted",)
    elif likely != most:
        words = ("input: without its pictures and PDFs, whose tokens are unknown",)
    return _Attached(likely, most, words)


class _Size(NamedTuple):
    tokens: int
    attached: _Attached
    is_counted: bool


def _sizes(requests: Sequence[Request], counted: Sequence[int | None], terms: Terms | None) -> list[_Size]:
    attached = [_attached(request, terms) for request in requests]
    rules = rules_of(requests, counted, [one.likely for one in attached])
    return [
        _Size(rules.get(request.kind, BY_CHARACTERS).tokens(request) + files.likely, files, is_counted=False)
        if tokens is None
        else _Size(tokens, files, is_counted=True)
        for request, tokens, files in zip(requests, counted, attached, strict=True)
    ]


TASK: Final = Guess(
    0, NOTHING, NOTHING, NOTHING, 0.0, 0, 0, (0, 0), held=False, input_basis="counted", output_basis="assumed",
    seconds_basis="assumed", words=("a task: at no cost",), is_task=True,
)  # fmt: skip
"""A task costs nothing; its unknown time and result count as nothing, with a note."""


def passes_on(step: Step) -> bool:
    """Return True if a task only takes an answer of others, in no time: a row of a group, the winner of a race."""
    return step.is_task and (step.returns is not None or step.race)


def _task(step: Step) -> Guess:
    if passes_on(step):
        return TASK._replace(output_basis="measured", seconds_basis="measured")
    if step.expect is None:
        return TASK
    return TASK._replace(seconds=Span.around(step.expect, UNSURE), words=(*TASK.words, f"seconds: {DECLARED}"))


class _Seen(NamedTuple):
    """Evidence of earlier answers about the next one."""

    length: tuple[Span, Basis, str]
    timing: tuple[Span, float, str] | None  # also to the first token; `None` without comparable answers
    tried: bool  # a pilot has answers with its model and effort
    piloted: bool = False
    expect: float | None = None


def _seen(step: Step, request: Request, earlier: Sequence[Past], pilot: Sequence[Past]) -> _Seen:
    alike = [row for row in earlier if (row.model, row.effort) == (request.model, request.effort)]
    tried = [row for row in pilot if (row.model, row.effort) == (request.model, request.effort)]
    length = _length(request, alike, earlier, tried, step.expect_out)
    here = [row for row in alike if not row.elsewhere]
    return _Seen(length, _timing(here) if here else None, bool(tried), expect=step.expect)


def _guess(
    request: Request,
    parents: Sequence[_Parent],
    asked: _Size,
    seen: _Seen,
    speeds: Speeds,
) -> Guess:
    cap, own, attached = request.max_tokens, asked.tokens, asked.attached
    ends = [round(sum(one.tokens(end) for one in parents)) for end in range(3)]
    likely, most = ends[1], round(sum(one.most for one in parents))
    size = sum(len(text.encode(errors="replace")) for text in request.texts()) + OVERHEAD_TOKENS + attached.most
    output, output_basis, length_words = seen.length
    output = Span(*(float(min(max(round(tokens), 1), cap)) for tokens in output))
    seconds, first_s, seconds_basis, pace_words = _seconds(request, seen, output, speeds)
    given = Span(*(float(own + tokens) for tokens in ends))
    return Guess(
        own,
        given,
        output,
        seconds,
        first_s,
        cap,
        own + most,
        (size + likely * CHARS_PER_TOKEN, size + most * CHARS_PER_TOKEN),
        held=False,
        input_basis="counted" if asked.is_counted and not parents else "estimated",
        output_basis=output_basis,
        seconds_basis=seconds_basis,
        words=(length_words, pace_words, *(() if asked.is_counted else attached.words)),
        answer=output,
        most_output=cap,
        last=given,
        said=Span(*(tokens + before for tokens, before in zip(output, ends, strict=True))),
        most_said=cap + most,
    )


class _Turns(NamedTuple):
    """Requests per answer, output of a request that calls (`None` if unknown), and tokens of results between two."""

    number: Span
    most: int
    words: str
    calls: Span | None
    results: Span


def _turns(agent: Step, max_turns: int, history: History) -> _Turns | None:
    if not any(isinstance(one, Tool) for one in agent.tools):
        return None
    most = agent.max_turns or max_turns
    rows = history.of_agent(agent) or history.of_kin(agent)
    answers = sum(not row.calls for row in rows)
    if not answers:
        # its first request has been looked up there
        likely, told = min(ASSUMED_TURNS if agent.continues is None else 1.0, most), "assumed"
        number = Span(1.0, likely, float(most))
    else:
        likely, told = min(len(rows) / answers, most), f"by {_answers(answers)}, taken as half to twice"
        number = Span(max(1.0, likely / 2), likely, min(likely * 2, most))
    words = f"turns: {likely:.3g} {told} ({number.low:.3g}–{number.high:.3g}, at most {most})"
    lengths = [float(row.output_tokens) for row in rows if row.calls and row.output_tokens is not None]
    calls, results = Span.of(lengths) if lengths else None, _results(rows)
    if results is None:
        results, told = Span.around(ASSUMED_RESULT_TOKENS, UNSEEN), "assumed as"
    else:
        told = "as before,"
    return _Turns(number, most, f"{words}, each tool result {told} {results.likely:.0f} tokens", calls, results)


def _results(rows: Sequence[Past]) -> Span | None:
    found: list[float] = []
    calling: dict[str, Past] = {}
    for row in rows:
        before = calling.pop(row.agent, None)
        if before is not None and row.input_tokens is not None and before.input_tokens is not None:
            found.append(max(0.0, row.input_tokens - before.input_tokens - (before.output_tokens or 0)))
        if row.calls:
            calling[row.agent] = row
    return Span.of(found) if found else None


def _in_turns(guess: Guess, turns: _Turns | None, cache: _Cache | None) -> Guess:
    """Return the use of all turns of a conversation: each sends all earlier ones again."""
    if turns is None:
        return guess if cache is None else _cached(guess, guess.input, NOTHING, cache)
    calls = guess.output if turns.calls is None else turns.calls
    grows = Span(*(map(sum, zip(calls, turns.results, strict=True))))
    more = [(number - 1, by) for number, by in zip(turns.number, grows, strict=True)]
    most = guess.cap + turns.results.high
    found = guess._replace(
        input=Span(*(round((n + 1) * (one + by * n / 2)) for one, (n, by) in zip(guess.input, more, strict=True))),
        output=Span(*(round(one + by * n) for one, by, (n, _) in zip(guess.output, calls, more, strict=True))),
        seconds=Span(*(took_s * number for took_s, number in zip(guess.seconds, turns.number, strict=True))),
        most_input=round(turns.most * (guess.most_input + most * (turns.most - 1) / 2)),
        most_output=guess.cap * turns.most,
        input_basis="estimated",
        words=(*guess.words, turns.words),
        last=Span(*(one + by * n for one, (n, by) in zip(guess.last, more, strict=True))),
        said=Span(*(one + by * n for one, (n, by) in zip(guess.said, more, strict=True))),
        most_said=round(guess.most_said + most * (turns.most - 1)),
    )
    return found if cache is None else _cached(found, guess.input, grows, cache)


def _cached(guess: Guess, first: Span, grows: Span, cache: _Cache) -> Guess:
    # Each request reads its predecessor, and writes the rest: all that is written is the last request.
    read, written = [0.0] * 3, [0.0] * 3
    for end, (one, by, last) in enumerate(zip(first, grows, guess.last, strict=True)):
        if last < cache.least:
            continue
        short = 0 if one >= cache.least else ceil((cache.least - one) / by)
        written[end] = max(0.0, last - cache.begun[end])
        read[end] = max(0.0, guess.input[end] - written[end] - short * (one + by * (short - 1) / 2))
    return guess._replace(read=Span(*read), written=Span(*written))


def _searching(guess: Guess, step: Step, earlier: Sequence[Past]) -> Guess:
    most = step.tools.most_searches
    if not most:
        return guess
    known = [row for row in earlier if row.searches is not None]
    answers = sum(not row.calls for row in known)
    if answers:
        likely = sum(row.searches or 0 for row in known) / answers
        number, told = Span(likely / 2, likely, max(likely, min(likely * 2, most))), f"by {_answers(answers)}"
    else:
        number, told = Span(0.0, float(min(ASSUMED_SEARCHES, most)), float(most)), "assumed"
    span = f"({number.low:.3g}–{number.high:.3g})"
    words = f"searches of the web: {number.likely:.3g} {told} {span}, ${SEARCH_USD:g} each"
    return guess._replace(searches=number, words=(*guess.words, words))


def _length(
    request: Request, same: Sequence[Past], earlier: Sequence[Past], tried: Sequence[Past], declared: int | None
) -> tuple[Span, Basis, str]:
    answers = [row for row in same if not row.calls] or same
    lengths = [float(row.output_tokens) for row in answers if row.output_tokens is not None]
    if lengths:
        few = "" if len(lengths) >= ENOUGH else ", taken as half to twice"
        return Span.of(lengths), "ledger", f"length: {_answers(len(lengths))}{few}"
    if declared is not None:
        return Span.around(declared, UNSURE), "assumed", f"length: {DECLARED}"
    others = [
        row.output_tokens * tokens_factor(row.model, request.model) for row in earlier if row.output_tokens is not None
    ]
    if others:
        middle = Span.of(others).likely
        words = f"length: {_answers(len(others))} by another model or effort, a quarter to four times"
        return Span.around(middle, UNSEEN), "assumed", words
    if lengths := [float(row.output_tokens) for row in tried if row.output_tokens is not None]:
        words = f"length: as those of the pilot by {request.model} ({len(lengths)}), taken as a quarter to four times"
        return Span.around(Span.of(lengths).likely, UNSEEN), "pilot", words
    if request.schema:
        tokens = typical_chars(schema_of(request.schema)) // CHARS_PER_TOKEN + 1
        return (
            Span.around(tokens, UNSEEN),
            "assumed",
            f"length: by its type, about {tokens} tokens, a quarter to four times",
        )
    low, high = (round(ASSUMED_OUTPUT_TOKENS * factor) for factor in UNSEEN)
    words = f"length: assumed {ASSUMED_OUTPUT_TOKENS} tokens ({low:,}–{high:,}), no earlier answers"
    return Span.around(ASSUMED_OUTPUT_TOKENS, UNSEEN), "assumed", words


def _timing(same: Sequence[Past]) -> tuple[Span, float, str]:
    seconds = Span.of([row.api_s for row in same])
    firsts = [row.ttft_s for row in same if row.ttft_s is not None]
    first_s = Span.of(firsts).likely if firsts else seconds.likely
    few = "" if len(same) >= ENOUGH else ", taken as half to twice"
    return seconds, min(first_s, seconds.likely), f"seconds: {_answers(len(same))}{few}"


def _seconds(request: Request, seen: _Seen, output: Span, speeds: Speeds) -> tuple[Span, float, Basis, str]:
    if seen.timing is not None:
        seconds, first_s, words = seen.timing
        return seconds, first_s, "ledger", words
    timing, basis, words = speeds.of(request.model)
    if seen.expect is not None:
        return Span.around(seen.expect, UNSURE), min(timing.ttft_s, seen.expect), "assumed", f"seconds: {DECLARED}"
    likely, low, high = ((timing.ttft_s + output[end] / timing.pace) for end in (1, 0, 2))
    basis = "pilot" if basis == "ledger" and seen.tried else basis
    return Span(low * timing.low, likely, high * timing.high), timing.ttft_s, basis, f"seconds: {words}"


def _answers(number: int) -> str:
    return "its 1 earlier answer" if number == 1 else f"its {number} earlier answers"


def _by_kin(guess: Guess, *, piloted: bool) -> Guess:
    words = tuple(each.replace(": its ", ": its group's ") for each in guess.words)
    if not piloted:
        return guess._replace(words=words)
    length, pace = ("pilot" if basis == "ledger" else basis for basis in (guess.output_basis, guess.seconds_basis))
    return guess._replace(words=words, output_basis=length, seconds_basis=pace)


ASSUMED: Final = "a batch assumed to take an hour, a quarter at least and a day at most"


def batch_span(times_s: Sequence[float]) -> tuple[Span, str]:
    if len(times_s) >= ENOUGH:
        return Span.of(times_s), f"seconds of {len(times_s)} earlier batches"
    return Span(BATCH_S / 4, BATCH_S, BATCH_MOST_S), ASSUMED


WIDE: Final = 400
"""Counted requests must differ by this many characters to give tokens per character, because of rounding."""


class Rule(NamedTuple):
    """The tokens of a request of one kind: `more` beside those of its characters."""

    per_character: float = 1 / CHARS_PER_TOKEN
    more: float = 1.0

    def tokens(self, request: Request) -> int:
        return max(1, int(self.per_character * characters(request) + self.more))


BY_CHARACTERS: Final = Rule()


def characters(request: Request) -> int:
    return sum(map(len, request.texts()))


def rules_of(requests: Sequence[Request], counted: Sequence[int | None], attached: Sequence[int]) -> dict[Kind, Rule]:
    """Return the token rules for each kind of request from the counted ones.

    Instructions for types and tools are known only to the provider. Requests of one kind differ in their text alone, so
    a few counts estimate the others.
    """
    known: dict[Kind, list[tuple[int, int]]] = {}
    for request, tokens, files in zip(requests, counted, attached, strict=True):
        if tokens is not None:
            known.setdefault(request.kind, []).append((characters(request), tokens - files))
    return {kind: _rule(pairs) for kind, pairs in known.items()}


def _rule(pairs: Sequence[tuple[int, int]]) -> Rule:
    lengths, tokens = zip(*pairs, strict=True)
    if max(lengths) - min(lengths) >= WIDE:
        line = linear_regression(lengths, tokens)
        if line.slope > 0:
            return Rule(line.slope, line.intercept + 0.5)
    more = fmean(size - length / CHARS_PER_TOKEN for length, size in pairs)
    return Rule(more=more + 0.5)
