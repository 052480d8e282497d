"""Service targets: met, not met, or not to be told from this run."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import pandas as pd
import pytest

from agent_magic import Agent, Policy, TokenPrice
from agent_magic.api import Ledger, Run
from agent_magic.declare import Plan
from agent_magic.errors import DeclarationError, Rejected
from agent_magic.measure.service import SLO
from agent_magic.record import Prices
from agent_magic.show import frame_text
from tests.live.virtual import Reply, Scripted, drive
from tests.measure.test_path import run_of


def judged(count, reply=lambda one: Reply(1.0), slots=1000, **targets):
    """The rows of a run of so many agents side by side, by target's first word."""
    agents = tuple(Agent(f"a{one}", f"p{one}", model="mine", max_tokens=5_000) for one in range(count))
    prices = Prices({"mine": TokenPrice(1000.0, 1000.0)})
    record, _ = drive(Plan(agents), lambda prompt, _: reply(int(prompt[1:])), Policy(slots), prices=prices)
    frame = Run(record).slo(**targets)
    assert SLO == {name: str(kind) for name, kind in frame.dtypes.items()}
    return frame


def met(frame):
    """What came out, unknown as `None`."""
    return [None if pd.isna(one) else bool(one) for one in frame["met"]]


def test_two_hundred_good_agents_meet_every_target():
    """100 at once, 200 a second, fast, faultless, cheap."""
    frame = judged(200)
    assert [True] * 7 == met(frame)
    assert [200, 200.0, 1.0, 1.0, 0.0, 0.015, 5.0] == [round(one, 9) for one in frame["measured"]]


def test_five_good_agents_prove_little():
    """Too few for a percentile, for a share and for a hundred at once; the rest is told."""
    frame = judged(5)
    assert [None, True, None, None, None, True, True] == met(frame)
    assert all(bool(why) == (one is None) for why, one in zip(frame["why"], met(frame), strict=True))


def test_one_failure_of_five_is_no_99_5_percent():
    """A failure tells, whatever the number of cases."""
    frame = judged(5, lambda one: Reply(1.0, Rejected("no", status=400) if one == 0 else None))
    assert [False, False] == met(frame)[3:5]
    assert [0.8, 0.2] == list(frame["measured"])[3:5]
    assert ["1 Rejected", "1 Rejected"] == list(frame["why"])[3:5]


def test_slow_and_dear_agents_miss_their_targets():
    """One slot: one at once, one every 20 s, $15 each."""
    frame = judged(100, lambda one: Reply(20.0, tokens=(10_000, 5_000, 0, 0)), slots=1)
    assert [False, False, False, None, True, False, False] == met(frame)
    assert 15.0 == frame["measured"][5]
    assert ["limited by its 1 slot (concurrency)"] * 2 == list(frame["why"])[:2]
    assert "queued, on average" in frame["why"][2]
    said = "1 of 7 targets met · not met: concurrent requests, jobs per second, 95th percentile of total_s, "
    assert frame.attrs["verdict"].startswith(said)
    assert frame.attrs["verdict"].endswith(" · 1 that this run cannot tell")
    assert frame_text(frame).splitlines()[0].startswith("1 of 7 targets met · not met: ")
    assert 5 * 20 * 101 / 2 == frame["measured"][6]


def test_a_target_can_be_left_out_or_moved():
    """`None` leaves a row out; Little's law needs both of its numbers."""
    frame = judged(5, concurrent=None, p95_s=None, errors=None, usd_per_job=None, jobs_per_s=5.1, succeeded=0.5)
    assert [False, True] == met(frame)


def test_answers_from_the_ledger_took_no_time():
    """Nothing about time can be told of a run that was served."""
    plan, ledger = Plan(tuple(Agent(f"a{one}", f"p{one}") for one in range(30))), Ledger()
    for _ in range(2):
        record, _ = drive(plan, Scripted(lambda *_: Reply(1.0)), ledger=ledger)
    frame = Run(record).slo()
    assert [None, None, None] == [met(frame)[one] for one in (1, 2, 6)]
    assert "reused answers take no time" == frame["why"][1]


def test_an_unknown_price_is_unknown():
    """No dollars, no verdict on dollars."""
    with pytest.warns(UserWarning, match="price"):
        record = drive(Plan((Agent("a", "x", model="nobody's"),)), lambda *_: Reply(1.0))[0]
    assert Run(record).slo()["met"].isna()[5]


def test_a_run_without_agents_is_unknown_throughout():
    """No rows of work, no verdicts."""
    assert [None] * 7 == met(Run(run_of([], [])).slo())


@pytest.mark.parametrize(
    ("targets", "meant"), [({"wall_s": 1}, "p95_s"), ({"p95": 3}, "'p95_s'"), ({"p95_s": "3"}, "number")]
)
def test_a_wrong_target_says_what_there_is(targets, meant):
    """The error names the target, and those that are known."""
    with pytest.raises(DeclarationError, match=meant):
        judged(1, **targets)


def test_no_errors_at_all_is_a_target_that_can_be_met():
    """`errors=0` asks for none, as `succeeded=1` asks for all."""
    assert [True, True] == met(
        judged(5, concurrent=None, jobs_per_s=None, p95_s=None, usd_per_job=None, errors=0, succeeded=1)
    )
    bad = judged(
        5,
        lambda one: Reply(1.0, error=Rejected("no", status=400)) if not one else Reply(1.0),
        concurrent=None,
        jobs_per_s=None,
        p95_s=None,
        usd_per_job=None,
        errors=0,
        succeeded=1,
    )
    assert [False, False] == met(bad)
