"""The home of a run: the notebook or script that started it, in a ledger shared by many.

It is the path of the notebook if the front end tells it, as JupyterLab, VS Code and Papermill do, or of the script;
else, as under nbclient and in a terminal, the working folder with a slash at its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOTEBOOK = ".ipynb"


def told_notebooks(names: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    # JupyterLab sets the environment as the kernel starts, so a later name is not in it.
    for told in (names.get("__vsc_ipynb_file__"), environment.get("JPY_SESSION_NAME"), names.get("__session__")):
        if isinstance(told, str) and told.endswith(NOTEBOOK):
            yield told


def home_of() -> str:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        found: object = next(told_notebooks(shell.user_ns, os.environ), None)
    else:
        found = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return str(Path(found).absolute()) if isinstance(found, str) and found else f"{Path.cwd().as_posix()}/"
    except OSError:  # the folder is gone
        return ""


def is_file(home: str) -> bool:
    return bool(home) and not home.endswith("/")


def shown_home(home: str | None) -> str:
    """Return the last two parts of a home: a shared notebook must not tell more."""
    if not home:
        return "unknown"
    kind = PureWindowsPath if PureWindowsPath(home).drive else PurePosixPath  # the ledger may be of another machine
    parts = kind(home).parts[-2 if is_file(home) else -1 :]
    return "/".join(parts) + ("" if is_file(home) else "/")
