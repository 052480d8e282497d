"""What a user says of limits."""

from __future__ import annotations

import pytest

from agent_magic import Limits
from agent_magic.engine import Hold, Pacer, Reading, Readings
from agent_magic.engine.pacing.limits import KINDS
from agent_magic.errors import DeclarationError
from agent_magic.forecast import Provider
from agent_magic.record import Ceiling
from agent_magic.record.reasons import REASONS


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("option", ["requests", "input_tokens", "output_tokens", "burst_s"])
def test_a_limit_that_cannot_work_is_refused_with_its_name(option, value):
    """The message shows the option and the value."""
    with pytest.raises(DeclarationError, match=option):
        Limits(**{option: value})


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_kind_of_limit_holds_requests_by_its_name(name, kind):
    """A row of the table is all that the pacer and the provider of a forecast need to keep a limit."""
    limits = Limits(**{kind.field: 60.0})
    pacer, now, reasons = Pacer({"m": limits}, seed=1), 0.0, set[str]()
    for _ in range(200):
        answer = pacer.ask("m", 1_000, 1_000, now)
        if isinstance(answer, Hold):
            reasons.add(answer.reason)
            now = answer.until_s
        else:
            pacer.finished(answer, 1_000, 1_000, now + 0.1)
    assert name in reasons <= {name, "slot", "limits"}
    assert REASONS[name].is_rate_limit
    provider = Provider({"m": {name: Ceiling(60.0, 1.0)}})
    refusals: list[object] = []
    for _ in range(2):
        refusals.append(provider.take("m", 1_000, 0.0))
        provider.began("m", (0.0, 0.0, 1_000), None, 0.0)
    assert name == getattr(refusals[1], "limit", None)
    assert {name: Reading(60.0, 0.0)} == provider.readings("m", 0.0)


def test_a_limit_of_which_little_is_ever_seen_is_used():
    """A bucket below the grain of the headers always shows nothing: small requests leave at the rate all the same."""
    pacer, now, left = Pacer(seed=1), 0.0, []
    readings: Readings = {"input": Reading(6_000, 0)}
    while now < 20.0:
        answer = pacer.ask("m", 25, 10, now)
        if isinstance(answer, Hold):
            now = answer.until_s
            continue
        left.append(now)
        pacer.heard(answer, readings, now)
        pacer.finished(answer, 25, 10, now)
    assert len(left) * 25 > 0.8 * 20 * 100
