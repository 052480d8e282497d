"""The rules of `run.advise()` and `plan.lint()`, with their public sources. One without a number returns `None`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.units import dollars, seconds
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.errors import some_of
from agent_magic.forecast.advice.economy import (
    by_grades,
    cache_life,
    high_effort,
    how_sure,
    room_for_answers,
    said_twice,
    shared_documents,
    shared_text,
    shared_values,
    verdict_on,
)
from agent_magic.forecast.advice.finding import (
    ALIKE,
    CONCURRENT,
    LAYERS,
    SCALING,
    SPECIFICATION,
    TOKENS,
    WORTH,
    Finding,
    assumed_of,
    fold,
    found,
    pays,
    practices,
)
from agent_magic.forecast.advice.structure import SHAPE, not_after, ordered, refers_to
from agent_magic.measure.metrics import NEAR_BOUND, NEAR_SUM, summarize, waited_s
from agent_magic.measure.path import Chains, works
from agent_magic.record.facts import Facts
from agent_magic.record.reasons import wording

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.forecast.advice.finding import Outlook
    from agent_magic.forecast.forecast import Forecast


MOST_ASKED = 12
"""Maximum agents or edges to forecast, the most promising first."""
FEWEST_ASKED = 3
MOST_COUNTED = 1_000
"""In larger plans possible concurrency is not counted, and fewer are forecast, since each takes longer."""
SMALL_S = 5.0
"""The source calls such tasks too small to run at once; the rule measures the overhead instead."""
FEW, HALF = 3, 0.5
UNEVEN = 1.5
"""Factor over the median from which an agent is worth splitting."""
SAMPLE = 12
NO_MORE = ": more slots would not help."
RUN = "the run"


def _most_asked(outlook: Outlook) -> int:
    return max(FEWEST_ASKED, min(MOST_ASKED, MOST_ASKED * MOST_COUNTED // max(1, len(outlook.record.plan))))


def wall_time(outlook: Outlook) -> Finding | None:
    """Whether the wall time is near the longest path or the sum, and the effect of more slots."""
    summary = summarize(outlook.record)
    if summary.verdict is None or summary.wall_s is None:
        return None
    path_s, all_s = seconds(summary.critical_path_s), seconds(summary.agent_s)
    waited = "" if summary.limited_by == "longest" else summary.limited_by
    cause = f" Agents mostly waited for {wording(waited).phrase}." if waited else ""
    measured = (
        f"The run took {seconds(summary.wall_s)}. Its longest chain of agents works {path_s}, all of them together "
        f"{all_s}.{cause}"
    )
    rule, source = (
        "wall time near the critical path, not the sum",
        f"{practices(3, 9)}; {NEAR_BOUND:g} and {NEAR_SUM:g}",
    )
    if not pays(outlook, outlook.unlimited):
        return found(outlook, rule, measured, source)
    slots = outlook.enough_slots
    barriers = outlook.policy.schedule != "ready"
    ready = "schedule='ready' and " if barriers else ""
    change = f"Run it with {ready}concurrency={slots}; more slots would not help."
    changed = outlook.under(concurrency=slots, schedule="ready")
    if changed.most_seen is not None:
        return _to_find_out(outlook, found(outlook, rule, measured, source), changed, slots)
    told = found(outlook, rule, measured, source, changed, change, concurrency=slots, schedule="ready")
    return told.at(RUN, f"%agents run --concurrency {slots}{' --schedule ready' if barriers else ''}")


def _to_find_out(outlook: Outlook, known: Finding, changed: Forecast, slots: int) -> Finding:
    seen = changed.most_seen or 1
    steps = outlook.record.plan.agents
    askers = [one for one in outlook.record.results if not one.is_task]
    grouped = Counter(one.part.group for one in steps if one.part is not None and not one.part.rounds)
    sampled = any(count > SAMPLE for count in grouped.values())
    share = min(1.0, SAMPLE / max(1, len(askers))) if sampled else 1.0
    cost = outlook.as_it_was.cost_usd
    price = "" if cost is None else f", about {dollars(2 * share * cost)}"
    saves = seconds(max(0.0, outlook.saves_s(changed)))
    command = f"%agents sweep --at {seen},{slots}{f' --sample {SAMPLE}' if sampled else ''}"
    said = f"Find out whether concurrency={slots} is faster{price}: {command}"
    why = f"It would save {saves} if the server kept its speed, but more than {seen} at once was never seen."
    return _assumed(outlook, replace(known, change=said), changed, why).at(RUN, command)


def _assumed(outlook: Outlook, known: Finding, changed: Forecast, why: str = "") -> Finding:
    """Add the assumption to a finding if its forecast exceeds the load seen at its server."""
    if changed.most_seen is None:
        return known
    why = why or f"That is as if the server kept its speed: more than {changed.most_seen} at once was never seen."
    return replace(known, measured=f"{known.measured} {why}", basis="assumed", assumed=assumed_of(outlook, changed))


def barrier(outlook: Outlook) -> Finding | None:
    """An agent waits for its own parents only."""
    if len(outlook.record.plan.dag.layers()) < 2:
        return None
    cost_s, source = outlook.barrier_cost_s(), f'{LAYERS}: "wait only for their specific dependencies"; {practices(6)}'
    if outlook.policy.schedule != "layers":
        measured = f"Nobody waits for a whole layer. If all did, the run would take {seconds(cost_s)} longer."
        return found(outlook, "no barriers", measured, source)
    measured = f"Each layer waits until all of the one before is done, which costs {seconds(cost_s)}."
    ready = outlook.under(schedule="ready")
    change = "Run it with schedule='ready'." if pays(outlook, ready) else ""
    told = found(outlook, "no barriers", measured, source, ready, change, schedule="ready")
    return told.at(RUN, "%agents run --schedule ready")


def longest(outlook: Outlook) -> Finding | None:
    """Split or shorten the longest agent on the critical path; one of many rows cannot be split."""
    record = outlook.record
    work = works(record)
    chains = Chains.of(record.plan.dag, work)
    promising = sorted(range(len(work)), key=lambda one: -chains.saved_s(one, work[one] / 2))[: _most_asked(outlook)]
    whole = [one for one in promising if work[one] > 0 and outlook.names[one] == record.plan.names[one]]
    halved = {one: outlook.ask(faster={one: 0.5}) for one in whole}
    if not halved:
        return None
    best = min(halved, key=lambda one: halved[one].wall_s)
    name, changed = record.results[best].name, halved[best]
    share = work[best] / sum(work)
    saves = seconds(max(0.0, outlook.saves_s(changed)))  # with a failed agent the forecast may be the longer one
    measured = f"{name} works {seconds(work[best])}, {share:.0%} of all work. In half the time it would save {saves}."
    advice = f"Shorten {name}, or split it into parts that do not wait for each other."
    alone = work[best] > UNEVEN * median(one for one in work if one > 0)  # equal ones are as balanced as can be
    change = advice if alone and pays(outlook, changed) else ""
    told = found(outlook, "balance the load", measured, practices(5), changed, change)
    return told.at(name, f"## {name}_1 and ## {name}_2, a half of the work each")


def needless_edges(outlook: Outlook) -> Finding | None:
    """Find agents that come `after` another without using its text."""
    record = outlook.record
    plan = record.plan
    after = [(parent, child) for parent, child in ordered(plan) if not refers_to(plan[child].prompt, parent)]
    edges = [(plan.number(parent), plan.number(child)) for parent, child in after]
    if not edges:
        return None
    through_s = Chains.of(plan.dag, works(record)).through_s
    asked = sorted(edges, key=lambda edge: -through_s[edge[1]])[: _most_asked(outlook)]
    without = {edge: outlook.ask(cut=frozenset({edge})) for edge in asked}
    best = min(without, key=lambda edge: without[edge].wall_s)
    parent, child = (record.results[one].name for one in best)
    names, rows = plan.names, sorted(without.items(), key=lambda one: one[1].wall_s)
    costs = [f"{names[one]} -> {names[other]} costs {seconds(outlook.saves_s(cut))}" for (one, other), cut in rows[:3]]
    measured = f"Edges that only order, and carry no text: {len(edges)}. {', '.join(costs)}."
    advice = f"Let {child} go without waiting for {parent}, if order does not matter."
    change = advice if pays(outlook, without[best]) else ""
    source = f"{LAYERS}: minimize dependencies"
    told = found(outlook, "only necessary dependencies", measured, source, without[best], change)
    return told.at(f"{parent} -> {child}", f"{child} without --after {parent}", not_after(plan, parent, child))


def strategy(outlook: Outlook) -> Finding | None:
    """Sequential below three independent tasks, hybrid below a half of all, else parallel: with the seconds of each."""
    dag = outlook.record.plan.dag
    count = len(dag.parents)
    if count > MOST_COUNTED:
        return None
    beside = sum(1 + len(dag.ancestors([one])) + len(dag.descendants([one])) < count for one in range(count))
    word = "sequential" if beside < FEW else "hybrid" if beside / count < HALF else "parallel"
    gain = outlook.sequential.wall_s / outlook.as_it_was.wall_s if outlook.as_it_was.wall_s else 1.0
    measured = (
        f"{beside} of {count} agents can run beside another: the rule says {word}. "
        f"One after another they take {seconds(outlook.sequential.wall_s)}, {fold(gain)}as long as this run."
    )
    return found(outlook, "sequential, hybrid or parallel", measured, f"{SPECIFICATION}: fewer than 3, below 50 %")


def how_many(outlook: Outlook) -> Finding | None:
    """Three to five at once: seconds at the rule's number and at the sufficient one."""
    count = len(outlook.record.plan)
    if count < FEW:
        return None
    rule = min(count, 3) if count < 10 else 5
    enough = outlook.enough_slots
    at_rule = outlook.under(concurrency=rule, schedule="ready")
    measured = (
        f"For {count} agents the rule says {rule} at once, which takes {seconds(at_rule.wall_s)}. With {enough} it "
        f"takes {seconds(outlook.unlimited.wall_s)}, and more save nothing. The run had {outlook.policy.concurrency}."
    )
    known = found(outlook, "three to five agents at once", measured, f"{SPECIFICATION}: optimal agents; {practices(4)}")
    return _assumed(outlook, known, outlook.unlimited)


