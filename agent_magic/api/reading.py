"""`Reading`: the record of a run as frames, numbers and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic import forecast, measure, record, show
from agent_magic.engine.alerts import episodes_of, rules_of
from agent_magic.errors import RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pandas as pd

    from agent_magic.declare.plan import Plan as DeclaredPlan
    from agent_magic.engine.alerts import Rule
    from agent_magic.live.monitor import Sample
    from agent_magic.measure.compare import Recorded
    from agent_magic.measure.metrics import Summary
    from agent_magic.measure.path import CriticalPath
    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.theme import Theme
    from agent_magic.show.values import Markdown


class Reading:
    """The readable side of a run: nothing is forecast, and nothing is sent.

    Attributes:
        record: The events, and the result of each agent.
        prices: Token prices of forecasts; default list prices.
        rules: The rules of its alerts.
        samples: Measurements of the kernel; empty for a run read from a file.
    """

    def __init__(self, record: RunRecord, prices: Any = None) -> None:
        self.record, self.prices = record, prices
        self.rules: tuple[Rule, ...] = ()
        self.samples: list[Sample] = []

    def __getitem__(self, name: str) -> AgentResult:
        """Return the result of one agent: `.text`, `.usage`, `.cost_usd`, `.status`, `.stop_reason`, ..."""
        return self.record[name]

    def _ipython_key_completions_(self) -> list[str]:
        """Return what Tab offers after `run["`."""
        return list(self.plan.names)

    @property
    def plan(self) -> DeclaredPlan:
        """The plan."""
        return self.record.plan

    @property
    def agents(self) -> pd.DataFrame:
        """One row per agent, in plan order; see `agent_magic.measure.frames`."""
        return measure.agents_frame(self.record, forecast.one_by_one(self.record))

    @property
    def attempts(self) -> pd.DataFrame:
        """One row per request, in the order they were sent."""
        return measure.attempts_frame(self.record)

    @property
    def tool_calls(self) -> pd.DataFrame:
        """One row per call of a tool or a task, in order of their start: arguments, seconds, result."""
        return measure.tool_calls_frame(self.record)

    @property
    def layers(self) -> pd.DataFrame:
        """One row per layer."""
        return measure.layers_frame(self.record)

    @property
    def summary(self) -> pd.DataFrame:
        """One row for the run."""
        return measure.summary_frame(self.record, self.totals)

    @property
    def events(self) -> pd.DataFrame:
        """One row per event, in the order they happened: when, which agent, attempt or tool, and what happened."""
        return measure.events_frame(self.record)

    @property
    def contexts(self) -> pd.DataFrame:
        """One row per shared context and model: cost and savings; see `agent_magic.measure.contexts`."""
        return measure.contexts_frame(self.record, self.prices)

    @property
    def savings(self) -> pd.DataFrame:
        """One row per agent: its slack, and what halving or removing it would save; see `agent_magic.measure.path`."""
        return measure.savings_frame(self.record)

    @property
    def dead(self) -> pd.DataFrame:
        """One row per permanently failed step: request, attempts, reason; see `agent_magic.measure.service`."""
        return measure.service.dead_frame(self.record)

    @property
    def alerts(self) -> pd.DataFrame:
        """One row per alert; empty without rules. See `agent_magic.measure.frames`."""
        return measure.alerts_frame(self.record, episodes_of(self.record, self.rules))

    def would_alert(self, *rules: str) -> pd.DataFrame:
        """Return the alerts that rules would have raised in a past run or forecast, with the columns of `run.alerts`.

        Args:
            *rules: Such as `p95 > 30`, `errors > 2%`; without any the four defaults. See `agent_magic.engine.alerts`.

        Raises:
            DeclarationError: A rule cannot be read; the error shows the form.
        """
        return measure.alerts_frame(self.record, episodes_of(self.record, rules_of(rules)))

    @property
    def texts(self) -> pd.Series[str]:
        """The answers by agent, in plan order; empty without one."""
        return measure.texts_series(self.record)

    def each(self, *names: str) -> pd.DataFrame:
        """One row per item of these agents: typed columns and numbers.

        Args:
            *names: Agents declared with `--each` over the same items; several stand side by side, so that
                `reviews.join(run.each("summary", "label"))` has the columns of both.
        """
        return measure.each_frame(self.record, *names)

    @property
    def totals(self) -> Summary:
        """The run's numbers as a value; see `agent_magic.measure.metrics.Summary`."""
        return forecast.totals_of(self.record)

    def critical_path(self) -> CriticalPath:
        """Return the longest chain of work: its agents in order, their seconds, and what halving each would save."""
        return measure.find_path(self.record, self.totals.wall_s)

    def utilization(self, slots: int | None = None) -> pd.DataFrame:
        """One row per model and one for all: how busy it was; see `agent_magic.measure.service`.

        Args:
            slots: The concurrency of the run, for `slot_utilization`.
        """
        return measure.service.utilization_frame(self.record, slots)

    def percentiles(self, *others: Reading) -> pd.DataFrame:
        """One row per number, of this run and others together, with `n`; see `agent_magic.measure.service`.

        Args:
            *others: More runs of the same plan.
        """
        return measure.service.percentiles_frame(
            [self.record, *(measure.record_of(other, "percentiles") for other in others)]
        )

    def slo(self, **targets: float | None) -> pd.DataFrame:
        """Compare the run with service targets; see `agent_magic.measure.service.slo_frame`.

        Args:
            **targets: Targets by name, such as `p95_s=5`; the defaults are `concurrent=100`, `jobs_per_s=5`,
                `p95_s=15`, `succeeded=0.995`, `errors=0.01` and `usd_per_job=2`, and `None` omits one.
        """
        return measure.service.slo_frame(self.record, targets)

    @property
    def ok(self) -> bool:
        """True if every agent succeeded, except those not needed: a false condition, or a missing item."""
        return all(result.status == "succeeded" or result.is_left_out for result in self.record.results)

    def timeline(self, *, theme: Theme = "auto") -> Chart:
        """Draw when each agent waited and worked: a bar per attempt, the critical path marked.

        Args:
            theme: `auto` (follows the page), `light` or `dark`.
        """
        return show.run_timeline(self.record, theme=theme)

    def waterfall(self, *, theme: Theme = "auto") -> Chart:
        """Draw the seconds and the dollars by cause, in steps that add up to the total.

        Args:
            theme: `auto` (follows the page), `light` or `dark`.
        """
        return show.run_waterfall(self.record, theme=theme)

    def limits_chart(self, limits: Mapping[str, float | None] | None = None, *, theme: Theme = "auto") -> Chart:
        """Draw the load on the provider over time; `limits` such as `{"requests": 50}` per minute.

        Limits can be given of `requests`, `input tokens`, `output tokens` and `requests under way`.

        Args:
            limits: Lines to draw: per minute `requests`, `input tokens`, `output tokens`, or `requests under way` at
                once.
            theme: `auto` (follows the page), `light` or `dark`.

        Raises:
            DeclarationError: There is no such limit, or it is not a number.
        """
        return show.run_limits(self.record, limits, theme=theme)

    @property
    def kernel(self) -> pd.DataFrame:
        """One row per sample of the kernel: CPU, memory, loop lag; see `agent_magic.measure.frames`."""
        return measure.kernel_frame(self.record, [one._asdict() for one in self.samples])

    def dashboard(self, *, theme: Theme = "auto") -> Chart:
        """Draw throughput, waiting, errors, latency, dollars, limits and the kernel over time, up to now.

        Args:
            theme: `auto` (follows the page), `light` or `dark`.
        """
        return show.run_dashboard(self.record, self.samples, episodes_of(self.record, self.rules), theme=theme)

    def markdown(self, name: str) -> Markdown:
        """Show the answer of one agent as Markdown, without HTML and pictures, with links to the web only.

        Args:
            name: The agent.
        """
        return show.Markdown(self[name].text)

    def raise_for_failures(self) -> None:
        """Raise `RunFailed` unless every agent succeeded."""
        failures = {
            result.name: result.error or result.status
            for result in self.record.results
            if result.status != "succeeded" and not result.is_left_out
        }
        if failures:
            raise RunFailed(failures)

    def save(self, path: str | Path, *, redact: Callable[[str], str] | None = None, texts: bool = True) -> int:
        """Write the run to a cassette, to share or replay. Return the number of calls.

        `texts=False` omits texts by people and models except agents' names; `redact` replaces each text. Such a file
        replays by the agents' names.

        Args:
            path: The file to write.
            redact: Returns the replacement of a text.
            texts: False to omit texts by people and models.
        """
        return record.write_cassette(self.record, path, redact=redact if texts else record.only_hash)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.plan.name!r}: {show.run_line(self.record)}{show.forecast_words(self.record)})"
        )

    def bundle(self, *, theme: Theme = "auto") -> dict[str, str]:
        """Return its picture and its text, as notebooks show them.

        Args:
            theme: `auto` (follows the page), `light` or `dark`.
        """
        return show.static_bundle(self.plan, self.record, theme=theme)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return self.bundle()

    def _repr_svg_(self) -> str:
        """Return the picture alone, for what asks for no bundle, such as Panel."""
        return self.bundle()["image/svg+xml"]


