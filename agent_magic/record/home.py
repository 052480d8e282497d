"""Where the ledger of a user is, if nobody says otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT = "AGENT_MAGIC_LEDGER"
OFF = "off"
FILE = "ledger.sqlite3"


def data_folder() -> Path:
    """Return the folder in which this system keeps the data of a user's programs, with our name.

    Source: XDG Base Directory Specification; Apple File System Programming Guide; Windows Known Folders.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        given = os.environ.get("XDG_DATA_HOME", "")
        base = given if Path(given).is_absolute() else Path.home() / ".local" / "share"
    return Path(base) / "agent-magic"


def where(choice: str = "") -> str:
    """Return the path of the ledger, `:memory:`, or `off` for none.

    Args:
        choice: What the user has said; empty asks `AGENT_MAGIC_LEDGER`, and then takes the file in `data_folder`.
    """
    return choice or os.environ.get(ENVIRONMENT, "") or str(data_folder() / FILE)