def small_tasks(outlook: Outlook) -> Finding | None:
    """Tasks below five seconds: is the overhead larger than the gain from concurrency?"""
    done = [one for one in outlook.record.results if one.attempts and one.local_s is not None]
    small = sum(one.api_s < SMALL_S for one in done)
    if not small:
        return None
    overhead = sum(one.local_s or 0.0 for one in done) / len(done)
    share = overhead * len(done) / (sum(one.work_s for one in done) or 1.0)
    measured = (
        f"{small} of {len(done)} agents took less than {SMALL_S:g} s. To run one costs {1000 * overhead:.1f} ms "
        f"beside its requests, {share:.1%} of the work."
    )
    return found(outlook, "small tasks", measured, f"{SPECIFICATION}: not worth it below 5 s")


def half_saved(outlook: Outlook) -> Finding | None:
    """Iterate on the grouping if less than half is saved, unless the plan itself allows no more."""
    slow, best = outlook.sequential.wall_s, outlook.unlimited.wall_s
    if not slow or len(outlook.record.plan) < 2:
        return None
    saved, most = 1 - outlook.as_it_was.wall_s / slow, 1 - best / slow
    measured = (
        f"Running agents at once saved {saved:.0%} of the time that they take one after another. "
        f"With a slot for each it would be {most:.0%}"
    )
    limit = "." if saved >= HALF else ": more slots would help." if pays(outlook, outlook.unlimited) else NO_MORE
    if outlook.unlimited.most_seen is not None:
        limit = "."
    return _assumed(
        outlook, found(outlook, "half of the time saved", measured + limit, practices(10)), outlook.unlimited
    )


