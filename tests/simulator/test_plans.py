"""The plans that the mock server answers a coordinator with."""

from __future__ import annotations

from random import Random

import pytest

from agent_magic.simulator.structured import is_plan, write_plan
from agent_magic.simulator.writer import subject_of

FIELDS = {name: {"type": "string"} for name in ("name", "role", "prompt", "depends_on")}
SCHEMA = {"properties": {"agents": {"type": "array", "items": {"properties": FIELDS}}}}


def plan(goal, system=""):
    """Return the agents of a plan for a goal."""
    found = write_plan(SCHEMA, subject_of(f"Goal: {goal}", system), system, Random(7))
    return found["agents"]


def test_a_schema_of_a_plan_is_known_by_its_fields():
    """Any other schema is filled as before."""
    assert is_plan(SCHEMA)
    assert not is_plan({"properties": {"agents": {"type": "array", "items": {"type": "string"}}}})
    assert not is_plan({"type": "object"})


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("Compare Python, Rust and Go for a web service", ["python", "rust", "go", "comparison", "risks", "result"]),
        ("Python or Rust?", ["python", "rust", "comparison", "risks", "result"]),
        (
            "Write a report on market size, prices, and rivals",
            ["market_size", "prices", "rivals", "draft", "risks", "result"],
        ),
    ],
)
def test_the_parts_of_a_goal_are_agents(goal, names):
    """Those it lists work at once; what joins them, and a critic, come after."""
    assert names == [row["name"] for row in plan(goal)]


@pytest.mark.parametrize("most", range(1, 9))
@pytest.mark.parametrize(
    "goal", ["Compare A1, B2, C3, D4 and E5", "Plan the launch of a repair shop", "Do it", "1, 2, 3"]
)
def test_a_plan_is_right(goal, most):
    """It has at most as many agents as are wanted; a parent stands before its children, and in their prompts."""
    rows = plan(goal, f"Use at most {most} agents.")
    assert 1 <= len(rows) <= most
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
    for place, row in enumerate(rows):
        assert set(row["depends_on"]) <= set(names[:place])
        assert all(f"{{{{ {parent} }}}}" in row["prompt"] for parent in row["depends_on"])


def test_a_role_is_one_of_the_schema():
    """A role that it does not have is another one."""
    schema = {"properties": {"agents": {"items": {"properties": {**FIELDS, "role": {"enum": ["writer"]}}}}}}
    found = write_plan(schema, subject_of("Goal: Compare A and B", ""), "", Random(1))
    assert {"writer"} == {row["role"] for row in found["agents"]}
