"""The rules of `run.advise()` about dollars: one agent or several, which model, text that several agents send."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.forecast.advice.finding import CONCURRENT, SCALING, TOKENS, WORTH, Finding, found
from agent_magic.measure.metrics import summarize
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.forecast.outlook import Outlook

ALIKE = 0.9
"""Agents that cost at least this share of the dearest one are looked at together with it."""
LEAST_PREFIX = 1024
"""The shortest shared text that is worth naming, in tokens: the least a provider caches."""


def cost_against_time(outlook: Outlook) -> Finding | None:
    """Many agents are dearer than one: is the time, or the second opinion, worth it? Only with a measured baseline."""
    summary = summarize(outlook.record)
    multiple, speedup = summary.cost_multiple, summary.speedup
    if multiple is None or speedup is None:
        return None
    measured = (
        f"{multiple:.2f} times the dollars of one agent, {speedup:.2f} times as fast as {summary.speedup_over} "
        "(the source says 1.9 to 2.0 times the tokens)"
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
    """The agents that cost most, alike ones together: what the default model would do to seconds and dollars."""
    results, total = outlook.record.results, summarize(outlook.record).cost_usd
    priced = {number: one.cost_usd or 0.0 for number, one in enumerate(results) if one.model != DEFAULT_MODEL}
    if not priced or not total:
        return None
    dearest = [number for number, cost in priced.items() if cost >= ALIKE * max(priced.values())]
    changed = outlook.ask(models=dict.fromkeys(dearest, DEFAULT_MODEL))
    saves = outlook.saves_usd(changed)
    if saves is None or saves < WORTH * total:
        return None
    names = _listed([results[number].name for number in dearest])
    models = ", ".join(sorted({results[number].model for number in dearest}))
    share = sum(priced[number] for number in dearest) / total
    measured = f"{names}: {share:.0%} of the dollars, with {models}"
    change = f"Try {DEFAULT_MODEL} for {names}, and read both answers: quality is not measured."
    return found(outlook, "the model by the task", measured, f"{SCALING}: model selection", changed, change)


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shared_context(outlook: Outlook) -> Finding | None:
    """Text that several agents send: is it paid for once?"""
    plan = outlook.record.plan
    shared = {one.context for one in plan.agents if one.context is not None}
    shared = {name for name in shared if sum(agent.context == name for agent in plan.agents) > 1}
    source = f"{TOKENS}: context once; {SCALING}: cache"
    if shared:
        auto, on = outlook.under(cache="auto"), outlook.under(cache="on")
        saves = outlook.saves_usd(on) or 0.0
        word, best = ("auto", auto) if (outlook.saves_usd(auto) or 0.0) >= saves else ("on", on)
        total = outlook.as_it_was.cost_usd or 0.0
        measured = f"{', '.join(sorted(shared))} goes to several agents, cache {outlook.policy.cache}"
        change = f"Run it with cache={word!r}." if max(saves, outlook.saves_usd(best) or 0.0) > WORTH * total else ""
        return found(outlook, "shared text is paid for once", measured, source, best if change else None, change)
    tokens, names = _common_prefix(outlook)
    if tokens < LEAST_PREFIX:
        return None
    measured = f"{len(names)} prompts begin with the same {tokens:,} tokens, estimated"
    change = f"Put that text into a variable and give it to {', '.join(names[:3])} as their context."
    return Finding("shared text is paid for once", measured, change=change, source=source, basis="assumed")


def _common_prefix(outlook: Outlook) -> tuple[int, Sequence[str]]:
    """Return how many tokens the prompts of one model begin with in common at most, and whose they are."""
    prompts: dict[str, list[tuple[str, str]]] = {}
    for one in outlook.record.results:
        if one.attempts:
            prompts.setdefault(one.model, []).append((one.attempts[-1].request.prompt, one.name))
    best: tuple[int, Sequence[str]] = (0, ())
    for rows in prompts.values():
        rows.sort()
        for (text, name), (after, other) in itertools.pairwise(rows):
            same = _same(text, after) // CHARS_PER_TOKEN
            if same > best[0]:
                best = (same, [name, other])
    tokens, names = best
    if not names:
        return best
    start = next(text for rows in prompts.values() for text, name in rows if name == names[0])
    start = start[: tokens * CHARS_PER_TOKEN]
    return tokens, [name for rows in prompts.values() for text, name in rows if text.startswith(start)]


def _same(one: str, other: str) -> int:
    """Return the length of the text both begin with, by halves."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least
