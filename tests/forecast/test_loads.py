"""A plan under the named loads of an account, on virtual time."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

import pytest

import agent_magic as am
from agent_magic.errors import DeclarationError
from agent_magic.forecast.estimate.value import LOADS, SCENARIOS

REVIEW = "Review part {} of the plan, and say what is missing. "


def plan(count: int = 6) -> am.Plan:
    """Return so many reviewers, and one that waits for them."""
    agents = [am.Agent(f"a{number}", REVIEW.format(number) * 20) for number in range(count)]
    return am.Plan([*agents, am.Agent("sum", "".join(f"{{{{ a{number} }}}}" for number in range(count)))])


def test_each_load_has_a_row_queued_and_rejected():
    """Alone nothing waits. Queued, everybody succeeds, later. Rejected, some fail, and what needs them is left out."""
    frame = plan().scenarios(am.Policy(10))
    assert "" == frame.attrs["verdict"]
    assert am.Plan([am.Agent("a", "x")]).scenarios().attrs["verdict"].startswith("no load holds this plan up")
    assert SCENARIOS == {name: str(kind) for name, kind in frame.dtypes.items()}
    rows: dict[Any, dict[Any, Any]] = {(row["load"], row["on_limit"]): row for row in frame.to_dict("records")}
    assert [(load, on) for load in LOADS for on in ("queue", "reject")] == list(rows)
    alone = rows["off_peak", "reject"]
    assert (0, 7) == (alone["refused"], alone["succeeded"])
    assert all(row["succeeded"] + row["failed"] + row["skipped"] == 7 for row in rows.values())
    for load in ("near_rpm", "tpm_hit", "colleague"):
        queued, rejected = rows[load, "queue"], rows[load, "reject"]
        assert (7, 0) == (queued["succeeded"], queued["failed"])
        assert queued["wall_s"] > rows["off_peak", "queue"]["wall_s"]
        assert rejected["refused"] == rejected["failed"] >= 1
        assert 1 == rejected["skipped"]


def test_a_scenario_is_a_run_that_says_what_it_stands_on():
    """Its frames are those of any run; nothing in it was measured."""
    run = plan().scenario("near_rpm", am.Policy(10), on_limit="reject")
    assert {"succeeded", "failed", "skipped"} == set(run.agents["status"])
    assert run.agents.query("status == 'failed'")["error"].str.startswith("RateLimited").all()
    note = run.record.forecast
    assert note is not None
    assert "assumed" == note.basis
    assert note.assumed.startswith("near_rpm: all but two")
    assert "forecast" in repr(run)


def test_what_a_colleague_uses_is_missing():
    """More of it means later, and none means as alone."""
    frames = {part: plan().scenarios(am.Policy(10), colleague=part) for part in (0.0, 0.5, 0.8)}
    taken = [frame.query("load == 'colleague' and on_limit == 'queue'")["wall_s"].item() for frame in frames.values()]
    assert sorted(set(taken)) == taken
    assert taken[0] == frames[0.0].query("load == 'off_peak' and on_limit == 'queue'")["wall_s"].item()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"load": "near"}, "Did you mean 'near_rpm'"),
        ({"load": "near_rpm", "on_limit": "fail"}, "on_limit"),
        ({"load": "colleague", "colleague": 1}, "colleague"),
        ({"load": "off_peak", "rpm": 0}, "rpm"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    """The message names the argument."""
    with pytest.raises(DeclarationError, match=words):
        plan().scenario(**given)


def test_a_whatif_of_a_forecast_stands_on_what_that_stands_on():
    """Nothing was run, so nothing is measured: basis and assumptions of the estimate are passed on."""
    run = plan().scenario("near_rpm")
    frame = run.whatif(concurrency=[1, 4])
    assert ["assumed", "assumed"] == list(frame["basis"])
    assert run.record.forecast is not None
    assert all(run.record.forecast.assumed in words for words in frame["assumed"])
    again = run.forecast(concurrency=2).record.forecast
    assert again is not None
    assert ("assumed", True) == (again.basis, "the estimate (" in again.assumed)


def test_a_whatif_of_an_estimate_stands_on_the_estimate():
    """As one of a forecast does."""
    frame = plan().estimate().whatif(drop=[None, "a0"])
    assert ["assumed", "assumed"] == list(frame["basis"])
    assert all("the estimate (inputs" in words for words in frame["assumed"])
