"""A ledger on a network drive has no write-ahead log, which two machines would destroy, and says where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_magic.errors import LedgerError
from agent_magic.record import LedgerFile, SqliteLedger
from agent_magic.record.ledger import file as drive
from agent_magic.record.ledger.file import kind_at, network_drive

TABLE = """/dev/sda1 / ext4 rw 0 0
server:/data /data nfs4 rw 0 0
/dev/sdb1 /data/ada/fast\\040disk xfs rw 0 0
//box/share /mnt/share cifs rw 0 0
/dev/sdc1 /mnt/over xfs rw 0 0
server:/over /mnt/over nfs rw 0 0
broken
"""


@pytest.mark.skipif(os.name == "nt", reason="the table is Linux's")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/ada/x", "nfs4"),
        ("/data/ada/fast disk/x", "xfs"),
        ("/datasets/x", "ext4"),
        ("/mnt/share/a/b", "cifs"),
        ("/mnt/over/x", "nfs"),
        ("/", "ext4"),
    ],
)
def test_the_deepest_mount_holds_a_file(path: str, kind: str) -> None:
    """Of two mounts in one place, the later one hides the other; spaces are written in octal."""
    assert kind == kind_at(Path(path), TABLE)


@pytest.fixture
def networked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the table calls a network drive."""
    folder = (tmp_path / "drive").resolve()
    folder.mkdir()
    table = tmp_path / "mounts"
    table.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {folder.as_posix()} nfs4 rw 0 0\n")
    monkeypatch.setattr(drive, "MOUNTS", table)
    return folder


def test_a_ledger_there_has_no_log_and_says_so(networked: Path) -> None:
    """Each commit is on the drive when it returns, and a note names the kind of the drive."""
    ledger = SqliteLedger(networked / "ledger.sqlite3")
    try:
        assert ["ledger.sqlite3"] == sorted(one.name for one in networked.iterdir())
        assert 1 == sum("network drive (nfs4)" in note for note in ledger.notes)
    finally:
        ledger.close()


def test_a_ledger_that_was_moved_there_loses_its_log(networked: Path, tmp_path: Path) -> None:
    """One with a log is rewritten without it; if another process has it open, it is refused."""
    there = tmp_path / "x.sqlite3"
    here = LedgerFile(there)
    assert here.is_logged
    here.close()
    there.rename(networked / "x.sqlite3")
    moved = LedgerFile(networked / "x.sqlite3")
    assert not moved.is_logged
    moved.close()


def test_a_log_in_use_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process writes with a log, no second way of writing begins."""
    path = tmp_path.resolve() / "x.sqlite3"
    other = LedgerFile(path)
    monkeypatch.setattr("agent_magic.record.ledger.file.network_drive", lambda _: "nfs4")
    monkeypatch.setattr("agent_magic.record.ledger.file.OPEN_S", 0.01)
    try:
        with pytest.raises(LedgerError, match="locked") as caught:
            LedgerFile(path)
        assert caught.value.unwritable
    finally:
        other.close()


def test_no_table_is_no_network_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has none, such as macOS, a ledger is written as on a disk."""
    monkeypatch.setattr(drive, "MOUNTS", tmp_path / "none")
    assert "" == network_drive(tmp_path)
