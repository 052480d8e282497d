"""How a widget shows itself: its data and its metadata, by MIME type."""

from __future__ import annotations

from typing import Any, cast


def view_of(widget: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the data and the metadata with which a widget is displayed.

    Colab draws a widget of others only where the metadata names its widget manager: `anywidget` puts that in. Without
    data, as in ipywidgets 7, the widget displays itself.
    """
    said: Any = getattr(widget, "_repr_mimebundle_", lambda: None)()
    found = cast("tuple[Any, Any]", said) if isinstance(said, tuple) else (said, None)
    return found[0], found[1] or {}
