"""A plan and a run as plain text: for `text/plain`, and the line under every graph."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.schema import VALUE, is_wrapper, schema_of
from agent_magic.declare.flow import is_reserved
from agent_magic.declare.units import UNKNOWN, count, dollars, known, plural, seconds, steps, times
from agent_magic.errors import and_more
from agent_magic.forecast.evidence import SURE_BY
from agent_magic.forecast.whatif import MOST_AT_ONCE, totals_of
from agent_magic.measure.metrics import cost_mark, total_cost
from agent_magic.record.answer import total_tokens
from agent_magic.record.display import single_line
from agent_magic.record.reasons import limited
from agent_magic.record.results import capped_steps
from agent_magic.show.markup import TEXT_WIDTH, wrapped
from agent_magic.show.states import DONE, STATES, source_word, states_of, unmet

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.answer import Usage
    from agent_magic.record.results import AgentResult, RunRecord

_MOST_LINES = 60
LEAST_STACK = 10
"""Minimum items of a declaration for one card and one line of all its agents."""
UNSAID = frozenset({"dependencies", "longest", "key", "limits"})
"""Limits that are no news: a run's own edges, and the first reply of a session."""
LEAST_WAIT_S = 0.1


def one_line(numbers: Summary) -> str:
    """Return the line under a graph.

    `5 agents in 3 layers · 5.1 s, 9.0 s one by one: 1.8x · 1.8x concurrent (2.3x possible) · 5,366 tokens · $0.0114`.
    """
    head = f"{steps(numbers.steps, numbers.tasks)} in {plural(numbers.layers, 'layer')}"
    time = ", ".join([seconds(numbers.wall_s), *sped(numbers)])
    words = [*choices(numbers), *troubles(numbers), time, *facts(numbers)]
    return " · ".join(filter(None, [head, *words, single_line(numbers.why) or held(numbers)]))


def run_line(record: RunRecord, now_s: float | None = None) -> str:
    """Return the line under a run; very large runs have no speedup."""
    return " · ".join([one_line(totals_of(record, now_s, most=MOST_AT_ONCE)), *how_sure(record)])


def how_sure(record: RunRecord) -> list[str]:
    """Return the range and the basis of a forecast: `3.8 s–4.2 s, partly assumed`."""
    note = record.forecast
    if note is None:
        return []
    low, high = note.wall_range_s
    return [(f"{seconds(low)}–{seconds(high)}, " if high else "") + SURE_BY.get(note.basis, note.basis)]


def sped(numbers: Summary) -> list[str]:
    """Return `4.4 s one by one: 1.7x`, if the two differ."""
    if numbers.steps < 2 or numbers.sequential_s is None or (fold := times(numbers.speedup)) == times(1.0):
        return []
    how = "by one agent" if numbers.speedup_over == "one agent" else "one by one"
    return [f"{seconds(numbers.sequential_s)} {how}: {fold}"]


def held(numbers: Summary) -> str:
    """Return the limit of a run, unless it is its own edges or a first reply."""
    return "" if numbers.limited_by in UNSAID else limited(numbers.limited_by, numbers.slots)


def steps_of(plan: Plan) -> str:
    """Return `2 agents and 1 task in 2 layers`."""
    most = "at most " if any(map(is_reserved, plan.agents)) else ""
    return f"{most}{steps(len(plan), sum(one.is_task for one in plan.agents))} in {plural(plan.depth, 'layer')}"


def choices(numbers: Summary) -> list[str]:
    """Return the decisions of the run: `of at most 23`, `12 escalated`, `1 fell back`."""
    most = [f"of at most {numbers.steps + numbers.unused:,}"] if numbers.unused else []
    counts = {"left out": numbers.left_out, "escalated": numbers.escalated, "fell back": numbers.fell_back}
    counts["degraded"] = numbers.degraded
    return [*most, *(f"{number:,} {word}" for word, number in counts.items() if number)]


def troubles(numbers: Summary) -> list[str]:
    counts = {
        "failed": numbers.failed,
        "skipped": numbers.skipped,
        "cancelled": numbers.cancelled,
        "capped": numbers.capped,
    }
    return [f"{number:,} {word}" for word, number in counts.items() if number]


def facts(numbers: Summary) -> list[str]:
    """Return phrases that begin with their number, the source last."""
    found: list[str] = []
    if numbers.steps > 1 and known(numbers.mean_concurrency) is not None:
        found.append(_concurrency(numbers.mean_concurrency, numbers.bound, numbers.slots))
    found.append(f"{count(known(numbers.tokens))} tokens")
    found.append(cost(numbers))
    return [*found, numbers.source] if numbers.source else found