def limits(outlook: Outlook) -> Finding | None:
    """Rate limits that held agents or refused requests, and the run without them."""
    waited = dict.fromkeys(DIMENSIONS, 0.0) | waited_s(outlook.record.results)
    refused = len(outlook.record.facts.rate_limited)
    worst = max(DIMENSIONS, key=lambda name: waited[name])
    if not refused and not waited[worst]:
        return None
    free_of = outlook.ask(limits={})
    were = "request was" if refused == 1 else "requests were"
    told = [f"{refused} {were} refused"] if refused else []
    told += [f"agents waited {seconds(waited[worst])} for {wording(worst).phrase}"] if waited[worst] else []
    measured = f"By the rate limits {' and '.join(told)}."
    advice = "Ask for higher rate limits, or run when nobody else uses the key."
    change = advice if pays(outlook, free_of) else ""
    return found(outlook, "inside the rate limits", measured, f"{CONCURRENT}: rate limits", free_of, change)


def failures(outlook: Outlook) -> Finding | None:
    asked = outlook.record.facts
    bad = Facts(asked.failed)
    if not bad.attempts:
        return None
    prices = bad.costs_usd
    known = [price for price in prices if price is not None]
    kinds = ", ".join(sorted(kind or "" for kind in bad.kinds))
    measured = (
        f"{len(bad.attempts)} of {len(asked.attempts)} requests failed ({kinds}), after {seconds(bad.api_s)} in all."
    )
    names = bad.agents
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    grave = bad.api_s > WORTH * asked.api_s
    return Finding(
        "failures do not cascade",
        measured,
        change=f"See what went wrong with {names[0]}{others}." if grave else "",
        source=f"{SPECIFICATION}: error handling",
        saves_usd=sum(known) if len(known) == len(prices) else None,
    ).at(some_of(names), f"%agents error {names[0]}")


