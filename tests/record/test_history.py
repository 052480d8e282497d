"""What earlier runs took, as the next one is told it."""

from __future__ import annotations

from hypothesis import given

from agent_magic.record.history import History, Past, answers_of
from tests.record.histories import histories

ROW = Past("a", "m", None, 10, 20, 0.5, 2.0, simulated=False)


def test_rows_are_found_by_agent_and_by_model():
    """An agent of one name may have had several models."""
    other = ROW._replace(model="n", api_s=3.0)
    history = History([ROW, other, ROW._replace(agent="b")])
    assert (ROW, other) == history.of_agent("a")
    assert (other,) == history.of_agent("a", "n")
    assert 2 == len(history.of_model("m"))
    assert () == history.of_agent("nobody")
    assert () == history.of_model("nothing")


@given(histories())
def test_only_complete_measured_answers_count(told):
    """Failures, refusals, and answers that took no time here teach nothing of how long an answer takes."""
    record, _ = told
    good = [
        one
        for one in record.attempts
        if one.answer is not None and one.status == "succeeded" and one.source in {"live", "simulated"}
    ]
    assert [(one.agent, one.api_s, one.source == "simulated") for one in good] == [
        (row.agent, row.api_s, row.simulated) for row in answers_of(record)
    ]
    history = History()
    history.learn(record)
    assert len(good) == len(history)
    assert list(answers_of(record)) == list(history)


def test_simulated_answers_are_of_another_mock_server_after_a_move():
    """Whatever a mock server took says nothing of the next one's speed; of real answers nothing changes."""
    history = History([ROW, ROW._replace(simulated=True)]).moved(0.2)
    history.add(ROW._replace(simulated=True))
    assert [False, True, False] == [one.elsewhere for one in history]
    assert 0.2 == history.time_factor
