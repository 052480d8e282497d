"""A progress line that appears after a second, if someone can see it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

PATIENCE_S = 1.0
STEP_S = 0.2


class Progress:
    """A line in a terminal or under a cell, removed at the end. Headless runs show none."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._due_s = clock() + PATIENCE_S
        self._shown = False
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        elif self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def tell(self, done: int, of: int) -> None:
        now = self._clock()
        if now < self._due_s or done >= of:
            return
        self._due_s = now + STEP_S
        text = f"{done:,} of {of:,} {self._what}"
        if sys.stderr.isatty():
            self._shown = True
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
        elif is_looked_at():
            self._show(text)

    def _show(self, text: str) -> None:
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


def is_looked_at() -> bool:
    """True if a front end runs the cell: it sends a cell id, headless execution does not."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython  # pyright: ignore[reportUnknownVariableType] - as above

    shell: Any = get_ipython()
    get_parent = getattr(shell, "get_parent", None)
    parent: Any = get_parent() if get_parent is not None else {}
    metadata = cast("dict[str, Any]", parent.get("metadata") or {})
    return bool(metadata.get("cellId"))
