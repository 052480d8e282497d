"""How long agents are expected to work, by what earlier answers took."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent, Task
from agent_magic.declare import prompt_of
from agent_magic.engine import expected_work_s
from agent_magic.record import History, Past, on_grid


def past(agent, api_s, model="m", tokens=100, *, simulated=False):
    """An answer that took so long."""
    return Past(agent, model, None, 10, tokens, 0.1, api_s, simulated=simulated, prompt=prompt_of(Agent("any", "x")))


def expected(agents, *rows):
    """What is expected of agents that all ask the model m."""
    return expected_work_s(agents, ["m"] * len(agents), History(rows))


def test_nothing_known_is_nothing_expected():
    """Without any answer every agent counts the same."""
    assert expected([Agent("a", "x")]) is None


def test_an_agent_takes_what_it_took():
    """The median of its own answers by the same model, not the mean and not another model's."""
    rows = [past("a", 1.0), past("a", 2.0), past("a", 60.0), past("a", 500.0, "other"), past("b", 7.0)]
    assert [2.0, 7.0] == expected([Agent("a", "x"), Agent("b", "x")], *rows)


def test_one_of_a_group_takes_what_its_like_took():
    """Without answers of its own; named alike but for the number counts, and nothing else does."""
    rows = [past("a_0", 1.0), past("a_1", 3.0), past("b_0", 40.0), past("a_x", 50.0), past("a", 60.0)]
    assert [2.0, 3.0, 50.0] == expected([Agent("a_7", "x"), Agent("a_1", "x"), Agent("a_x", "x")], *rows)


def test_one_that_names_its_length_takes_the_model_s_pace():
    """Such answers used half of their `max_tokens`, at 0.05 s a token."""
    agents = [Agent("a", "x", max_tokens=200), Agent("new", "x", max_tokens=4_000)]
    assert [5.0, 0.05 * 4_000 * 0.5] == expected(agents, past("a", 5.0))


def test_what_is_declared_counts_where_nothing_is_known_of_its_own():
    """Seconds, or tokens at the model's pace; its own answers are believed over it."""
    agents = [
        Agent("a", "x", expect=9.0),
        Agent("new", "x", expect=30.0, expect_out=7),
        Agent("long", "x", expect_out=800),
        Task("task", len, expect=2.5, takes=()),
    ]
    assert [5.0, 30.0, 0.05 * 800, 2.5] == expected(agents, past("a", 5.0))


def test_what_is_declared_is_enough_to_begin_with():
    """Without any answer, the others take the middle of it."""
    agents = [Agent("a", "x", expect=1.0), Agent("b", "x", expect=3.0), Agent("c", "x", expect=8.0), Agent("d", "x")]
    assert [1.0, 3.0, 8.0, 3.0] == expected(agents)
    assert expected([Agent("a", "x", expect_out=800)]) is None, "no pace is known"


def test_any_other_takes_the_usual_answer():
    """Of its model, or of all models where it has none."""
    rows = History([past("z", 1.0), past("y", 3.0), past("x", 8.0)])
    agents = [Agent("a", "x"), Agent("b", "x")]
    assert [3.0, 3.0] == expected_work_s(agents, ["m", "unheard-of"], rows)


def test_made_up_answers_and_real_ones_are_not_mixed():
    """The kind of the latest answer counts."""
    real, made_up = past("a", 9.0), past("a", 1.0, simulated=True)
    assert [1.0] == expected([Agent("a", "x")], real, made_up)
    assert [9.0] == expected([Agent("a", "x")], made_up, real)


rows = st.lists(
    st.builds(
        past,
        st.sampled_from("abcd"),
        st.floats(0, 1e4).map(on_grid),
        st.sampled_from("mn"),
        st.none() | st.integers(0, 10**6),
        simulated=st.booleans(),
    )
)


@given(rows, st.lists(st.tuples(st.none() | st.integers(1, 10**6), st.sampled_from("mno")), min_size=1, max_size=6))
def test_whatever_is_known_gives_each_agent_a_time(known, wanted):
    """One positive and finite number each, or nothing; and an agent with answers lies between its own."""
    agents = [Agent(name, "x", max_tokens=most) for name, (most, _) in zip("abcdef", wanted, strict=False)]
    models = [model for _, model in wanted]
    found = expected_work_s(agents, models, History(known))
    if found is None:
        kind = known[-1].simulated if known else None
        assert not [row for row in known if row.simulated == kind and row.api_s > 0 and row.model in models]
        return
    assert len(agents) == len(found)
    assert all(0 < seconds < math.inf for seconds in found)
    for agent, model, seconds in zip(agents, models, found, strict=True):
        own = [
            row.api_s
            for row in known
            if (row.agent, row.model, row.simulated) == (agent.name, model, known[-1].simulated) and row.api_s > 0
        ]
        assert not own or min(own) <= seconds <= max(own)


def test_another_mock_server_s_seconds_order_only_until_this_one_s_are_known():
    """They are as long as that one was slow; beside each other they still say who takes longer."""
    old = [past("a", 10.0, simulated=True)._replace(elsewhere=True), past("b", 30.0, simulated=True)]
    old[1] = old[1]._replace(elsewhere=True)
    agents = [Agent("a", "x"), Agent("b", "x")]
    assert [10.0, 30.0] == expected(agents, *old)
    assert [2.0, 2.0] == expected(agents, *old, past("a", 2.0, simulated=True))