def cost(numbers: Summary) -> str:
    half = f" ({numbers.batched:,} by batch, half price)" if numbers.batched else ""
    return dollars(numbers.cost_usd, numbers.cost_mark) + half


def _concurrency(mean: float | None, bound: float | None, slots: int | None) -> str:
    mean, bound = known(mean), known(bound)
    if mean is None or bound is None:
        return f"{times(mean)} concurrent"
    if slots is not None and slots < bound:
        return f"{times(mean)} concurrent ({plural(slots, 'slot')})"
    reached = mean >= 0.99 * bound or times(mean) == times(bound)
    return f"{times(mean)} concurrent ({'no more possible' if reached else f'{times(bound)} possible'})"


def counts_line(states: str, asked: int = 0) -> str:
    """Return `5 of 9 done · 3 running`; `asked` of the queued wait for a person."""
    counts = {STATES[state].word: states.count(state) for state in "mrqfkc"}
    counts["queued"] -= asked
    words = [f"{number:,} {word}" for word, number in counts.items() if number]
    words += [f"{asked:,} {'waits' if asked == 1 else 'wait'} for you"] if asked else []
    every = len(states) - states.count("u")
    return " · ".join([f"{sum(map(states.count, DONE)):,} of {every:,} done", *words])


def plan_text(plan: Plan) -> str:
    def after(agents: Sequence[int]) -> str:
        parents = [one for agent in agents for one in plan.dag.parents[agent]]
        names = list(dict.fromkeys(_group_of(plan, one) or plan.agents[one].name for one in parents))
        return f"  after {listed(names)}" if names else ""

    def line(agent: int) -> str:
        task = "  task" if plan.agents[agent].is_task else ""
        return single_line(plan.agents[agent].name) + task + after([agent])

    def many(name: str, agents: Sequence[int]) -> str:
        noun = "task" if plan.agents[agents[0]].is_task else "agent"
        return f"{single_line(name)}  {plural(len(agents), noun)}" + after(agents)

    head = f"{single_line(plan.name)}: {steps_of(plan)}"
    return "\n".join([_by_layer(head, plan, line, many), *(f"note: {single_line(note)}" for note in plan.notes)])


def _group_of(plan: Plan, agent: int) -> str:
    part = plan.agents[agent].part
    return part.group if part is not None and len(plan.groups.get(part.group, ())) >= LEAST_STACK else ""


def run_text(record: RunRecord, *, timings: bool = True) -> str:
    # Without timings, equal runs give equal text, which tests of notebooks need.
    plan = record.plan
    head = run_line(record) if timings else _stable_head(record)
    names = {_group_of(plan, number) or agent.name for number, agent in enumerate(plan.agents)}
    width = min(32, max(map(len, names), default=0))
    used = {number for number, one in enumerate(record.results) if one.status != "unused"}

    words, capped = [STATES[state].word for state in states_of(record)], capped_steps(record)

    def line(agent: int) -> str:
        result, source = record.results[agent], source_word(record.source_at(agent))
        told = _agent_line(result, words[agent], source, width, timings=timings)
        return "  ".join(filter(None, [told, unmet(capped.get(agent))]))

    def many(name: str, agents: Sequence[int]) -> str:
        counts = Counter(words[agent] for agent in agents)
        told = _group_line(name, counts, [record.results[agent] for agent in agents], width, timings=timings)
        return "  ".join([told, *dict.fromkeys(unmet(capped[agent]) for agent in agents if agent in capped)])

    return _by_layer(head, plan, line, many, used)


def answer_line(result: AgentResult, most: int) -> str:
    """Return the start of an answer on one line; of a typed answer without the enclosing object."""
    text = result.text
    if result.returns is not None:
        with contextlib.suppress(ValueError):  # an answer that is cut, or still arrives, is shown as it is
            data: Any = json.loads(text)
            fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
            if list(fields) == [VALUE] and is_wrapper(schema_of(result.returns.schema)):
                value = fields[VALUE]
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            elif fields and not any(isinstance(one, dict | list) for one in fields.values()):
                text = " · ".join(
                    f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in fields.items()
                )
    return single_line(text[:most])


def why_not(result: AgentResult) -> str:
    return single_line(result.error or result.waits_why)


def _stable_head(record: RunRecord) -> str:
    words: dict[str, int] = {}
    for result in record.rows:
        words[result.status] = words.get(result.status, 0) + 1
    counts = [f"{number:,} {word}" for word, number in words.items()]
    sources = sorted(filter(None, {source_word(record.source_at(number)) for number in range(len(record.results))}))
    return " · ".join([steps_of(record.plan), *counts, *sources])


