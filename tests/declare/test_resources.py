"""What steps hold while they run, and who could be in whose way."""

from __future__ import annotations

import pytest

from agent_magic import Agent, Task, resource, tool
from agent_magic.declare import Held, Plan, plan_from_dict, plan_to_dict
from agent_magic.declare.resources import held_by, overlap
from agent_magic.engine import Resources
from agent_magic.errors import DeclarationError, PlanError

READ = float("inf")


def test_a_resource_is_held_by_so_many_and_a_path_by_any_number_of_readers():
    """What is written is held by one; paths are compared as they are, not as they are spelled."""
    resource("connections", 2)
    assert (Held("connections", 2), Held("a.csv", READ)) == held_by(["connections", "./a.csv"], [])
    assert (Held("a.csv", 1),) == held_by(["a.csv"], ["x/../a.csv"])


@pytest.mark.parametrize(("name", "most"), [("db", -1), ("db", 0), ("db", 1.5), (3, 1)])
def test_a_resource_has_a_name_and_a_number(name, most):
    """Wrong ones are said at once."""
    with pytest.raises(DeclarationError):
        resource(name, most)


def test_two_writers_that_could_meet_are_named():
    """So is a reader beside a writer. Those with an order between them, and readers among themselves, are not."""
    plan = Plan(
        [
            Agent("one", "x", writes="report.md"),
            Agent("two", "x", writes="report.md"),
            Agent("three", "x", uses_resources="report.md", after="one,two"),
            Task("four", lambda: 0, uses_resources=["other.md"]),
            Agent("five", "x", uses_resources="other.md"),
        ]
    )
    assert ("one and two both change or use report.md: they run one after the other",) == plan.notes
    assert {0, 1, 2, 3, 4} == set(plan.holds)


def test_a_conflict_can_be_an_error():
    """It says who, and what to do."""
    agents = [Agent("one", "x", writes="report.md"), Agent("two", "x", uses_resources="report.md")]
    with pytest.raises(PlanError, match=r"one and two both change or use report\.md.*after="):
        Plan(agents, on_conflict="error")


def test_a_plan_as_json_keeps_what_is_held():
    """A plan that is read holds the same."""
    plan = Plan([Agent("one", "x", writes="report.md", uses_resources="db")])
    assert plan.holds == plan_from_dict(plan_to_dict(plan), Plan).holds


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src", "src/app.py", True),
        ("src/app", "src/app.py", False),
        ("src/a.py", "src/b.py", False),
        (".", "src/app.py", True),
        (".", "../app.py", False),
        ("/data", "/data/raw/a.csv", True),
        ("/data", "data/a.csv", False),
    ],
)
def test_a_folder_holds_its_files(one, other, expected):
    """What lies in a folder is a part of it, at any depth: nobody writes the one while the other is written or read."""
    assert expected is overlap(one, other) is overlap(other, one)
    for first, second in (
        (Agent("one", "x", writes=one), Agent("two", "x", writes=other)),
        (Agent("one", "x", writes=other), Agent("two", "x", uses_resources=one)),
        (Agent("one", "x", uses_resources=other), Agent("two", "x", writes=one)),
    ):
        plan, resources = Plan([first, second]), Resources()
        resources.take(plan.holds[0])
        assert (expected, not expected) == (bool(plan.notes), resources.are_free(plan.holds[1]))
        resources.give_back(plan.holds[0])
        assert resources.are_free(plan.holds[1])


def test_readers_of_a_folder_and_its_files_go_together():
    """Nobody writes: nobody waits."""
    plan = Plan([Agent("a", "x", uses_resources="src"), Agent("b", "x", uses_resources="src/a.py")])
    resources = Resources()
    resources.take(plan.holds[0])
    assert ((), True) == (plan.notes, resources.are_free(plan.holds[1]))


def test_steps_draw_amounts_from_a_budget():
    """In its unit or without; three of ten parts of 0.1 fit beside seven of them, and no more."""
    resource("memory", 2_000, unit="MB")
    resource("share", 1)
    assert (Held("memory", 2_000, 500),) == held_by(["memory:500MB"], []) == held_by(["memory: 500"], [])
    assert 2_000 == held_by(["memory:2000"], [])[0].amount
    shares = [held_by(["share:0.1"], [])] * 10
    resources = Resources()
    for one in shares:
        assert resources.are_free(one)
        resources.take(one)
    assert not resources.are_free(held_by(["share:0.01"], []))
    resources.give_back(shares[0])
    assert resources.are_free(held_by(["share:0.1"], []))
    assert not resources.are_free(held_by(["share:0.2"], []))


@pytest.mark.parametrize(
    "uses", ["memory", "memory:", "memory:0", "memory:-1", "memory:2001", "memory:x", "memory:nan"]
)
def test_an_amount_that_never_fits_is_refused_when_the_plan_is_made(uses):
    """Of steps, and of the tools that they may call."""
    resource("memory", 2_000, unit="MB")
    with pytest.raises(DeclarationError, match=r"uses='memory.*amount of"):
        Plan([Agent("one", "x", uses_resources=uses)])

    def load(name: str) -> str:
        """Load a model."""
        return name

    with pytest.raises(DeclarationError, match=r"uses='memory.*amount of"):
        Plan([Agent("one", "x", tools=[tool(uses=uses)(load)])])
