"""`%%agent NAME --first-of A,B`: a cell without a prompt."""

from __future__ import annotations

import ast

import pytest
from IPython.core.error import UsageError

import agent_magic as am
from agent_magic.declare import to_cell
from agent_magic.declare.declared import declared
from agent_magic.notebook import find_agents, from_script, plan_data, read_agent, read_agents, to_notebook, to_script
from agent_magic.notebook.cell_hooks import OneLine

PLAN = am.Plan([am.Agent("a", "A"), am.Agent("b", "B"), am.first_of("quick", "a,b"), am.Agent("end", "{{ quick }}")])


TALK = am.Plan([am.Agent("a", "A"), am.Agent("b", "B", continues="a"), am.Agent("c", "{{ b }}", continues="a")])
"""A conversation with two branches."""


@pytest.mark.parametrize("plan", [PLAN, TALK])
def test_a_race_and_a_conversation_are_written_and_read_again(plan: am.Plan):
    """As a `%%agents` cell, as cells of a notebook, and as a script."""
    agents, _ = read_agents("", to_cell(declared(plan)).split("\n", 1)[1])
    assert am.Plan(agents) == plan
    cells = [(one["cell_type"], "".join(one["source"])) for one in to_notebook(plan)["cells"]]
    data, unknown = plan_data(find_agents(cells), "agents")
    assert am.Plan.from_dict(data) == plan
    script = to_script(data, title="race", unknown=unknown)
    assert ast.parse(script)
    assert am.Plan.from_dict(from_script(script)[0]) == plan


@pytest.mark.parametrize(
    ("line", "cell", "told"),
    [
        ("q --first-of a,b", "a prompt", "no prompt of its own"),
        ("q --first-of a,b --model m", "\n", "no --model"),
        ("q --first-of a,b --max-tokens 9", "\n", "no --max-tokens"),
    ],
)
def test_a_race_asks_nobody(line, cell, told):
    """So it has neither a prompt nor options of a request."""
    with pytest.raises(UsageError, match=told):
        read_agent(line, cell)


@pytest.mark.parametrize(
    ("cell", "made"),
    [
        (["%%agent q --first-of a,b"], ["%%agent q --first-of a,b\n", "\n"]),
        (["%%agent q --first-of a,b\n", "x\n"], ["%%agent q --first-of a,b\n", "x\n"]),
        (["%%agent q\n"], ["%%agent q\n"]),
    ],
)
def test_a_cell_of_one_line(cell, made):
    """IPython refuses a cell magic with nothing below it, so an empty line is put there."""
    assert made == OneLine(None, "agent", "--first-of")(cell)
