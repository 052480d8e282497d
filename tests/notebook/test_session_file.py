"""A session as a file: declarations, limits and runs go to another kernel, and nobody else's file is touched."""

# Tests hand over stand-ins for a notebook.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

import agent_magic as am
from agent_magic.engine import Reading
from agent_magic.errors import DeclarationError, LedgerError, Overloaded
from agent_magic.notebook import Cell, Session, read_agent
from agent_magic.notebook.declaring import read_context
from agent_magic.notebook.files.cells import load_session, save_session
from agent_magic.notebook.verbs.steering import VERBS
from tests.live.virtual import Reply, Scripted, drive
from tests.record.conformance import always, plan_of

CELL = Cell()


@pytest.fixture
def kernel(tmp_path):
    """Make sessions of kernels, each with a ledger of its own."""
    made = []

    def make():
        session = Session()
        session.keeping.choice = str(tmp_path / f"ledger-{len(made)}.sqlite3")
        made.append(session)
        return session

    yield make
    for session in made:
        session.close()


def declare(session, *agents, context=None):
    """Declare agents as their cells do."""
    if context is not None:
        session.declare_context(*read_context(*context), CELL)
    for line, prompt in agents:
        agent, plan = read_agent(line, prompt)
        session.registry(plan).declare(agent, CELL, ran=(), variables=(), cycles=True)


def test_what_is_declared_goes_along(kernel, tmp_path):
    """Options, plans, contexts and prompts as they were written; of a function only its name is told."""
    one, two, path = kernel(), kernel(), tmp_path / "work.session"
    declare(
        one,
        ("first --context house --max-tokens 50", "What colour?\n\nSay it.\n"),
        ("second --after first --plan review --effort low", "Review {{ first }}"),
        context=("house", "The house is {{ colour }}."),
    )
    one.registry().declare(am.Task("worst", worst), CELL, ran=(), variables=(), cycles=True)
    kept = save_session(one, path)
    assert (3, 0, False, ("worst",)) == kept[:4]
    assert kept[:3] == load_session(two, path, {}, CELL)[:3]
    for plan in ("agents", "review"):
        assert [step for step in one.registry(plan).agents if not step.is_task] == [*two.registry(plan).agents]
        assert one.registry(plan).contexts == two.registry(plan).contexts


def worst(first):
    """Return what it takes."""
    return first


def test_runs_go_along_and_their_answers_are_not_bought_again(kernel, tmp_path):
    """They are in the other ledger too, once, with all their rows; an equal plan asks nobody."""
    one, two, path = kernel(), kernel(), tmp_path / "work.session"
    record, _ = drive(plan_of(a="x", b="x"), always(), ledger=one.shared.ledger)
    one.settle(am.Run(record))
    save_session(one, path)
    assert 0o600 == path.stat().st_mode & 0o777
    for _ in range(2):
        assert 1 == load_session(two, path, {}, CELL).runs
        assert record.events == two.last.record.events
        assert [1] == list(two.keeping.ledger.runs()["run"])
    again, _ = drive(plan_of(a="x", b="x"), always(), ledger=two.shared.ledger)
    assert ["ledger", "ledger"] == [result.source for result in again.results]


def test_runs_that_were_loaded_have_their_dollars(kernel, tmp_path):
    """The list says of each what it said before, whether it bought, failed or bought nothing."""
    one, two, path = kernel(), kernel(), tmp_path / "work.session"
    busy = Reply(error=Overloaded("busy", status=529), status=529)
    for plan, script in (
        (plan_of(a="x", b="y"), always()),
        (plan_of(a="z", c="w"), lambda prompt, count: busy if prompt == "w" or count == 1 else Reply()),
        (plan_of(a="x", b="y"), always()),
    ):
        record, _ = drive(plan, script, am.Policy(max_attempts=2), ledger=one.shared.ledger)
        one.settle(am.Run(record))
    before = one.keeping.ledger.runs()
    assert [0, True, True] == [cost if cost == 0 else cost > 0 for cost in before["cost_usd"]]
    save_session(one, path)
    load_session(two, path, {}, CELL)
    assert before.drop(columns="run").equals(two.keeping.ledger.runs().drop(columns="run"))


def test_limits_go_along_to_the_same_provider(kernel, tmp_path):
    """What was announced is known from the first request; another provider learns its own."""
    one, two, other, path = kernel(), kernel(), kernel(), tmp_path / "work.session"
    now = time.monotonic()
    ticket = one.shared.pacer.ask("claude-haiku-5", 10, 10, now)
    one.shared.pacer.heard(ticket, {"requests": Reading(777, 700)}, now)
    assert save_session(one, path).limits
    assert load_session(two, path, {}, CELL).limits
    assert 777 == two.shared.pacer.ceilings()["claude-haiku-5"]["requests"].per_minute
    other.connect(Scripted(always()))
    kept = load_session(other, path, {}, CELL)
    assert (False, True) == (kept.limits, kept.others)
    assert {} == other.shared.pacer.ceilings()


def test_a_later_save_replaces_the_file_and_no_other_file(kernel, tmp_path):
    """A ledger and somebody's text stay as they are."""
    session, path = kernel(), tmp_path / "work.session"
    declare(session, ("a", "x"))
    save_session(session, path)
    declare(session, ("b", "y"))
    assert 2 == save_session(session, path).steps
    assert 2 == load_session(kernel(), path, {}, CELL).steps
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    with pytest.raises(LedgerError):
        save_session(session, text)
    assert "mine" == text.read_text()
    with pytest.raises(LedgerError, match="is a ledger, but no session"):
        save_session(session, session.keeping.ledger.path)
    assert {"work.session", "notes.txt", "ledger-0.sqlite3"} <= {one.name for one in tmp_path.iterdir()}
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_session_is_not_loaded(kernel, tmp_path):
    """The message says how one is made; no file is made."""
    session = kernel()
    with pytest.raises(LedgerError, match="There is no file"):
        load_session(session, tmp_path / "none.session", {}, CELL)
    assert not (tmp_path / "none.session").exists()


def test_a_type_that_is_not_defined_here_is_named(kernel, tmp_path):
    """Nothing was taken over: run its cell, and load again."""
    one, two, path = kernel(), kernel(), tmp_path / "work.session"
    kinds = {"Label": list[int]}
    agent, plan = read_agent("a --returns Label", "x", lambda *told: one.look_up(kinds, *told))
    one.registry(plan).declare(agent, CELL, ran=(), variables=(), cycles=True)
    save_session(one, path)
    with pytest.raises(DeclarationError, match="Label"):
        load_session(two, path, {}, CELL)
    assert () == two.registry().agents
    assert 1 == load_session(two, path, kinds, CELL).steps


def test_resume_without_a_run_that_was_cut_says_so(kernel):
    """It names what there is to do."""
    session = kernel()
    record, _ = drive(plan_of(a="x"), always(), ledger=session.shared.ledger)
    assert record.ended_s is not None
    with pytest.raises(UsageError, match="no run that was cut"):
        VERBS["resume"].do(SimpleNamespace(session=session), SimpleNamespace(names=[], of=None)).send(None)
