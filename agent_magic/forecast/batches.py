"""How long a batch takes of which nothing was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.engine.batching import BATCH_MOST_S, BATCH_S
from agent_magic.forecast.estimate.agents import Span
from agent_magic.forecast.pace import ENOUGH

if TYPE_CHECKING:
    from collections.abc import Sequence

ASSUMED: Final = "a batch assumed to take an hour, a quarter at least and a day at most"


def batch_span(times_s: Sequence[float]) -> tuple[Span, str]:
    """Return the seconds of a batch, and in words on what they stand.

    Args:
        times_s: How long earlier batches took: from five on their 10th, 50th and 90th percentile. Of fewer, an hour is
            assumed, a quarter of one at least, and the day after which the vendor ends a batch at most.
    """
    if len(times_s) >= ENOUGH:
        return Span.of(times_s), f"seconds of {len(times_s)} earlier batches"
    return Span(BATCH_S / 4, BATCH_S, BATCH_MOST_S), ASSUMED
