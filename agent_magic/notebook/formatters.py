"""How IPython shows our values: a run, an answer, the series of answers, what a cell has shown already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.api import Plan, Run
from agent_magic.forecast.advice.advice import Advice
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.forecast.sweep import Sweep
from agent_magic.measure.path import CriticalPath
from agent_magic.measure.trial import Trial
from agent_magic.record.results import AgentResult
from agent_magic.show.advice import advice_page
from agent_magic.show.estimates import estimate_page
from agent_magic.show.frames import frame_bundle
from agent_magic.show.trials import trial_page
from agent_magic.show.values import result_bundle, texts_html

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from agent_magic.notebook.session import Session

SERIES = (("pandas", "Series"), ("pandas.core.series", "Series"))
"""The class of a series in pandas 3, and in pandas 2. By name, because pandas is loaded when first needed."""
FRAME = ("agent_magic.measure.frames", "RunFrame")
"""The class of the frames of a run."""


class Formatters:
    """Registers how values are shown.

    Args:
        shell: The `InteractiveShell`.
        session: Knows the page's colours, and what the cell has shown.
    """

    def __init__(self, shell: Any, session: Session) -> None:
        formatter = shell.display_formatter
        self._session = session
        self._itself, self._bundles = formatter.ipython_display_formatter, formatter.mimebundle_formatter
        self._html = formatter.formatters["text/html"]
        self._before: dict[tuple[str, str], Any] = {}

    def install(self) -> None:
        """Install our formatters."""
        for kind in (Plan, Estimate, Run):
            self._itself.for_type(kind, self._nothing_if_shown)
        self._bundles.for_type(Run, self._run)
        self._bundles.for_type(AgentResult, self._result)
        self._bundles.for_type(Advice, self._advice)
        self._bundles.for_type(Estimate, self._estimate)
        self._bundles.for_type(Trial, self._trial)
        for kind in (CriticalPath, Sweep):
            self._bundles.for_type(kind, self._with_frame)
        self._bundles.for_type_by_name(*FRAME, self._frame)
        self._before = {name: self._html.for_type_by_name(*name) for name in SERIES}
        for name, other in self._before.items():
            self._html.for_type_by_name(*name, _texts_formatter(other))

    def uninstall(self) -> None:
        """Remove our formatters."""
        for kind in (Plan, Estimate, Run):
            self._itself.pop(kind, None)
        for kind in (Run, AgentResult, Advice, Estimate, Trial, CriticalPath, Sweep):
            self._bundles.pop(kind, None)
        _restore(self._bundles, FRAME, None)
        for name, other in self._before.items():
            _restore(self._html, name, other)

    def _run(self, run: Run, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show a run as its picture, in the colours of the page."""
        del include, exclude
        return run.bundle(theme=self._session.theme)

    @staticmethod
    def _result(result: AgentResult, **_: object) -> dict[str, str]:
        return result_bundle(result)

    @staticmethod
    def _advice(advice: Advice, **_: object) -> dict[str, str]:
        return advice_page(advice).bundle()

    @staticmethod
    def _estimate(estimate: Estimate, **_: object) -> dict[str, str]:
        return estimate_page(estimate).bundle()

    @staticmethod
    def _trial(trial: Trial, **_: object) -> dict[str, str]:
        return trial_page(trial).bundle()

    @staticmethod
    def _with_frame(value: CriticalPath | Sweep[Run], **_: object) -> dict[str, str]:
        return frame_bundle(value.frame)

    @staticmethod
    def _frame(frame: pd.DataFrame, **_: object) -> dict[str, str]:
        return frame_bundle(frame)

    def _nothing_if_shown(self, value: Any) -> None:
        """Show nothing if the cell has shown this value already."""
        if value is not self._session.just_shown:
            raise NotImplementedError  # IPython then asks the next formatter


def _texts_formatter(other: Callable[[Any], str | None] | None) -> Callable[[Any], str | None]:
    """Show the series `run.texts` as texts, and leave every other series to the formatter that was there before."""

    def show(series: Any) -> str | None:
        if series.name == "text" and series.index.name == "agent" and "simulated" in series.attrs:
            return texts_html([str(name) for name in series.index], map(str, series))
        return other(series) if other else None

    return show


def _restore(formatter: Any, name: tuple[str, str], other: Callable[[Any], str | None] | None) -> None:
    formatter.deferred_printers.pop(name, None)
    kinds: dict[type, Any] = formatter.type_printers  # a deferred name moves here when its class was first shown
    for kind in [kind for kind in kinds if (kind.__module__, kind.__name__) == name]:
        del kinds[kind]
    if other is not None:
        formatter.for_type_by_name(*name, other)
