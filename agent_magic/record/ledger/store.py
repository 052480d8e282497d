"""The ledger in a file. If the file fails, answers stay in memory, and nothing is bought until it can be written."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from agent_magic.errors import LedgerError
from agent_magic.record.answer import NOT_BILLED, NOT_REUSED
from agent_magic.record.facts import Facts
from agent_magic.record.files import real_path
from agent_magic.record.ledger.batches import BatchBook
from agent_magic.record.ledger.database import Store
from agent_magic.record.ledger.file import FAILURES, is_locked
from agent_magic.record.ledger.journal import SqliteJournal
from agent_magic.record.ledger.lease import Presence
from agent_magic.record.ledger.maintenance import Check, Size, export, prune, recover, size_of, verify
from agent_magic.record.ledger.reviews import EditRows, GradeRows
from agent_magic.record.ledger.rows import INSERT_ANSWER, answer_row
from agent_magic.record.ledger.runs import history_of, mark_lost_runs, open_run, past_runs, plan_of, seen_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_magic.record.answer import Answer
    from agent_magic.record.history import Past, SeenRun
    from agent_magic.record.ledger.runs import P, PastRun
    from agent_magic.record.prices import Prices
    from agent_magic.record.results import RunRecord


T = TypeVar("T")
MEMORY = ":memory:"
MOST_HISTORY = 2000
"""Number of earlier answers the expectations of a session are based on."""
LIMITS_AGE_S = 30 * 86_400.0
"""By then an account may be on another tier."""


class Remembered(NamedTuple):
    """Rate limits learned by an earlier session."""

    limits: Any
    age_s: float


MARK_SENT = """UPDATE calls SET key = ?, ordinal = 0
    WHERE agent = ? AND number = ? AND run = (SELECT id FROM runs WHERE uid = ?)"""
"""A call with a key was sent."""


def sent_of(record: RunRecord) -> Iterator[tuple[str, int, int]]:
    """Yield key, agent and number."""
    for attempt in Facts.of(record.results).sent:
        if not (attempt.kind == "cancelled" and attempt.price == NOT_BILLED and attempt.status_code is None):
            yield attempt.request.key(record.origin), attempt.begun.agent, attempt.number


def answers_of(record: RunRecord) -> Iterator[tuple[str, int, Answer]]:
    """Yield the answers bought in a run: key, and how many agents had asked the same."""
    asked: dict[str, list[int]] = {}
    for attempt in Facts.of(record.results).succeeded:
        if attempt.answer is None or attempt.is_shared or attempt.answer.edited:
            continue
        agent, key = attempt.begun.agent, attempt.request.key(record.origin)
        agents = asked.setdefault(key, [])
        if agent not in agents:
            agents.append(agent)
        source = "simulated" if attempt.answer.source == "simulated" or record.replays_simulation else "live"
        yield key, agents.index(agent), replace(attempt.answer, source=source)


class SqliteLedger:
    """A ledger in a file.

    Args:
        path: The file; created if it is missing, links followed. `:memory:` ends with the process.
        reuse_simulated: Serve simulated answers again too, labelled as simulated. For demonstrations and tests.
    """

    def __init__(self, path: str | Path = MEMORY, *, reuse_simulated: bool = False) -> None:
        if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LedgerError(f"{path!r} is no path of a ledger. Give Ledger('FILE'), or Ledger() for one in memory.")
        place = None if str(path) == MEMORY else real_path(path, LedgerError)
        self._store = Store(place, reuse_simulated=reuse_simulated)

    def __repr__(self) -> str:
        return f"Ledger({self._store.file.name!r}: {len(self):,} answers)"

    def __len__(self) -> int:
        marks, store = ", ".join("?" * len(NOT_REUSED)), self._store
        sql = (  # the marks are question marks
            f"SELECT count(*) FROM (SELECT 1 FROM answers WHERE stop_reason NOT IN ({marks}) "  # noqa: S608
            "AND source IN ('live', ?) GROUP BY key, ordinal)"
        )
        simulated = "simulated" if store.reuse_simulated else "live"
        return int(store.patiently(lambda: store.file.read(sql, *NOT_REUSED, simulated))[0][0]) + len(store.held)

    @property
    def is_in_use(self) -> bool:
        """True if an open run of this process stores its answers here."""
        return bool(self._store.under_way)

    @property
    def path(self) -> Path | None:
        """The file; `None` in memory."""
        return self._store.path

    @property
    def home(self) -> str:
        """Home of new runs: the path of a notebook or script, or of a folder, which ends with a slash."""
        return self._store.home

    @home.setter
    def home(self, home: str) -> None:
        self._store.home = home

    @property
    def notes(self) -> list[str]:
        """Messages for the user: a quarantined file, a full disk. Reading clears them."""
        return self._store.notes

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return an answer that may be served again, marked as from the ledger; `None` if there is none.

        Args:
            key: The fingerprint of the request; see `Request.key`.
            ordinal: Number of equal requests of the run before it.
        """
        try:
            found = self._store.lookup(key, ordinal)
        except FAILURES as error:  # asked at any moment of a run: as good as not there
            if not is_locked(error):
                self._store.warn(error)
            return None
        return replace(found[1], source="ledger") if found else None

    def keep(self, key: str, ordinal: int, answer: Answer) -> None:
        """Store a complete answer that belongs to no run. It is on the disk when this returns.

        Args:
            key: The fingerprint of the request; see `Request.key`.
            ordinal: Number of equal requests before it.
            answer: The answer.
        """
        try:
            self._store.insert(INSERT_ANSWER, *answer_row(key, ordinal, answer, time.time()))
        except FAILURES as error:
            self._store.warn(error)
            self._store.hold(key, ordinal, answer)

    def begin(self, record: RunRecord, prices: Prices | None = None) -> SqliteJournal:
        """Return the journal of a run that is about to begin. Runs cut by a kill are found and noted now.

        Args:
            record: The run's record, which grows while it runs.
            prices: Token prices for the savings of reused answers; default list prices.
        """
        with suppress(*FAILURES):  # a file that fails will say so with the first request
            self._find_lost_runs()
        return SqliteJournal(self._store, record, prices)

    @property
    def batches(self) -> BatchBook:
        """The batches that were sent, with those that may have answers to come."""
        return BatchBook(self._store)

    @property
    def edits(self) -> EditRows:
        """The answers that this notebook or script has put in place of models'."""
        return EditRows(self._store)

    @property
    def grades(self) -> GradeRows:
        """What answers were found to be worth."""
        return GradeRows(self._store)

    def copy(self, record: RunRecord) -> int:
        """Store a run of another ledger with its answers. Return its number here, or the existing one.

        Args:
            record: The run, which has ended.

        Raises:
            LedgerError: It could not be stored.
        """
        known = "SELECT id FROM runs WHERE uid = ?"
        if not self._store.patiently(lambda: self._store.file.read(known, record.uid)):
            for key, ordinal, answer in answers_of(record):
                if self.find(key, ordinal) is None:
                    self.keep(key, ordinal, answer)
            keeper = record.keeper
            SqliteJournal(self._store, record).close()
            record.keeper = keeper
            rows = [(*one, record.uid) for one in sent_of(record)]
            self._store.patiently(lambda: self._store.insert_many(MARK_SENT, rows))
        found = self._store.patiently(lambda: self._store.file.read(known, record.uid))
        if not found:
            raise LedgerError(f"A run could not be stored in {self._store.file.name!r}. {' '.join(self.notes)}")
        return int(found[0][0])

    def put(self, name: str, value: str) -> None:
        """Store a text under a name, in place of an earlier one.

        Args:
            name: Its name.
            value: The text.

        Raises:
            LedgerError: It could not be stored.
        """
        sql = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
        self._store.patiently(lambda: self._store.insert(sql, f"note {name}", value))

    def get(self, name: str) -> str | None:
        """Return the text that was stored under a name; `None` if there is none.

        Args:
            name: Its name.
        """
        sql = "SELECT value FROM settings WHERE name = ?"
        rows = self._store.patiently(lambda: self._store.file.read(sql, f"note {name}"))
        return rows[0][0] if rows else None

    def _find_lost_runs(self) -> None:
        self.notes.extend(self._store.attempt(lambda: mark_lost_runs(self._store.file)))

    def _past_runs(self, newest_of: str | None = None) -> list[PastRun]:
        return self._store.patiently(lambda: past_runs(self._store.file, newest_of))

    def _open_run(self, run: int, kind: type[P]) -> tuple[RunRecord, P]:
        record, plan, uid = self._store.patiently(lambda: open_run(self._store.file, run, kind))
        record.keeper = partial(self._store.keep_bases, uid)
        return record, plan

    def _plan_of(self, run: int, kind: type[P]) -> P:
        return self._store.patiently(lambda: plan_of(self._store.file, run, kind))

    def history(self, most: int = MOST_HISTORY) -> list[Past]:
        """Return the latest answers, oldest first.

        Args:
            most: Maximum number.
        """
        return self._store.patiently(lambda: history_of(self._store.file, most))

    def seen_runs(self, origin: str, most: int = MOST_HISTORY) -> list[SeenRun]:
        """Return server timing of the latest runs at an origin, oldest first; empty if it cannot be read.

        Args:
            origin: The server, as in records.
            most: Approximate maximum of requests.
        """
        with suppress(LedgerError):  # a forecast can do without
            return self._store.patiently(lambda: seen_runs(self._store.file, origin, most))
        return []

    def remember_limits(self, key: str, endpoint: str, limits: Mapping[str, Any]) -> None:
        """Store learned rate limits for later sessions. The key is stored as a salted hash only.

        Args:
            key: The API key, or another id of the account.
            endpoint: Address of the requests.
            limits: Plain data by model class, replacing the class's stored data.
        """
        now = time.time()

        def store() -> None:
            client = self._client(key, endpoint)
            rows = [(client, name, now, json.dumps(data)) for name, data in limits.items()]
            with self._store.file.writing() as db:
                db.execute("DELETE FROM limits WHERE at < ?", (now - LIMITS_AGE_S,))
                db.executemany("INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?)", rows)

        with suppress(*FAILURES):  # they can be learned again
            self._store.attempt(store)

    def remembered_limits(self, key: str, endpoint: str) -> dict[str, Remembered]:
        """Return the stored rate limits of a key at an endpoint, by model class, without outdated ones.

        Args:
            key: The API key, or another id of the account.
            endpoint: Address of the requests.
        """
        now, sql = time.time(), "SELECT model_class, data, at FROM limits WHERE client = ? AND at >= ?"
        try:
            since = now - LIMITS_AGE_S
            rows = self._store.attempt(lambda: self._store.file.read(sql, self._client(key, endpoint), since))
            return {name: Remembered(json.loads(data), max(0.0, now - at)) for name, data, at in rows}
        except (*FAILURES, ValueError):
            return {}

    def presence(self, key: str, endpoint: str) -> Presence | None:
        """Return a session's row among those with the same key; `None` for a ledger in memory.

        Args:
            key: The API key, or another id of the account.
            endpoint: Address of the requests.
        """
        if self.path is None:
            return None
        try:
            return Presence(self._store, self._store.attempt(lambda: self._client(key, endpoint)), uuid4().hex)
        except FAILURES:  # the run itself meets the error of the file
            return None

    def _client(self, key: str, endpoint: str) -> str:
        (salt,) = self._store.file.read("SELECT value FROM settings WHERE name = 'salt'")[0]
        return hashlib.sha256(f"{salt}\0{endpoint}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()

    def size(self) -> Size:
        """Return the ledger's content in numbers."""
        return self._store.patiently(lambda: size_of(self._store.file))

    def verify(self) -> Check:
        """Check every page and every answer. Nothing is changed."""
        return self._store.in_words(lambda: verify(self._store.file))

    def prune(self, *, days: float | None = None, simulated: bool = False) -> int:
        """Delete runs and answers, and reclaim their space. Return the number of deleted answers.

        Args:
            days: Only those older than this; `None` for any age.
            simulated: True for simulated ones only.

        Raises:
            LedgerError: Neither was given, or `days` is not a number >= 0; nothing was deleted.
        """
        return self._store.patiently(lambda: prune(self._store.file, days=days, simulated=simulated))

    def export(self, path: str | Path) -> int:
        """Write every answer as a line of JSON. Returns how many.

        Args:
            path: The file, links followed.

        Raises:
            LedgerError: There is a file of that name that no export wrote, or no folder for it; nothing was changed.
            OSError: The file cannot be written; an older one is unchanged.
        """
        return self._store.in_words(lambda: export(self._store.file, real_path(path, LedgerError)))

    def salvage(self) -> int:
        """Copy the readable content of quarantined files. Return the number of answers found."""
        path = self._store.path
        if path is None:
            return 0
        aside = sorted(path.parent.glob(f"{path.name}.damaged-*"))
        parts = ("-wal", "-journal", "-shm")
        return sum(recover(one, self._store.file) for one in aside if not one.name.endswith(parts))

    def close(self) -> None:
        """Close the file."""
        self._store.close()
