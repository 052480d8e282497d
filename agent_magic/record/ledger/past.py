"""Past runs of a ledger's file: listed, brought back, counted where they were lost."""

from __future__ import annotations

import math
import time
import warnings
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.links import PlanWarning
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_json
from agent_magic.errors import LedgerError
from agent_magic.record.answer import NOTHING_USED, Answer, Price, Usage
from agent_magic.record.base import Base, Kind
from agent_magic.record.codec import data_of, from_json
from agent_magic.record.events import AgentEnded, AttemptEnded, RunEnded
from agent_magic.record.history import MEASURED, Past
from agent_magic.record.ledger.base import PastRun
from agent_magic.record.ledger.rows import answer_of, decoded, events_of
from agent_magic.record.ledger.schema import ANSWER_COLUMNS
from agent_magic.record.owner import Owner
from agent_magic.record.prices import Prices
from agent_magic.record.results import RunRecord
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from agent_magic.record.answer import Status
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.ledger.file import Row, StoreFile

DAY_S = 86400.0
MOST_RUN = 1 << 63
"""SQLite has no larger whole numbers."""
KILLED = "the kernel was killed while this was under way"
NEVER = "the kernel was killed before this could run"
UNDER_WAY = frozenset({"started", "unknown"})


class Lost(NamedTuple):
    """A run whose process was killed.

    Attributes:
        run: Its number.
        began_at: When, in UTC, as ISO text.
        plan: The plan's name.
        finished: How many of its requests had been answered.
        unknown: How many were under way: they may have been billed.
        at_most_usd: What those can have cost at most, at list price; `None` where a price is unknown.
    """

    run: int
    began_at: str
    plan: str
    finished: int
    unknown: int
    at_most_usd: float | None


def past_runs(file: StoreFile) -> list[PastRun]:
    """Return every run, the newest first."""
    rows = file.read(
        "SELECT r.id, r.began_at, r.plan_name, r.state, r.agents, r.succeeded, r.wall_s, r.owner, "
        "count(c.key), sum(c.key IS NULL AND c.state = 'finished'), "
        "sum(c.state IN ('unknown', 'started')), "
        "sum(CASE WHEN c.key IS NOT NULL THEN c.input_tokens + c.output_tokens END), "
        "sum(CASE WHEN c.key IS NOT NULL THEN c.cost_usd END), "
        "sum(c.saved_usd), max(c.source = 'simulated'), "
        "count(DISTINCT CASE WHEN c.state = 'finished' AND c.stop_reason != 'refusal' THEN c.agent END) "
        "FROM runs r LEFT JOIN calls c ON c.run = r.id GROUP BY r.id ORDER BY r.id DESC"
    )
    return [_past_run(row) for row in rows]


def _past_run(row: Row) -> PastRun:
    run, began, plan, state, agents, succeeded, wall_s, owner, *sums, answered = row
    calls, served, unknown, tokens, cost, saved, simulated = sums
    if state == "running" and Owner.parse(owner).is_alive() is False:
        state = "lost"
    return PastRun(
        run,
        datetime.fromisoformat(began).isoformat(timespec="seconds"),
        plan,
        state,
        agents,
        answered if succeeded is None else succeeded,
        calls or 0,
        served or 0,
        (unknown or 0) if state == "lost" else 0,
        wall_s,
        tokens,
        cost,
        saved,
        bool(simulated),
    )


