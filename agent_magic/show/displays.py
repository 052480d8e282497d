"""Displays of a front end: a widget, an update of an earlier display, a progress line."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
    metadata = cast("dict[str, Any]", _parent().get("metadata") or {})
    return bool(metadata.get("cellId"))


def view_of(widget: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    # Colab draws foreign widgets only if the metadata names their widget manager: `anywidget` adds that. Without
    # data, as in ipywidgets 7, the widget displays itself.
    said: Any = getattr(widget, "_repr_mimebundle_", lambda: None)()
    found = cast("tuple[Any, Any]", said) if isinstance(said, tuple) else (said, None)
    return found[0], found[1] or {}


def is_captured() -> bool:
    """True if the current display cannot be updated later."""
    # Front ends update the outputs of cells only. Displays from a widget's callback, or captured by an `Output`
    # widget (`interact` has one), stay as they were sent.
    return _header().get("msg_type") == "comm_msg" or in_output()


def in_output() -> bool:
    """True if an `Output` widget captures the running cell's displays."""
    header = _header()
    said = header.get("msg_id") if header.get("msg_type") == "execute_request" else None
    return bool(said) and any(getattr(one, "msg_id", None) == said for one in _open_widgets())


def _header() -> dict[str, Any]:
    return cast("dict[str, Any]", _parent().get("header") or {})


def _parent() -> Any:
    from IPython.core.getipython import get_ipython  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

    shell: Any = get_ipython()
    get_parent = getattr(shell, "get_parent", None)
    return get_parent() if get_parent is not None else {}


def _open_widgets() -> list[Any]:
    """Return the widgets of this kernel; ipywidgets 7 keeps them with their class."""
    module: Any = sys.modules.get("ipywidgets.widgets.widget")
    if not hasattr(module, "Widget"):  # not imported, or still being imported by another thread: none is open
        return []
    known = getattr(module, "_instances", None)
    found: Mapping[str, Any] = module.Widget.widgets if known is None else known  # deprecated in ipywidgets 8
    return [*found.values()]
