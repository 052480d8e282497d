"""Grading as commands."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook.command import Parser
from agent_magic.notebook.magics import AgentMagics
from agent_magic.notebook.verbs.worth import VERBS, graders_of


def test_truth_and_grader_are_names_of_the_notebook():
    """A variable with truths counts before a column; a grader must be a function."""
    magics = AgentMagics(InteractiveShell.instance())
    magics.shell.user_ns.update(by_hand=[1, 2], right=len)
    parser = Parser("%agents score")
    VERBS["score"].options(parser)
    assert {"truth": [1, 2]} == graders_of(magics, parser.read("label --truth by_hand"))
    assert {"truth": "mood"} == graders_of(magics, parser.read("label --truth mood"))
    assert {"grader": len} == graders_of(magics, parser.read("label --grader right"))
    with pytest.raises(UsageError, match="Did you mean 'right'"):
        graders_of(magics, parser.read("label --grader rihgt"))
