"""`Ledger`: what users hold of a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.api.plan import Plan
from agent_magic.api.run import Run
from agent_magic.declare.validation import check_integer
from agent_magic.errors import LedgerError
from agent_magic.measure.dead import all_dead_frame
from agent_magic.measure.frames import runs_frame
from agent_magic.record.ledger.store import SqliteLedger

if TYPE_CHECKING:
    import pandas as pd


class Ledger(SqliteLedger):
    """Every answer that was bought and every run, in one file of the user; see `SqliteLedger` for its arguments."""

    def runs(self) -> pd.DataFrame:
        """Return one row per run, the newest first; see `agent_magic.measure.frames`."""
        return runs_frame(self._past_runs())

    def dead(self, *, runs: int = 50) -> pd.DataFrame:
        """Return what failed for good in any kernel and was not answered since; see `agent_magic.measure.dead`.

        Args:
            runs: How many runs to look at, the newest first.
        """
        check_integer("runs", runs)
        over = [one.run for one in self._past_runs() if one.state != "running"]
        return all_dead_frame((run, self._open_run(run, Plan)[0]) for run in over[:runs])

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
