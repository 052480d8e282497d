"""The provider that a forecast stands on, against one that is turned on in thousandths of a second."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.engine import Pacer
from agent_magic.forecast import Provider
from agent_magic.forecast.provider import Refusal
from agent_magic.record import Ceiling
from tests.live.virtual import Reply, drive

PER_MINUTE, CAPACITY = 12_000.0, 200.0
STEPS = 1000


def level_by_steps(answers, until):
    """Fill a bucket and take answers from it, a thousandth of a second at a time."""
    level = CAPACITY
    for step in range(until):
        made = sum(tokens / (ends - begins) for begins, ends, tokens in answers if begins <= step < ends)
        level = min(CAPACITY, level + PER_MINUTE / 60 / STEPS - made)
    return level


answer = st.tuples(st.integers(0, 3000), st.integers(1, 2000), st.integers(1, 400))


@given(st.lists(answer, max_size=6), st.lists(st.integers(0, 6000), max_size=4))
def test_output_is_taken_while_it_is_produced(answers, looks):
    """However seldom it is looked at: what flowed in while the bucket was full is lost, what it was owed is not."""
    answers = sorted((begins, begins + takes, tokens) for begins, takes, tokens in answers)
    provider = Provider({"m": {"output": Ceiling(PER_MINUTE, CAPACITY)}})
    events = sorted(
        [(begins, 0, (begins, ends, tokens)) for begins, ends, tokens in answers]
        + [(at, 1, (at, at, 0)) for at in looks]
    )
    for at, look, parts in events:
        if look:
            provider.readings("m", at / STEPS)
        else:
            begins, ends, tokens = parts
            provider.began("m", (begins / STEPS, ends / STEPS, tokens), None, begins / STEPS)
    taken = provider.take("m", 1, 6.0)
    level = level_by_steps(answers, 6 * STEPS)
    if level > 1.5:
        assert not isinstance(taken, Refusal)
    elif level < 0.5:
        assert isinstance(taken, Refusal)
        assert taken.retry_after_s >= (1 - level) / (PER_MINUTE / 60) - 1e-3


def test_a_long_answer_leaves_no_debt_where_the_bucket_kept_up():
    """300 tokens in 2 s out of a bucket of 200 that gains 200 a second: it stays full enough all the time."""
    provider = Provider({"m": {"output": Ceiling(PER_MINUTE, CAPACITY)}})
    provider.began("m", (0.0, 2.0, 300), None, 0.0)
    assert not isinstance(provider.take("m", 1, 2.0), Refusal)


@pytest.mark.parametrize("most", [1, 2])
def test_being_told_how_long_to_wait_uses_up_no_attempt(most, monkeypatch):
    """As in a run: only where a single attempt is allowed does a 429 end an agent. Sixteen are refused in a row."""
    take, calls = Provider.take, itertools.count()

    def in_a_row(provider, *args, **options):
        return Refusal(1.0, "input") if 8 <= next(calls) < 24 else take(provider, *args, **options)

    monkeypatch.setattr(Provider, "take", in_a_row)
    lot = random.Random(2)
    plan = Plan([Agent(f"a{i}", f"x{i} " + "y" * (40 * lot.randrange(1, 60))) for i in range(24)])
    policy = Policy(12, max_attempts=most, seed=3)
    record, _ = drive(plan, lambda prompt, _: Reply(0.5, tokens=(len(prompt) // 3, 50, 0, 0)), policy, pacer=Pacer())
    found = Run(record).forecast(limits={"input_tokens": 10_000, "burst_s": 1.0})
    refusals = Counter(bar.agent for bar in found.record.attempts if bar.kind == "RateLimited")
    assert (max(refusals.values()) > 2) == (most > 1)
    assert (found.totals.succeeded == 24) == (most > 1)
