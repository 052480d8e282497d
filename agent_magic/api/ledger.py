"""A ledger as its user holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.api.run import Run
from agent_magic.errors import LedgerError
from agent_magic.measure.past import runs_frame
from agent_magic.record.ledger.store import DiskLedger

if TYPE_CHECKING:
    import pandas as pd


class Ledger(DiskLedger):
    """Every answer that was bought and every run, in one file of the user; see `DiskLedger` for its arguments."""

    def runs(self) -> pd.DataFrame:
        """One row per run, the newest first; see `agent_magic.measure.past`."""
        return runs_frame(self.past_runs())

    def open(self, run: int | None = None) -> Run:
        """Bring a past run back, with its frames, its picture and its timeline; the newest if none is named.

        Raises:
            LedgerError: There is none of this number.
        """
        run = self.newest() if run is None else run
        if not run:
            raise LedgerError("There is no run in the ledger yet. %agents run makes one.")
        return Run(self.record_of(run))
