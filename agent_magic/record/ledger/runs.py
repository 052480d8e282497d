"""Past runs of a ledger: listed, opened again, and completed if their process was killed."""

from __future__ import annotations

import math
import time
import warnings
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent_magic.declare.edges import PlanWarning
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_dict
from agent_magic.declare.units import dollars, plural
from agent_magic.errors import LedgerError
from agent_magic.record.answer import ESCALATED, NOTHING_USED, TOOL_USE, TURNS, Answer, Price, Usage
from agent_magic.record.codec import data_of, from_json
from agent_magic.record.events import AgentEnded, AttemptEnded, CallEnded, RunEnded
from agent_magic.record.files import shown_home
from agent_magic.record.history import MEASURED, MOST_RUNS, Exchange, Past, SeenRun
from agent_magic.record.ledger.batches import name_of, open_batches
from agent_magic.record.ledger.lease import SKEW_S, Owner
from agent_magic.record.ledger.rows import ANSWER_OF_ID, READ_FILE, answer_of, decode, events_of, file_in
from agent_magic.record.prices import Prices, of_batch
from agent_magic.record.results import Base, Kind, RunRecord
from agent_magic.record.terms import Terms, checked_terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.record.answer import Status
    from agent_magic.record.facts import Attempt
    from agent_magic.record.ledger.file import LedgerFile, Row

P = TypeVar("P", bound=Plan)
DAY_S = 86400.0
MOST_RUN = 1 << 63
"""SQLite has no larger integers."""
KILLED = "the kernel was killed while this was under way"
MAYBE = "the kernel was killed while this ran: it may have finished"
NEVER = "the kernel was killed before this could run"
SEEN_CALLS = f"""SELECT model, at_s, api_s, ttft_s, input_tokens, output_tokens,
    state = 'finished' AND (kind IS NULL OR kind = '{ESCALATED}'), source = 'simulated' FROM calls
    WHERE run = ? AND key IS NOT NULL AND at_s IS NOT NULL AND api_s IS NOT NULL
    AND (answer IS NOT NULL OR ttft_s IS NOT NULL OR kind IN ('cancelled', 'Late'))"""  # noqa: S608 - ours
"""The requests that a server worked on, as `agent_magic.record.history.exchange_of` has them."""
UNDER_WAY = frozenset({"started", "unknown"})


class PastRun(NamedTuple):
    """One run of a ledger, in one row.

    Attributes:
        run: Its number, for `open`.
        began_at: Its start, in UTC, as ISO text.
        state: `running`, `finished`, `cut`, or `lost` if its kernel was killed.
        agents: Number of agents; after the run, of those that were used, as in its frames.
        succeeded: Number of agents with a complete answer that was not refused.
        calls: Requests sent, without answers from the ledger.
        served: Answers bought before.
        unknown: Requests that were under way when the kernel was killed, and may have been billed.
        wall_s: First ready to last finished; `None` if the run was lost.
        tokens, cost_usd: Of the requests sent, as far as known; 0 if all answers were bought before.
        saved_usd: Dollars saved by serving answers again; `None` if there are none.
        simulated: True if any attempt was simulated; `None` if it was stopped before any answer.
        home: Its notebook or script; see `agent_magic.record.files`. Empty in older ledgers.
    """

    run: int
    began_at: str
    plan: str
    state: str
    agents: int
    succeeded: int
    calls: int
    served: int
    unknown: int
    wall_s: float | None
    tokens: int | None
    cost_usd: float | None
    saved_usd: float | None
    simulated: bool | None
    home: str = ""

    @property
    def notebook(self) -> str:
        """Its notebook or script, as displayed."""
        return shown_home(self.home)