def lost_runs(file: StoreFile) -> list[Lost]:
    """Find the runs whose process is gone, write down that they are lost, and what was under way as unknown."""
    found: list[Lost] = []
    if not file.read("SELECT 1 FROM runs WHERE state = 'running' LIMIT 1"):
        return found
    with file.writing() as db:
        rows: list[Row] = db.execute(
            "SELECT id, began_at, plan_name, owner FROM runs WHERE state = 'running' ORDER BY id"
        ).fetchall()
        for run, began, plan, owner in rows:
            until: Any = db.execute("SELECT max(until) FROM leases WHERE run = ?", (run,)).fetchone()[0]
            if not _is_gone(owner, began, until):
                continue
            calls: list[Row] = db.execute(
                "SELECT model, reserved_input, reserved_output FROM calls WHERE run = ? AND state = 'started'", (run,)
            ).fetchall()
            finished: Any = db.execute(
                "SELECT count(*) FROM calls WHERE run = ? AND state = 'finished' AND key IS NOT NULL", (run,)
            ).fetchone()[0]
            db.execute("UPDATE calls SET state = 'unknown' WHERE run = ? AND state = 'started'", (run,))
            db.execute("UPDATE runs SET state = 'lost' WHERE id = ?", (run,))
            db.execute("DELETE FROM leases WHERE run = ?", (run,))
            found.append(Lost(run, began, plan, finished, len(calls), _at_most_usd(calls)))
    return found


def lost_note(lost: Lost) -> str:
    """Say what was under way when a kernel was killed; an empty string where nothing was."""
    if not lost.unknown:
        return ""
    calls = "1 call was" if lost.unknown == 1 else f"{lost.unknown:,} calls were"
    most = "" if lost.at_most_usd is None else f", for at most ${lost.at_most_usd:.4f} at list price"
    began = datetime.fromisoformat(lost.began_at)
    return (
        f"{calls} in flight when the kernel of run {lost.run} ({began:%Y-%m-%d %H:%M} UTC) ended: they may have been "
        f"billed{most}. Its {lost.finished:,} finished answers are in the ledger."
    )


def _is_gone(owner: str, began_at: str, until: float | None) -> bool:
    """Tell whether the process of a run is gone. On another machine only its leases can tell."""
    alive = Owner.parse(owner).is_alive()
    if alive is None:
        return time.time() > (until or datetime.fromisoformat(began_at).timestamp() + DAY_S)
    return not alive


def _at_most_usd(calls: list[Row]) -> float | None:
    """Price the most that requests can have used."""
    prices = Prices(tell=lambda _: None)
    costs = [prices.of(model, Usage(given, output_tokens=produced)).cost_usd for model, given, produced in calls]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if len(known) == len(costs) else None


def history_rows(file: StoreFile, most: int) -> list[Past]:
    """Return what the latest answers took, oldest first; refusals left out."""
    marks = ", ".join("?" * len(MEASURED))
    rows = file.read(
        "SELECT name, model, effort, input_tokens, output_tokens, ttft_s, api_s, source FROM calls "  # noqa: S608 - ours
        "WHERE state = 'finished' AND key IS NOT NULL AND stop_reason != 'refusal' AND api_s IS NOT NULL "
        f"AND source IN ({marks}) ORDER BY id DESC LIMIT ?",
        *sorted(MEASURED),
        most,
    )
    return [Past(*row[:7], simulated=row[7] == "simulated") for row in reversed(rows)]


def record_of(file: StoreFile, run: int) -> tuple[RunRecord, str]:
    """Bring a run back, as its events tell it, and its `uid`.

    Raises:
        LedgerError: There is none of this number.
    """
    sql = "SELECT began_at, plan, models, origin, state, owner, simulated, terms, bases, uid FROM runs WHERE id = ?"
    rows = file.read(sql, run) if type(run) is int and abs(run) < MOST_RUN else []
    if not rows:
        raise LedgerError(f"There is no run {run!r} in the ledger. %agents runs lists them.")
    began, plan, models, origin, state, owner, simulated, terms, bases, uid = rows[0]
    texts: dict[bytes, str] = {}

    def text_of(name: bytes) -> str:
        if name not in texts:
            found = file.read("SELECT text FROM texts WHERE sha = ?", name)
            texts[name] = decoded(found[0][0]) if found else "(this text is lost)"
        return texts[name]

    record = RunRecord(
        _plan(text_of(plan), run), began_at=datetime.fromisoformat(began), models=models.split("\n"), origin=origin
    )
    for (chunk,) in file.read("SELECT data FROM events WHERE run = ? ORDER BY place", run):
        for event in events_of(chunk, text_of, lambda row: _answer_at(file, row)):
            record.add(event)
    if record.ended_s is None and (state == "lost" or not Owner.parse(owner).is_alive()):
        _bury(record, file, run)
    if terms is not None:
        with suppress(ValueError):  # of a version that had others
            record.terms = from_json(Terms, data_of(terms))
    if bases is not None:
        with suppress(ValueError):
            record.bases = from_json(dict[Kind, Base], data_of(bases))
    record.replays_simulation = bool(simulated) and not record.simulated
    return record, uid


