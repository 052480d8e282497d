"""The ledger of a session, and its subcommands."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from agent_magic.api import Claude, Plan, Run
from agent_magic.declare import dollars
from agent_magic.errors import LedgerError
from agent_magic.notebook import Session
from agent_magic.notebook.files.sharing import worth_sharing
from agent_magic.notebook.session import Keeping
from agent_magic.notebook.verbs.ledger import VERBS
from agent_magic.providers import Deck, Nobody
from agent_magic.record import only_hash, read_cassette, write_cassette
from agent_magic.show.notes import filled_note
from tests.live.virtual import Scripted, drive
from tests.record.conformance import always, answer, plan_of


@pytest.fixture
def session(monkeypatch):
    """A session of no file that is known, closed at the end."""
    monkeypatch.delattr("__main__.__file__", raising=False)
    made = Session()
    yield made
    made.close()


def do(session, verb, **given):
    """Run a subcommand."""
    options = {"action": "size", "file": None, "days": None, "simulated": False, "run": None, **given}
    return VERBS[verb].do(SimpleNamespace(session=session), SimpleNamespace(**{"declare": False, **options}))


def test_runs_come_back(session):
    """`runs` lists them, `open` makes one the last run; where nothing tells whose they are, it takes a number."""
    drive(plan_of(a="x"), always(), ledger=session.shared.ledger)
    second, _ = drive(plan_of(a="y"), always(), ledger=session.shared.ledger)
    assert [2, 1] == list(do(session, "runs")["run"])
    assert 1 == do(session, "open", run=1).record.plan.agents[0].prompt.count("x")
    with pytest.raises(UsageError, match=r"(?s)run 2 of 'agents'.*%agents open 2 takes the first"):
        do(session, "open")
    run = do(session, "open", run=2)
    assert run is session.last
    assert second.events == run.record.events
    with pytest.raises(LedgerError, match="no run 9"):
        do(session, "open", run=9)


def test_care(session, capsys, tmp_path):
    """What it holds, checked, written out, thinned out; each says what it did."""
    drive(plan_of(a="x"), always(tokens=(1000, 1000, 0, 0)), ledger=session.shared.ledger)
    drive(plan_of(a="x"), always(), ledger=session.shared.ledger)
    do(session, "ledger")
    said = capsys.readouterr().out
    assert "in memory, until this kernel ends" in said
    assert "1 answer (0 simulated) of 2 runs" in said
    assert "spent, $" in said
    do(session, "ledger", action="verify")
    assert "1 answer of 2 runs are intact. No problem found." in capsys.readouterr().out
    do(session, "ledger", action="export", file=str(tmp_path / "x.jsonl"))
    assert "1 answer written" in capsys.readouterr().out
    do(session, "ledger", action="salvage")
    assert "0 answers recovered" in capsys.readouterr().out
    do(session, "ledger", action="prune", days=0.0)
    assert "1 answer deleted" in capsys.readouterr().out
    assert 0 == len(session.shared.ledger)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"action": "prnue"}, "Did you mean 'prune'"),
        ({"action": "prune"}, "--days N, --simulated"),
        ({"action": "export"}, "needs a file"),
        ({"action": "export", "file": "/nowhere/at/all"}, "Choose another place"),
    ],
    ids=str,
)
def test_mistakes(session, given, message):
    """Each says what to do; the magic shows both kinds of error alike."""
    with pytest.raises((UsageError, LedgerError), match=message):
        do(session, "ledger", **given)


def test_a_session_without_a_ledger(session):
    """`off` keeps nothing, and the subcommands say so."""
    session.keeping.choice = "off"
    assert session.shared.ledger is None
    assert 0 == len(session.shared.history)
    with pytest.raises(UsageError, match="is off"):
        do(session, "runs")


def test_history_begins_with_what_the_ledger_knows(tmp_path):
    """A new session knows what earlier answers took."""
    first, second = Session(), Session()
    first.keeping.choice = second.keeping.choice = str(tmp_path / "l.sqlite3")
    first.shared.ledger._store.file.is_logged = False
    drive(plan_of(a="x"), always(first_s=0.5, takes_s=2.0), ledger=first.shared.ledger)
    first.close()
    assert [("a", 2.0)] == [(one.agent, one.api_s) for one in second.shared.history]
    second.close()


def test_a_place_that_cannot_be_written(tmp_path):
    """The session goes on in memory, and says so once; a file of a later version is an error."""
    keeping = Keeping()
    (tmp_path / "file").write_text("")
    keeping.choice = str(tmp_path / "file" / "ledger.sqlite3")
    keeping.ledger.keep("k", 0, answer())
    assert 1 == len(keeping.ledger)
    assert keeping.ledger.path is None
    notes = keeping.take_notes()
    assert 1 == len(notes)
    assert "kept in memory, until this kernel ends" in notes[0]
    assert [] == keeping.take_notes()
    keeping.choice = str(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LedgerError, match="no ledger"):
        assert keeping.ledger


def test_an_empty_ledger_says_so(session, capsys):
    """`runs` says that there is none yet, `open` what makes one."""
    assert 0 == len(do(session, "runs"))
    assert "the ledger has no run yet" in capsys.readouterr().out
    with pytest.raises(LedgerError, match=r"no run in the ledger yet.*%agents run"):
        do(session, "open")


def test_a_recording_that_is_filled_asks_whoever_has_the_key(session, tmp_path):
    """After a strict replay, which reaches nobody, `--fill` reaches the API again; the stand-in stays where it is."""
    record, _ = drive(plan_of(a="x"), always(source="simulated"))
    write_cassette(record, tmp_path / "x.cassette.jsonl")
    cassette = read_cassette(tmp_path / "x.cassette.jsonl")
    session.insert(Deck(cassette))
    assert isinstance(session.shared.client, Nobody)
    session.insert(Deck(cassette, fill=True))
    assert isinstance(session.shared.client, Claude)
    mine = Claude(base_url="http://127.0.0.1:1")
    session.connect(mine)
    session.insert(Deck(cassette, fill=True))
    assert mine is session.shared.client
    replayed = Run(Deck(cassette).play(plan_of(a="x"), timeout_s=9.0))
    assert "replay + simulated" == replayed.totals.source
    assert "" == filled_note(replayed.record)


def test_what_was_filled_is_priced_apart(tmp_path):
    """Of a run whose rest was bought: what that cost now, and that the recording had cost the rest."""
    record, _ = drive(plan_of(a="x"), always(tokens=(1_000_000, 1_000, 0, 0)))
    write_cassette(record, tmp_path / "x.cassette.jsonl")
    plan = Plan(plan_of(a="x", b="{{ a }}").agents)
    client = Scripted(always(takes_s=0.0, tokens=(2_000_000, 2_000, 0, 0)))
    run = asyncio.run(plan.play(tmp_path / "x.cassette.jsonl", fill=True, client=client))
    assert run["b"].cost_usd == 2 * (run["a"].cost_usd or 0.0)
    assert filled_note(run.record).startswith(f"{dollars(run['b'].cost_usd)} spent now; the rest")


def test_what_has_no_texts_is_not_shared_again(tmp_path):
    """Replays of a recording without texts are left out; the session's other runs are shared."""
    record, _ = drive(plan_of(a="x"), always())
    write_cassette(record, tmp_path / "x.cassette.jsonl", redact=only_hash)
    replayed = Deck(read_cassette(tmp_path / "x.cassette.jsonl")).play(plan_of(a="x"), timeout_s=9.0)
    bought = Run(record)
    assert [bought] == worth_sharing([Run(replayed), bought, Run(replayed)])
