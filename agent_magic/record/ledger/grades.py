"""Grades of answers in a ledger, without their texts, so that later sessions can choose a model by them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.ledger.database import Store

COLUMNS = "job, endpoint, model, target, grader, answer, measure, score, cost_usd"
KEEP = (
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
        cost_usd: `None` if the graded run did not buy it.
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
        self._store.patiently(lambda: self._store.insert_many(KEEP, rows))

    def of(self, job: str, endpoint: str) -> list[Graded]:
        """Return the latest last."""
        sql = f"SELECT {COLUMNS} FROM grades WHERE job = ? AND endpoint = ? ORDER BY at"  # noqa: S608 - ours
        return [Graded(*row) for row in self._store.patiently(lambda: self._store.file.read(sql, job, endpoint))]