def past_runs(file: LedgerFile, newest_of: str | None = None) -> list[PastRun]:
    """Return all, the newest first; or the newest of a home only, if it has one."""
    rows = file.read(
        "SELECT r.owner, r.id, r.began_at, r.plan_name, r.state, r.agents, "
        "coalesce(r.succeeded, "
        "  count(DISTINCT CASE WHEN c.state = 'finished' AND c.stop_reason NOT IN ('refusal', 'tool_use') "
        "  THEN c.agent END)), "
        "count(c.key), coalesce(sum(c.key IS NULL AND c.state = 'finished' AND c.source != 'shared'), 0), "
        "coalesce(sum(c.state IN ('unknown', 'started')), 0), r.wall_s, "
        "sum(CASE WHEN c.key IS NOT NULL THEN c.input_tokens + c.output_tokens END), "
        "sum(CASE WHEN c.key IS NOT NULL THEN c.cost_usd END), "
        "sum(c.saved_usd), max(c.source = 'simulated'), coalesce(r.home, '') "
        "FROM runs r LEFT JOIN calls c ON c.run = r.id "
        "WHERE ?1 IS NULL OR r.id = (SELECT max(id) FROM runs WHERE home = ?1) GROUP BY r.id ORDER BY r.id DESC",
        newest_of,
    )
    return [_past_run(owner, PastRun(*row)) for owner, *row in rows]


def _past_run(owner: str, row: PastRun) -> PastRun:
    if row.served and not row.calls and not row.unknown:  # nothing was sent, which is known
        row = row._replace(tokens=0, cost_usd=0.0)
    is_lost = row.state == "lost" or (row.state == "running" and Owner.parse(owner).is_alive() is False)
    return row._replace(
        began_at=datetime.fromisoformat(row.began_at).isoformat(timespec="seconds"),
        state="lost" if is_lost else row.state,
        unknown=row.unknown if is_lost else 0,
        simulated=None if row.simulated is None else bool(row.simulated),
    )


def mark_lost_runs(file: LedgerFile) -> list[str]:
    """Return a note for each with requests that may have been billed."""
    if not file.read("SELECT 1 FROM runs WHERE state = 'running' LIMIT 1"):
        return []
    notes: list[str] = []
    at_provider = {name for one in open_batches(file) for name in one.names}
    with file.writing() as db:
        runs: list[Row] = db.execute(
            "SELECT id, began_at, owner, (SELECT max(until) FROM leases WHERE run = runs.id), "
            "(SELECT count(*) FROM calls WHERE run = runs.id AND state = 'finished' AND key IS NOT NULL) "
            "FROM runs WHERE state = 'running' ORDER BY id"
        ).fetchall()
        for run, began, owner, until, finished in runs:
            if not _is_gone(owner, began, until):
                continue
            calls: list[Row] = db.execute(
                "SELECT model, reserved_input, reserved_output, key, ordinal FROM calls "
                "WHERE run = ? AND state = 'started'",
                (run,),
            ).fetchall()
            db.execute("UPDATE calls SET state = 'unknown' WHERE run = ? AND state = 'started'", (run,))
            db.execute("UPDATE runs SET state = 'lost' WHERE id = ?", (run,))
            db.execute("DELETE FROM leases WHERE run = ?", (run,))
            batched = [one for one in calls if at_provider and name_of(*one[3:]) in at_provider]
            live = [one[:3] for one in calls if one not in batched]
            notes += [_lost_note(run, began, finished, live)] * bool(live)
            notes += [_batched_note(run, len(batched))] * bool(batched)
    return notes


def _batched_note(run: int, count: int) -> str:
    what = "1 request" if count == 1 else f"{count:,} requests"
    return (
        f"{what} of run {run}, whose kernel ended, went by batch: a run with --batch that asks the same collects "
        "their answers, or %agents batches collect. They are paid for once."
    )


