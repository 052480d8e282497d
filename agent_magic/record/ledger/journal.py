"""One run on its way into a ledger's file."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from agent_magic.errors import LedgerError
from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.codec import line_of, to_json
from agent_magic.record.events import AttemptEnded, AttemptStarted
from agent_magic.record.ledger.base import Busy, past_run
from agent_magic.record.ledger.lease import BEAT_S, LEASE_S, TICK_S
from agent_magic.record.ledger.rows import Texts, answer_row, chunk_of, plan_text, reserved
from agent_magic.record.ledger.schema import INSERT_ANSWER
from agent_magic.record.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from concurrent.futures import Future

    from agent_magic.record.answer import Answer
    from agent_magic.record.events import Event
    from agent_magic.record.ledger.store import DiskLedger
    from agent_magic.record.results import Attempt, RunRecord

LARGE = 1 << 18
"""Characters from which on an answer is written by a thread: one of 10 MB takes a tenth of a second."""
BEATS = int(BEAT_S / TICK_S)
FAILURES = (sqlite3.Error, OSError)


class _Unkept(NamedTuple):
    """An answer that is not in the file yet."""

    agent: int
    number: int
    key: str
    ordinal: int
    answer: Answer
    at_s: float
    bought_at: float
    row: int | None = None


class _Stored(NamedTuple):
    """How far the file has got.

    Attributes:
        run: The number of the run in it; `None` before its first row.
        events: How many events are in it.
        chunks: In how many rows.
        rows: The rows of the answers, by agent and number of the attempt.
    """

    run: int | None
    events: int
    chunks: int
    rows: dict[tuple[int, int], int]


class DiskJournal:
    """What a `DiskLedger` takes in of one run; see `agent_magic.record.ledger.base.Journal`."""

    def __init__(self, ledger: DiskLedger, record: RunRecord) -> None:
        self._ledger, self._record = ledger, record
        self._uid = uuid.uuid4().hex
        record.keeper = partial(ledger.keep_bases, self._uid)
        self._prices = Prices(tell=lambda _: None)
        self._keys: dict[int, tuple[str, int]] = {}
        self._kept: dict[tuple[int, int], _Unkept] = {}
        self._unkept: list[_Unkept] = []
        self._commits = self._synced = 0
        self._syncing: asyncio.Future[None] | None = None
        self._large: dict[tuple[int, int], tuple[int, Future[int]]] = {}
        self._beats = itertools.count()
        self._start_over()

    def _start_over(self) -> None:
        """Begin with a file that has nothing of this run, but all that was paid for."""
        self._generation = self._ledger.generation
        self._stored = _Stored(None, 0, 0, {})
        self._texts = Texts()
        self._unkept = [one._replace(row=None) for one in self._kept.values()]

    def ask(self, agent: int, number: int, key: str, ordinal: int, *, fresh: bool) -> Answer | Busy | None:
        """Look an answer up, or take note that the request goes out now; see `Journal.ask`."""
        self._keys[agent] = key, ordinal
        try:
            known = None if fresh else self._serve(agent, number) or self._holder(agent)
            return known or self._ledger.attempt(lambda: self._start(agent, number, fresh=fresh))
        except FAILURES as error:
            raise LedgerError(
                f"Nothing was sent, because the ledger {self._ledger.file.name!r} cannot be written ({error}) and what "
                "is bought must not be lost. Make room, or go on without it: %config AgentMagics.ledger = ':memory:'."
            ) from error

    def _serve(self, agent: int, number: int) -> Answer | None:
        """Take an answer out of the ledger."""
        found = self._ledger.lookup(*self._keys[agent])
        if found is None:
            return None
        row, answer = found
        if row is not None:
            self._stored.rows[agent, number] = row
        self._record.replays_simulation |= answer.source == "simulated"
        return replace(answer, source="ledger")

    def _holder(self, agent: int) -> Busy | None:
        """Tell which other run is buying the answer."""
        sql = "SELECT run, owner, until FROM leases WHERE key = ? AND ordinal = ?"
        for run, owner, until in self._ledger.file.read(sql, *self._keys[agent]):
            lease = (*self._keys[agent], run)
            if run != self._stored.run and self._ledger.pulses.hold(lease, owner, until, time.time()):
                return Busy(owner)
        return None

    def _start(self, agent: int, number: int, *, fresh: bool) -> Answer | Busy | None:
        """Take the lease and note the start, unless another run was quicker."""
        now = time.time()
        with self._writing() as (db, run):
            known = None if fresh else self._serve(agent, number) or self._holder(agent)
            if known is not None:
                return known
            key, ordinal = self._keys[agent]
            db.execute(
                "UPDATE calls SET state = 'started', key = ?, ordinal = ?, started_at = ? "
                "WHERE run = ? AND agent = ? AND number = ?",
                (key, ordinal, now, run, agent, number),
            )
            if not fresh:
                lease = (key, ordinal, run, self._ledger.owner, now + LEASE_S)
                db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", lease)
        self._ledger.heart.add(id(self), self._beat)
        return None

    def _beat(self) -> None:
        """Renew the leases and tidy the file up: on a thread, whatever the loop does meanwhile."""
        with suppress(*FAILURES):  # the next one tries again, and the run itself meets what is wrong with the file
            run, renewed = self._stored.run, time.time() + LEASE_S
            if run is not None and next(self._beats) % BEATS == 0:
                with self._ledger.file.writing() as db:
                    db.execute("UPDATE leases SET until = ? WHERE run = ?", (renewed, run))
            self._ledger.file.tidy()

    def keep(self, agent: int, number: int, answer: Answer, at_s: float) -> None:
        """Store a complete answer; see `Journal.keep`."""
        if (agent, number) in self._kept:
            self._store_large(agent, number)
            self._sync_now()
            return
        one = _Unkept(agent, number, *self._keys[agent], answer, at_s, time.time())
        self._kept[agent, number] = one
        if len(answer.text) >= LARGE and self._ledger.file.is_logged:
            self._large[agent, number] = self._generation, self._ledger.aside.submit(self._insert, one)
        else:
            self._store_kept(one)

    def _insert(self, one: _Unkept) -> int:
        """Write a large answer, on a thread. Returns its row."""
        row = answer_row(one.key, one.ordinal, one.answer, one.bought_at)
        with self._ledger.file.writing() as db:
            number = db.execute(INSERT_ANSWER, row).lastrowid or 0
        self._ledger.file.tidy()
        return number

    def _store_large(self, agent: int, number: int) -> None:
        """Store that an attempt has its large answer, which a thread has written, or else write that too."""
        if (agent, number) not in self._large:
            return
        generation, written = self._large.pop((agent, number))
        row = None
        with suppress(*FAILURES):  # met again when it is stored here
            row = None if written.cancel() else written.result()
        self._store_kept(self._kept[agent, number]._replace(row=row if generation == self._generation else None))

    def _store_kept(self, one: _Unkept) -> None:
        """Store an answer, with what else is new."""
        self._unkept.append(one)
        try:
            self._ledger.attempt(self._store)
            self._commits += self._ledger.file.is_logged and one.answer.source != "simulated"  # made up is no loss
        except FAILURES as error:
            self._ledger.hold(one.key, one.ordinal, one.answer, error)

    async def on_disk(self, agent: int, number: int) -> None:
        """Return when an answer that was kept would outlive a failure of power too."""
        if (agent, number) in self._large:
            with suppress(*FAILURES):  # met again when it is stored here; a stop meanwhile finds the answer kept
                await asyncio.wrap_future(self._large[agent, number][1])
            self._store_large(agent, number)
        wanted = self._commits
        while self._synced < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.get_running_loop().run_in_executor(None, self._sync, self._commits)
            await asyncio.shield(self._syncing)

    def _sync(self, commits: int) -> None:
        """Bring so many commits to the disk. Where that fails they are as safe as they can be made."""
        try:
            self._ledger.file.sync()
        except OSError as error:
            self._ledger.warn(error)
        self._synced = max(self._synced, commits)

    def _sync_now(self) -> None:
        if self._synced < self._commits:
            self._sync(self._commits)

    def write(self) -> None:
        """Store what the run's record says by now. What fails is tried again with the next."""
        try:
            self._ledger.attempt(self._store)
        except FAILURES as error:
            self._ledger.warn(error)

    def close(self) -> None:
        """Store the rest; the run is over."""
        self._ledger.heart.remove(id(self))
        for agent, number in list(self._large):
            self._store_large(agent, number)
        if not self._record.events:
            return
        try:
            self._ledger.attempt(self._finish)
            self._sync_now()
        except FAILURES as error:
            self._ledger.warn(error)

    def _finish(self) -> None:
        sums, terms = past_run(0, self._record), self._terms()
        with self._writing() as (db, run):
            db.execute(
                "UPDATE runs SET state = ?, simulated = ?, succeeded = ?, wall_s = ?, terms = ? WHERE id = ?",
                (sums.state, sums.simulated, sums.succeeded, sums.wall_s, terms, run),
            )
            db.execute("DELETE FROM leases WHERE run = ?", (run,))

    def _store(self) -> None:
        with self._writing():
            pass

    @contextmanager
    def _writing(self) -> Generator[tuple[sqlite3.Connection, int]]:
        """Write what is new, and more, in one transaction. Only when it is through does this run count it as stored."""
        if self._generation != self._ledger.generation:
            self._start_over()
        before, unkept = self._stored, list(self._unkept)
        with self._ledger.file.writing() as db:
            run = before.run if before.run is not None else self._begin(db)
            rows = {(one.agent, one.number): _store_answer(db, one) for one in unkept}
            events = self._record.events[before.events :]
            self._store_events(db, run, before.chunks, events, {**before.rows, **rows} if rows else before.rows)
            for one in unkept:
                self._store_finished(db, run, one, rows[one.agent, one.number])
            yield db, run
        before.rows.update(rows)
        self._stored = _Stored(run, before.events + len(events), before.chunks + bool(events), before.rows)
        self._texts.stored()
        self._unkept = [one for one in self._unkept if one not in unkept]
        for one in unkept:
            self._ledger.held.pop((one.key, one.ordinal), None)

    def _begin(self, db: sqlite3.Connection) -> int:
        """Write the row of the run, and its plan."""
        record = self._record
        plan = self._texts.name(plan_text(record.plan))
        self._texts.store(db)
        where = urlsplit(record.origin)  # kept without credentials, whatever a client says
        origin = where._replace(netloc=where.netloc.rpartition("@")[2], query="", fragment="").geturl()
        terms = self._terms()
        began, models = record.began_at.isoformat(), "\n".join(one.model for one in record.results)
        head = (self._uid, self._ledger.owner, began, record.plan.name, len(record.plan), origin, plan)
        sql = (
            "INSERT INTO runs (uid, owner, began_at, plan_name, agents, origin, plan, models, terms, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running')"
        )
        return db.execute(sql, (*head, models, terms)).lastrowid or 0

    def _terms(self) -> str | None:
        """Write what the run runs under."""
        return None if self._record.terms is None else line_of(to_json(self._record.terms))

    def _store_events(
        self,
        db: sqlite3.Connection,
        run: int,
        place: int,
        events: Sequence[Event],
        rows: dict[tuple[int, int], int],
    ) -> None:
        if not events:
            return
        chunk = chunk_of(events, self._texts, rows)
        self._texts.store(db)
        db.execute("INSERT INTO events VALUES (?, ?, ?)", (run, place, chunk))
        for event in events:
            if isinstance(event, AttemptStarted):
                self._store_planned(db, run, event)
            elif isinstance(event, AttemptEnded):
                self._store_end(db, run, event, rows)

    def _store_planned(self, db: sqlite3.Connection, run: int, event: AttemptStarted) -> None:
        """Write the row of an attempt that is about to be made."""
        request, name = event.request, self._record.results[event.agent].name
        db.execute(
            "INSERT INTO calls (run, agent, number, name, model, effort, state, started_at, reserved_input, "
            "reserved_output) VALUES (?, ?, ?, ?, ?, ?, 'planned', ?, ?, ?)",
            (
                *(run, event.agent, event.number, name, request.model, request.effort, time.time()),
                *(reserved(request), request.max_tokens),
            ),
        )

    def _store_end(
        self, db: sqlite3.Connection, run: int, event: AttemptEnded, rows: dict[tuple[int, int], int]
    ) -> None:
        """Write what came of an attempt into its row, and let others buy what it did not get."""
        attempt = self._attempt(event.agent, event.number)
        usage, answer = event.usage, event.answer
        state = "finished" if answer else "cancelled" if event.kind == "cancelled" else "failed"
        saved = self._prices.of(attempt.model, usage).cost_usd if event.price == PAID_BEFORE else None
        reason, output = answer.stop_reason if answer else None, usage.output_tokens if usage else None
        db.execute(
            "UPDATE calls SET state = ?, source = ?, stop_reason = ?, at_s = ?, input_tokens = ?, output_tokens = ?, "
            "ttft_s = ?, api_s = ?, cost_usd = ?, saved_usd = ?, kind = ?, answer = ? "
            "WHERE run = ? AND agent = ? AND number = ?",
            (
                *(state, event.source, reason, event.at_s, usage.total_input_tokens if usage else None, output),
                *(attempt.ttft_s, attempt.api_s, event.price.cost_usd, saved, event.kind),
                *(rows.get((event.agent, event.number)), run, event.agent, event.number),
            ),
        )
        self._release(db, run, event.agent)

    def _store_finished(self, db: sqlite3.Connection, run: int, one: _Unkept, row: int) -> None:
        """Write that an attempt has its answer, before anybody has seen it."""
        db.execute(
            "UPDATE calls SET state = 'finished', source = ?, stop_reason = ?, at_s = ?, input_tokens = ?, "
            "output_tokens = ?, answer = ? WHERE run = ? AND agent = ? AND number = ?",
            (
                *(one.answer.source, one.answer.stop_reason, one.at_s, one.answer.usage.total_input_tokens),
                *(one.answer.usage.output_tokens, row, run, one.agent, one.number),
            ),
        )
        self._release(db, run, one.agent)

    def _release(self, db: sqlite3.Connection, run: int, agent: int) -> None:
        if agent in self._keys:
            sql = "DELETE FROM leases WHERE key = ? AND ordinal = ? AND run = ?"
            db.execute(sql, (*self._keys[agent], run))

    def _attempt(self, agent: int, number: int) -> Attempt:
        """Return an attempt of the record."""
        attempts = self._record.results[agent].attempts
        return next(one for one in reversed(attempts) if one.number == number)


def _store_answer(db: sqlite3.Connection, one: _Unkept) -> int:
    """Write an answer, if a thread has not; return its row."""
    if one.row is not None:
        return one.row
    return db.execute(INSERT_ANSWER, answer_row(one.key, one.ordinal, one.answer, one.bought_at)).lastrowid or 0
