"""What a plan may cost, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.measure.estimate import ASSUMED_OUTPUT_TOKENS
from agent_magic.show.units import count, dollars, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.measure.estimate import Expected

MOST_ROWS = 40


def estimate_text(expected: Sequence[Expected]) -> str:
    """Write a table, a row per agent, and the sum. Says what was counted and what was assumed."""
    width = min(32, max((len(one.agent) for one in expected), default=5))
    head = f"{'agent':<{width}}  {'input':>9}  {'output':>7}  {'expected':>9}  {'at most':>9}"
    rows = [
        f"{one.agent[:width]:<{width}}  {_tokens(one):>9}  {count(one.output_tokens):>7}  "
        f"{dollars(one.cost_usd):>9}  {dollars(one.most_usd):>9}"
        for one in expected[:MOST_ROWS]
    ]
    more = [f"… and {len(expected) - MOST_ROWS:,} more"] if len(expected) > MOST_ROWS else []
    low, high = _sum(one.cost_usd for one in expected), _sum(one.most_usd for one in expected)
    total = f"expected {dollars(low)}, at most {dollars(high)} if every answer fills its max_tokens"
    note = (
        f"An answer nobody has seen yet is assumed to have {ASSUMED_OUTPUT_TOKENS} tokens. "
        "≈ is our estimate; other inputs were counted by the API."
    )
    return "\n".join([head, *rows, *more, total, note])


def price_line(expected: Sequence[Expected], times: int = 1) -> str:
    """Write in a line what running it so many times may cost."""
    low, high = _sum(one.cost_usd for one in expected), _sum(one.most_usd for one in expected)
    likely, most = (None if one is None else one * times for one in (low, high))
    runs = f"{plural(times, 'run')} of " if times > 1 else ""
    tokens = sum(one.input_tokens for one in expected)
    return (
        f"{runs}{plural(len(expected), 'request')}, about {count(tokens)} input tokens{' each' if times > 1 else ''}: "
        f"expected {dollars(likely)}, at most {dollars(most)} if every answer fills its max_tokens."
    )


def _tokens(one: Expected) -> str:
    return ("" if one.basis == "counted" else "≈") + count(one.input_tokens)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if None in found else sum(one for one in found if one is not None)
