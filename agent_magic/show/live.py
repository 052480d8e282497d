"""The live view: the picture of a run that moves while the run goes on, and stays as a still one after it."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, Protocol, cast

from agent_magic.show.bundle import cards_layout, static_bundle
from agent_magic.show.cells import LABEL_W, PAD
from agent_magic.show.feed import Feed
from agent_magic.show.scene import scene_of
from agent_magic.show.states import STATES
from agent_magic.show.svg import BAR_H, ROW_H, draw, picture_width, plot_of
from agent_magic.show.theme import built
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.record.results import RunRecord
    from agent_magic.show.feed import Summarize
    from agent_magic.show.layout import Layout
    from agent_magic.show.text import Numbers

    Sections = Mapping[str, str]

LEAST_STEP_S = 0.09  # ten frames a second, whoever calls more often
FULL_EVERY_S = 1.0
_DETAIL_CHARS = 20_000


class Face(Protocol):
    """What a live view needs of its widget."""

    states: str
    full: dict[str, Any]

    def send(self, content: dict[str, Any]) -> None:
        """Send a message to the views that are open."""
        ...

    def close(self) -> None:
        """Forget the views."""
        ...


class LiveView:
    """Shows a run while it goes on. `make_live_view` makes one.

    Args:
        record: The run, which grows.
        face: The widget.
        layout: Where the cards stand; `None` where agents are cells.
        feed: What follows the run.
    """

    def __init__(self, record: RunRecord, face: Face, *, layout: Layout | None, feed: Feed) -> None:
        self.face = face
        self._record, self._layout, self._feed = record, layout, feed
        self._handle: Any = None
        self._stepped_s = self._filled_s = float("-inf")
        self._unsaved = False

    def show(self) -> None:
        """Display the view in the cell that runs."""
        from IPython.display import DisplayHandle

        self._handle = DisplayHandle()
        self._handle.display(self.face)

    def tick(self, now_s: float, tails: Mapping[int, str] | None = None, *, at_once: bool = False) -> None:
        """Send what has changed.

        Args:
            now_s: Seconds since the run began.
            tails: Per agent under way, the end of the text that has arrived; per agent that is queued, what holds it.
            at_once: Send it however little time has passed since the last step.
        """
        if not at_once and now_s - self._stepped_s < LEAST_STEP_S:
            return
        self._stepped_s = now_s
        delta = self._feed.step(now_s, tails or {})
        if self.face.states != self._feed.states:
            self.face.states = self._feed.states
        if delta:
            self._unsaved = True
            self.face.send({"delta": delta})
        if self._unsaved and now_s - self._filled_s >= FULL_EVERY_S:
            self._fill(now_s)

    def finish(self, numbers: Numbers | None = None) -> None:
        """Replace the view by its still picture, without the widget: a saved notebook then shows it anywhere."""
        if self._handle is None:
            return
        bundle = static_bundle(self._record.plan, self._record, numbers, layout=self._layout)
        self._handle.update(bundle, raw=True)
        self._handle = None
        self.face.close()

    def _fill(self, now_s: float) -> None:
        """Renew the whole state that a view reads when it is opened or the page is loaded again."""
        self._filled_s, self._unsaved = now_s, False
        full = self._feed.full
        self.face.full = {key: copy.copy(value) for key, value in full.items()}  # a trait sees only a new value


def make_live_view(
    record: RunRecord,
    on_stop: Callable[[], object],
    detail: Callable[[int], Sections] | None = None,
    *,
    summarize: Summarize | None = None,
) -> LiveView:
    """Make the live view of a run. It loads ipywidgets and anywidget.

    Args:
        record: The run, before it begins or while it goes on.
        on_stop: Called when somebody presses Stop, on the thread that the message arrives on.
        detail: Returns, for the number of an agent, its texts by heading. `None` shows its answer and its error.
        summarize: Works out the numbers of the run so far, such as `agent_magic.measure.metrics.summarize`.
    """
    layout = cards_layout(record.plan)
    feed = Feed(record, layout, summarize)
    feed.step(0.0, {})
    svg = draw(scene_of(record.plan, record, now_s=0.0), record.plan, layout, theme=None)
    widget = _widget_class()(svg=svg, states=feed.states, full=feed.full, fixed=fixed_parts(record, layout, feed))
    widget.line = f"{record.plan.name}: {plural(len(record.plan), 'agent')}, running"
    tell = detail or functools.partial(texts_of, record)

    def heard(_widget: object, content: object, _buffers: object) -> None:
        match content:
            case {"cmd": "stop"}:
                on_stop()
            case {"cmd": "detail", "agent": int(agent)} if 0 <= agent < len(record.plan):
                texts = {heading: text[:_DETAIL_CHARS] for heading, text in tell(agent).items()}
                widget.send({"detail": {"agent": agent, "name": record.plan.agents[agent].name, "texts": texts}})
            case _:
                pass  # a message of another version of the front end

    widget.on_msg(heard)
    return LiveView(record, widget, layout=layout, feed=feed)


def texts_of(record: RunRecord, agent: int) -> dict[str, str]:
    """Return the texts of an agent by heading: its prompt as sent, or else as declared, its answer, its error."""
    result = record.results[agent]
    prompt = result.attempts[-1].request.prompt if result.attempts else record.plan.agents[agent].prompt
    texts = {"prompt": prompt, "answer": result.text, "error": result.error or ""}
    return {heading: text for heading, text in texts.items() if text}


def fixed_parts(record: RunRecord, layout: Layout | None, feed: Feed) -> dict[str, Any]:
    """Return what the front end has to know once: icons, edges, and where bars and cells go."""
    fixed: dict[str, Any] = {
        "icons": {state: look.icon for state, look in STATES.items()},
        "names": list(record.plan.names),
        "edges": [[edge.parent, edge.child] for edge in layout.edges] if layout else [],
    }
    if layout is not None:
        plot = plot_of(picture_width(layout), layout)
        bottom = plot.y + len(feed.rows) * ROW_H
        fixed["plot"] = {"x": plot.x, "y": plot.y, "w": plot.w, "row": ROW_H, "bar": BAR_H, "bottom": bottom}
    if feed.grid is not None:
        grid = feed.grid
        bands = [{"y": band.y + PAD, "agents": list(band.agents)} for band in grid.bands]
        fixed["cells"] = {"x": LABEL_W, "pitch": grid.pitch, "size": grid.size, "columns": grid.columns, "bands": bands}
    return fixed


@functools.cache
def _widget_class() -> Any:
    """Build the widget's class, when the first view is made: until then nothing of ipywidgets is loaded."""
    import anywidget
    import traitlets  # noqa: PLC0415

    class RunWidget(anywidget.AnyWidget):
        """The front end's half of a `LiveView`."""

        _esm = built("live.js")
        _css = built("live.css")
        svg = traitlets.Unicode("").tag(sync=True)
        states = traitlets.Unicode("").tag(sync=True)
        full = traitlets.Dict().tag(sync=True)
        fixed = traitlets.Dict().tag(sync=True)
        line = ""

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """Say in words what a front end without widgets cannot show."""
            mother: Any = super()
            bundle: Any = mother._repr_mimebundle_(**options)
            data = cast("Any", bundle[0] if isinstance(bundle, tuple) else bundle)
            if data is not None:
                data["text/plain"] = self.line
            return cast("Any", bundle)

    return RunWidget
