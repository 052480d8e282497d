"""Tells IPython how values look: a run, an agent's result, the answers of a run. They do not know it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.api import Run
from agent_magic.record.results import AgentResult
from agent_magic.show.charts.chart import Chart
from agent_magic.show.values import result_bundle, texts_html

if TYPE_CHECKING:
    from collections.abc import Callable

_SERIES = (("pandas", "Series"), ("pandas.core.series", "Series"))
"""Where a series says it is from: pandas 3, and pandas 2. By name, for pandas is loaded when first needed."""


def show_values(shell: Any, run_bundle: Callable[..., Any], chart_bundle: Callable[..., Any]) -> Callable[[], None]:
    """Register the representations. Returns what takes them back."""
    bundles = shell.display_formatter.mimebundle_formatter
    html = shell.display_formatter.formatters["text/html"]
    bundles.for_type(Run, run_bundle)
    bundles.for_type(Chart, chart_bundle)
    bundles.for_type(AgentResult, _result)
    others = {name: html.for_type_by_name(*name) for name in _SERIES}
    for name, other in others.items():
        html.for_type_by_name(*name, _answers(other))

    def take_back() -> None:
        for kind in (Run, AgentResult, Chart):
            bundles.pop(kind, None)
        for name, other in others.items():
            _restore(html, name, other)

    return take_back


def _result(result: AgentResult, **_: object) -> dict[str, str]:
    return result_bundle(result)


def _answers(other: Callable[[Any], str | None] | None) -> Callable[[Any], str | None]:
    """Show the series `run.texts` as its texts, and leave every other to whoever showed it before."""

    def show(series: Any) -> str | None:
        if series.name == "text" and series.index.name == "agent" and "simulated" in series.attrs:
            return texts_html([str(name) for name in series.index], map(str, series))
        return other(series) if other else None

    return show


def _restore(html: Any, name: tuple[str, str], other: Callable[[Any], str | None] | None) -> None:
    html.deferred_printers.pop(name, None)
    kinds: dict[type, Any] = html.type_printers  # where a name goes as soon as one of its kind was shown
    for kind in [kind for kind in kinds if (kind.__module__, kind.__name__) == name]:
        del kinds[kind]
    if other is not None:
        html.for_type_by_name(*name, other)
