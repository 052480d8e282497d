"""What earlier runs took, as the next one is told it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from agent_magic import Agent
from agent_magic.declare import prompt_of
from agent_magic.record import History, Past, answers_of
from tests.record.histories import histories

STEP = Agent("a", "Write.")
ROW = Past("a", "m", None, 10, 20, 0.5, 2.0, simulated=False, prompt=prompt_of(STEP))


def test_rows_are_found_by_agent_and_by_model():
    """An agent of one name may have had several models."""
    other = ROW._replace(model="n", api_s=3.0)
    history = History([ROW, other, ROW._replace(agent="b")])
    assert (ROW, other) == history.of_agent(STEP)
    assert (other,) == history.of_agent(STEP, "n")
    assert 2 == len(history.of_model("m"))
    assert () == history.of_agent(replace(STEP, name="nobody"))
    assert () == history.of_model("nothing")


@pytest.mark.parametrize("change", [{"prompt": "Yes or no?"}, {"system": "Be brief."}, {"returns": bool}])
def test_an_answer_to_something_else_is_none_of_the_step(change):
    """What a step of that name was told decides, of the step itself as of its group; a row of unknown words is none."""
    item, rows = replace(STEP, name="a_7"), [ROW, ROW._replace(agent="a_1"), ROW._replace(prompt="")]
    history = History(rows)
    assert (rows[:1], rows[1:2]) == ([*history.of_agent(STEP)], [*history.of_kin(item)])
    assert ((), ()) == (history.of_agent(replace(STEP, **change)), history.of_kin(replace(item, **change)))


@given(histories())
def test_only_complete_measured_answers_count(told):
    """Failures, refusals, and answers that took no time here teach nothing of how long an answer takes."""
    record, _ = told
    good = [
        one
        for one in record.attempts
        if one.answer is not None and one.status == "succeeded" and one.source in {"live", "simulated"}
    ]
    assert [(one.agent, one.duration_s, one.source == "simulated") for one in good] == [
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
