"""Batches in a ledger: requests at the provider, so that later runs find their answers.

```
planned ──created──> sent ──────> over       its answers are in the ledger, the rest failed or was not billed
   |                  └─────────> lost       the provider does not know it any more
   └── killed in between: the provider's list of recent batches shows if it was created
```

Each request is named by its fingerprint and ordinal, so an answer finds its place in the ledger without its run.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.errors import LedgerError
from agent_magic.record.ledger.file import FAILURES
from agent_magic.record.ledger.lease import Owner
from agent_magic.record.ledger.rows import INSERT_ANSWER, answer_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.database import Store
    from agent_magic.record.ledger.file import LedgerFile, Row

KEY_BYTES = 32
COLUMNS = "id, endpoint, batch, owner, planned_at, names, coalesce(home, '')"
MOST_TIMES = 200
CREATION_S = 600.0
"""How long a process may take to create a batch."""


def name_of(key: str, ordinal: int) -> str:
    """Return the name of a request in its batch: at most 64 letters, digits, `_` and `-`."""
    return f"{base64.urlsafe_b64encode(bytes.fromhex(key)).decode().rstrip('=')}-{ordinal}"


def place_of(name: str) -> tuple[str, int]:
    digest, _, ordinal = name.rpartition("-")
    key = base64.urlsafe_b64decode(f"{digest}=")
    if len(key) != KEY_BYTES:
        raise ValueError(name)
    return key.hex(), int(ordinal)


class KeptBatch(NamedTuple):
    """A batch that may have answers to come; without an id if its process was killed before storing it."""

    row: int
    endpoint: str
    id: str | None
    owner: str
    planned_at: float
    names: frozenset[str]
    home: str = ""

    @property
    def may_be_under_creation(self) -> bool:
        """True if another process may be about to create it; of one on another machine only time tells."""
        owner = Owner.parse(self.owner)
        is_new = self.id is None and time.time() - self.planned_at < CREATION_S
        return is_new and owner != Owner.me() and owner.is_alive() is not False


def open_batches(file: LedgerFile) -> list[KeptBatch]:
    sql = f"SELECT {COLUMNS} FROM batches WHERE state IN ('planned', 'sent') ORDER BY id DESC"  # noqa: S608 - ours
    return [_kept(row) for row in file.read(sql)]


class BatchBook:
    """Keeps the batches of a ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def plan(self, endpoint: str, names: Sequence[str]) -> int:
        """Record on disk that a batch is about to be created; return its row."""
        sql = "INSERT INTO batches (endpoint, owner, home, planned_at, state, names) VALUES (?, ?, ?, ?, 'planned', ?)"
        head = endpoint, self._store.owner, self._store.home, time.time()
        try:
            return self._store.insert(sql, *head, json.dumps(list(names)))
        except FAILURES as error:
            raise LedgerError(
                f"No batch was sent, because the ledger {self._store.file.name!r} cannot be written ({error}) and its "
                "answers would be lost with this kernel. Make room, or run without --batch."
            ) from error

    def sent(self, row: int, batch: str) -> None:
        self._write("UPDATE batches SET batch = ?, state = 'sent' WHERE id = ?", batch, row)

    def over(self, row: int, state: str = "over", took_s: float | None = None) -> None:
        """Record a batch's end, the first to be seen: `over`, `lost` at the provider or `refused`."""
        sql = "UPDATE batches SET state = ?, took_s = ? WHERE id = ? AND state IN ('planned', 'sent')"
        self._write(sql, state, took_s, row)

    def keep(self, answers: Iterable[tuple[str, Answer]], planned_at: float) -> None:
        """Store answers that no run waits for, or raise `LedgerError`. Answers newer than the plan stay."""
        rows: list[tuple[object, ...]] = []
        for name, answer in answers:
            try:
                key, ordinal = place_of(name)
            except ValueError:  # another user's batch
                continue
            if not self._has(key, ordinal, planned_at):
                rows.append(answer_row(key, ordinal, answer, time.time()))
        if rows:
            self._store.patiently(lambda: self._store.insert_many(INSERT_ANSWER, rows))

    def has_all(self, names: Iterable[str], planned_at: float) -> bool:
        """Return whether all answers are stored; False if that cannot be read, so that the next run looks again."""
        with suppress(LedgerError):
            return all(self._has(*place_of(name), planned_at) for name in names)
        return False

    def _has(self, key: str, ordinal: int, since: float) -> bool:
        sql = "SELECT 1 FROM answers WHERE key = ? AND ordinal = ? AND bought_at >= ? LIMIT 1"
        return bool(self._store.patiently(lambda: self._store.file.read(sql, key, ordinal, since)))

    def note(self, text: str) -> None:
        self._store.notes.append(text)

    def open(self, endpoint: str | None = None) -> list[KeptBatch]:
        found = self._store.patiently(lambda: open_batches(self._store.file))
        return [one for one in found if endpoint in {None, one.endpoint}]

    def own(self, endpoint: str | None = None) -> list[KeptBatch]:
        return [one for one in self.open(endpoint) if one.home in {"", self._store.home}]

    def known(self) -> set[str]:
        sql = "SELECT batch FROM batches WHERE batch IS NOT NULL"
        return {batch for (batch,) in self._store.patiently(lambda: self._store.file.read(sql))}

    def times_s(self, endpoint: str) -> list[float]:
        """Return the latest at an address, oldest first, without cancelled ones."""
        sql = "SELECT took_s FROM batches WHERE endpoint = ? AND took_s IS NOT NULL ORDER BY id DESC LIMIT ?"
        rows = self._store.patiently(lambda: self._store.file.read(sql, endpoint, MOST_TIMES))
        return [took_s for (took_s,) in reversed(rows)]

    def _write(self, sql: str, *values: object) -> None:
        try:
            self._store.insert(sql, *values)
        except FAILURES as error:
            self._store.warn(error)


def _kept(row: Row) -> KeptBatch:
    number, endpoint, batch, owner, planned_at, names, home = row
    return KeptBatch(number, endpoint, batch, owner, planned_at, frozenset(json.loads(names)), home)
