"""One run on its way into a ledger's file."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections import ChainMap
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from agent_magic.declare.plan_json import attachments_of, plan_to_dict
from agent_magic.declare.step import cascade_of, prompt_of
from agent_magic.errors import LedgerError
from agent_magic.machine import in_browser
from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.codec import data_of, from_json, line_of, to_json
from agent_magic.record.events import AttemptEnded, AttemptStarted, CallEnded
from agent_magic.record.ledger.base import IN_DOUBT, Busy, Done, Doubt
from agent_magic.record.ledger.file import FAILURES, is_locked
from agent_magic.record.ledger.lease import BEAT_S, LEASE_S, TICK_S, Owner
from agent_magic.record.ledger.rows import (
    INSERT_ANSWER,
    READ_FILE,
    Texts,
    answer_row,
    chunk_of,
    file_in,
    most_input_tokens,
)
from agent_magic.record.prices import Prices, asked_usd

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from agent_magic.record.answer import Answer
    from agent_magic.record.events import Event
    from agent_magic.record.ledger.base import CallKey
    from agent_magic.record.ledger.database import Store
    from agent_magic.record.results import RunRecord

LARGE = 1 << 18
"""From here on a thread writes an answer: one of 10 MB takes a tenth of a second."""
BEATS = int(BEAT_S / TICK_S)
LOCKED_S = 30.0
"""How long a run waits for another process that has the file locked."""
LOOK_S = 0.05
KNOWN_CALL = (
    "SELECT t.run, t.state, t.began_at, t.data, CASE WHEN r.state = 'running' AND r.id != ? THEN r.owner END "
    "FROM tool_calls t LEFT JOIN runs r ON r.id = t.run WHERE t.key = ?"
)
CLOSE_CALLS = "UPDATE tool_calls SET state = 'over', data = NULL WHERE run = ? AND state = 'done' AND NOT pure"
"""Later runs repeat a finished call. Its result stays in the events of its run."""
INHERIT_CALLS = (
    "UPDATE tool_calls SET run = ?, agent = ?, number = -abs(number) WHERE state = 'done' AND NOT pure AND EXISTS "
    "(SELECT 1 FROM runs r JOIN calls c ON c.run = r.id WHERE r.uid = ? AND c.name = ? "
    "AND r.id = tool_calls.run AND c.agent = tool_calls.agent)"
)
"""Takes over the calls of an agent with a reused answer, with negative numbers, unlike new calls."""
PLANNED = (
    *("run", "agent", "number", "name", "model", "effort", "started_at", "reserved_input", "reserved_output"),
    *("prompt", "cascade"),
)
END = (
    *("state", "source", "stop_reason", "at_s", "input_tokens", "output_tokens", "ttft_s", "api_s", "cost_usd"),
    *("saved_usd", "kind", "answer"),
)


def _insert_call(columns: Sequence[str]) -> str:
    return f"INSERT INTO calls ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - ours


INSERT_PLANNED, INSERT_ENDED = _insert_call((*PLANNED, "state")), _insert_call((*PLANNED, *END))
UPDATE_END = f"UPDATE calls SET {' = ?, '.join(END)} = ? WHERE run = ? AND agent = ? AND number = ?"  # noqa: S608 - ours
UPDATE_FINISHED = (
    "UPDATE calls SET state = 'finished', source = ?, stop_reason = ?, at_s = ?, input_tokens = ?, output_tokens = ?, "
    "answer = ? WHERE run = ? AND agent = ? AND number = ?"
)
ARGUMENTS = "arguments"


class _Kept(NamedTuple):
    """An answer and its place; `row` is `None` until it is in the file."""

    agent: int
    number: int
    key: str
    ordinal: int
    answer: Answer
    at_s: float
    bought_at: float
    row: int | None = None


@dataclass(eq=False, slots=True)
class _Asked:
    """A request that waits for its start to be stored; `found` is what `ask` returns."""

    agent: int
    number: int
    fresh: bool
    found: Answer | Busy | None = None


class _Stored(NamedTuple):
    """How much of the run is in the file; `rows` are those of answers, by agent and attempt."""

    run: int | None
    events: int
    chunks: int
    rows: dict[tuple[int, int], int]


class SqliteJournal:
    """Records one run in a `SqliteLedger`; see `agent_magic.record.ledger.base.Journal`."""

    def __init__(self, store: Store, record: RunRecord, prices: Prices | None = None) -> None:
        self._ledger, self._record = store, record
        self._uid = record.uid
        record.keeper = partial(store.keep_bases, self._uid)
        self._prices = prices or Prices(tell=lambda _: None)
        self._keys: dict[int, tuple[str, int]] = {}
        self._leased: set[tuple[str, int]] = set()
        self._found: tuple[tuple[str, int], tuple[int | None, Answer]] | None = None  # by `is_held`, for `ask`
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._new: dict[tuple[int, int], _Kept] = {}
        self._asked: list[_Asked] = []
        self._in_memory: set[tuple[int, int]] = set()  # answers that could not be written
        self._large: dict[tuple[int, int], tuple[int, Future[int]]] = {}
        self._commits = self._synced = 0
        self._syncing: asyncio.Future[None] | None = None
        self._locked_since: float | None = None
        self._beats = itertools.count()
        self._is_over = False
        self._start_over()

    def _start_over(self) -> None:
        """A new file gets all that was paid for."""
        self._generation = self._ledger.generation
        self._stored = _Stored(None, 0, 0, {})
        self._texts = Texts()
        self._new = {place: one._replace(row=None) for place, one in self._kept.items()}

    async def ask(self, agent: int, number: int, key: str, ordinal: int, *, fresh: bool) -> Answer | Busy | None:
        self._keys[agent] = key, ordinal
        asked = _Asked(agent, number, fresh)
        try:
            if not fresh and (known := self._serve(agent, number)) is not None:
                return known
            self._asked.append(asked)
            await asyncio.sleep(0)  # what starts at this moment is stored in one transaction
            if asked in self._asked:
                self._ledger.attempt(self._start)
        except FAILURES as error:
            if self._may_wait(error):
                return Busy("another process has the ledger locked")
            raise LedgerError(
                f"Nothing was sent, because the ledger {self._ledger.file.name!r} cannot be written ({error}) and what "
                "is bought must not be lost. Make room, or go on without it: %config AgentMagics.ledger = ':memory:'."
            ) from error
        finally:
            if asked in self._asked:
                self._asked.remove(asked)
        return asked.found

    def _may_wait(self, error: Exception) -> bool:
        if not is_locked(error):
            return False
        now = time.monotonic()
        self._locked_since = now if self._locked_since is None else self._locked_since
        return now - self._locked_since < LOCKED_S

    def _serve(self, agent: int, number: int) -> Answer | None:
        place, known, self._found = self._keys[agent], self._found, None
        found = known[1] if known is not None and known[0] == place else self._ledger.lookup(*place)
        if found is None:
            return None
        row, answer = found
        if row is not None:
            self._stored.rows[agent, number] = row
        self._record.replays_simulation |= answer.source == "simulated"
        return replace(answer, source="ledger")

    def is_held(self, key: str, ordinal: int) -> bool:
        with suppress(*FAILURES):  # `ask` meets the error of the file
            found = self._ledger.lookup(key, ordinal)
            self._found = None if found is None else ((key, ordinal), found)
            return found is None and self._holder(key, ordinal) is not None
        return False

    def _holder(self, key: str, ordinal: int) -> Busy | None:
        sql = "SELECT run, owner, until FROM leases WHERE key = ? AND ordinal = ?"
        for run, owner, until in self._ledger.file.read(sql, key, ordinal):
            lease = (key, ordinal, run)
            if run != self._stored.run and self._ledger.leases.holds(lease, owner, until, time.time()):
                return Busy(owner)
        return None

    def _start(self) -> None:
        """Take the leases and record the starts, except where another run was quicker."""
        now, asked = time.time(), list(self._asked)
        with self._writing() as (db, run):
            found = [
                None if one.fresh else self._serve(one.agent, one.number) or self._lease(db, run, now, one.agent)
                for one in asked
            ]
            started = [one for one, known in zip(asked, found, strict=True) if known is None]
            db.executemany(
                "UPDATE calls SET state = 'started', key = ?, ordinal = ?, started_at = ? "
                "WHERE run = ? AND agent = ? AND number = ?",
                [(*self._keys[one.agent], now, run, one.agent, one.number) for one in started],
            )
        for one, known in zip(asked, found, strict=True):
            one.found = known
        self._asked.clear()
        if started:
            self._ledger.heartbeat.add(id(self), self._beat)

    def _lease(self, db: sqlite3.Connection, run: int, now: float, agent: int) -> Busy | None:
        key, ordinal = self._keys[agent]
        lease = (key, ordinal, run, self._ledger.owner, now + LEASE_S)
        if db.execute("INSERT OR IGNORE INTO leases VALUES (?, ?, ?, ?, ?)", lease).rowcount == 0:
            if (holder := self._holder(key, ordinal)) is not None:
                return holder
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", lease)
        self._leased.add((key, ordinal))
        return None

    def begin_call(self, agent: int, number: int, key: CallKey, *, fresh: bool) -> CallEnded | Doubt | Busy | None:
        try:
            return self._ledger.attempt(lambda: self._begin_call(agent, number, key, fresh=fresh))
        except FAILURES as error:
            if self._may_wait(error):
                return Busy("another process has the ledger locked")
            raise LedgerError(
                f"{key.tool} was not called, because the ledger {self._ledger.file.name!r} cannot be written ({error}) "
                "and nobody would know that it was. Make room, or go on without it: %config AgentMagics.ledger = "
                "':memory:'."
            ) from error

    def _begin_call(self, agent: int, number: int, key: CallKey, *, fresh: bool) -> CallEnded | Doubt | Busy | None:
        with self._writing() as (db, run):
            known = None if fresh else self._known_call(db, run, agent, number, key)
            if known is None:
                data = line_of({ARGUMENTS: key.arguments})
                row = (key.key, run, agent, number, key.tool, "begun", key.pure, time.time(), data)
                db.execute("INSERT OR REPLACE INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            elif isinstance(known, CallEnded):
                db.execute(
                    "UPDATE tool_calls SET run = ?, agent = ?, number = ? WHERE key = ?", (run, agent, number, key.key)
                )
        return known

    def _known_call(
        self, db: sqlite3.Connection, run: int, agent: int, number: int, key: CallKey
    ) -> CallEnded | Doubt | Busy | None:
        for begun_by, state, began_at, data, owner in db.execute(KNOWN_CALL, (run, key.key)):
            if owner is not None and not key.shared and Owner.parse(owner).is_alive():
                return None
            if state == "begun":
                if owner is not None and Owner.parse(owner).is_alive():  # another run is making it
                    return Busy(owner)
                if key.pure or (key.repeats and begun_by == run):  # it is tried once more, as its run knows
                    return None
                return Doubt(began_at, _arguments(data))
            if state == "done":
                end = from_json(CallEnded, {**data_of(data), "agent": agent, "number": number})
                end = end.with_files(lambda sha: file_in(db.execute(READ_FILE, (bytes.fromhex(sha),)).fetchall(), sha))
                return end._replace(source="ledger") if end.status == "succeeded" or not key.pure else None
        return None

    def made_by(self, key: CallKey) -> int | None:
        with suppress(*FAILURES):  # the call itself meets the error of the file
            rows = self._ledger.file.read("SELECT run FROM tool_calls WHERE key = ? AND state = 'over'", key.key)
            return rows[0][0] if rows else None
        return None

    def end_late(self, key: CallKey, end: CallEnded) -> None:
        data = line_of({**to_json(end), ARGUMENTS: key.arguments})
        sql = (
            "UPDATE tool_calls SET state = 'done', data = ? "
            "WHERE key = ? AND state = 'begun' AND run = ? AND agent = ? AND number = ?"
        )
        with suppress(*FAILURES), self._ledger.file.writing() as db:  # else it stays a doubt, as after a kill
            db.execute(sql, (data, key.key, self._stored.run, end.agent, end.number))

    def saved(self, place: str) -> str | None:
        with suppress(*FAILURES):  # then it is unknown
            rows = self._ledger.file.read("SELECT value FROM settings WHERE name = ?", f"saved {place}")
            return str(rows[0][0]) if rows else None
        return None

    def keep_saved(self, place: str, sha256: str) -> None:
        with suppress(*FAILURES), self._ledger.file.writing() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (f"saved {place}", sha256))

    def done_call(self, key: CallKey) -> Done | None:
        rows = self._ledger.file.read("SELECT data FROM tool_calls WHERE key = ? AND state = 'done'", key.key)
        return Done(_arguments(rows[0][0])) if rows else None

    def _beat(self) -> None:
        """Renew the leases and checkpoint the log, on a thread."""
        with suppress(*FAILURES):  # the next beat tries again, and the run itself meets the error of the file
            run, renewed = self._stored.run, time.time() + LEASE_S
            if self._is_over:
                self._ledger.attempt(self._finish)
                self._ledger.heartbeat.remove(id(self))
            elif run is not None and next(self._beats) % BEATS == 0:
                with self._ledger.file.writing() as db:
                    db.execute("UPDATE leases SET until = ? WHERE run = ?", (renewed, run))
            self._ledger.file.tidy()

    def keep(self, agent: int, number: int, answer: Answer, at_s: float) -> None:
        place = agent, number
        if place in self._kept:  # a stop has found it
            self._store_large(place)
            self.write()
            self._sync_now()
            return
        one = self._kept[place] = _Kept(agent, number, *self._keys[agent], answer, at_s, time.time())
        if len(answer.text) >= LARGE and self._ledger.file.is_logged and not in_browser():
            self._large[place] = self._generation, self._ledger.writer.submit(self._insert, one)
        else:
            self._new[place] = one

    def _insert(self, one: _Kept) -> int:
        row = answer_row(one.key, one.ordinal, one.answer, one.bought_at)
        with self._ledger.file.writing() as db:
            number = db.execute(INSERT_ANSWER, row).lastrowid or 0
        self._ledger.file.tidy()
        return number

    def _store_large(self, place: tuple[int, int]) -> None:
        """Write the answer here if the thread has not."""
        if place not in self._large:
            return
        generation, written = self._large.pop(place)
        row = None
        with suppress(*FAILURES):  # met again when it is stored here
            row = None if written.cancel() else written.result()
        self._new[place] = self._kept[place]._replace(row=row if generation == self._generation else None)
        self.write()

    async def on_disk(self, agent: int, number: int) -> None:
        place = agent, number
        if place in self._large:
            with suppress(*FAILURES):  # met again when it is stored here; a stop meanwhile finds the answer kept
                await asyncio.wrap_future(self._large[place][1])
            self._store_large(place)
        pause_s = 0.0  # answers that come at one moment are stored in one transaction
        while place in self._new and place not in self._in_memory:
            await asyncio.sleep(pause_s)
            if place in self._new:
                self.write()
            pause_s = LOOK_S  # another process has the file locked
        wanted = self._commits
        while self._synced < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.get_running_loop().run_in_executor(None, self._sync, self._commits)
            await asyncio.shield(self._syncing)

    def _sync(self, commits: int) -> None:
        try:
            self._ledger.file.sync()
        except OSError as error:
            self._ledger.warn(error)
        self._synced = max(self._synced, commits)

    def _sync_now(self) -> None:
        if self._synced < self._commits:
            self._sync(self._commits)

    def write(self) -> None:
        """Write what is waiting; failed writes are tried again with the next."""
        try:
            self._ledger.attempt(self._store)
        except FAILURES as error:
            if not self._may_wait(error):
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._ledger.warn(error)
        for place, one in self._new.items():
            self._in_memory.add(place)
            self._ledger.hold(one.key, one.ordinal, one.answer)

    def close(self) -> None:
        """Write the rest and close; if that fails, the heartbeat goes on trying."""
        for place in list(self._large):
            self._store_large(place)
        self._is_over = True
        if self._record.events:
            try:
                self._ledger.attempt(self._finish)
                self._sync_now()
            except FAILURES as error:
                self._give_up(error)
                self._ledger.heartbeat.add(id(self), self._beat)
                return
        self._ledger.heartbeat.remove(id(self))

    def _finish(self) -> None:
        record, terms = self._record, self._terms()
        ready = [one.ready_s for one in record.results if one.ready_s is not None]
        ends = [one.finished_s for one in record.results if one.attempts and one.finished_s is not None]
        wall_s = max(ends) - min(ready) if ends and ready else None
        succeeded = sum(one.status == "succeeded" for one in record.results)
        state = "running" if record.ended_s is None else "cut" if record.cut else "finished"
        with self._writing() as (db, run):
            db.execute(
                "UPDATE runs SET state = ?, simulated = ?, agents = ?, succeeded = ?, wall_s = ?, terms = ? "
                "WHERE id = ?",
                (state, record.simulated, len(record.rows), succeeded, wall_s, terms, run),
            )
            db.execute("DELETE FROM leases WHERE run = ?", (run,))
            if record.is_complete:  # until then the next run goes on with this one, and uses what its calls returned
                db.execute(CLOSE_CALLS, (run,))
        self._ledger.under_way.discard(run)

    def _store(self) -> None:
        with self._writing():
            pass

    @contextmanager
    def _writing(self) -> Generator[tuple[sqlite3.Connection, int]]:
        """Run a transaction; only its commit counts new events as stored."""
        if self._generation != self._ledger.generation:
            self._start_over()
        before, new = self._stored, dict(self._new)
        with self._ledger.file.writing() as db:
            run = before.run if before.run is not None else self._begin(db)
            rows = {place: _store_answer(db, one) for place, one in new.items()}
            events = self._record.events[before.events :]
            self._store_events(db, run, before.chunks, events, ChainMap(rows, before.rows))
            db.executemany(UPDATE_FINISHED, [_finished(run, one, rows[place]) for place, one in new.items()])
            self._release(db, run, [(one.key, one.ordinal) for one in new.values()])
            yield db, run
        before.rows.update(rows)
        if before.run is None:
            self._ledger.under_way.add(run)
        self._stored = _Stored(run, before.events + len(events), before.chunks + bool(events), before.rows)
        self._texts.stored()
        for place, one in new.items():
            del self._new[place]
            self._ledger.held.pop((one.key, one.ordinal), None)
        bought = any(one.answer.source != "simulated" for one in new.values())  # a simulated answer is no loss
        self._commits += bought and self._ledger.file.is_logged
        self._locked_since = None

    def _begin(self, db: sqlite3.Connection) -> int:
        record = self._record
        plan = self._texts.name(line_of(plan_to_dict(record.plan)))
        for one in attachments_of(record.plan).values():
            self._texts.attach(one)
        self._texts.store(db)
        where = urlsplit(record.origin)  # kept without credentials, even if a client has them
        origin = where._replace(netloc=where.netloc.rpartition("@")[2], query="", fragment="").geturl()
        began, models = record.began_at.isoformat(), "\n".join(one.model for one in record.results)
        home = record.home or self._ledger.home
        for (run,) in db.execute("SELECT id FROM runs WHERE uid = ?", (self._uid,)).fetchall():  # a recovered file
            db.execute("DELETE FROM calls WHERE run = ?", (run,))
            db.execute("DELETE FROM events WHERE run = ?", (run,))
            return run
        head = (self._uid, self._ledger.owner, home, began, record.plan.name, len(record.plan), origin, plan)
        sql = (
            "INSERT INTO runs (uid, owner, home, began_at, plan_name, agents, origin, plan, models, terms, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running')"
        )
        return db.execute(sql, (*head, models, self._terms())).lastrowid or 0

    def _terms(self) -> str | None:
        return None if self._record.terms is None else line_of(to_json(self._record.terms))

    def _store_events(
        self, db: sqlite3.Connection, run: int, place: int, events: Sequence[Event], rows: Mapping[tuple[int, int], int]
    ) -> None:
        if not events:
            return
        chunk = chunk_of(events, self._texts, rows)
        self._texts.store(db)
        db.execute("INSERT INTO events VALUES (?, ?, ?)", (run, place, chunk))
        # What begins and ends in one chunk, such as an answer of the ledger, is written once.
        begun = {(event.agent, event.number): event for event in events if isinstance(event, AttemptStarted)}
        over: list[tuple[object, ...]] = []
        whole: list[tuple[object, ...]] = []
        ended = [event for event in events if isinstance(event, AttemptEnded)]
        for event in ended:
            end = self._end(event, rows)
            if (start := begun.pop((event.agent, event.number), None)) is None:
                over.append((*end, run, event.agent, event.number))
            else:
                whole.append((*self._planned(run, start), *end))
        db.executemany(UPDATE_END, over)
        db.executemany(INSERT_ENDED, whole)
        db.executemany(INSERT_PLANNED, [(*self._planned(run, event), "planned") for event in begun.values()])
        # The lease of a kept answer ends with it.
        gone = [one.agent for one in ended if (one.agent, one.number) not in self._kept]
        self._release(db, run, [self._keys[one] for one in gone if one in self._keys])
        if self._record.resumes:
            reused = [one.agent for one in ended if one.answer and one.price == PAID_BEFORE]
            names = [(run, one, self._record.resumes, self._record.results[one].name) for one in reused]
            db.executemany(INHERIT_CALLS, names)
        for event in events:
            if isinstance(event, CallEnded) and event.status != "cancelled" and event.kind != IN_DOUBT:
                # The others may have finished: they stay begun, which is a doubt.
                arguments = self._record.results[event.agent].call(event.number).arguments
                data = line_of({**to_json(event), ARGUMENTS: arguments})
                done = (data, run, event.agent, event.number)
                sql = "UPDATE tool_calls SET state = 'done', data = ? WHERE run = ? AND agent = ? AND number = ?"
                db.execute(sql, done)

    def _planned(self, run: int, event: AttemptStarted) -> tuple[object, ...]:
        request, step = event.request, self._record.plan.agents[event.agent]
        return (
            *(run, event.agent, event.number, step.name, request.model, request.effort, time.time()),
            *(most_input_tokens(request), request.max_tokens, prompt_of(step), cascade_of(step) or None),
        )

    def _end(self, event: AttemptEnded, rows: Mapping[tuple[int, int], int]) -> tuple[object, ...]:
        attempts = self._record.results[event.agent].attempts
        attempt = next(one for one in reversed(attempts) if one.number == event.number)
        usage, answer = event.usage, event.answer
        state = "finished" if answer else "cancelled" if event.kind == "cancelled" else "failed"
        saved = asked_usd(attempt, self._prices) if event.price == PAID_BEFORE else None
        reason, output = answer.stop_reason if answer else None, usage.output_tokens if usage else None
        return (
            *(state, event.source, reason, event.at_s, usage.total_input_tokens if usage else None, output),
            *(attempt.ttft_s, None if answer and answer.batch else attempt.duration_s),  # a batch measures no model
            *(event.price.cost_usd, saved, event.kind, rows.get((event.agent, event.number))),
        )

    def _release(self, db: sqlite3.Connection, run: int, keys: Iterable[tuple[str, int]]) -> None:
        leased = [(*one, run) for one in keys if one in self._leased]
        db.executemany("DELETE FROM leases WHERE key = ? AND ordinal = ? AND run = ?", leased)


def _arguments(data: str | None) -> str | None:
    return None if data is None else data_of(data).get(ARGUMENTS)


def _finished(run: int, one: _Kept, row: int) -> tuple[object, ...]:
    usage = one.answer.usage
    return (
        *(one.answer.source, one.answer.stop_reason, one.at_s, usage.total_input_tokens, usage.output_tokens),
        *(row, run, one.agent, one.number),
    )


def _store_answer(db: sqlite3.Connection, one: _Kept) -> int:
    if one.row is not None:
        return one.row
    return db.execute(INSERT_ANSWER, answer_row(one.key, one.ordinal, one.answer, one.bought_at)).lastrowid or 0
