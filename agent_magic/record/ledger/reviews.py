"""What people and graders made of answers, in a ledger: edits, and grades by which later sessions choose a model.

A renamed notebook has a new home, so edits of a notebook that does not exist any more count too, and become the new
home's when they are used.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from agent_magic.record.answer import Answer
from agent_magic.record.codec import from_json, to_json
from agent_magic.record.files import is_file
from agent_magic.record.ledger.file import FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.record.ledger.database import Store


Edits: TypeAlias = "Mapping[tuple[str, str], Answer]"
"""By agent and fingerprint of its first request."""
KEEP = "INSERT OR REPLACE INTO edits VALUES (?, ?, ?, ?, ?)"
ADOPT = "INSERT OR IGNORE INTO edits VALUES (?, ?, ?, ?, ?)"
READ = "SELECT home, agent, key, data FROM edits ORDER BY at"
IS_OWN = "SELECT 1 FROM edits WHERE home = ? AND agent = ? AND key = ?"
DROP = "DELETE FROM edits WHERE home = ? AND agent = ?"
DROP_ONE = "DELETE FROM edits WHERE home = ? AND agent = ? AND key = ?"


def edited(answer: Answer, text: str) -> Answer:
    original = answer.original if answer.edited else answer.text
    return replace(
        answer,
        text=text,
        stop_reason="end_turn",
        source="edited",
        refusal=None,
        content=None,
        citations=(),
        edited=True,
        original=original,
    )


class EditRows:
    """The edits of one notebook or script in a ledger's file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(self, agent: str, key: str, answer: Answer) -> None:
        row = (self._store.home, agent, key, time.time(), json.dumps(to_json(answer)))
        self._store.patiently(lambda: self._store.insert(KEEP, *row))

    def adopt(self, agent: str, key: str, answer: Answer) -> None:
        """Store an edit used here that is from an earlier name of the notebook."""
        with suppress(*FAILURES):  # it counts in this run, and the next one tries again
            own = self._store.file.read(IS_OWN, self._store.home, agent, key)
            if not own:
                self._store.insert(ADOPT, self._store.home, agent, key, time.time(), json.dumps(to_json(answer)))

    def drop(self, agent: str, key: str) -> None:
        home = self._store.home
        self._store.patiently(lambda: self._store.insert(DROP, home, agent))
        gone = [other for other, name, one, _ in self._rows() if (name, one) == (agent, key) and other != home]
        for other in gone:
            self._store.patiently(lambda other=other: self._store.insert(DROP_ONE, other, agent, key))

    def read(self) -> Edits:
        """Return the decisions; none if the file is unreadable, which a run reports."""
        try:
            own, others = dict[tuple[str, str], Answer](), dict[tuple[str, str], Answer]()
            for home, agent, key, data in self._rows():
                found = own if home == self._store.home else others
                found[agent, key] = from_json(Answer, json.loads(data))
        except (sqlite3.Error, OSError, ValueError):
            return {}
        return others | own

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows: list[tuple[str, str, str, str]] = [*self._store.file.read(READ)]
        counts = {home: home == self._store.home or (is_file(home) and not Path(home).exists()) for home, *_ in rows}
        return [row for row in rows if counts[row[0]]]


COLUMNS = "job, endpoint, model, target, grader, answer, measure, score, cost_usd"
KEEP_GRADE = (
    f"INSERT INTO grades ({COLUMNS}, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608 - ours
    "ON CONFLICT DO UPDATE SET measure = excluded.measure, score = excluded.score, at = excluded.at, "
    "cost_usd = coalesce(excluded.cost_usd, cost_usd)"
)


class Graded(NamedTuple):
    """One grade of one answer.

    Attributes:
        job: Fingerprint of the request without model and row; see `agent_magic.declare.step.job_of`.
        answer: Fingerprint of the answer for its row.
        measure: Meaning of `score`: `share`, `mean`, or `error`, where less is better.
    """

    job: str
    endpoint: str
    model: str
    target: str
    grader: str
    answer: str
    measure: str
    score: float
    cost_usd: float | None = None


class GradeRows:
    """The grades in a ledger's file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(self, grades: Iterable[Graded]) -> None:
        """Store grades, repeated ones in place of the first."""
        now = time.time()
        rows = [(*one, now) for one in grades]
        self._store.patiently(lambda: self._store.insert_many(KEEP_GRADE, rows))

    def of(self, job: str, endpoint: str) -> list[Graded]:
        """Return the latest last."""
        sql = f"SELECT {COLUMNS} FROM grades WHERE job = ? AND endpoint = ? ORDER BY at"  # noqa: S608 - ours
        return [Graded(*row) for row in self._store.patiently(lambda: self._store.file.read(sql, job, endpoint))]
