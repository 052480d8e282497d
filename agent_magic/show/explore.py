"""`run.explore()`: controls for a what-if, and its forecast, in a notebook and in a page.

In a page `widgets/src/ask.js` starts Pyodide in a worker, opens the run that `run_page` packed, and passes the answers
to the panel that notebooks use.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import re
import sys
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.edges import PlanWarning
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_dict
from agent_magic.declare.units import dollars, plural, seconds, times
from agent_magic.engine.policy import POLICY_WORDS
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.forecast import Forecaster
from agent_magic.forecast.whatif import AS_IF, forecast_one, nearby, reused, rows_frame, whatif_rows
from agent_magic.providers.anthropic.models import MODELS
from agent_magic.providers.recorded import recorded_run
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.codec import from_json
from agent_magic.record.display import single_line
from agent_magic.record.prices import Prices, Tariff
from agent_magic.record.reasons import limit
from agent_magic.show.charts.chart import provenance
from agent_magic.show.charts.marks import MARGIN, WIDTH
from agent_magic.show.charts.timeline import run_timeline
from agent_magic.show.charts.tradeoff import Marked, tradeoff_chart
from agent_magic.show.displays import view_of
from agent_magic.show.markup import TEXT_WIDTH, element, escape, fit, wrapped
from agent_magic.show.theme import FONT, INKS, built

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.forecast.forecast import Answering, Forecast
    from agent_magic.forecast.whatif import Rows
    from agent_magic.measure.metrics import Summary
    from agent_magic.measure.trial import Setting, Trial
    from agent_magic.show.charts.chart import Chart


RECORDED, PLANNED = "as recorded", "as planned"
OTHERS = MODELS[:3]
HEAD_H = 32.0
"""In px."""
_OPENING = re.compile(r'<svg [^>]*?viewBox="0 0 (\S+) (\S+)"[^>]*>')


@dataclass(frozen=True, slots=True)
class Choice:
    """The values of the controls: `None` changes nothing; `rpm=0` is no limit."""

    concurrency: int | None = None
    schedule: str | None = None
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    rpm: float | None = None
    cache: str | None = None
    batch: bool | None = None

    @property
    def changes(self) -> dict[str, Any]:
        limits = None if self.rpm is None else "off" if self.rpm == 0 else self.rpm
        given = {
            "concurrency": self.concurrency, "schedule": self.schedule, "model": dict(self.models) or None,
            "limits": limits, "cache": self.cache, "batch": self.batch,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    @property
    def words(self) -> str:
        kinds = sorted(set(self.models.values()))
        models = f"{plural(len(self.models), 'agent')} on {', '.join(kinds)}" if kinds else ""
        limits = "" if self.rpm is None else "no limits" if self.rpm == 0 else f"{self.rpm:g} requests per minute"
        parts = [
            "" if self.concurrency is None else f"concurrency {self.concurrency}", self.schedule or "", models, limits,
            f"cache {self.cache}" if self.cache else "", {None: "", True: "by batch", False: "live"}[self.batch],
        ]  # fmt: skip
        return " · ".join(filter(None, parts))


class Answer(NamedTuple):
    """The forecast of a choice: `facts` is `line` in parts, `bundle` the saved form."""

    line: str
    facts: list[tuple[str, str, str]]
    picture: str
    bundle: dict[str, str]


class Explorer:
    """Forecasts choices for one run."""

    def __init__(self, forecaster: Answering, trial: Trial | None = None) -> None:
        self._forecaster, self.trial = forecaster, trial
        self._run = forecaster.totals
        self._served = reused(forecaster.record)
        self.record = forecaster.record
        self.policy = forecaster.policy

    @property
    def used_models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*sorted({one.model for one in self._forecaster.evidence.seen}), *OTHERS]))

    @property
    def unchanged(self) -> str:
        return RECORDED if self._forecaster.subject == "the run" else PLANNED

    def answer(self, choice: Choice) -> Answer:
        found = forecast_one(self._forecaster, None, choice.changes)
        facts = [*self._facts(found), *self._score(choice)]
        line = " · ".join(" ".join(filter(None, fact)) for fact in facts)
        charts = [*self._timeline(found, choice), self._tradeoff(found), *self._front(choice)]
        head = wrapped(f"forecast, {choice.words or self.unchanged}: {line}", TEXT_WIDTH)
        text = "\n\n".join([head, *(chart.text for chart in charts), AGAIN])
        bundle = {"image/svg+xml": stacked(charts, line, head=f"forecast: {line}"), "text/plain": text}
        return Answer(line, facts, stacked(charts, line), bundle)

    def _facts(self, found: Forecast) -> list[tuple[str, str, str]]:
        run, wall, cost = self._base, found.wall_s, found.cost_usd
        facts = [
            ("", seconds(wall), self._against(wall, run.wall_s, seconds)),
            ("", dollars(cost), self._against(cost, run.cost_usd, dollars)),
        ]
        if found.totals.mean_concurrency is not None:
            facts.append(("", times(found.totals.mean_concurrency), "concurrent"))
        by = found.totals.limited_by
        facts += [("limited by", limit(by, found.totals.slots), "")] if by else []
        facts += [("", str(found.totals.rate_limited), "refused (429)")] if found.totals.rate_limited else []
        facts += [("basis:", found.note.basis, "")]
        was = f"{seconds(self._run.wall_s)} · {dollars(self._run.cost_usd)}"
        return [*facts, ("as it was:", was, f"({self._served})")] if self._served else facts

    def _against(self, value: float | None, base: float | None, write: Any) -> str:
        return _against(value, base, write, self._forecaster.subject, AS_IF if self._served else "")

    @functools.cached_property
    def _base(self) -> Summary | Forecast:
        """Return the run, or a forecast of it with all answers bought."""
        return forecast_one(self._forecaster, None, {}) if self._served else self._run

    def _setting(self, choice: Choice) -> Setting | None:
        if self.trial is None:
            return None
        from agent_magic.measure.scores import answers_of  # noqa: PLC0415  # lazy: pages have no trials
        from agent_magic.measure.trial import Setting  # noqa: PLC0415  # lazy: as above

        names = [one.result.name for one in answers_of(self.record, self.trial.target)]
        models = {choice.models.get(name, self.record[name].model) for name in names}
        asked = {Setting(model, None) for model in models}
        if models == {self.record[name].model for name in names}:
            asked.add(Setting(None, None))
        return next((one for one in self.trial.settings if one in asked), None) if len(models) == 1 else None

    def _score(self, choice: Choice) -> list[tuple[str, str, str]]:
        if self.trial is None:
            return []
        setting = self._setting(choice)
        if setting is None:
            return [("score", "unknown", "(run.trial(...) would measure it)")]
        from agent_magic.measure.scores import reading  # noqa: PLC0415  # lazy: pages have no trials

        return [("score", reading(self.trial.score_of(setting)), "(measured)")]

    def _front(self, choice: Choice) -> list[Chart]:
        if self.trial is None or self.trial.chosen is None:
            return []
        from agent_magic.measure.trial import with_scores  # noqa: PLC0415  # lazy: pages have no trials
        from agent_magic.show.charts.front import front_chart  # noqa: PLC0415  # lazy: as above

        scored = with_scores(rows_frame(self._around, self._forecaster), [self.trial], self.record)
        return [front_chart(self.trial, scored, chosen=self._setting(choice))]

    def goal(self, under_usd: float, least: float) -> str:
        if self.trial is None:
            return ""
        best, cheap = self.trial.best(under_usd), self.trial.cheapest(least)
        return (
            f"best score under {dollars(under_usd)}: {best.label if best else 'none'} · "
            f"cheapest at {least:g} or more: {cheap.label if cheap else 'none'} (measured)"
        )

    def _timeline(self, found: Forecast, choice: Choice) -> list[Chart]:
        if found.record is None:
            return []
        title = f"{single_line(self.record.plan.name)}: {choice.words or self.unchanged}"
        caption = provenance(simulated=found.note.simulated, forecast=found.note.assumed or "nothing was sent")
        return [run_timeline(found.record, title=title, line="", caption=caption)]

    @functools.cached_property
    def _around(self) -> Rows:
        return whatif_rows(self._forecaster, nearby(self.record, OTHERS))

    def _tradeoff(self, found: Forecast) -> Chart:
        run, is_run = self._base, not self._served
        marks: list[Marked] = []
        if run.cost_usd is not None and run.wall_s is not None:
            label = self._forecaster.subject.replace("the", "this") if is_run else AS_IF
            is_measured = is_run and self.record.forecast is None
            marks.append(Marked(label, run.cost_usd, run.wall_s, is_measured=is_measured))
        if found.cost_usd is not None:
            marks.append(Marked("this scenario", found.cost_usd, found.wall_s))
        caption = provenance(simulated=found.note.simulated, forecast="nothing was sent")
        return tradeoff_chart(self._around, marked=marks, caption=caption)


def stacked(charts: Sequence[Chart], label: str, *, head: str = "") -> str:
    parts: list[str] = []
    y = 0.0
    if head:
        words = escape(fit(head, WIDTH - 2 * MARGIN, 13))
        inks = INKS["light"]  # the pictures below have the rules that make them dark
        look: dict[str, Any] = {"font_size": 13, "font_weight": 600, "font_family": FONT}
        parts.append(element("rect", width=WIDTH, height=HEAD_H, fill=inks["ground"]))
        parts.append(element("text", words, x=MARGIN, y=20, fill=inks["ink"], **look))
        y = HEAD_H
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


def _against(value: float | None, base: float | None, write: Any, subject: str, words: str = "") -> str:
    if value is None or not base:
        return ""
    change, of_run = (value / base - 1) * 100, f"{write(base)}, {words}" if words else f"{subject}'s {write(base)}"
    if abs(change) < 0.5:
        return f"({words or f'as {of_run}'})"
    if change >= 200:
        return f"({value / base:,.{0 if value >= 100 * base else 1}f} times {of_run})"
    return f"({'+' if change > 0 else '−'}{abs(change):.0f} % of {of_run})"


LIMITS: dict[str, float | None] = {
    "no limits": 0.0, "10": 10.0, "50": 50.0, "200": 200.0, "1,000": 1000.0, "4,000": 4000.0,
}  # fmt: skip
AGAIN = "Run this cell again to change concurrency, schedule, limits and models."
"""Shown in saved notebooks and front ends without widgets."""
OPENS = "%agents explore opens controls for this plan: concurrency, schedule, limits and models."
"""Shown under a planned picture."""
_VIEW = "application/vnd.jupyter.widget-view+json"


class Controls:
    """The controls as plain data for a page; the explorer starts at the first choice."""

    def __init__(self, explorer: Explorer | Callable[[], Explorer]) -> None:
        self._explorer = explorer
        self.setup: dict[str, Any] = {}
        self.shown: dict[str, Any] = {"seq": 0, "error": "", "still": {"text/plain": OPENS}}
        if isinstance(explorer, Explorer):
            self._answer(explorer, {})

    def choose(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if not isinstance(self._explorer, Explorer):
                self._explorer = self._explorer()
            self._answer(self._explorer, asked)
        except AgentMagicError as error:
            self.shown = {**self.shown, "seq": asked.get("seq", 0), "error": str(error)}
        return self.shown

    def _answer(self, explorer: Explorer, asked: Mapping[str, Any]) -> None:
        choice = choice_of(asked)
        answer = explorer.answer(choice)
        self.setup = self.setup or _setup(explorer)
        self.shown = {
            "seq": asked.get("seq", 0),
            "words": choice.words or explorer.unchanged,
            "facts": answer.facts,
            "line": answer.line,
            "picture": answer.picture,
            "goal": explorer.goal(asked["under"], asked["least"]) if "under" in asked else "",
            "cell": cell_of(choice),
            "error": "",
            "still": answer.bundle,
        }


def _setup(explorer: Explorer) -> dict[str, Any]:
    policy, trial = explorer.policy, explorer.trial
    agents = list(explorer.record.plan.names)
    return {
        "title": single_line(explorer.record.plan.name),
        "concurrency": policy.concurrency,
        "most": max(16, policy.concurrency, min(64, len(agents))),
        "schedule": policy.schedule,
        "schedules": list(POLICY_WORDS["schedule"]),
        "unchanged": explorer.unchanged,
        "limits": [explorer.unchanged, *LIMITS],
        "caches": list(POLICY_WORDS["cache"]),
        "batch": policy.batch != "off",
        "agents": agents,
        "models": list(explorer.used_models),
        "goals": None if trial is None else {"under": float(trial.frame["run_usd"].max()), "least": 0.9},
    }


class Panel:
    """The controls as a widget."""

    def __init__(self, explorer: Explorer | Callable[[], Explorer]) -> None:
        self._controls = Controls(explorer)
        self.widget: Any = _widget_class()(setup=self._controls.setup, shown=self._controls.shown)
        self.widget.top = self.widget.model_id
        self.widget.observe(self._changed, "choice")

    def show(self) -> None:
        screen: Any = importlib.import_module("IPython.display")
        data, metadata = view_of(self.widget)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        screen.display({_VIEW: view, **(data or {}), **self.widget.shown["still"]}, raw=True, metadata=metadata)

    def _changed(self, change: Any) -> None:
        self.widget.shown = self._controls.choose(change["new"])
        self.widget.setup = self._controls.setup


def choice_of(asked: Mapping[str, Any]) -> Choice:
    return Choice(
        asked.get("concurrency"),
        asked.get("schedule"),
        dict(asked.get("models", {})),
        LIMITS[asked["limits"]] if "limits" in asked else None,
        asked.get("cache"),
        asked.get("batch"),
    )


def cell_of(choice: Choice) -> str:
    return f"chosen = {choice.changes!r}\n%agents apply chosen" if choice.changes else ""


@functools.cache
def _widget_class() -> Any:
    """Load ipywidgets with the first panel."""
    import anywidget
    import traitlets  # noqa: PLC0415

    class Explore(anywidget.AnyWidget):
        _esm = built("explore.js")
        _css = built("explore.css")
        setup = traitlets.Dict().tag(sync=True)
        choice = traitlets.Dict().tag(sync=True)
        shown = traitlets.Dict().tag(sync=True)
        top = traitlets.Unicode("").tag(sync=True)

        def __repr__(self) -> str:
            return AGAIN  # ipywidgets 7 shows it without widgets

    return Explore


NEEDS_A_NOTEBOOK = (
    "run.explore() needs a notebook: its controls are a widget. "
    "Here, run.whatif(concurrency=[1, 4]) gives the same forecasts as a frame."
)


def explore(explorer: Explorer) -> None:
    if importlib.import_module("IPython").get_ipython() is None:
        sys.stdout.write(f"{NEEDS_A_NOTEBOOK}\n")
    else:
        Panel(explorer).show()


def open_packed(packed: str) -> Forecaster:
    """Open what `pack_run` packed; raise `AgentMagicError` if it is of another version."""
    data = json.loads(zlib.decompress(base64.b64decode(packed)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)  # they were shown when it ran
        plan = plan_from_dict(data["plan"], Plan)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.cassette.jsonl"
        file.write_text(data["recording"], encoding="utf-8")
        recorded = read_cassette(file).runs[0]
    listed = from_json(dict[str, tuple[Tariff, str]], data["prices"])
    return Forecaster(recorded_run(plan, recorded), prices=Prices(listed=listed, tell=lambda _: None))


def answering(packed: str) -> Callable[[str], str]:
    """Return a function from a choice to the displayed data, as JSON; an empty text asks for the controls."""
    controls = Controls(Explorer(open_packed(packed)))

    def answer(asked: str) -> str:
        first = {"setup": controls.setup, "shown": controls.shown}
        return json.dumps(controls.choose(json.loads(asked)) if asked else first)

    return answer