def _lost_note(run: int, began_at: str, finished: int, calls: list[Row]) -> str:
    were, they = ("was", "it") if len(calls) == 1 else ("were", "they")
    prices = Prices(tell=lambda _: None)
    costs = [prices.of(model, Usage(given, output_tokens=produced)).cost_usd for model, given, produced in calls]
    known = [cost for cost in costs if cost is not None]
    most = f", for at most {dollars(math.fsum(known))} at list price" if len(known) == len(costs) else ""
    return (
        f"{plural(len(calls), 'call')} {were} in flight when the kernel of run {run} "
        f"({datetime.fromisoformat(began_at):%Y-%m-%d %H:%M} UTC) ended: {they} may have been billed{most}. "
        f"Its {plural(finished, 'finished answer')} {'is' if finished == 1 else 'are'} in the ledger."
    )


def _is_gone(owner: str, began_at: str, until: float | None) -> bool:
    """Return whether a run's process is gone; on another machine its leases tell."""
    alive = Owner.parse(owner).is_alive()
    if alive is None:
        ends = datetime.fromisoformat(began_at).timestamp() + DAY_S if until is None else until + SKEW_S
        return time.time() > ends
    return not alive


def history_of(file: LedgerFile, most: int) -> list[Past]:
    """Return answers, oldest first, without refusals and shared ones."""
    marks = ", ".join("?" * len(MEASURED))
    rows = file.read(
        "SELECT c.name, c.model, c.effort, c.input_tokens, c.output_tokens, c.ttft_s, c.api_s, "  # noqa: S608 - ours
        f"c.source = 'simulated', c.stop_reason = '{TOOL_USE}', r.uid, c.at_s, c.run, "
        "coalesce(c.prompt, ''), coalesce(c.cascade, '') "
        "FROM calls c JOIN runs r ON r.id = c.run "
        "WHERE c.state = 'finished' AND c.key IS NOT NULL AND c.stop_reason != 'refusal' AND c.api_s IS NOT NULL "
        f"AND c.source IN ({marks}) ORDER BY c.id DESC LIMIT ?",
        *sorted(MEASURED),
        most,
    )
    found = [
        Past(
            *row[:7],
            simulated=bool(row[7]),
            calls=bool(row[8]),
            run=row[9],
            ended_s=row[10] or 0.0,
            prompt=row[12],
            cascade=row[13],
        )
        for row in reversed(rows)
    ]
    simulated = {row[11]: bool(row[7]) for row in rows}
    if simulated:
        sql = (
            "SELECT name, model, effort, run, coalesce(prompt, '') FROM calls "
            "WHERE source = 'shared' AND state = 'finished' AND run >= ? ORDER BY id DESC LIMIT ?"
        )
        found += [
            Past(name, model, effort, None, None, None, 0.0, simulated=simulated[run], shared=True, prompt=prompt)
            for name, model, effort, run, prompt in reversed(file.read(sql, min(simulated), most))
            if run in simulated
        ]
    return found


def seen_runs(file: LedgerFile, origin: str, most: int) -> list[SeenRun]:
    """Return the latest, oldest first, up to about this many requests."""
    runs = file.read(
        "SELECT id, uid, agents FROM runs WHERE origin = ? AND state != 'running' ORDER BY id DESC LIMIT ?",
        origin,
        MOST_RUNS,
    )
    found: list[SeenRun] = []
    for run, uid, agents in runs:
        if (most := most - agents) < 0 and found:
            break
        rows = file.read(SEEN_CALLS, run)
        exchanges: dict[tuple[str, str], list[Exchange]] = {}
        for model, at_s, api_s, ttft_s, given, made, whole, _ in rows:
            sent_s = at_s - api_s
            first_s = None if ttft_s is None else sent_s + ttft_s
            one = Exchange(sent_s, first_s, at_s, given or 0, made or 0, whole=bool(whole))
            exchanges.setdefault(("", model), []).append(one)
        if exchanges:
            found.append(SeenRun(uid, origin, any(row[-1] for row in rows), exchanges))
    return found[::-1]


