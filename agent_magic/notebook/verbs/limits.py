"""The provider's rate limits: what is known of them, and what the user says."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.engine.pacing.limits import DIMENSIONS, Limits, class_of
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.notebook.verb import Desk, Parser, Verb

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = ("rpm", "itpm", "otpm")


def _options(parser: Parser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="The model, or one of its class.")
    parser.add_argument("--rpm", type=float, metavar="N", help="Requests per minute.")
    parser.add_argument("--itpm", type=float, metavar="N", help="Uncached input tokens per minute.")
    parser.add_argument("--otpm", type=float, metavar="N", help="Output tokens per minute.")


def _limits(desk: Desk, given: Namespace) -> None:
    session = desk.session
    if any(getattr(given, name) is not None for name in OPTIONS):
        if session.running:
            raise UsageError("A run is under way, whose limits stay as they are. %agents wait for it first.")
        name = class_of(given.model or DEFAULT_MODEL)
        mine = _with(session.pacer.given.get(name, Limits()), given)
        session.pacer = Pacer({**session.pacer.given, name: mine})
    for line in _lines(session.pacer):
        print(line)  # noqa: T201 - the answer


def _with(before: Limits, given: Namespace) -> Limits:
    """Put what is said now in place of what was said before; what is not said stays."""
    said = {"requests": given.rpm, "input_tokens": given.itpm, "output_tokens": given.otpm}
    return replace(before, **{name: value for name, value in said.items() if value is not None})


def _lines(pacer: Pacer) -> list[str]:
    """Write a line per model class: each limit, how fast we used it of late, where it is from."""
    pools = pacer.health(time.monotonic())
    lines: list[str] = []
    for name in dict.fromkeys((*pacer.given, *pools)):
        told = pacer.given.get(class_of(name), Limits())
        said = (told.requests, told.input_tokens, told.output_tokens)
        pool = pools.get(name)
        gauges = (None, None, None) if pool is None else (pool.requests, pool.input, pool.output)
        parts: list[str] = []
        for kind, limit, gauge in zip(DIMENSIONS, said, gauges, strict=True):
            known = gauge.limit if gauge is not None and gauge.limit is not None else limit
            if known is None:
                parts.append(f"{kind} unknown")
            else:
                pace = "" if gauge is None else f", of late {gauge.used:,.0f}/min"
                parts.append(f"{kind} {known:,.0f}/min ({'given' if known == limit else 'learned'}{pace})")
        lines.append(f"{name}: {'; '.join(parts)}")
    return lines or ["No limits are known yet: they are learned from the first answers, or given with --rpm."]


VERBS = {"limits": Verb("Show the rate limits, or set them: MODEL --rpm N --itpm N --otpm N.", _options, _limits)}
