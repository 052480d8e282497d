"""The panel of `run.explore()`: controls on top, and under them one picture that follows.

The picture is an ordinary output that is updated, not a widget: a run without a front end keeps the picture of the
default scenario, and a saved notebook the one that was shown last. The controls are not saved:
see `widgets/src/keep.js`.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from agent_magic.engine.policy import POLICY_WORDS
from agent_magic.show.explore import RECORDED, Choice
from agent_magic.show.markup import escape
from agent_magic.show.theme import built

if TYPE_CHECKING:
    from agent_magic.show.explore import Explorer

LIMITS: dict[str, float | None] = {
    RECORDED: None, "no limits": 0.0, "10": 10.0, "50": 50.0, "200": 200.0, "1,000": 1000.0, "4,000": 4000.0,
}  # fmt: skip
"""Requests a minute to choose from."""
ALL = "all agents"
AGAIN = "Run this cell again to change concurrency, schedule, limits and models."
"""Said where the controls are not: in a saved notebook, and where nobody sees them."""
_VIEW = "application/vnd.jupyter.widget-view+json"
_STYLE = {"description_width": "130px"}


class Panel:
    """The controls, and what they do. Nothing is sent to a front end but a line and a picture per change.

    Args:
        explorer: Answers.
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
        self.limits = w.Dropdown(options=list(LIMITS), value=RECORDED, description="requests a minute", **shared)
        self.agent = w.Dropdown(options=[ALL, *agents], value=ALL, description="model of", **shared)
        self.model = w.Dropdown(options=[RECORDED, *explorer.used_models], value=RECORDED, description="is", **shared)
        self.cache = w.Dropdown(
            options=[RECORDED, *POLICY_WORDS["cache"]], value=RECORDED, description="cache", **shared
        )
        self.batch = w.Checkbox(value=False, description="as a batch: half the price, hours", indent=True, **shared)
        self.line = w.HTML()
        self.line.add_class("am-explore-line")
        left = w.VBox([self.concurrency, self.schedule, self.limits, self.batch])
        right = w.VBox([self.agent, self.model, self.cache])
        keeper = _keeper_class()()
        self.widget = w.VBox([w.HBox([left, right]), self.line, keeper])
        keeper.top = self.widget.model_id
        for control in (self.concurrency, self.schedule, self.limits, self.model, self.cache, self.batch):
            control.observe(self._changed, "value")
        self.agent.observe(self._chosen, "value")

    @property
    def choice(self) -> Choice:
        """What the controls say."""
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

    def _chosen(self, _: Any) -> None:
        """Show the model of the agent that was chosen, which changes nothing."""
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
    """Build the class of what keeps the controls out of the saved notebook, in which they would be an error."""
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