def _plan(text: str, run: int) -> Plan:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlanWarning)  # they were shown when it ran
            return plan_from_json(text, Plan)
    except Exception as error:
        raise LedgerError(f"The plan of run {run} cannot be read any more: {error}") from error


def _answer_at(file: StoreFile, row: int) -> Answer | None:
    """Read an answer by its row; `None` where it is damaged or gone."""
    for found in file.read(f"SELECT {ANSWER_COLUMNS} FROM answers WHERE id = ?", row):  # noqa: S608 - ours
        try:
            return answer_of(found)
        except ValueError:
            return None
    return None


class _Call(NamedTuple):
    """What the file says of an attempt whose end it has not got."""

    state: str = "unknown"
    row: int | None = None
    at_s: float | None = None


def _bury(record: RunRecord, file: StoreFile, run: int) -> None:
    """Complete the record of a run that was killed: what had finished is there, and the rest says why it is not."""
    rows = file.read("SELECT agent, number, state, answer, at_s FROM calls WHERE run = ?", run)
    calls = {(row[0], row[1]): _Call(*row[2:]) for row in rows}
    last = max([0.0, *(event.at_s for event in record.events), *(one.at_s or 0.0 for one in calls.values())])
    for agent, result in enumerate(record.results):
        attempt = result.attempts[-1] if result.attempts else None
        if attempt is not None and attempt.ended_s is None:
            call = calls.get((agent, attempt.number), _Call())
            answer = _answer_at(file, call.row) if call.row is not None else None
            at_s = last if call.at_s is None else call.at_s
            record.add(_end_of(agent, attempt, at_s, answer, sent=call.state in UNDER_WAY))
        if result.finished_s is None:
            status = result.attempts[-1].status if result.attempts else None
            record.add(_agent_end(agent, last, status, result.status))
    record.add(RunEnded(last, cut=True))


def _end_of(agent: int, attempt: Attempt, at_s: float, answer: Answer | None, *, sent: bool) -> AttemptEnded:
    """Write the end of an attempt whose process was killed."""
    if answer is not None:
        price = Prices(tell=lambda _: None).of(attempt.model, answer.usage)
        refused = answer.stop_reason == "refusal"
        error, kind = ("Refused: The model declined to answer.", "Refused") if refused else (None, None)
        return AttemptEnded(
            at_s, agent, attempt.number, answer, error, kind, "", answer.usage, price, answer.source, None
        )
    if sent:
        return AttemptEnded(
            at_s, agent, attempt.number, None, KILLED, "unknown", "", None, Price(None, "unknown"), None, None
        )
    free = Price(0.0, "not billed")
    return AttemptEnded(at_s, agent, attempt.number, None, NEVER, "cancelled", "", NOTHING_USED, free, None, None)


def _agent_end(agent: int, at_s: float, attempt: str | None, status: Status) -> AgentEnded:
    if attempt == "succeeded":
        return AgentEnded(at_s, agent, "succeeded", None)
    if attempt == "failed" and status == "running":
        return AgentEnded(at_s, agent, "failed", KILLED)
    return AgentEnded(at_s, agent, "cancelled", NEVER if attempt is None else KILLED)
