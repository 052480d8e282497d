"""How far limits and budgets go, and how a job splits: the calculators as commands."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from agent_magic.notebook.verbs.sizing import month_of
from agent_magic.record.ledger.runs import PastRun
from tests.notebook.test_whatifs import magics, run_of

__all__ = ["magics"]


def told_by(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed, without its line breaks."""
    return " ".join(capsys.readouterr().out.split())


def past(began_at: str, tokens: int, *, simulated: bool = False, cost_usd: float | None = 0.5) -> PastRun:
    """One run of a ledger."""
    return PastRun(1, began_at, "p", "finished", 2, 2, 2, 0, 0, 1.0, tokens, cost_usd, None, simulated)


def test_limits_and_rates_are_reckoned_from_the_last_run(magics, capsys):
    """Two requests a job: 120 requests a minute carry one job a second, and half a job a second needs 60."""
    run_of(magics)
    magics.agents("size --rpm 120 --jobs 0.5")
    out = capsys.readouterr().out
    told = " ".join(out.split())  # without its line breaks
    assert "One job is the last run: 2 requests" in told
    assert "These limits carry 1 jobs a second" in told
    assert "limited by requests." in told
    row = out.splitlines()[-1].split()
    assert ("0.5", "60", "1") == (row[0], row[4], row[5])


def test_a_month_of_the_ledger_counts_its_own_kind_of_runs():
    """Neither last month's runs nor simulated ones are added up with real ones."""
    runs = [
        past("2026-03-02T10:00:00+00:00", 1_000),
        past("2026-03-04T10:00:00+00:00", 3_000, cost_usd=None),
        past("2026-03-03T10:00:00+00:00", 50, simulated=True),
        past("2026-02-28T10:00:00+00:00", 70),
    ]
    month = month_of(runs, datetime(2026, 3, 6, tzinfo=UTC), simulated=False)
    assert (5.0, 4_000, 0.5, 4, 2) == tuple(month)
    assert 50 == month_of(runs, datetime(2026, 3, 6, tzinfo=UTC), simulated=True).tokens


def test_a_budget_says_what_is_left_of_it_and_without_a_ledger_that_this_is_unknown(magics, capsys, monkeypatch):
    """The runs of a whole budget need no ledger, those that are left do."""
    run_of(magics)
    keeping = magics.session.keeping
    month = [past(datetime.now(UTC).isoformat(), 8)]
    monkeypatch.setattr(type(keeping), "ledger", property(lambda _: SimpleNamespace(past=lambda: month)))
    magics.agents("size --monthly 28")
    told = told_by(capsys)
    assert "28 tokens: 7 runs a month" in told
    assert "--rpm" not in told  # a limit is not asked about
    assert "Used this month: 8 tokens in 1 run; 5 runs left." in told
    magics.agents("size --value 1 --accepted 0.5 --review 0.25")
    assert "2 answers cost $1.00, $1.00 for each good one, and are worth $1.00." in told_by(capsys)
    monkeypatch.setattr(type(keeping), "ledger", property(lambda _: None))
    magics.agents("size --monthly 0.028k")
    told = told_by(capsys)
    assert "The ledger is off" in told
    assert "7 runs a month" in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("size --value 1", "--value USD and --accepted SHARE together"),
        ("size --jobs many", "numbers such as 1,5,10"),
        ("size --monthly plenty", "tokens such as 5M or 800k"),
        ("capacity", "%agents size"),
        ("decompose", "%agents split"),
        ("split --by colour a", "file"),
    ],
)
def test_what_cannot_be_read_says_what_can(magics, line, words):
    """A line that asks for nothing that is there is an error with a way on."""
    run_of(magics)
    with pytest.raises(UsageError, match=words):
        magics.agents(line)


@pytest.mark.parametrize("line", ['"Compare Python, Rust and Go"', "Compare Python, Rust and Go"])
def test_a_text_of_one_line_is_not_split(magics, capsys, line):
    """With quotes or without: its words are no steps."""
    magics.agents(f"split {line}")
    told = told_by(capsys)
    assert told.startswith("Not split")
    assert "%%agents" not in told


def test_a_text_of_several_lines_is_split(magics, capsys):
    """The cell below has a step per line, in the order that the words say; texts in quotes are a line each."""
    magics.shell.user_ns["goal"] = "Read the data.\nRead the paper.\nThen compare both."
    magics.agents("split goal")
    told = told_by(capsys)
    assert "2 steps can begin at once, 1 waits" in told
    assert "Score 0.33" in told
    magics.agents('split "sign up" pay')
    assert "2 steps can begin at once" in told_by(capsys)


def test_files_of_any_kind_are_split_by_file(magics, capsys, tmp_path, monkeypatch):
    """A page and a script are an agent each, and one that joins."""
    monkeypatch.chdir(tmp_path)
    for name in ("app.js", "notes.md"):
        (tmp_path / name).write_text("text")
    put: list[str] = []
    monkeypatch.setattr("agent_magic.notebook.verbs.sizing.put_cell", lambda _, text: put.append(text))
    magics.agents("split app.js notes.md")
    assert "2 steps can begin at once, 1 waits" in told_by(capsys)
    assert "each files" in put[0].replace("--", "")


def test_without_words_what_is_declared_is_analysed(magics, capsys):
    """Two agents that need nothing of each other: half of their work is beside the other half."""
    magics.agents("split")
    assert "2 steps can begin at once, 0 wait for others. Score 0.50" in told_by(capsys)
