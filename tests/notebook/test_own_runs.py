"""A ledger that many notebooks share: what reads or buys goes by this notebook's runs, and any other is named."""

# Tests hand over stand-ins for a notebook, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

import agent_magic as am
from agent_magic.errors import Rejected
from agent_magic.notebook import Cell, Session
from agent_magic.notebook.planning import left_line
from agent_magic.notebook.running import Resumed
from agent_magic.notebook.verbs.ledger import VERBS as LEDGER
from agent_magic.notebook.verbs.results import VERBS as RESULTS
from agent_magic.notebook.verbs.results import cut_run, is_own, newest_run, whose
from agent_magic.notebook.verbs.steering import VERBS as STEERING
from agent_magic.record import RunEnded
from agent_magic.record.files import home_of, is_file, shown_home
from tests.live.virtual import Reply, Scripted, drive

A, B, FOLDER = "/books/one/a.ipynb", "/books/two/b.ipynb", "/books/one/"
REJECTED = Rejected("no", status=400)
PLANS = {
    "plain": [am.Agent("one", "First"), am.Agent("two", "Then {{ one }}")],
    "edited": [am.Agent("one", "First of all"), am.Agent("two", "Then {{ one }}")],
    "other": [am.Agent("three", "Third")],
}


def ran(ledger, home, plan, *, cut):
    """Record a run of a notebook; returns its number."""
    ledger.home = home
    record, _ = drive(am.Plan(PLANS[plan]), Scripted(lambda *_: Reply(1.0)))
    record.cut = cut
    if cut:
        record.events[-1] = RunEnded(record.events[-1].at_s, cut=True)
    return ledger.copy(record)


def notebook(ledger, home, plan=None):
    """A session of a notebook that declares a plan, or nothing."""
    session = Session()
    session.keeping.home = home
    session.keeping._ledger, session.keeping._opened = ledger, (":memory:", False)
    session.keeping.choice = ":memory:"
    for step in PLANS[plan] if plan else ():
        session.registry().declare(step, Cell(), ran=(), variables=(), cycles=True)
    return session


@pytest.fixture
def ledger():
    """A ledger in memory."""
    return am.Ledger()


@pytest.mark.parametrize(
    ("began", "plan", "here", "declared", "own"),
    [
        (A, "plain", A, None, True),
        (A, "plain", A, "other", True),
        (A, "plain", B, None, False),
        (A, "plain", B, "plain", True),
        (A, "plain", B, "edited", False),
        (A, "plain", B, "other", False),
        (FOLDER, "plain", FOLDER, None, False),
        (FOLDER, "plain", FOLDER, "edited", True),
        (FOLDER, "plain", FOLDER, "other", False),
        (FOLDER, "plain", "/books/two/", "plain", True),
        (FOLDER, "plain", "/books/two/", None, False),
        ("", "plain", A, "plain", True),
        ("", "plain", A, None, False),
    ],
)
def test_a_run_is_the_notebooks_whose_file_or_plan_it_is(ledger, began, plan, here, declared, own):
    """By its file, wherever that is known; else, and after a rename, by what is declared: a folder has many of them."""
    ran(ledger, began, plan, cut=True)
    (past,) = ledger.past()
    past = past._replace(home=began)
    assert own is is_own(notebook(ledger, here, declared), ledger, past)


def test_a_cut_run_is_taken_up_by_its_own_notebook_only(ledger):
    """Another one is told whose it is, and how to name it."""
    number = ran(ledger, A, "plain", cut=True)
    ran(ledger, B, "other", cut=False)
    assert number == cut_run(notebook(ledger, A), ledger).run
    with pytest.raises(UsageError) as told:
        cut_run(notebook(ledger, B), ledger)
    assert f"run {number} of 'agents' in one/a.ipynb" in str(told.value)
    assert f"%agents resume --of {number}" in str(told.value)
    assert "/books/one" not in str(told.value), "a shared notebook tells no paths of the machine"


def test_nothing_is_taken_up_where_nobody_can_tell_whose_it_is(ledger):
    """In a folder, with nothing declared: the runs are listed, and none is chosen; once an agent is declared it is."""
    number = ran(ledger, FOLDER, "plain", cut=True)
    with pytest.raises(UsageError, match="No agent is declared to tell this notebook's from others'"):
        cut_run(notebook(ledger, FOLDER), ledger)
    with pytest.raises(UsageError, match=f"%agents open {number} takes the first"):
        newest_run(notebook(ledger, FOLDER), ledger)
    assert number == cut_run(notebook(ledger, FOLDER, "plain"), ledger).run


@pytest.mark.parametrize(
    ("began", "plan", "here", "declared", "said"),
    [
        (A, "plain", A, "other", ""),
        (A, "plain", B, "plain", ""),
        (A, "plain", B, "edited", "This is a run of one/a.ipynb."),
        (A, "plain", B, None, "This is a run of one/a.ipynb."),
        (FOLDER, "plain", FOLDER, "plain", ""),
        (FOLDER, "plain", FOLDER, None, ""),
        (FOLDER, "plain", FOLDER, "other", "This is a run of one/."),
    ],
)
def test_a_run_is_called_anothers_by_the_same_rule(ledger, began, plan, here, declared, said):
    """A notebook that was renamed knows its run again by the plan; where nobody can tell nothing is said."""
    run = ledger.open(ran(ledger, began, plan, cut=True))
    assert said == whose(notebook(ledger, here, declared), run)


