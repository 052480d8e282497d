"""Pictures and documents in cells: what `%%agent` says of them, what a plan shows, what becomes of them in scripts."""

# pyright: basic

from __future__ import annotations

import matplotlib as mpl
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure

from agent_magic import text_file
from agent_magic.api import Claude
from agent_magic.declare import plan_to_dict
from agent_magic.errors import DeclarationError
from agent_magic.notebook import AgentMagics, help_of, read_agent, to_script
from agent_magic.notebook.files.cells import declaration
from agent_magic.notebook.planning import _prompts_text

mpl.use("agg")


@pytest.fixture
def magics():
    """The magics, with a figure and a document in the notebook."""
    shell = InteractiveShell()
    made = AgentMagics(shell)
    drawn = Figure(figsize=(2, 1), dpi=100)
    drawn.add_subplot().plot([1, 2])
    shell.user_ns.update({"fig": drawn, "rules": text_file(b"The grass is green.", title="rules.md")})
    yield made
    made.session.close()


def test_a_cell_attaches_and_cites(magics, capsys):
    """The card says what is attached; the plan's prompts have sizes and tokens."""
    magics.agent("reader --attach fig,rules --cite", "What is green in {{ fig }}?\n")
    assert "attaches fig, rules · cites its documents" in capsys.readouterr().out
    plan = magics.session.plan(magics.shell.user_ns, defaults={})
    text = _prompts_text(plan, Claude(base_url="http://127.0.0.1:1"))
    assert "[image fig: 200x100, about 32 tokens]\n[document rules.md: 19 bytes, about 5 tokens]\nWhat is green" in text
    assert "--attach A,B" in help_of("agent")


def test_a_cell_that_cites_has_no_type(magics):
    """The API takes one of both, and the cell says so."""
    with pytest.raises((DeclarationError, UsageError), match="has cite and returns"):
        read_agent("reader --cite --returns int", "x\n")


def test_what_is_attached_goes_into_cells_and_scripts(magics):
    """A plan written as cells or as a script names what it attaches."""
    agent, _ = read_agent("reader --attach fig,rules --cite", "What is green?\n")
    assert "%%agent reader --attach fig,rules --cite\nWhat is green?" == declaration(agent, "")
    magics.agent("reader --attach fig,rules --cite", "What is green?\n")
    plan = magics.session.plan(magics.shell.user_ns, defaults={})
    text = to_script(plan_to_dict(plan), title="x", unknown={})
    assert "attach=['fig', 'rules']," in text
    assert "cite=True," in text