def _group_line(
    name: str, counts: Mapping[str, int], results: Sequence[AgentResult], width: int, *, timings: bool
) -> str:
    words = [f"{single_line(name):<{width}}  {', '.join(f'{number:,} {word}' for word, number in counts.items())}"]
    failed = [one.name for one in results if one.status == "failed"]
    if failed:
        words.append(f"failed: {listed(failed, 3)}")
    elif timings:
        slowest = max(results, key=lambda one: one.work_s)
        words.append(f"slowest: {single_line(slowest.name)}, {took(slowest)}")
    if timings:
        words.append(dollars(total_cost(results), cost_mark(results)))
    return "  ".join(words)


def _agent_line(result: AgentResult, word: str, source: str, width: int, *, timings: bool) -> str:
    words = [f"{single_line(result.name):<{width}}  {word:<9}", *(["task"] if result.is_task else [])]
    if timings and result.is_task and result.calls:
        words.append(seconds(result.work_s))
    if timings and result.attempts:
        tokens = total_tokens_of(result)
        words.append(f"{seconds(result.work_s)}  {count(tokens)} tok  {dollars(result.cost_usd)}")
    if source:
        words.append(source)
    if timings:
        words += many_of(result)
    if word not in {"succeeded", "pending", "running", "queued"} and why_not(result):
        words.append(why_not(result)[:200])
    return "  ".join(words).rstrip()


def took(result: AgentResult) -> str:
    """Return the seconds of own work, and the total if it waited long: `0.5 s of 44 s`."""
    total_s = result.total_s or 0.0
    waited_s = total_s - result.work_s
    return seconds(result.work_s) + (f" of {seconds(total_s)}" if waited_s >= max(LEAST_WAIT_S, total_s / 10) else "")


def result_facts(result: AgentResult, source: str | None = None) -> list[str]:
    last = result.attempts[-1].model if result.attempts else ""
    models = f"{result.model}, {result.moved_by} to {last}" if result.moved_by else result.model
    found = ["task" if result.is_task else single_line(models)]
    if result.finished_s is not None and result.started_s is not None:
        found.append(took(result))
    if total_tokens_of(result) is not None:
        found += [_usage_words(result.usage), dollars(result.cost_usd)]
    found += many_of(result)
    if result.stop_reason and result.stop_reason not in {"end_turn", "tool_use"}:
        found.append(f"stopped at {single_line(result.stop_reason)}")
    files = result.artifacts
    found += [f"wrote {listed(files, 3)}"] if files else []
    return [*found, *filter(None, [source_word(source or result.source)])]


def many_of(result: AgentResult) -> list[str]:
    calls = len(result.calls) if result.is_task else sum(not one.is_own for one in result.calls)
    turns, attempts = result.turns, len(result.attempts)
    found = [plural(turns, "turn")] if turns > 1 else []
    if calls > result.is_task:  # one call of a task is expected
        found.append(plural(calls, "call"))
    return found + ([plural(attempts, "attempt")] if attempts > max(1, turns) else [])


def _usage_words(usage: Usage) -> str:
    parts = [f"{count(usage.input_tokens)} tokens in"]
    parts += [f"{count(usage.cache_read_tokens)} from the cache"] if usage.cache_read_tokens else []
    parts += [f"{count(usage.cache_write_tokens)} into the cache"] if usage.cache_write_tokens else []
    parts.append(f"{count(usage.output_tokens)} out")
    return ", ".join(parts) + (" (estimated)" if usage.estimated else "")


def total_tokens_of(result: AgentResult) -> int | None:
    usage = result.usage
    return total_tokens((usage.total_input_tokens, usage.output_tokens))


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return `a, b and 3 more`."""
    return ", ".join(map(single_line, names[:most])) + and_more(len(names) - most)


def _by_layer(
    head: str,
    plan: Plan,
    line: Callable[[int], str],
    many: Callable[[str, Sequence[int]], str],
    used: Container[int] | None = None,
) -> str:
    # The middle of a long list is left out.
    rows: list[str] = [head]
    for depth, layer in enumerate(plan.dag.layers()):
        shown = [one for one in layer if used is None or one in used]
        groups: dict[str, list[int]] = {}
        for one in shown:
            groups.setdefault(_group_of(plan, one), []).append(one)
        alone = groups.pop("", [])
        found = [line(one) for one in alone] + [many(name, agents) for name, agents in groups.items()]
        rows += [f"  layer {depth}", *(f"    {one}" for one in found)] if shown else []
    if len(rows) > _MOST_LINES:
        keep = _MOST_LINES // 2
        rows[keep:-keep] = [f"    {UNKNOWN} {len(rows) - 2 * keep:,} more lines {UNKNOWN}"]
    return "\n".join(wrapped(one, TEXT_WIDTH, "      ") for one in rows)


def forecast_words(record: RunRecord) -> str:
    note = record.forecast
    return f". Assumed: {note.assumed}" if note is not None and note.assumed else ""