def test_what_a_cut_run_still_asks_is_priced(ledger):
    """Only what it has no answer of; nothing is said where nothing is left."""
    client = Scripted(lambda prompt, _: Reply(1.0) if prompt == "First" else Reply(1, error=REJECTED))
    first, _ = drive(am.Plan(PLANS["plain"]), client)
    session, plan = notebook(ledger, A, "plain"), am.Plan(PLANS["plain"])
    session.connect(client)
    left = left_line(session, plan, am.Policy(), Resumed(am.Run(first)), fresh=False)
    assert re.fullmatch(r"1 agent, about <?\$[\d.]+ expected \(estimate\), at most \$[\d.]+", left)
    whole, _ = drive(am.Plan(PLANS["plain"]), Scripted(lambda *_: Reply(1.0)))
    assert "" == left_line(session, plan, am.Policy(), Resumed(am.Run(whole)), fresh=False)


def test_nothing_is_left_of_a_run_that_a_later_one_finished(ledger):
    """What was cut and then run to its end has nothing to go on with; one with fewer agents does not count."""
    number = ran(ledger, A, "plain", cut=True)
    ran(ledger, A, "other", cut=False)
    assert number == cut_run(notebook(ledger, A), ledger).run
    ran(ledger, A, "plain", cut=False)
    with pytest.raises(UsageError, match="This notebook has no run that was cut"):
        cut_run(notebook(ledger, A), ledger)


@given(st.lists(st.tuples(st.sampled_from([A, B, FOLDER, ""]), st.sampled_from([*PLANS])), min_size=1, max_size=6))
def test_the_newest_run_is_never_that_of_another_file(runs):
    """Whatever the ledger holds: it is of this file, or of the same plan."""
    ledger = am.Ledger()
    for home, plan in runs:
        ran(ledger, home, plan, cut=False)
    homes = [home for home, _ in runs]
    session = notebook(ledger, A)
    if A not in homes:
        with pytest.raises(UsageError, match="This notebook has no run in the ledger"):
            newest_run(session, ledger)
        return
    assert A == next(one for one in ledger.past() if one.run == newest_run(session, ledger)).home


def test_whose_a_run_is_stands_in_the_list_and_beside_what_was_opened(ledger, capsys):
    """`%agents runs` has a column, and a run that was opened by its number is told where it is from."""
    number = ran(ledger, A, "plain", cut=False)
    assert ["one/a.ipynb"] == list(ledger.runs()["notebook"])
    ctx = SimpleNamespace(session=notebook(ledger, B))
    LEDGER["open"].do(ctx, SimpleNamespace(run=number, declare=False))
    assert "note: This is a run of one/a.ipynb." in capsys.readouterr().out
    RESULTS["last"].do(ctx, SimpleNamespace())
    assert "note: This is a run of one/a.ipynb." in capsys.readouterr().out


def test_what_failed_for_good_is_listed_of_own_runs(ledger):
    """Unless a run is named."""
    ledger.home = A
    record, _ = drive(am.Plan(PLANS["other"]), Scripted(lambda *_: Reply(1, error=REJECTED)))
    ledger.copy(record)
    mine, other = notebook(ledger, A), notebook(ledger, B)
    assert 1 == len(ledger.dead(only=lambda run: is_own(mine, ledger, run)))
    assert 0 == len(ledger.dead(only=lambda run: is_own(other, ledger, run)))


def test_batches_without_a_name_are_those_of_this_notebook(ledger):
    """Those of others are listed, and are touched by their name only."""
    ledger.home = A
    ledger.batches.sent(ledger.batches.plan("api", ["n"]), "batch_a")
    ledger.home = B
    ledger.batches.sent(ledger.batches.plan("api", ["m"]), "batch_b")
    assert ["batch_b", "batch_a"] == [one.id for one in ledger.batches.open("api")]
    assert ["batch_b"] == [one.id for one in ledger.batches.own("api")]


def test_a_home_is_what_the_front_end_names(monkeypatch, tmp_path):
    """JupyterLab does so in the environment; where nobody does it is a folder, or the script."""
    shell = SimpleNamespace(user_ns={})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert (f"{tmp_path}/", False) == (home_of(), is_file(home_of()))
    monkeypatch.setenv("JPY_SESSION_NAME", A)
    assert (A, "one/a.ipynb") == (home_of(), shown_home(home_of()))
    shell.user_ns["__vsc_ipynb_file__"] = B
    assert B == home_of()
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    monkeypatch.setattr("__main__.__file__", "script.py", raising=False)
    assert f"{tmp_path}/script.py" == home_of()


def test_resume_names_a_run_of_another_notebook(ledger):
    """`--of` takes one that was cut, and no other."""
    number = ran(ledger, A, "plain", cut=False)
    ctx = SimpleNamespace(session=notebook(ledger, B))
    given_ = SimpleNamespace(of=number, names=[])
    with pytest.raises(UsageError, match=f"Run {number} was not cut"):
        STEERING["resume"].do(ctx, given_).send(None)


@pytest.mark.parametrize(
    ("home", "shown"),
    [
        (r"C:\Users\ada\work\a.ipynb", "work/a.ipynb"),
        (r"\\box\share\ada\work\a.ipynb", "work/a.ipynb"),
        ("C:/Users/ada/work/", "work/"),
        ("/data/ada/work/a.ipynb", "work/a.ipynb"),
        ("/data/ada/work/", "work/"),
    ],
)
def test_a_home_of_any_system_is_shown_by_its_end(home: str, shown: str) -> None:
    """A ledger may come from another machine; what is shown tells no more than the last folder of it."""
    assert shown == shown_home(home)
