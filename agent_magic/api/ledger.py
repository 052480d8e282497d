"""`Ledger`: what users hold of a ledger."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from agent_magic import measure
from agent_magic.api.plan import Plan
from agent_magic.api.run import Run
from agent_magic.declare.validation import check_integer
from agent_magic.errors import LedgerError
from agent_magic.record.ledger.store import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from agent_magic.record.ledger.runs import PastRun


class Ledger(SqliteLedger):
    """Every answer that was bought and every run, in one file of the user; see `SqliteLedger` for its arguments."""

    def runs(self) -> pd.DataFrame:
        """Return one row per run, the newest first; see `agent_magic.measure.frames`."""
        return self._store.in_words(lambda: measure.runs_frame(self._past_runs()))

    def newest(self) -> PastRun | None:
        """Return the newest run of this notebook or script; `None` before the first."""
        return next(iter(self._past_runs(self.home)), None)

    def past(self) -> list[PastRun]:
        """Return the same as plain rows."""
        return self._past_runs()

    def plan_of(self, run: int) -> Plan:
        """Return the plan of a past run, without the bytes of its attachments.

        Args:
            run: Its number in `runs()`.

        Raises:
            LedgerError: There is none of this number.
        """
        return self._plan_of(run, Plan)

    def dead(self, *, runs: int = 50, only: Callable[[PastRun], bool] | None = None) -> pd.DataFrame:
        """Return permanent failures of any kernel without a later answer; see `agent_magic.measure.service`.

        Args:
            runs: Number of runs to look at, newest first.
            only: Returns True if a run counts; default all.
        """
        check_integer("runs", runs)
        over = [one for one in self._past_runs() if one.state != "running"]
        found = islice((one.run for one in over if only is None or only(one)), runs)
        return measure.service.all_dead_frame((run, self._open_run(run, Plan)[0]) for run in found)

    def open(self, run: int | None = None) -> Run:
        """Open a past run, with its frames, its picture, its timeline and a plan that can run again.

        Args:
            run: Its number in `runs()`; the newest by default.

        Raises:
            LedgerError: There is none of this number.
        """
        if run is None:
            newest = self._past_runs()[:1]
            if not newest:
                raise LedgerError("There is no run in the ledger yet. %agents run makes one.")
            run = newest[0].run
        record, _ = self._open_run(run, Plan)
        return Run(record)
