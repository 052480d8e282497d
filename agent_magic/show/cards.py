"""Cards of declared agents, contexts and attachments, and the picture of a plan."""

from __future__ import annotations

import base64
import importlib
import io
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agent_magic.declare.content import PLAIN_TEXT
from agent_magic.declare.options import AGENT, note_of
from agent_magic.declare.units import count, plural, seconds
from agent_magic.measure.compare import needed_rows, todo_words
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.display import single_line
from agent_magic.show.graph import picture
from agent_magic.show.markup import escape
from agent_magic.show.page import Column, Line, Page, Table
from agent_magic.show.text import listed, plan_text
from agent_magic.show.theme import SOFT, WARN, box

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.content import Attachment, Prompt, TokenRule
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


def step_facts(agent: Step, edges: Sequence[str] = (), items: int | None = None) -> list[str]:
    facts = [f"after {listed(edges)}"] if edges else []
    when = f"escalates if {single_line(agent.escalate)}" if agent.escalate else "escalates if the answer does not fit"
    cascade = [f"cascade {' → '.join(map(single_line, agent.cascade))}", when] if agent.cascade else []
    own = {} if agent.is_task else {name: single_line(note_of(agent, name)) for name in AGENT}
    facts += [
        word
        for word in (
            "" if agent.cascade else agent.model,
            *cascade,
            f"falls back to {listed([*map(single_line, agent.fallback)])}" if agent.fallback else "",
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
    rest = "".join(f" · {escape(fact)}" for fact in facts)
    second = f'<br><span style="{WARN}">{escape(" · ".join(warnings))}</span>' if warnings else ""
    html = (
        f'{box()}<span style="{SOFT}">{kind}</span> <b>{escape(single_line(name))}</b>'
        f'<span style="{SOFT}">{rest}</span>{second}</div>'
    )
    return {"text/html": html, "text/plain": "\n  ".join(lines)}


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


MOST_BYTES = 24_000
"""A smaller picture is its own thumbnail."""
MOST_PX = (240, 160)
MOST_SHOWN = 6
_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def words(one: Attachment, rule: TokenRule | None) -> str:
    if one.media_type == PLAIN_TEXT:
        tokens = f", about {one.size // CHARS_PER_TOKEN + 1:,} tokens"
    else:
        known = None if rule is None else rule.tokens(one)
        tokens = "" if known is None else f", about {known[0]:,} tokens"
    return f"[{one.kind} {single_line(one.title)}: {one.facts}{tokens}]"


def prompt_words(prompt: Prompt, rule: TokenRule | None) -> str:
    text, end = "", 0
    for at, one in prompt.attachments:
        text += prompt.text[end:at] + words(one, rule)
        end = at + len(one.label)
    return text + prompt.text[end:]


def thumbnail(one: Attachment) -> str:
    return _uri(one, one.data) if one.kind == "image" and one.data and one.media_type in _SHOWN else ""


@lru_cache(maxsize=64)
def _uri(one: Attachment, data: bytes) -> str:
    media_type = one.media_type
    if len(data) > MOST_BYTES:
        media_type, data = "image/png", _smaller(data)
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}" if 0 < len(data) <= MOST_BYTES else ""


def _smaller(data: bytes) -> bytes:
    """Shrink a picture only if PIL is already loaded, since the data is not trusted."""
    if "PIL" not in sys.modules:
        return b""
    try:
        picture: Any = importlib.import_module("PIL.Image").open(io.BytesIO(data))
        for by in (1, 2, 4):  # a noisy one takes more bytes
            drawn = io.BytesIO()
            picture.thumbnail((MOST_PX[0] // by, MOST_PX[1] // by))
            picture.convert("RGB").quantize(64).save(drawn, "PNG")
            if drawn.tell() <= MOST_BYTES:
                return drawn.getvalue()
    except (OSError, ValueError, SyntaxError, ArithmeticError):
        pass
    return b""


def thumbnails(attachments: Iterable[Attachment]) -> list[dict[str, str]]:
    shown = [{"src": src, "label": f"{one.label} {one.facts}"} for one in attachments if (src := thumbnail(one))]
    return shown[:MOST_SHOWN]


def attachments_card(attachments: Iterable[Attachment], rule: TokenRule | None) -> dict[str, str]:
    """Return each attachment of a plan once: thumbnails with captions."""
    once = list({one.sha256: one for one in attachments}.values())
    more = f"and {plural(len(once) - MOST_SHOWN, 'more attachment')}" if len(once) > MOST_SHOWN else ""
    lines = [words(one, rule) for one in once[:MOST_SHOWN]]
    figures = [_figure(one, line) for one, line in zip(once[:MOST_SHOWN], lines, strict=True)]
    rest = f'<span style="{SOFT}">{escape(more)}</span>' if more else ""
    return {
        "text/html": f"{box()}{''.join(figures)}{rest}</div>",
        "text/plain": "\n".join([*lines, *([more] if more else [])]),
    }


def _figure(one: Attachment, line: str) -> str:
    src = thumbnail(one)
    size = f"max-width:{MOST_PX[0]}px;max-height:{MOST_PX[1]}px"
    picture = f'<img src="{escape(src)}" alt="{escape(one.label)}" style="{size};display:block">' if src else ""
    return (
        f'<span style="display:inline-block;vertical-align:top;margin:0 12px 6px 0">{picture}'
        f'<span style="{SOFT}">{escape(line.strip("[]"))}</span></span>'
    )
