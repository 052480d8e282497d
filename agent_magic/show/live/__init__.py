"""The live view: the picture of a run that moves while the run goes on, and stays as a still one after it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol, cast

from agent_magic.record.plaintext import single_line
from agent_magic.show.graph import cards_layout, static_bundle
from agent_magic.show.graph.groups import Sheet, sheet_of
from agent_magic.show.graph.scene import scene_of
from agent_magic.show.graph.svg import draw, groups_h, passes, picture_width, pill_w, plot_of
from agent_magic.show.live.feed import Feed, icons
from agent_magic.show.live.panel import details_of
from agent_magic.show.live.status import ALONE
from agent_magic.show.states import OF_SOURCE, STATES
from agent_magic.show.theme import built
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.results import RunRecord
    from agent_magic.show.graph.layout import Layout
    from agent_magic.show.graph.svg import Plot
    from agent_magic.show.live.status import Around
    from agent_magic.show.theme import Theme

LEAST_STEP_S = 0.09  # ten frames a second, whoever calls more often
VERBS = ("stop", "pause", "resume", "retry", "skip")
"""What buttons can ask for. `retry` and `skip` are of one agent."""


class Face(Protocol):
    """What a live view needs of its widget."""

    states: str

    def send(self, content: dict[str, Any]) -> None:
        """Send a message to the views that are open."""
        ...

    def settle(self, still: dict[str, str]) -> None:
        """Become what stays, by MIME type, for pages that are loaded again."""
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

    Attributes:
        theme: The colours of the still picture: of the page that showed the view, where they are not the system's.
        watched: Whether a page has said that it shows the view. A page that is loaded again while the cell runs is not
            told of the still picture, and asks the widget for its state when the kernel has time.
        mute: Called at the end: nothing that is pressed is heard from then on.
    """

    def __init__(self, record: RunRecord, face: Face, *, layout: Layout | None, feed: Feed) -> None:
        self.face = face
        self._record, self._layout, self._feed = record, layout, feed
        self._handle: Any = None
        self._stepped_s = float("-inf")
        self.theme: Theme = "auto"
        self.watched = False
        self.mute: Callable[[], object] = bool

    def show(self) -> None:
        """Display the view in the cell that runs."""
        from IPython.display import DisplayHandle

        self._handle = DisplayHandle()
        said: Any = getattr(self.face, "_repr_mimebundle_", lambda: None)()
        data: Any = said[0] if isinstance(said, tuple) else said  # pyright: ignore[reportUnknownVariableType]
        if data is None:
            self._handle.display(self.face)
        else:  # ipywidgets 7 displays itself without an id, and the still picture would have nothing to replace
            self._handle.display(data, raw=True)

    def tick(
        self, now_s: float, tails: Mapping[int, str] | None = None, around: Around = ALONE, *, at_once: bool = False
    ) -> None:
        """Send what has changed.

        Args:
            now_s: Seconds since the run began.
            tails: Per agent under way, the end of the text that has arrived; per agent that is queued, what holds it.
            around: What the record does not know, such as the health of the service.
            at_once: Send it however little time has passed since the last step.
        """
        if not at_once and now_s - self._stepped_s < LEAST_STEP_S:
            return
        self._stepped_s = now_s
        delta = self._feed.step(now_s, tails or {}, around)
        states = self._feed.states
        if self.face.states != states:
            self.face.states = states
        if delta:
            self.face.send({"delta": delta})

    def finish(self) -> None:
        """Replace the view by its still picture, without the widget: a saved notebook then shows it anywhere.

        A widget that a page has shown stays, as its still picture, until `close`.
        """
        if self._handle is None:
            return
        bundle = static_bundle(self._record.plan, self._record, theme=self.theme, layout=self._layout)
        self._handle.update(bundle, raw=True)
        self._handle = None
        self.mute()
        if self.watched:
            self.face.settle(bundle)
        else:
            self.close()

    def close(self) -> None:
        """Forget the widget."""
        self.face.close()


