"""Display of widgets, and whether displays can be updated later."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    from IPython.core.getipython import get_ipython  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

    shell: Any = get_ipython()
    get_parent = getattr(shell, "get_parent", None)
    parent: Any = get_parent() if get_parent is not None else {}
    return cast("dict[str, Any]", parent.get("header") or {})


def _open_widgets() -> list[Any]:
    """Return the widgets of this kernel; ipywidgets 7 keeps them with their class."""
    module: Any = sys.modules.get("ipywidgets.widgets.widget")
    if not hasattr(module, "Widget"):  # not imported, or still being imported by another thread: none is open
        return []
    known = getattr(module, "_instances", None)
    found: Mapping[str, Any] = module.Widget.widgets if known is None else known  # deprecated in ipywidgets 8
    return [*found.values()]
