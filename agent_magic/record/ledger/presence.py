"""Kernels that use the same key now: one row each in the ledger's file, while a run is under way.

A row is removed when its process is gone, or after ten looks without a change. Looks count instead of seconds,
because of locked files, sleeping laptops and wrong clocks.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from agent_magic.record.ledger.file import FAILURES
from agent_magic.record.ledger.lease import Owner

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from agent_magic.record.ledger.database import Store

LOOKS: Final = 10
OTHERS: Final = "SELECT session, owner, beat, data FROM presence WHERE client = ? AND session != ?"


class Presence:
    """One kernel's row among those with the same `client`, a salted hash of key and address."""

    def __init__(self, store: Store, client: str, name: str) -> None:
        self._store, self._client, self.name = store, client, name
        self._beat = 0
        self._seen: dict[str, tuple[int, int]] = {}

    def peek(self) -> Mapping[str, Any]:
        """Read the other rows without writing; `None` if that is impossible. Thread-safe."""
        try:
            return {
                name: json.loads(data) for name, _, _, data in self._store.file.read(OTHERS, self._client, self.name)
            }
        except (*FAILURES, ValueError):
            return {}

    def look(self, decide: Callable[[Mapping[str, Any]], Any], *, beat: bool = True) -> bool:
        """Read the others' rows and write ours by `decide`, in one transaction; return False if locked. Thread-safe."""
        try:
            with self._store.file.writing() as db:
                others = {name: json.loads(data) for name, data in self._others(db, beat=beat)}
                self._beat += 1
                row = (self._client, self.name, self._store.owner, self._beat, json.dumps(decide(others)))
                db.execute("INSERT OR REPLACE INTO presence VALUES (?, ?, ?, ?, ?)", row)
        except (*FAILURES, ValueError):  # the run itself meets the error of the file
            return False
        return True

    def _others(self, db: sqlite3.Connection, *, beat: bool) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        seen: dict[str, tuple[int, int]] = {}
        for name, owner, at, data in db.execute(OTHERS, (self._client, self.name)).fetchall():
            before, looks = self._seen.get(name, (at, -1))
            looks = looks + beat if at == before else 0
            if looks >= LOOKS or Owner.parse(owner).is_alive() is False:
                db.execute("DELETE FROM presence WHERE client = ? AND session = ?", (self._client, name))
                continue
            seen[name] = at, looks
            found.append((name, data))
        self._seen = seen
        return found

    def leave(self) -> None:
        """If that is not possible now, the others forget the row."""
        with suppress(*FAILURES), self._store.file.writing() as db:
            db.execute("DELETE FROM presence WHERE client = ? AND session = ?", (self._client, self.name))