def make_live_view(
    record: RunRecord,
    press: Callable[[str, str | None], object],
    arriving: Callable[[int], str] | None = None,
    *,
    verbs: Sequence[str] = ("stop",),
) -> LiveView:
    """Make the live view of a run. It loads ipywidgets and anywidget.

    Args:
        record: The run, before it begins or while it goes on.
        press: Called with a verb of `VERBS`, and with the name of an agent or `None`, when somebody presses a button.
            On the thread that the message arrives on, which need not be that of the run.
        arriving: Returns, for the number of an agent, the text that has arrived of its answer.
        verbs: The verbs that `press` knows; others have no button.
    """
    plan = record.plan
    layout = cards_layout(plan)
    placed = sheet_of(plan) if layout is None else layout
    feed = Feed(record, placed)
    feed.step(0.0, {})
    sheet = placed if isinstance(placed, Sheet) else None
    svg = draw(scene_of(plan, record, now_s=0.0, sheet=sheet), plan, layout, theme=None)
    fixed = fixed_groups(record, placed) if isinstance(placed, Sheet) else fixed_parts(record, placed, feed)
    line = f"{single_line(plan.name)}: {plural(len(plan), 'agent')}, running"
    fixed["verbs"] = list(verbs)
    widget = _widget_class()(svg=svg, states=feed.states, fixed=fixed, feed=feed, line=line)

    view = LiveView(record, widget, layout=layout, feed=feed)

    def heard(_widget: object, content: object, _buffers: object) -> None:
        match content:
            case {"cmd": "page", "dark": bool(dark), "system": bool(system)}:
                view.theme = "auto" if dark == system else "dark" if dark else "light"
                view.watched = True
            case {"cmd": "detail", "agent": int(agent)} if 0 <= agent < len(plan):
                widget.send({"detail": details_of(record, agent, arriving(agent) if arriving else "")})
            case {"cmd": str(verb), "agent": int(agent)} if verb in {"retry", "skip"} and 0 <= agent < len(plan):
                if verb in verbs:
                    press(verb, plan.agents[agent].name)
            case {"cmd": str(verb)} if verb in {"stop", "pause", "resume"} and verb in verbs:
                press(verb, None)
            case _:
                pass  # a message of another version of the front end

    widget.on_msg(heard)
    view.mute = functools.partial(widget.on_msg, heard, remove=True)
    widget.top = widget.model_id
    return view


def fixed_parts(record: RunRecord, layout: Layout, feed: Feed) -> dict[str, Any]:
    """Return what the front end has to know once of cards: icons, edges, and where bars go."""
    plan = record.plan
    return {
        **_fixed(plan),
        "edges": [[edge.parent, edge.child, int(passes(plan, edge))] for edge in layout.edges],
        "plot": _plot(plot_of(picture_width(layout), layout.height, len(feed.rows))),
    }


def fixed_groups(record: RunRecord, sheet: Sheet) -> dict[str, Any]:
    """Return what the front end has to know once of groups: their names and who is in them."""
    groups = [
        {"label": group.label, "where": group.where, "agents": _stretches(group.agents)} for group in sheet.groups
    ]
    plot = plot_of(picture_width(sheet.layout), groups_h(sheet), len(groups))
    return {**_fixed(record.plan), "edges": [], "groups": groups, "plot": _plot(plot)}


def _plot(plot: Plot) -> dict[str, float]:
    return {"x": plot.x, "y": plot.y, "w": plot.w, "row": plot.row_h, "bar": plot.bar_h, "bottom": plot.bottom}


def _fixed(plan: Plan) -> dict[str, Any]:
    return {
        "title": single_line(plan.name),
        "icons": icons(),
        "words": {state: look.word for state, look in STATES.items()},
        "pills": {badge: round(pill_w(badge), 1) for badge in OF_SOURCE},
        "names": [single_line(name) for name in plan.names],
    }


def _stretches(agents: Sequence[int]) -> list[list[int]]:
    """Write numbers in order as (first, how many)."""
    found: list[list[int]] = []
    for agent in agents:
        if found and sum(found[-1]) == agent:
            found[-1][1] += 1
        else:
            found.append([agent, 1])
    return found


def _whole(_value: object, widget: Any) -> dict[str, Any]:
    """Say the whole state. It is asked for when the view opens, and again when the page is loaded again."""
    return {} if widget.feed is None else widget.feed.whole()


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
        full = traitlets.Dict().tag(sync=True, to_json=_whole)
        fixed = traitlets.Dict().tag(sync=True)
        still = traitlets.Dict().tag(sync=True)
        feed = traitlets.Any()
        line = traitlets.Unicode("")
        top = traitlets.Unicode("").tag(sync=True)

        def settle(self, still: dict[str, str]) -> None:
            """Become what stays."""
            self.feed, self.svg, self.still = None, "", still

        def close(self) -> None:
            """Close the widget, and the model of its layout, which ipywidgets leaves open."""
            mother: Any = super()
            mother.close()
            layout = cast("Any", self).layout
            if layout is not None:
                layout.close()

        def __repr__(self) -> str:
            return self.line  # ipywidgets 7 shows it where there are no widgets

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """Say in words what a front end without widgets cannot show."""
            mother: Any = super()
            bundle: Any = mother._repr_mimebundle_(**options)
            data = cast("Any", bundle[0] if isinstance(bundle, tuple) else bundle)
            if data is not None:
                data["text/plain"] = self.line
            return cast("Any", bundle)

    return RunWidget
