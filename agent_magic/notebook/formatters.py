"""Formatting in IPython: the page's colours, and values the cell has shown already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic import show
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.api import Run
    from agent_magic.notebook.session import Session

RUN = ("agent_magic.api.run", "Run")
ONCE = (("agent_magic.api.plan", "Plan"), ("agent_magic.forecast.estimate.value", "Estimate"), RUN)
"""Classes that a cell shows once, by name, since they are loaded on first use."""
SERIES = (("pandas", "Series"), ("pandas.core.series", "Series"))
"""By name, because pandas (3, and 2) is loaded on first use."""


class Formatters:
    """Registers formatters of our values."""

    def __init__(self, shell: Any, session: Session) -> None:
        formatter = shell.display_formatter
        self._session = session
        self._itself, self._bundles = formatter.ipython_display_formatter, formatter.mimebundle_formatter
        self._html = formatter.formatters["text/html"]
        self._before: dict[tuple[str, str], Any] = {}

    def install(self) -> None:
        for kind in ONCE:
            self._itself.for_type_by_name(*kind, self._nothing_if_shown)
        self._bundles.for_type_by_name(*RUN, self._run)
        self._bundles.for_type(Shown, _bundle)
        self._before = {name: self._html.for_type_by_name(*name) for name in SERIES}
        for name, other in self._before.items():
            self._html.for_type_by_name(*name, _texts_formatter(other))

    def uninstall(self) -> None:
        for kind in ONCE:
            _restore(self._itself, kind, None)
        _restore(self._bundles, RUN, None)
        self._bundles.pop(Shown, None)
        for name, other in self._before.items():
            _restore(self._html, name, other)

    def _run(self, run: Run, include: Any = None, exclude: Any = None) -> dict[str, str]:
        del include, exclude
        return run.bundle(theme=self._session.theme)

    def _nothing_if_shown(self, value: Any) -> None:
        if value is not self._session.just_shown:
            raise NotImplementedError  # IPython then asks the next formatter


def _bundle(value: Shown) -> dict[str, str]:
    return show.bundle_of(value)


def _texts_formatter(other: Callable[[Any], str | None] | None) -> Callable[[Any], str | None]:
    def shown(series: Any) -> str | None:
        if series.name == "text" and series.index.name == "agent" and "simulated" in series.attrs:
            return show.texts_html([str(name) for name in series.index], map(str, series))
        return other(series) if other else None

    return shown


def _restore(formatter: Any, name: tuple[str, str], other: Callable[[Any], str | None] | None) -> None:
    formatter.deferred_printers.pop(name, None)
    kinds: dict[type, Any] = formatter.type_printers  # a deferred name moves here when its class was first shown
    for kind in [kind for kind in kinds if (kind.__module__, kind.__name__) == name]:
        del kinds[kind]
    if other is not None:
        formatter.for_type_by_name(*name, other)
