"""Agents as text: a `%%agents` cell is split into sections, and a plan is written as one."""

# pyright: reportArgumentType=false

from __future__ import annotations

import pytest

from agent_magic import Agent
from agent_magic.api import Plan
from agent_magic.declare import PRESETS, look_up, options_text, to_cell
from agent_magic.declare.cells import sections_of
from agent_magic.declare.declared import declared
from agent_magic.errors import DeclarationError, PlanError

CELL = r"""What it is for.

## facts (Researcher) --model m
What is known?

\## no heading
### none either

## report
Report {{ facts }}
"""


def test_a_cell_is_split_at_its_headings():
    """A section has its name, its heading as a line of options, its prompt and its line; a comment stands before."""
    comment, sections = sections_of(CELL)
    assert "What it is for." == comment
    assert [("facts", "facts --role Researcher --model m", 4), ("report", "report", 10)] == [
        (one.name, one.line, one.number) for one in sections
    ]
    assert ["What is known?\n\n## no heading\n### none either", "Report {{ facts }}"] == [
        one.prompt for one in sections
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no heading", "needs a heading"),
        ("\n## What we know\nx", "Line 3: '## What we know' is no heading"),
        ("## a (critic) --role writer\nx", r"Line 2: a has \(role\) and --role"),
    ],
)
def test_a_heading_that_cannot_be_read_is_named_with_its_line(text, message):
    """What is no heading is said with what to write."""
    with pytest.raises(DeclarationError, match=message):
        sections_of(text)


def test_a_plan_is_written_as_one_cell():
    """Options stand in the heading, the role in brackets, a line that looks like a heading behind a backslash."""
    plan = Plan(
        [
            Agent("a", "x\n## y\n  ## z", role="critic", model="m", max_tokens=5, system=None, returns=None),
            Agent("b", "{{ a }}", after="c", cite=True, ask=True, system='say "so"'),
            Agent("c", "z", uses_resources="db", writes="out.md"),
        ],
        name="second",
        description="Why",
    )
    assert (
        "%%agents --plan second\nWhy\n\n## a (critic) --model m --max-tokens 5\nx\n\\## y\n  \\## z\n\n"
        "## b --system 'say \"so\"' --after c --ask --cite\n{{ a }}\n\n## c --uses db --writes out.md\nz\n"
    ) == plan.to_cell()
    assert "x\n## y\n  ## z" == sections_of(plan.to_cell().split("\n", 1)[1])[1][0].prompt


def test_agents_for_each_item_are_one_section_again():
    """The group has its name back and says what it goes over."""
    plan = Plan([Agent("rate", "Rate {{ item }}", each="rows")], {"rows": ["a", "b"]})
    assert "%%agents\n\n## rate --each rows\nRate {{ item }}\n" == to_cell(declared(plan))


def test_a_loop_is_written_as_it_was_declared():
    """Its rounds are one section again, with their condition; places for the items of an answer are one too."""
    kind = look_up("plan", "list[str]", None)
    agents = [
        Agent("draft", "x {% if critic %}{{ critic }}{% endif %}", until="critic", rounds=3),
        Agent("critic", "{{ draft }}"),
        Agent("plan", "x", **kind),
        Agent("tries", "x", repeat=4, expect=90, expect_out=800),
        Agent("work", "{{ item }}", each="plan", most=9, priority=2, when='critic == "no"'),
    ]
    text = Plan(agents).to_cell()
    assert "## draft --until critic --rounds 3\n" in text
    assert "## tries --repeat 4 --expect 90 --expect-out 800\n" in text
    assert "## work --each plan --most 9 --when 'critic == \"no\"' --priority 2\n" in text


@pytest.mark.parametrize(
    "agent",
    [
        Agent("a", "x", returns=int),
        Agent("a", "x", check=lambda _: None),
        Agent("a", "x", system="two\nlines"),
        Agent("a", "x", system="both \" and '"),
    ],
    ids=["a type without a name", "a function without a name", "a line break", "both quotes"],
)
def test_what_a_cell_cannot_hold_is_refused(agent):
    """Nothing is left out silently."""
    with pytest.raises(PlanError, match="cannot be written as a cell"):
        options_text(agent)


@pytest.mark.parametrize(("name", "agents", "depth"), [
    ("review", 5, 2), ("research", 5, 3), ("business_plan", 9, 4), ("architecture", 15, 5), ("prp", 6, 3),
])  # fmt: skip
def test_a_preset_is_a_plan(name, agents, depth):
    """Each declares the agents that its source describes, with roles, in as many layers."""
    text = PRESETS[name].partition("\n")[2]
    found = [Agent(one.name, one.prompt, role=one.line.split("--role ")[1].split()[0]) for one in sections_of(text)[1]]
    values = dict.fromkeys(("code", "question", "idea", "system_to_build", "feature"), "x")
    plan = Plan(found, values)
    assert (agents, depth) == (len(plan), plan.depth)
