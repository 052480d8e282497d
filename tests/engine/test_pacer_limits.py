"""What a user says of limits."""

from __future__ import annotations

import pytest

from agent_magic.engine.pacing.limits import DIMENSIONS, Limits, Reading
from agent_magic.engine.pacing.pacer import Hold, Pacer
from agent_magic.errors import DeclarationError


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("option", ["requests", "input_tokens", "output_tokens", "burst_s"])
def test_a_limit_that_cannot_work_is_refused_with_its_name(option, value):
    """The message shows the option and the value."""
    with pytest.raises(DeclarationError, match=option):
        Limits(**{option: value})


def test_there_are_three_limits():
    """Requests, uncached input, output."""
    assert ("requests", "input", "output") == DIMENSIONS


def test_a_limit_of_which_little_is_ever_seen_is_used():
    """A bucket below the grain of the headers always shows nothing: small requests leave at the rate all the same."""
    pacer, now, left = Pacer(seed=1), 0.0, []
    readings = None, Reading(6_000, 0), None
    while now < 20.0:
        answer = pacer.ask("m", 25, 10, now)
        if isinstance(answer, Hold):
            now = answer.until_s
            continue
        left.append(now)
        pacer.heard(answer, readings, now)
        pacer.finished(answer, 25, 10, now)
    assert len(left) * 25 > 0.8 * 20 * 100
