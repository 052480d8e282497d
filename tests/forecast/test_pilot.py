"""A pilot: who is chosen, what it tells of the rest, and that nothing is bought twice."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio

import pytest

from agent_magic.api import Agent, Ledger, Plan
from agent_magic.declare import Plan as DeclaredPlan
from agent_magic.errors import DeclarationError
from agent_magic.forecast import pilot_agents
from tests.live.virtual import Reply, Scripted

ITEMS = Plan([Agent("label", "{{ item }}", each="items"), Agent("sum", "{{ label }}")], {"items": list("abcdefghi")})
NOBODY = [False] * 10


@pytest.mark.parametrize(
    ("plan", "held", "count", "chosen"),
    [
        (ITEMS, NOBODY, 3, ["label_0", "label_3", "label_6"]),
        (ITEMS, NOBODY, 99, list(ITEMS.names)),
        (ITEMS, [True] * 9 + [False], 3, ["sum"]),
        (ITEMS, [True] * 10, 3, []),
        (DeclaredPlan([Agent("a", "x"), Agent("b", "{{ a }}"), Agent("c", "{{ b }}")]), [False] * 3, 2, ["a", "b"]),
        (
            DeclaredPlan([Agent("a", "x"), Agent("b", "y", model="claude-opus-5-5"), Agent("c", "z")]),
            [False] * 3,
            2,
            ["a", "b"],
        ),
    ],
)
def test_those_are_tried_that_stand_for_the_most(plan, held, count, chosen):
    """Spread over a group, never without the answers their prompt needs, never what is there already."""
    assert chosen == pilot_agents(plan, held, count)


def test_no_pilot_of_nobody():
    """The number is one or more."""
    with pytest.raises(DeclarationError, match=">= 1"):
        pilot_agents(ITEMS, NOBODY, 0)


def answering():
    """A client whose answers have 40 tokens, one of the sum 400."""
    return Scripted(lambda prompt, _: Reply(0.01, first_s=0.005, tokens=(20, 400 if len(prompt) > 9 else 40, 0, 0)))


@pytest.mark.parametrize("kept", [True, False])
def test_the_rest_is_estimated_by_it_and_nothing_is_bought_twice(tmp_path, kept):
    """With a ledger its answers are found there, without one the run takes them over."""
    ledger = Ledger(tmp_path / "runs.sqlite3") if kept else None
    client = answering()
    pilot = asyncio.run(ITEMS.pilot(3, client=client, ledger=ledger))
    assert ["label_0", "label_3", "label_6"] == list(pilot.plan.names)
    found = ITEMS.estimate(client=client, ledger=ledger, pilot=pilot)
    rows = found.agents.set_index("agent")
    assert 3 == rows["reused"].sum() == found.reused
    assert (
        {"pilot"} == set(rows.loc[~rows["reused"], "output_basis"]) == set(rows.loc[~rows["reused"], "seconds_basis"])
    )
    assert 40 == rows.loc["label_1", "output_tokens"]
    assert (20, 80) == (rows.loc["label_1", "output_low"], rows.loc["label_1", "output_high"])
    assert (10, 160) == (rows.loc["sum", "output_low"], rows.loc["sum", "output_high"])
    assert "pilot" == found.basis
    assert pilot.totals.cost_usd == found.pilot.cost_usd
    assert "pilot: label_0, label_3, label_6 were run" in repr(found)
    without = ITEMS.estimate(client=client)
    assert found.cost.likely < without.cost.likely
    run = asyncio.run(ITEMS.run(client=client, ledger=ledger, resume=pilot))
    assert run.ok
    assert 10 == len(client.asked)
    if ledger is not None:
        ledger.close()
