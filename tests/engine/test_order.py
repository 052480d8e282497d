"""Who goes first, as steps end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.declare import build_dag
from agent_magic.engine import Order, Queues, kinds_of
from tests.live.virtual import Reply, drive

KINDS = ["quick", "slow"] * 4
ALONE = build_dag([()] * 8)


def test_a_kind_that_takes_longer_goes_first() -> None:
    """As soon as one of each has ended, in declared order among its like."""
    order = Order(ALONE, Policy(), None, KINDS)
    assert list(range(8)) == list(order.by_turn)
    assert order.learn(0, 1.0)
    assert order.learn(1, 5.0)
    assert [1, 3, 5, 7, 0, 2, 4, 6] == list(order.by_turn)


def test_what_was_expected_is_off_by_a_factor() -> None:
    """Of the kind; a kind of which none has ended takes that of all."""
    order = Order(build_dag([(), (), ()]), Policy(), [10.0, 6.0, 9.0], ["a", "b", "c"])
    order.learn(0, 5.0)
    assert [0, 2, 1] == list(order.by_turn)
    order.learn(1, 60.0)
    assert [1, 2, 0] == list(order.by_turn), "b: 60 s; c: 9 times 65 / 16; a: 5"


def test_it_is_made_anew_ever_more_seldom() -> None:
    """A walk through a plan of 10,000 at every end would cost more than it wins, as many kinds as there are."""
    for kinds in (["a", "b"] * 50, [str(number) for number in range(100)]):
        order = Order(build_dag([()] * 100), Policy(), None, kinds)
        assert [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94] == [one + 1 for one in range(100) if order.learn(one, 1.0)]


def test_one_kind_and_a_sequence_have_nothing_to_learn() -> None:
    """One factor for all changes no order, and a sequence is as declared."""
    assert not Order(ALONE, Policy(), None, ["a"] * 8).learns
    assert not Order(ALONE, Policy(schedule="sequential"), None, KINDS).learns


@given(st.lists(st.tuples(st.integers(0, 7), st.floats(0, 100)), max_size=12), st.sets(st.integers(0, 7)))
def test_whoever_waits_goes_on_waiting(ends: list[tuple[int, float]], waiting: set[int]) -> None:
    """A new order loses nobody and lets nobody in: all leave, by the order that holds then."""
    order = Order(ALONE, Policy(), None, KINDS)
    lines = Queues(None, order)
    for agent in waiting:
        lines.join(agent)
    for agent, took_s in ends:
        lines.learn(agent, took_s)
    left: list[int] = []
    while (agent := lines.first(())) is not None:
        lines.leave(agent, 0.0, 0.0)
        left.append(agent)
    assert [one for one in order.by_turn if one in waiting] == left


def test_kinds_are_groups_models_and_tasks() -> None:
    """Rows of one declaration are alike, else those who ask one model; each task is like itself."""
    rows = am.Agent("row", "{{ item }}", each="them")
    agents = [rows, am.Agent("a", "x"), am.Agent("b", "x", model="m"), am.Task("t", lambda: 1)]
    plan = am.Plan(agents, {"them": [1, 2]})
    kinds = dict(zip(plan.names, kinds_of(plan), strict=True))
    assert kinds["row_0"] == kinds["row_1"] == "row"
    assert len({kinds[one] for one in ("row_0", "a", "b", "t")}) == 4


@pytest.mark.parametrize("learns", [True, False])
def test_a_run_learns_and_its_forecast_decides_alike(learns: bool) -> None:
    """The long kind is declared last and nothing is known: learnt when one has ended, it ends the run no more."""
    names = "claude-haiku-5-5", "claude-sonnet-5-5" if learns else "claude-haiku-5-5"
    agents = [am.Agent(f"q{n}", f"short {n}", model=names[0]) for n in range(12)]
    agents += [am.Agent("z", "long", model=names[1])]
    agents[1:1] = [am.Agent("probe", "long", model=names[1])]
    plan = am.Plan(agents)
    record, _ = drive(plan, lambda prompt, _: Reply(1.0 if prompt.startswith("short") else 8.0), Policy(2, seed=1))
    forecast = am.Run(record).forecast().record
    assert [one.finished_s for one in record.results] == [one.finished_s for one in forecast.results]
    assert (16.0 if learns else 18.0) == max(one.finished_s or 0.0 for one in record.results)
