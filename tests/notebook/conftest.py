"""Shells of the tests keep no history: its file is the developer's own, and its thread outlives the test."""

from typing import Any

import pytest
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture(autouse=True, scope="session")
def _no_history():
    """Give each shell a history that is off."""

    def init_history(shell: Any) -> None:
        shell.history_manager = HistoryManager(shell=shell, parent=shell, enabled=False)
        shell.configurables.append(shell.history_manager)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InteractiveShell, "init_history", init_history)
        yield
