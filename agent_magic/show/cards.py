"""Cards of declared agents and contexts, and the picture of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.options import AGENT, note_of
from agent_magic.declare.units import count, plural, seconds
from agent_magic.measure.plans import needed_rows, todo_words
from agent_magic.record.display import single_line
from agent_magic.show.graph import picture
from agent_magic.show.markup import escape
from agent_magic.show.page import Column, Line, Page, Table
from agent_magic.show.text import listed, plan_text
from agent_magic.show.theme import SOFT, WARN, box

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.show.graph.scene import Estimates
    from agent_magic.show.page import Block
    from agent_magic.show.theme import Theme


LONGEST_PART = 40


def _many(items: int | None, most: int | None) -> str:
    if most is not None:
        return f" (at most {most:,})"
    return "" if items is None else f" ({items:,})"


def declaration_card(
    agent: Step,
    edges: Sequence[str] = (),
    undefined: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    stale: Sequence[str] = (),
    items: int | None = None,
) -> dict[str, str]:
    facts = step_facts(agent, edges, items)
    facts += [f"at most {agent.max_tokens:,} tokens"] if agent.max_tokens else []
    warnings = [f"not defined yet: {listed(undefined)}"] if undefined else []
    warnings += [f"now out of date: {listed(stale)}"] if stale else []
    warnings += [single_line(note) for note in notes]
    return _card("task" if agent.is_task else "agent", agent.name, facts, warnings)


def declarations_card(told: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> dict[str, str]:
    rows = [
        (one["agent"].name, listed([*one["edges"]]), " · ".join(step_facts(one["agent"], (), one["items"])))
        for one in told
    ]
    missing: dict[str, list[str]] = {}
    for one in told:
        for name in one["undefined"]:
            missing.setdefault(name, []).append(one["agent"].name)
    warnings = [f"not defined yet: {name} (in {listed(users)})" for name, users in missing.items()]
    blocks: list[Block] = [
        Line(f"{plural(len(rows), 'agent')} declared.", head="agents:"),
        Table((Column("agent"), Column("waits for", "prose"), Column("model, options", "prose")), rows, strong=True),
    ]
    return Page([*blocks, *(Line(one, "warn") for one in [*warnings, *map(single_line, notes)])]).bundle()


def context_card(
    name: str,
    tokens: int | None,
    shared_by: Sequence[str],
    undefined: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    parts: Sequence[str] = (),
) -> dict[str, str]:
    facts = [] if tokens is None else [f"about {count(tokens)} tokens"]
    facts += [f"{len(parts)} parts: {listed([single_line(one)[:LONGEST_PART] for one in parts])}"] if parts else []
    facts += [f"shared by {listed(shared_by)}"] if shared_by else []
    warnings = [f"not defined yet: {listed(undefined)}"] if undefined else []
    return _card("context", name, facts, [*warnings, *map(single_line, notes)])


def plan_picture(
    plan: Plan, estimates: Estimates | None = None, *, path: Sequence[str] = (), theme: Theme = "auto"
) -> dict[str, str]:
    svg = picture(plan, estimates=estimates or {}, path=path, theme=theme)
    return {"image/svg+xml": svg, "text/plain": plan_text(plan)}


def todo_page(frame: pd.DataFrame) -> Page:
    """Return letters as boxes, since Markdown's checkboxes cannot be clicked."""
    lines: list[Block] = []
    rows, unused = needed_rows(frame)
    for row in rows:
        box = "☑" if row["status"] == "succeeded" else "☐"
        lines.append(Line(f"({row['owner']}){todo_words(row)}", head=f"{box} {row['step']}"))
    return Page([*lines, *([Line(unused, "soft")] if unused else [])])


def model_facts(agent: Step) -> list[str]:
    when = f"escalates if {single_line(agent.escalate)}" if agent.escalate else "escalates if the answer does not fit"
    cascade = [f"cascade {' → '.join(map(single_line, agent.cascade))}", when] if agent.cascade else []
    return [*cascade, *([f"falls back to {listed([*map(single_line, agent.fallback)])}"] if agent.fallback else [])]


def step_facts(agent: Step, edges: Sequence[str] = (), items: int | None = None) -> list[str]:
    facts = [f"after {listed(edges)}"] if edges else []
    own = {} if agent.is_task else {name: single_line(note_of(agent, name)) for name in AGENT}
    facts += [
        word
        for word in (
            "" if agent.cascade else agent.model,
            *model_facts(agent),
            own.pop("role", ""),
            agent.returns and f"returns {single_line(str(agent.returns))}",
            f"tools {listed([one.name for one in agent.tools], 12)}" if agent.tools else "",
            own.pop("ask", ""),
            agent.check and f"checked by {single_line(agent.check.name)}",
            own.pop("context", ""),
            f"attaches {listed([*map(single_line, agent.attach)])}" if agent.attach else "",
            *own.values(),
            agent.each and f"one for each of {single_line(agent.each)}{_many(items, agent.most)}",
        )
        if word
    ]
    return [*facts, *map(single_line, _flow_notes(agent))]


def _card(kind: str, name: str, facts: Sequence[str], warnings: Sequence[str]) -> dict[str, str]:
    lines = [" · ".join([f"{kind} {single_line(name)}", *facts]), *([" · ".join(warnings)] if warnings else [])]
    return {"text/html": _html(kind, name, facts, warnings), "text/plain": "\n  ".join(lines)}


def _html(kind: str, name: str, facts: Sequence[str], warnings: Sequence[str]) -> str:
    rest = "".join(f" · {escape(fact)}" for fact in facts)
    second = f'<br><span style="{WARN}">{escape(" · ".join(warnings))}</span>' if warnings else ""
    return (
        f'{box()}<span style="{SOFT}">{kind}</span> <b>{escape(single_line(name))}</b>'
        f'<span style="{SOFT}">{rest}</span>{second}</div>'
    )


def _flow_notes(step: Step) -> list[str]:
    found = [f"the first answer of {', '.join(step.parameters)}"] if step.race else []
    ahead = ", begins before that is known" if step.speculate else ""
    found += [f"runs only when {step.when}{ahead}"] if step.when else []
    found += [f"asked {step.repeat} times"] if step.repeat else []
    found += (
        [f"runs again until {step.until}, at most {step.rounds} round{'s' * (step.rounds != 1)}"] if step.until else []
    )
    many = "as many of them as fit" if step.group == "auto" else f"at most {step.group} of them"
    found += [f"{many} in a request"] if step.group else []
    if step.hedge is not None and step.hedges is None:
        overdue = step.hedge if isinstance(step.hedge, str) else seconds(step.hedge)
        found.append(f"asked again when overdue ({overdue}): the first answer counts")
    return found
