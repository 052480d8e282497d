"""The front end: the running cell, support of pictures, prints and questions."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from IPython.display import display  # pyright: ignore[reportUnknownVariableType] - IPython leaves its types open

from agent_magic.machine import in_browser
from agent_magic.show.markup import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_magic.show.page import Page

CLICKS_BESIDE = (7, 4)
"""The first ipykernel that handles pages' messages while a cell is awaited. Measured, also on 7.3 and 6.31."""
PAGE_LETTERS = 100
"""Letters per printed line of JupyterLab in a window of 1280 px."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The running cell.

    Attributes:
        id: Its id, if the front end has one: JupyterLab does, nbclient does not.
        execution: The message that runs it: one cell run twice has two.
        deleted: Ids of cells deleted since the last run, as JupyterLab reports them.
        by_console: True for the Jupyter console and the like, which show text only.
    """

    id: str | None = None
    execution: str | None = None
    deleted: frozenset[str] = frozenset()
    by_console: bool = False


def cell_of(shell: Any) -> Cell:
    """Read the cell's identity from the message that runs it. Ask in the magic, not in a callback."""
    get_parent = getattr(shell, "get_parent", None)
    parent: Any = get_parent() if get_parent is not None else {}
    message = cast("dict[str, Any]", parent) if isinstance(parent, dict) else {}
    metadata: dict[str, Any] = message.get("metadata") or {}
    header: dict[str, Any] = message.get("header") or {}
    cell_id = metadata.get("cellId")
    deleted = metadata.get("deletedCells") or ()
    execution, sent_by = header.get("msg_id"), header.get("session")
    return Cell(
        cell_id if isinstance(cell_id, str) else None,
        execution,
        frozenset(str(one) for one in deleted),
        by_console=bool(sent_by) and str(execution).startswith(f"{sent_by}_"),
    )


def is_kernel(shell: Any) -> bool:
    """Return True for a kernel with a front end, False for a terminal."""
    return getattr(shell, "kernel", None) is not None


def is_unwatched(shell: Any) -> bool:
    """True if a program runs the cells, such as nbclient or papermill: its log has lines only."""
    # Those name neither a session nor a cell. JupyterLab and Notebook name both; VS Code and Colab leave their own
    # marks; JupyterLite names neither, but no program runs cells in it. Voila runs the cells for a page.
    if not is_kernel(shell) or cell_of(shell).id is not None or "JPY_SESSION_NAME" in os.environ or in_browser():
        return False
    if os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return False
    return "__vsc_ipynb_file__" not in shell.user_ns and "google.colab" not in sys.modules


def can_ask(shell: Any) -> bool:
    if not is_kernel(shell):
        return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    return bool(getattr(shell.kernel, "_allow_stdin", False)) and not is_unwatched(shell)


def can_decide(shell: Any) -> bool:
    """True if a person can answer while a cell runs: at a terminal, or with buttons."""
    return can_ask(shell) and not cell_of(shell).by_console


def hears_clicks() -> bool:
    """True if a kernel receives a page's messages while a cell is awaited."""
    found: tuple[Any, ...] = getattr(sys.modules.get("ipykernel"), "version_info", CLICKS_BESIDE)
    return found >= CLICKS_BESIDE


def agrees(question: str) -> bool:
    """Ask for yes; Stop, Ctrl-C and the end of the input mean no."""
    in_main = threading.current_thread() is threading.main_thread()
    # The cell's own handler would cancel what waits on the loop, which is blocked while a person thinks.
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if in_main else None
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except (KeyboardInterrupt, EOFError):
        return False
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)


def say(text: str) -> None:
    print(text)  # noqa: T201 - the only place


def put_cell(shell: Any, text: str) -> None:
    """Put a cell below the running one, or the text at a terminal's next prompt."""
    # If no front end accepts it, as under nbclient, the text is printed.
    if is_unwatched(shell):
        say(text)
    else:
        shell.set_next_input(text, replace=False)


def note(text: str) -> None:
    """Print a note for the user. A Python warning would show paths of this machine."""
    # JupyterLab breaks a printed line at the edge of the page, within words, so it is wrapped here.
    say("\n".join(wrapped(line, PAGE_LETTERS, "  ") for line in f"note: {text}".split("\n")))


class ShownLog(logging.Handler):
    """Prints the records of a logger, if the user has set up no other handler for them."""

    # Python's handler of last resort prints nothing below a warning, at any level of the logger.

    def emit(self, record: logging.LogRecord) -> None:
        log: logging.Logger | None = logging.getLogger(record.name)
        while log is not None:
            if any(one is not self for one in log.handlers):
                return
            log = log.parent if log.propagate else None
        print(self.format(record), file=sys.stderr)  # noqa: T201 - shown to a person


def display_bundle(bundle: dict[str, str]) -> None:
    display(bundle, raw=True)


def show_page(page: Page, *, graphic: bool) -> None:
    if graphic:
        display_bundle(page.bundle())
    else:
        say(page.text())


def display_value(value: object) -> None:
    display(value)


@contextlib.contextmanager
def notes_of(tell: Callable[[str], None]) -> Generator[None]:
    """Show warnings as notes: Python's form shows paths, which a shared notebook must not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for one in caught:
                tell(f"note: {one.message}")
