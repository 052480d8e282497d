"""What a forecast with fewer rounds or items decides otherwise than the recorded run did."""

from __future__ import annotations

import pytest

import agent_magic as am
from agent_magic.declare import Plan
from agent_magic.forecast import Forecaster, Scenario
from agent_magic.record import RunRecord
from tests.live.virtual import Reply, drive

DRAFT = am.Agent("draft", "Write. {{ critic }}", until="critic", rounds=5)
FORMATTER = am.Agent("formatter", "Format {{ draft }}", when="not critic")
PRAISE = am.Agent("praise", "Praise {{ draft }}", when="critic")
READER = am.Agent("reader", "Read {{ formatter }}")


def run_of(*more, good_at=3, kept=True):
    """Run a loop that ends in the third of five rounds, and what is behind it."""
    rounds = iter(range(1, 6))

    def critic(draft):
        return next(rounds) >= good_at if kept else Odd(next(rounds) >= good_at)

    return drive(Plan([DRAFT, am.Task("critic", critic), *more]), lambda *_: Reply(1.0, text="answer"))[0]


class Odd:
    """A value that no cassette keeps."""

    def __init__(self, good):
        self.good = good

    def __str__(self):
        return "odd"

    def __bool__(self):
        return self.good


def forecast(record, **asked):
    """Forecast a run with fewer rounds or items."""
    return Forecaster(record).forecast(Scenario(**asked))


def status(found, name):
    """How a step of a forecast ended."""
    return found.record[name].status


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_condition_is_decided_by_the_last_round_that_is_left(rounds):
    """Its value is in the record: what the third round left out runs, and the other way round."""
    record = run_of(FORMATTER, PRAISE)
    assert ("skipped", "succeeded") == (record["formatter"].status, record["praise"].status)
    found = forecast(record, rounds=rounds)
    assert ("succeeded", "skipped") == (status(found, "formatter"), status(found, "praise"))
    assert "formatter: runs then (not critic holds)" in found.note.assumed
    assert "praise: left out then (condition is false: critic)" in found.note.assumed
    assert "formatter: no answer was recorded" in found.note.assumed
    assert "assumed" == found.note.basis


@pytest.mark.parametrize("rounds", [None, 3, 4, 5])
def test_a_cap_that_cuts_no_round_changes_nothing(rounds):
    """What was recorded is taken over, and measured."""
    found = forecast(run_of(FORMATTER, PRAISE), rounds=rounds)
    assert ("skipped", "succeeded") == (status(found, "formatter"), status(found, "praise"))
    assert "measured" == found.note.basis


def test_what_follows_runs_too():
    """A step that was skipped with the one it needs is no longer."""
    found = forecast(run_of(FORMATTER, READER), rounds=2)
    assert "succeeded" == status(found, "reader")
    assert "reader: runs then" in found.note.assumed


def test_a_condition_about_what_never_ran_is_assumed_to_hold():
    """Nobody knows what the formatter would have said: the forecast says so, and counts the step."""
    late = am.Agent("late", "x {{ draft }}", when="'x' in formatter")
    found = forecast(run_of(FORMATTER, late), rounds=2)
    assert "succeeded" == status(found, "late")
    assert "late: assumed to run, since its condition is unknown then" in found.note.assumed


def test_a_value_that_was_not_kept_is_assumed():
    """A recording may lack the value of a round: the condition about it is assumed to hold."""
    record = run_of(FORMATTER, kept=False)
    for one in record.results:
        one._kept = ()  # as a cassette without the value is read
    found = forecast(record, rounds=2)
    assert "succeeded" == status(found, "formatter")
    assert "formatter: assumed to run" in found.note.assumed


def test_what_only_an_answer_behind_the_loop_decides_is_as_recorded():
    """A reader of another draft may say otherwise, which is an assumption."""
    reader = am.Agent("reader", "Read {{ draft }}")
    after = am.Agent("after", "x", when="reader == 'answer'")
    found = forecast(run_of(reader, after), rounds=2)
    assert "succeeded" == status(found, "after")
    assert "behind what is cut as recorded" in found.note.assumed
    assert "assumed" == found.note.basis


def test_fewer_items_decide_too():
    """A condition about how many answers a map has is decided by those that are left."""
    items = am.Task("items", lambda: [1, 2, 3, 4])
    each = am.Agent("each", "x {{ item }}", each="items", most=6)
    many = am.Agent("many", "x {{ each }}", when="each | length > 2")
    record = drive(Plan([items, each, many]), lambda *_: Reply(1.0))[0]
    assert isinstance(record, RunRecord)
    assert "skipped" == status(forecast(record, most=2), "many")
    assert "succeeded" == status(forecast(record, most=3), "many")
