"""The ledger of a session: opened when it is first needed, in memory where it cannot be on the disk."""

from __future__ import annotations

from agent_magic.api import Ledger
from agent_magic.errors import LedgerError
from agent_magic.record.ledger.file import OFF, default_path
from agent_magic.record.ledger.store import MEMORY
from agent_magic.show.notes import ledger_notes


class Keeping:
    """Which ledger a session uses.

    Attributes:
        choice: What the user has said: a path, `:memory:`, `off`, or empty for the environment's, or the usual place.
        reuse_simulated: Reuse simulated answers too.
    """

    def __init__(self) -> None:
        self.choice = ""
        self.reuse_simulated = False
        self._ledger: Ledger | None = None
        self._opened: tuple[str, bool] | None = None
        self._notes: list[str] = []

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` where the user wants none.

        Raises:
            LedgerError: The named file is not a ledger, or was written by a later version.
        """
        wanted = default_path(self.choice), self.reuse_simulated
        if wanted != self._opened:
            self.close()
            self._ledger = None if wanted[0] == OFF else self._open(wanted[0])
            self._opened = wanted
        return self._ledger

    def _open(self, path: str) -> Ledger:
        try:
            return Ledger(path, reuse_simulated=self.reuse_simulated)
        except LedgerError as error:
            if not error.unwritable:
                raise
            self._notes.append(f"{error} What is bought is kept in memory, until this kernel ends.")
            return Ledger(MEMORY, reuse_simulated=self.reuse_simulated)

    def take_notes(self) -> list[str]:
        """Return what the user should know of the ledger, once."""
        notes, self._notes = self._notes, []
        return [*notes, *ledger_notes(self._ledger)]

    def close(self) -> None:
        """Close the file. It is opened again when it is needed."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self._opened = None, None