def open_run(file: LedgerFile, run: int, kind: type[P]) -> tuple[RunRecord, P, str]:
    columns = "began_at, plan, models, origin, state, owner, simulated, terms, bases, uid, coalesce(home, '')"
    began, plan_sha, models, origin, state, owner, simulated, terms, bases, uid, home = _row_of(file, run, columns)
    texts: dict[bytes, str] = {}

    def text_of(name: bytes) -> str:
        if name not in texts:
            found = file.read("SELECT text FROM texts WHERE sha = ?", name)
            texts[name] = decode(found[0][0]) if found else "(this text is lost)"
        return texts[name]

    files: dict[str, bytes] = {}

    def file_of(name: str) -> bytes:
        if name not in files:
            files[name] = file_in(file.read(READ_FILE, bytes.fromhex(name)), name)
        return files[name]

    plan = _plan(text_of(plan_sha), run, kind, file_of)
    record = RunRecord(plan, began_at=datetime.fromisoformat(began), models=models.split("\n"), origin=origin)
    for (chunk,) in file.read("SELECT data FROM events WHERE run = ? ORDER BY place", run):
        for event in events_of(chunk, text_of, lambda row: _answer_at(file, row), file_of):
            record.add(event)
    if record.ended_s is None and (state == "lost" or not Owner.parse(owner).is_alive()):
        _complete(record, file, run)
    with suppress(ValueError):  # of a version that had others
        record.terms = None if terms is None else checked_terms(from_json(Terms, data_of(terms)))
    with suppress(ValueError):
        record.bases = {} if bases is None else from_json(dict[Kind, Base], data_of(bases))
    record.uid, record.home = uid, home
    record.replays_simulation = bool(simulated) and not record.simulated
    return record, plan, uid


def plan_of(file: LedgerFile, run: int, kind: type[P]) -> P:
    """Leave out the bytes of its attachments."""
    (sha,) = _row_of(file, run, "plan")
    found = file.read("SELECT text FROM texts WHERE sha = ?", sha)
    return _plan(decode(found[0][0]) if found else "", run, kind, lambda _: b"")


def _row_of(file: LedgerFile, run: int, columns: str) -> Row:
    sql = f"SELECT {columns} FROM runs WHERE id = ?"  # noqa: S608 - columns of ours
    rows = file.read(sql, run) if type(run) is int and abs(run) < MOST_RUN else []
    if not rows:
        raise LedgerError(f"There is no run {run!r} in the ledger. %agents runs lists them.")
    return rows[0]


def _plan(text: str, run: int, kind: type[P], file_of: Callable[[str], bytes]) -> P:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlanWarning)  # they were shown when it ran
            return plan_from_dict(data_of(text), kind, file_of)
    except Exception as error:
        raise LedgerError(f"The plan of run {run} cannot be read any more: {error}") from error


def _answer_at(file: LedgerFile, row: int) -> Answer | None:
    for found in file.read(ANSWER_OF_ID, row):
        with suppress(ValueError):
            return answer_of(found)
    return None


class _Call(NamedTuple):
    state: str = "unknown"
    row: int | None = None
    at_s: float | None = None


def _complete(record: RunRecord, file: LedgerFile, run: int) -> None:
    """Give a killed run its finished answers, and a reason for the missing ones."""
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
        for call in result.calls:
            if call.ended is None:
                record.add(CallEnded(last, agent, call.number, "cancelled", "", MAYBE, "unknown", "live"))
        if result.finished_s is None:
            asked = result.attempts[-1] if result.attempts else None
            status = asked.status if asked else "unknown" if result.calls else None
            if asked is not None and asked.answer is not None and asked.answer.stop_reason in TURNS:
                status = "unknown"  # a turn is no answer
            record.add(_agent_end(agent, last, status, result.status))
    record.add(RunEnded(last, cut=True))


def _end_of(agent: int, attempt: Attempt, at_s: float, answer: Answer | None, *, sent: bool) -> AttemptEnded:
    if answer is not None:
        price = Prices(tell=lambda _: None).of_answer(attempt.model, answer.model, answer.usage)
        price = of_batch(price, answer.usage) if answer.batch else price
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