class Comparison:
    """What `am.compare` returns. A notebook shows the picture, then the frame.

    Args:
        a: A run.
        b: Another run.
    """

    def __init__(self, a: Recorded, b: Recorded) -> None:
        self._a, self._b = a.record, b.record

    @property
    def frame(self) -> pd.DataFrame:
        """One row per agent of either run, those of `a` first, then `(all)`.

        `status`, `seconds`, `tokens`, `cost_usd` and `model` have suffixes `_a` and `_b`; `diff_s`, `diff_tokens` and
        `diff_usd` are `b` minus `a`; `prompt_changed` and `text_changed` are booleans. Values missing in a run are
        `NA`.
        """
        return measure.compare.compared(self._a, self._b)

    def chart(self, *, theme: Theme = "auto") -> Chart:
        """Draw both runs over each other: what got slower, dearer, and which answers changed.

        Args:
            theme: Its colours.
        """
        return show.comparison_chart(self._a, self._b, measure.compare.differences(self._a, self._b), theme=theme)

    def __repr__(self) -> str:
        return f"{self.chart().text}\n\n{show.frame_text(self.frame)}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        """Return both as one page, for front ends that show one form of a value, such as marimo."""
        return self.chart().svg + show.frame_bundle(self.frame)["text/html"]

    def _ipython_display_(self) -> None:  # notebooks that are not trusted keep a picture, and drop one within HTML
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

        display(self.chart())
        display(self.frame)


def compare(a: Recorded, b: Recorded) -> Comparison:
    """Compare two runs, agent by agent: a picture of both over each other, and a frame.

    Differences are `b` minus `a`, so savings are negative.

    Args:
        a: A run.
        b: Another run, of the same plan or a changed one.

    Raises:
        DeclarationError: `a` or `b` is not a run.
    """
    measure.compare.check_runs((a, b), "compare")
    return Comparison(a, b)
