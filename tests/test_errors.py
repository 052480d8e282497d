"""The tree of errors: what its page draws, what a cell shows, and what another process is handed."""

from __future__ import annotations

import copy
import inspect
import linecache
import pickle
import re
from pathlib import Path

import pytest

import agent_magic
from agent_magic import errors
from agent_magic.errors import AgentMagicError

ONE_OF_EACH = [
    errors.AgentMagicError("why"),
    errors.DeclarationError("why", agent="a", hint="Do this."),
    errors.PlanError("why"),
    errors.DuplicateAgent("a"),
    errors.UnknownAgent("rst", known=["rust"], wanted_by="compare"),
    errors.UnknownGroup("rst", known=["rust"]),
    errors.Cycle(["a", "b", "a"]),
    errors.UndefinedVariable("topic", agent="a"),
    errors.UndefinedField("tpic", of="label", agent="a", known=["topic"]),
    errors.NotConnected(),
    errors.CannotNest("why"),
    errors.CallError("why", partial="half"),
    errors.RateLimited("why", retry_after_s=1.5, limit="requests"),
    errors.NotInBatch("It expired."),
    errors.Overloaded("why", status=529, retry_after_s=2.0, partial="half"),
    errors.Rejected("why", status=400),
    errors.Refused("why", category="bio", partial="half"),
    errors.Capped("why"),
    errors.InvalidAnswer("why", mendable=False),
    errors.Escalated("answer.confidence < 0.7"),
    errors.InvalidArguments("why"),
    errors.NoValue("a", "why"),
    errors.Truncated("why"),
    errors.UnexpectedToolUse("why"),
    errors.Unreadable("why"),
    errors.Unreachable("why"),
    errors.LeftOut("work", "Its key is refused."),
    errors.Late(300.0, of_run=True, partial="half"),
    errors.BudgetExceeded("why"),
    errors.CassetteError("why"),
    errors.LedgerError("why", unwritable=True),
    errors.SecretFound(["cell 3: a key"], what="FILE"),
    errors.ReplayMiss("a", nearest="b", differences={"prompt": ("x", "y")}, others=2),
    errors.RunFailed({"a": "why"}),
]
EACH = pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)


def public_errors() -> dict[str, type]:
    """The classes that `agent_magic.errors` hands out, by name."""
    ours = inspect.getmembers(errors, lambda one: inspect.isclass(one) and one.__module__ == errors.__name__)
    return dict(ours)


def test_the_page_draws_the_tree_as_it_is() -> None:
    """Every error stands in the drawing of the docstring, under the error that it is one of."""
    drawn, above = {}, {}
    for indent, name in re.findall(r"^([│├└─ ]*)([A-Z]\w+)", (errors.__doc__ or "").split("```")[1], re.MULTILINE):
        above[len(indent)] = name
        drawn[name] = above.get(len(indent) - 3, "Exception")
    assert {name: kind.__bases__[0].__name__ for name, kind in public_errors().items()} == drawn


def test_each_error_is_tried_here() -> None:
    """The cases below leave none out."""
    assert set(public_errors().values()) == {type(error) for error in ONE_OF_EACH}


@EACH
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["sent", "copied"])
def test_an_error_passes_between_processes(error: AgentMagicError, again) -> None:
    """A worker's error arrives with its message and all that it knows, in a pool of processes too."""
    arrived = again(error)
    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert vars(error) == vars(arrived)


@EACH
def test_an_error_is_named_as_it_is_imported(error: AgentMagicError) -> None:
    """What a traceback names can be imported from there."""
    assert "agent_magic.errors" == type(error).__module__


def test_a_cell_shows_the_users_line_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The innermost line outside the package is shown, in a folder whose name begins as the package's too."""
    beside = str(Path(agent_magic.__file__).parent) + "_study.py"
    lines = ["def ask():\n", "    am.Plan([am.Agent('a', 'x'), am.Agent('a', 'y')])\n", "ask()\n"]
    monkeypatch.setitem(linecache.cache, beside, (0, None, lines, beside))
    with pytest.raises(errors.DuplicateAgent) as caught:
        exec(compile("".join(lines), beside, "exec"), {"am": agent_magic})
    message, _, place = caught.value._render_traceback_()
    assert message.startswith("DuplicateAgent: Two agents are named 'a'.")
    assert "----> 2 am.Plan([am.Agent('a', 'x'), am.Agent('a', 'y')])" == place
