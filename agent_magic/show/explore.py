"""`run.explore()`: controls for a what-if, and the forecast they ask for."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.engine.policy import POLICY_WORDS
from agent_magic.forecast.whatif import forecast_one, whatif_frame
from agent_magic.measure.metrics import summarize
from agent_magic.measure.scores import answers_of, reading
from agent_magic.measure.trial import Setting, with_scores
from agent_magic.providers.anthropic.client import MODELS
from agent_magic.record.plaintext import single_line
from agent_magic.show.charts.chart import provenance
from agent_magic.show.charts.front import front_chart
from agent_magic.show.charts.marks import WIDTH
from agent_magic.show.charts.timeline import run_timeline
from agent_magic.show.charts.tradeoff import Marked, tradeoff_chart
from agent_magic.show.markup import element, escape
from agent_magic.show.theme import FONT, built
from agent_magic.show.units import dollars, plural, seconds, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.forecast.forecast import Forecast, Forecaster
    from agent_magic.measure.trial import Trial
    from agent_magic.show.charts.chart import Chart

RECORDED = "as recorded"
SERVED = " to run all again (the run reused answers)"
"""A run that reused answers took and cost little or nothing, so nothing is compared with it."""
OTHERS = MODELS[:3]
"""The models of the scenarios around the chosen one."""
MOST_SURROUNDED = 300
"""Larger plans have fewer scenarios around the chosen one, since each takes time."""
_OPENING = re.compile(r'<svg [^>]*?viewBox="0 0 (\S+) (\S+)"[^>]*>')


@dataclass(frozen=True, slots=True)
class Choice:
    """The values of the controls. `None` and an empty mapping are as recorded.

    Attributes:
        concurrency: The most concurrent requests.
        schedule: `ready`, `layers` or `sequential`.
        models: Models by agent name.
        rpm: Requests per minute; 0 is no limit.
        cache: `auto`, `on` or `off`.
        batch: Whether everything goes through the Batch API.
    """

    concurrency: int | None = None
    schedule: str | None = None
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    rpm: float | None = None
    cache: str | None = None
    batch: bool = False

    @property
    def changes(self) -> dict[str, Any]:
        """The same as arguments of `run.whatif`."""
        limits = None if self.rpm is None else "off" if self.rpm == 0 else self.rpm
        given = {
            "concurrency": self.concurrency, "schedule": self.schedule, "model": dict(self.models) or None,
            "limits": limits, "cache": self.cache, "batch": self.batch or None,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    @property
    def words(self) -> str:
        """What was changed, in words."""
        kinds = sorted(set(self.models.values()))
        models = f"{plural(len(self.models), 'agent')} on {', '.join(kinds)}" if kinds else ""
        limits = "" if self.rpm is None else "no limits" if self.rpm == 0 else f"{self.rpm:g} requests per minute"
        parts = [
            "" if self.concurrency is None else f"concurrency {self.concurrency}", self.schedule or "", models, limits,
            f"cache {self.cache}" if self.cache else "", "as a batch" if self.batch else "",
        ]  # fmt: skip
        return " · ".join(part for part in parts if part) or RECORDED


class Answer(NamedTuple):
    """The forecast of a choice.

    Attributes:
        line: Seconds and dollars, compared with the run.
        bundle: The picture and its text.
    """

    line: str
    bundle: dict[str, str]


class Explorer:
    """Forecasts choices for one run. A score is never forecast: it is what a trial measured of the chosen models.

    Args:
        forecaster: The run.
        trial: What was measured of its models; `None` where nobody graded an answer.
    """

    def __init__(self, forecaster: Forecaster, trial: Trial | None = None) -> None:
        self._forecaster, self.trial = forecaster, trial
        self._frame: Any = None
        self._run = summarize(forecaster.record)
        self._served = forecaster.record.served
        self.record = forecaster.record
        self.policy = forecaster.policy

    @property
    def used_models(self) -> tuple[str, ...]:
        """The models of the run, and the current ones."""
        return tuple(dict.fromkeys([*sorted({one.model for one in self._forecaster.evidence.seen}), *OTHERS]))

    def answer(self, choice: Choice) -> Answer:
        """Forecast a choice and draw it."""
        found = forecast_one(self._forecaster, None, choice.changes)
        line = " · ".join(filter(None, [self._line(found), self._score(choice)]))
        charts = [*self._timeline(found, choice, line), self._tradeoff(found), *self._front(choice)]
        text = "\n\n".join([f"forecast of {choice.words}: {line}", *(chart.text for chart in charts)])
        return Answer(line, {"image/svg+xml": stacked(charts, line), "text/plain": text})

    def _line(self, found: Forecast) -> str:
        run, wall, cost = self._run, found.wall_s, found.cost_usd
        parts = [
            seconds(wall) + (SERVED if self._served else _against(wall, run.wall_s, seconds)),
            dollars(cost) + ("" if self._served else _against(cost, run.cost_usd, dollars)),
            f"{times(found.totals.mean_concurrency)} concurrent",
        ]
        parts += [f"limited by {found.totals.limited_by}"] if found.totals.limited_by else []
        parts += [f"{found.totals.rate_limited} refused (429)"] if found.totals.rate_limited else []
        return " · ".join([*parts, f"basis: {found.note.basis}"])

    def _setting(self, choice: Choice) -> Setting | None:
        """Return the setting of the trial that a choice means; `None` where it was not tried."""
        if self.trial is None:
            return None
        names = [one.result.name for one in answers_of(self.record, self.trial.target)]
        models = {choice.models.get(name, self.record[name].model) for name in names}
        asked = {Setting(model, None) for model in models}
        if models == {self.record[name].model for name in names}:
            asked.add(Setting(None, None))
        return next((one for one in self.trial.settings if one in asked), None) if len(models) == 1 else None

    def _score(self, choice: Choice) -> str:
        """Say what the chosen models score, as measured."""
        if self.trial is None:
            return ""
        setting = self._setting(choice)
        if setting is None:
            return "score unknown: run.trial(...) would measure it"
        return f"score {reading(self.trial.score_of(setting))} (measured)"

    def _front(self, choice: Choice) -> list[Chart]:
        if self.trial is None or self.trial.chosen is None:
            return []
        scored = with_scores(self._frame, [self.trial], self.record)
        return [front_chart(self.trial, scored, chosen=self._setting(choice))]

    def goal(self, under_usd: float, least: float) -> str:
        """Say which setting has the best score under a budget, and which is the cheapest with a score.

        Args:
            under_usd: The most dollars of the whole run.
            least: The least score.
        """
        if self.trial is None:
            return ""
        best, cheap = self.trial.best(under_usd), self.trial.cheapest(least)
        return (
            f"best score under {dollars(under_usd)}: {best.label if best else 'none'} · "
            f"cheapest at {least:g} or more: {cheap.label if cheap else 'none'} (measured)"
        )

    def _timeline(self, found: Forecast, choice: Choice, line: str) -> list[Chart]:
        """Draw the timeline of the forecast; a batch has none."""
        if found.record is None:
            return []
        title = f"{single_line(self.record.plan.name)}: {choice.words}"
        caption = provenance(simulated=found.note.simulated, forecast=found.note.assumed or "nothing was sent")
        return [run_timeline(found.record, title=title, line=line, caption=caption)]

    def _tradeoff(self, found: Forecast) -> Chart:
        if self._frame is None:
            small = len(self.record.plan) <= MOST_SURROUNDED
            given = {
                "model": [None, *OTHERS] if small else [None],
                "concurrency": [1, 2, 4, 8, 16] if small else [1, 4, 16],
            }
            self._frame = whatif_frame(self._forecaster, given)
        run = self._run
        marks: list[Marked] = []
        if run.cost_usd is not None and run.wall_s is not None and not self._served:
            marks.append(Marked("this run", run.cost_usd, run.wall_s))
        if found.cost_usd is not None:
            marks.append(Marked("this scenario", found.cost_usd, found.wall_s, is_chosen=True))
        caption = provenance(simulated=found.note.simulated, forecast="nothing was sent")
        return tradeoff_chart(self._frame, marked=marks, caption=caption)


def stacked(charts: Sequence[Chart], label: str) -> str:
    """Put pictures one under the other, as one."""
    parts: list[str] = []
    y = 0.0
    for chart in charts:
        found = _OPENING.match(chart.svg)
        if found is not None:
            inside = chart.svg[found.end() : -len("</svg>")]
            parts.append(element("g", inside, transform=f"translate(0 {y:g})", font_family=FONT))
            y += float(found[2]) + 10
    return element(
        "svg",
        "".join(parts),
        xmlns="http://www.w3.org/2000/svg",
        class_="am-chart am-auto",
        width="100%",
        style=f"max-width:{WIDTH:g}px;height:auto;display:block",
        viewBox=f"0 0 {WIDTH:g} {y:g}",
        role="img",
        aria_label=label,
    )


def _against(value: float | None, base: float | None, write: Any) -> str:
    """Compare a value with that of the run."""
    if value is None or not base:
        return ""
    change, of_run = (value / base - 1) * 100, f"the run's {write(base)}"
    if abs(change) < 0.5:
        return f" (as {of_run})"
    if change >= 200:
        return f" ({value / base:,.3g} times {of_run})"
    return f" ({'+' if change > 0 else '−'}{abs(change):.0f} % of {of_run})"


LIMITS: dict[str, float | None] = {
    RECORDED: None, "no limits": 0.0, "10": 10.0, "50": 50.0, "200": 200.0, "1,000": 1000.0, "4,000": 4000.0,
}  # fmt: skip
"""The choices of requests per minute."""
ALL = "all agents"
AGAIN = "Run this cell again to change concurrency, schedule, limits and models."
"""The text without controls: in a saved notebook, and in front ends without widgets."""
_VIEW = "application/vnd.jupyter.widget-view+json"
_STYLE = {"description_width": "130px"}


class Panel:
    """The controls. A change sends a line and a picture to the front end.

    Args:
        explorer: Makes the forecasts.
    """

    def __init__(self, explorer: Explorer) -> None:
        w: Any = importlib.import_module("ipywidgets")
        wide: Any = w.Layout(width="420px")
        self._explorer = explorer
        self._handle: Any = None
        self._models: dict[str, str] = {}
        self._quiet = False
        agents = list(explorer.record.plan.names)
        recorded = explorer.policy.concurrency
        shared = {"style": _STYLE, "layout": wide}
        most = max(16, recorded, min(64, len(agents)))
        self.concurrency = w.IntSlider(
            value=recorded, min=1, max=most, description="concurrency", continuous_update=False, **shared
        )
        self.schedule = w.Dropdown(
            options=POLICY_WORDS["schedule"], value=explorer.policy.schedule, description="schedule", **shared
        )
        self.limits = w.Dropdown(options=list(LIMITS), value=RECORDED, description="requests per minute", **shared)
        self.agent = w.Dropdown(options=[ALL, *agents], value=ALL, description="model of", **shared)
        self.model = w.Dropdown(options=[RECORDED, *explorer.used_models], value=RECORDED, description="is", **shared)
        self.cache = w.Dropdown(
            options=[RECORDED, *POLICY_WORDS["cache"]], value=RECORDED, description="cache", **shared
        )
        self.batch = w.Checkbox(value=False, description="as a batch: half the price, hours", indent=True, **shared)
        self.line, self.goal = w.HTML(), w.HTML()
        self.line.add_class("am-explore-line")
        most_usd = 5.0 if explorer.trial is None else float(explorer.trial.frame["run_usd"].max())
        self.under = w.BoundedFloatText(
            value=most_usd, min=0, max=1e9, step=most_usd / 20, description="most dollars", **shared
        )
        self.least = w.BoundedFloatText(value=0.9, min=0, max=1, step=0.01, description="least score", **shared)
        left = w.VBox([self.concurrency, self.schedule, self.limits, self.batch])
        right = w.VBox([self.agent, self.model, self.cache])
        keeper = _keeper_class()()
        goals = [w.HBox([self.under, self.least]), self.goal] if explorer.trial is not None else []
        self.widget = w.VBox([w.HBox([left, right]), self.line, *goals, keeper])
        for control in (self.under, self.least):
            control.observe(self._aimed, "value")
        self._aimed(None)
        keeper.top = self.widget.model_id
        for control in (self.concurrency, self.schedule, self.limits, self.model, self.cache, self.batch):
            control.observe(self._changed, "value")
        self.agent.observe(self._chosen, "value")

    @property
    def choice(self) -> Choice:
        """The values of the controls."""
        policy = self._explorer.policy
        return Choice(
            None if self.concurrency.value == policy.concurrency else self.concurrency.value,
            None if self.schedule.value == policy.schedule else self.schedule.value,
            dict(self._models),
            LIMITS[self.limits.value],
            None if self.cache.value == RECORDED else self.cache.value,
            self.batch.value,
        )

    def show(self) -> None:
        """Display the panel, and the picture of the default scenario under it."""
        screen: Any = importlib.import_module("IPython.display")
        answer = self._explorer.answer(self.choice)
        self._write(answer.line)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        screen.display({_VIEW: view, "text/plain": f"forecast {answer.line}\n{AGAIN}"}, raw=True)
        self._handle = screen.DisplayHandle()
        self._handle.display(answer.bundle, raw=True)

    def _changed(self, change: Any) -> None:
        if change["owner"] is self.model:
            self._set_model()
        if self._quiet:
            return
        answer = self._explorer.answer(self.choice)
        self._write(answer.line)
        if self._handle is not None:
            self._handle.update(answer.bundle, raw=True)

    def _aimed(self, _: Any) -> None:
        """Write what fits the goals: measured, so nothing is forecast anew."""
        self.goal.value = escape(self._explorer.goal(self.under.value, self.least.value))

    def _chosen(self, _: Any) -> None:
        """Show the model of the chosen agent, without a new forecast."""
        self._quiet = True
        self.model.value = self._models.get(self.agent.value, RECORDED)
        self._quiet = False

    def _set_model(self) -> None:
        if self._quiet:
            return
        names = self._explorer.record.plan.names if self.agent.value == ALL else [self.agent.value]
        for name in names:
            self._models.pop(name, None)
            if self.model.value != RECORDED:
                self._models[name] = self.model.value

    def _write(self, line: str) -> None:
        self.line.value = f'<div style="font-size:14px;padding:6px 0"><b>forecast</b> {escape(line)}</div>'


@functools.cache
def _keeper_class() -> Any:
    """Build the class of the widget that keeps the controls out of the saved notebook, where they would be an error."""
    import anywidget
    import traitlets  # noqa: PLC0415

    class Keeper(anywidget.AnyWidget):
        """Draws nothing."""

        _esm = built("explore.js")
        top = traitlets.Unicode("").tag(sync=True)

    return Keeper


def explore(explorer: Explorer) -> Panel:
    """Show the panel of a run."""
    panel = Panel(explorer)
    panel.show()
    return panel