def cost_against_time(outlook: Outlook) -> Finding | None:
    """Compare the dollars of many agents with the time they save; needs a measured baseline."""
    summary = summarize(outlook.record)
    multiple, speedup = summary.cost_multiple, summary.speedup
    if multiple is None or speedup is None:
        return None
    measured = (
        f"The run cost {fold(multiple)}what one agent cost, and was {fold(speedup)}as fast as "
        f"{summary.speedup_over}. The source expects 1.9 to 2.0 times the tokens."
    )
    alone = outlook.record.bases["one agent"]
    dear = multiple > 1 and summary.wall_s is not None and alone.wall_s <= summary.wall_s * (1 + WORTH)
    advice = "One agent does the same job for less in no more time; keep several only for independent views."
    return Finding(
        "dollars against seconds",
        measured,
        change=advice if dear else "",
        source=f"{CONCURRENT}; {TOKENS}",
        saves_s=None if summary.wall_s is None else summary.wall_s - alone.wall_s,
        saves_usd=None if summary.cost_usd is None or alone.cost_usd is None else summary.cost_usd - alone.cost_usd,
        forecast_s=alone.wall_s,
        forecast_usd=alone.cost_usd,
    )


def cheaper_model(outlook: Outlook) -> Finding | None:
    """The most expensive agents, equal ones together, with the default model instead."""
    results, total = outlook.record.results, summarize(outlook.record).cost_usd
    others = [(number, one) for number, one in enumerate(results) if one.model != DEFAULT_MODEL and not one.is_task]
    priced = {number: one.cost_usd or 0.0 for number, one in others}
    if not any(priced.values()) or not total:
        return None
    dearest = [number for number, cost in priced.items() if cost >= ALIKE * max(priced.values())]
    changed = outlook.ask(models=dict.fromkeys(dearest, DEFAULT_MODEL))
    saves = outlook.saves_usd(changed)
    if saves is None or saves < WORTH * total:
        return None
    graded = verdict_on(outlook, dearest, model=DEFAULT_MODEL)
    if graded is not None and graded.verdict in ("best", "as good"):  # `by_grades` speaks of it
        return None
    names = some_of(list(dict.fromkeys(outlook.names[number] for number in dearest)))
    models = ", ".join(sorted({results[number].model for number in dearest}))
    share = sum(priced[number] for number in dearest) / total
    measured = f"{share:.0%} of the dollars go to {models}, asked by {names}."
    if graded is not None and graded.verdict == "worse":
        return found(
            outlook,
            "the model by the task",
            f"{measured} In a trial {how_sure(graded)}.",
            f"{SCALING}: model selection",
        )
    tried = "quality is not measured" if graded is None else f"in a trial {how_sure(graded)}"
    change = f"Try {DEFAULT_MODEL} for {names}, and read both answers: {tried}."
    models = {results[number].name: DEFAULT_MODEL for number in dearest}
    told = found(
        outlook, "the model by the task", measured, f"{SCALING}: model selection", changed, change, model=models
    )
    return told.at(names, f"--model {DEFAULT_MODEL}")


def shared_context(outlook: Outlook) -> Finding | None:
    """Text that several agents send: is it paid for once?"""
    plan = outlook.record.plan
    shared = {one.context for one in plan.agents if one.context is not None}
    shared = {name for name in shared if sum(agent.context == name for agent in plan.agents) > 1}
    source = f"{TOKENS}: context once; {SCALING}: cache; {practices(1)}"
    if shared:
        was, auto, on = outlook.policy.cache, outlook.under(cache="auto"), outlook.under(cache="on")
        saves = outlook.saves_usd(on) or 0.0
        word, best = ("auto", auto) if (outlook.saves_usd(auto) or 0.0) >= saves else ("on", on)
        total = outlook.as_it_was.cost_usd or 0.0
        measured = f"Several agents have the context {', '.join(sorted(shared))}. The run had cache={was!r}."
        change = f"Run it with cache={word!r}." if max(saves, outlook.saves_usd(best) or 0.0) > WORTH * total else ""
        best = best if change else None
        told = found(outlook, "shared text is paid for once", measured, source, best, change, cache=word)
        return told.at(RUN, f"%agents run --cache {word}")
    return shared_text(outlook)


RULES: tuple[Callable[[Outlook], Finding | None], ...] = (
    wall_time,
    barrier,
    longest,
    needless_edges,
    strategy,
    how_many,
    small_tasks,
    half_saved,
    cost_against_time,
    by_grades,
    cheaper_model,
    shared_context,
    shared_values,
    shared_documents,
    said_twice,
    cache_life,
    room_for_answers,
    high_effort,
    limits,
    failures,
    *SHAPE,
)
OF_PLANS: tuple[Callable[[Outlook], Finding | None], ...] = (
    barrier,
    longest,
    needless_edges,
    cheaper_model,
    shared_context,
    shared_values,
    shared_documents,
    said_twice,
    cache_life,
    *SHAPE,
)
"""The rules that apply to a plan before it runs."""
