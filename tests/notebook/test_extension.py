"""Loading beside others: a name somebody holds is left to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook import load, unload


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell of its own, without a history file."""
    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    yield made
    unload(made)
    InteractiveShell.clear_instance()


def test_a_name_that_is_held_stays_with_its_holder(shell, capsys):
    """Another extension's `%%agent` stays; ours is offered under another name, and that is said."""

    def theirs(line, cell):
        return "theirs"

    shell.register_magic_function(theirs, "cell", "agent")
    shell.register_magic_function(theirs, "cell", "context")
    load(shell)
    assert theirs is shell.magics_manager.magics["cell"]["context"]
    assert theirs is shell.magics_manager.magics["cell"]["agent"]
    said = capsys.readouterr().out
    assert "%%am_agent" in said
    assert "%%am_context" in said
    assert {"am_agent", "am_context"} <= set(shell.magics_manager.magics["cell"])


def test_loading_twice_and_unloading_leave_nothing_behind(shell):
    """A second load adds nothing; after unloading no magic, hook or option is left."""

    def ours():
        return [type(one).__name__ for one in shell.configurables].count("AgentMagics")

    load(shell)
    load(shell)
    assert (4, 1) == (len(shell.input_transformers_post), ours())
    unload(shell)
    assert (0, 0) == (len(shell.input_transformers_post), ours())
    assert not {"agent", "context"} & set(shell.magics_manager.magics["cell"])
    assert not [name for name in shell.magics_manager.magics["line"] if name.startswith("agents")]
