"""A ledger that is damaged, oddly named or of no version is a plain sentence, or is recovered; never a traceback."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import LedgerError
from tests.live.virtual import drive
from tests.record.conformance import always, plan_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file with the ledger of two runs."""
    path = tmp_path_factory.mktemp("whole") / "ledger.sqlite3"
    ledger = am.Ledger(path)
    for _ in range(2):
        drive(plan_of(a="one", b="two {{ a }}"), always(), ledger=ledger)
    ledger.close()
    file = sqlite3.connect(path)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    return path


def use(path):
    """Do what users do with a ledger; only a sentence may come of it."""
    with suppress(LedgerError):
        ledger = am.Ledger(path)
        try:
            looks = ledger.runs, ledger.size, ledger.verify, ledger.history, ledger.dead, lambda: len(ledger)
            for look in (*looks, lambda: ledger.export(path.with_name("export.jsonl"))):
                with suppress(LedgerError):
                    look()
            for run in (1, 2):
                with suppress(LedgerError):
                    assert ledger.open(run).record.results
            drive(plan_of(a="one"), always(), ledger=ledger)
        finally:
            ledger.close()


damages = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=24)), min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages, st.floats(0.1, 1))
def test_bytes_that_are_wrong_are_no_traceback(whole, tmp_path, wrong, kept):
    """Wherever they are, and wherever the file ends."""
    data = bytearray(whole.read_bytes())
    if kept < 0.5:
        del data[max(4096, int(len(data) * kept)) :]
    for at, some in wrong:
        place = int(at * (len(data) - len(some)))
        data[place : place + len(some)] = some
    for old in tmp_path.iterdir():
        old.unlink()
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(data)
    use(path)


@pytest.mark.parametrize("at", range(0, 4000, 40))
def test_text_that_is_no_utf8_is_damage(whole, tmp_path, at):
    """In the words of the schema too, which SQLite repeats in its errors."""
    data = bytearray(whole.read_bytes())
    begin = data.index(b"CREATE TABLE") if b"CREATE TABLE" in data else 100
    data[begin - 200 + at % 3000 : begin - 184 + at % 3000] = b"\xff\xc3\x28\xa0\xa1" * 3 + b"\xf0"
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(data)
    use(path)


TABLES = "answers runs calls events texts settings tool_calls files batches grades edits limits presence".split()
WRONG = [None, b"\xff\xfe\x00", "", "{}", "not json", '{"a":' * 3000, -(2**62), 1.5, float("inf"), '"\\ud800"', "1e999"]


RENAMED = "another name for the column"
faults = st.lists(
    st.tuples(st.sampled_from(TABLES), st.integers(0, 29), st.sampled_from([*WRONG, RENAMED])), min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults)
def test_values_that_no_ledger_writes_are_no_traceback(whole, tmp_path, wrong):
    """In any cell or column, and columns that have another name; whatever is asked of the ledger then."""
    for old in tmp_path.iterdir():
        old.unlink()
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA ignore_check_constraints=1")
        for table, place, value in wrong:
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            column = columns[place % len(columns)]
            with suppress(sqlite3.OperationalError, sqlite3.IntegrityError):  # what SQLite itself does not let happen
                if value != RENAMED:
                    file.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
                else:
                    file.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_x")
        file.commit()
    use(path)


@pytest.mark.parametrize("version", [-5, -1, -(2**31)])
def test_a_format_below_none_is_said(whole, tmp_path, version):
    """It is no later version, and the file stays as it is."""
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(whole, path)
    file = sqlite3.connect(path)
    file.execute(f"PRAGMA user_version={version}")
    file.close()
    with pytest.raises(LedgerError, match=f"says that its format is {version}, which no version uses"):
        am.Ledger(path)


@pytest.mark.parametrize("name", ["x" * 240, "x" * 300, "ä" * 120, "a\0b", "~nobody-of-that-name/x", "."])
def test_a_name_that_cannot_be_is_said(tmp_path, monkeypatch, name):
    """Too long, with a NUL, of nobody, or a folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError):
        am.Ledger(name)
