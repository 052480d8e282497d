"""The grades of a ledger: what answers were found to be worth, so that a later session can choose a model by them.

A row is one grade of one answer: what was asked whatever the model (the job), the model that answered, who graded. It
has no text of an answer. A grade that is given again takes the place of the first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.ledger.store import Store

COLUMNS = "job, endpoint, model, target, grader, answer, measure, score, cost_usd"
KEEP = (
    f"INSERT INTO grades ({COLUMNS}, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608 - ours
    "ON CONFLICT DO UPDATE SET measure = excluded.measure, score = excluded.score, at = excluded.at, "
    "cost_usd = coalesce(excluded.cost_usd, cost_usd)"
)


class Graded(NamedTuple):
    """One grade of one answer.

    Attributes:
        job: The fingerprint of what was asked, whatever the model and the row; see `agent_magic.declare.models.job_of`.
        endpoint: Who answered.
        model: The model that answered.
        target: What was graded, such as `label.sentiment`.
        grader: Who graded.
        answer: The fingerprint of the answer.
        measure: What `score` is: `share`, `mean`, or `error`, of which less is better.
        score: The grade.
        cost_usd: Dollars of the answer; `None` where it was not bought by the run that was graded.
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
    """The grades in a ledger's file.

    Args:
        store: The ledger's open file.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(self, grades: Iterable[Graded]) -> None:
        """Store grades.

        Raises:
            LedgerError: They could not be stored.
        """
        now = time.time()
        rows = [(*one, now) for one in grades]
        self._store.patiently(lambda: self._store.insert_many(KEEP, rows))

    def of(self, job: str, endpoint: str) -> list[Graded]:
        """Return the grades of a job at an endpoint, the latest last.

        Raises:
            LedgerError: They could not be read.
        """
        sql = f"SELECT {COLUMNS} FROM grades WHERE job = ? AND endpoint = ? ORDER BY at"  # noqa: S608 - ours
        return [Graded(*row) for row in self._store.patiently(lambda: self._store.file.read(sql, job, endpoint))]
