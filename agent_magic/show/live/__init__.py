"""The live view: a picture of a run that changes while the run goes on, and that can be asked after it.

Theory of operation
-------------------
The kernel decides the content, the page the motion. `show.graph` draws the SVG once (`theme=None`); from then on `feed`
computes changes, `RunWidget` sends them, and `widgets/src` applies them to elements found by class and order. The page
computes no layout, number or text, except the seconds of running agents.

Sent to the page:

* `svg` and `fixed`, once: the picture, and its constant parts.
* `states`, a synced string with one character per agent.
* `{"delta": ...}`, at most ten times a second and about 8 KB: changed entries, the header, the health strip.
* `questions`, a synced list: every page shows the same, and the first answer counts.
* `full`, the sum of all deltas, for a page that opens the view or is reloaded.

Sent back: `{"cmd": ...}`, a pressed button, a clicked card, an edited answer, or the theme of the page.

The laws:

1. The cost of a step depends on the number of new events, not of agents or tokens. Above 200 agents the picture has
   groups, and only their counts are sent.
2. A step that does not fit continues in the next one.
3. Entries are values, not operations, and each is sent again in its turn (`AGAIN`): a page that opened late or lost a
   message is right again after a while.
4. A run never waits for its picture: the first requests leave before it is drawn.
5. Model output is text: the page writes it with `textContent`. An answer is also rendered as Markdown, by
   `show.values`; the page builds only elements of a fixed list from it.
6. The saved output is static: at the end it becomes `image/svg+xml` and `text/plain`, without the widget. A page that
   can write its notebook (`keeps`: JupyterLab, Notebook 7) does that itself, and the view stays alive in it until the
   kernel ends or the session closes it. Elsewhere the kernel replaces the output.
7. Updates of a display do not reach the content of an `Output` widget, nor the output of a button's callback: there
   the widget stays open, muted, as its static picture. If a program runs the cells, an `Output` widget gets no live
   view, but the picture at the end (`show.terminal.StillView`).

Tried and lost:

* Graphviz in the page: 0.8 to 1.2 MB per widget, and no picture without a front end.
* Widget and static picture in one output: reopened without a kernel, JupyterLab prefers the widget and shows "Error
  displaying widget: model not found".
* A message per event: above 1,000 a second jupyter_server drops messages of the kernel, prints included.
* Closing every widget when its run ends: a page reloaded in the middle of the run then had no picture.
* The static picture in the open page, too: a click on a card then did nothing, and the panel being read vanished.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from agent_magic.declare.units import UNKNOWN, count, dollars, seconds
from agent_magic.record.answer import TOOL_USE
from agent_magic.record.display import clean, single_line, visible
from agent_magic.record.results import capped_steps
from agent_magic.show.asking import asked, verdict_of
from agent_magic.show.cards import thumbnails
from agent_magic.show.displays import is_captured, is_looked_at, view_of
from agent_magic.show.graph import cards_layout, static_bundle
from agent_magic.show.graph.groups import Sheet, sheet_of
from agent_magic.show.graph.scene import scene_of
from agent_magic.show.graph.svg import draw, groups_h, passes, picture_width, pill_w, plot_of
from agent_magic.show.live.feed import ALONE, Feed, icons
from agent_magic.show.states import SOURCES, STATES, badge_of, meaning_of, states_of, unmet
from agent_magic.show.text import result_facts, steps_of
from agent_magic.show.theme import PHASES, built
from agent_magic.show.values import markdown_html

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.calls import Verdict
    from agent_magic.live.people import Question
    from agent_magic.record.facts import ToolCall
    from agent_magic.record.results import AgentResult, Attempt, RunRecord
    from agent_magic.show.graph.layout import Layout
    from agent_magic.show.graph.svg import Plot
    from agent_magic.show.live.feed import Around
    from agent_magic.show.theme import Theme


Edit: TypeAlias = "Callable[[str, str | None], tuple[str, bool]]"
LEAST_STEP_S = 0.09  # at most ten frames a second
PATIENCE_S = 10.0
"""Seconds a finished run waits for a page: its first view takes seconds to load."""
SESSION = "JPY_SESSION_NAME"
"""Set by Jupyter servers for their kernels. Elsewhere no page can save a notebook itself."""
LEGEND = (
    "bold: the critical path, the longest chain of work",
    "thicker line: a longer answer went along it",
    "dashed line: waits for it, reads nothing",
    "dashed arrow back: the next round of a loop",
)
VERBS = ("stop", "pause", "resume", "retry", "skip")
"""The commands of buttons; `retry` and `skip` take one agent."""


class Face(Protocol):
    """The part of the widget that a live view uses."""

    states: str
    line: str
    questions: list[dict[str, Any]]

    def send(self, content: dict[str, Any]) -> None: ...

    def settle(self, still: dict[str, str]) -> None: ...

    def close(self) -> None: ...


class LiveView:
    """Shows an active run.

    Attributes:
        theme: The colours of the static picture, taken from the page that showed the view.
        watched: True if a page has shown the view.
        keeps: True if that page writes the static picture into its notebook itself.
        mute: Called when no page shows the view any more; from then on clicks do nothing.
    """

    def __init__(self, record: RunRecord, face: Face, *, layout: Layout | None, feed: Feed) -> None:
        self.face = face
        self._record, self._layout, self._feed = record, layout, feed
        self._handle: Any = None
        self._stepped_s = float("-inf")
        self.theme: Theme = "auto"
        self.watched = self.keeps = False
        self.mute: Callable[[], object] = bool
        self._still: dict[str, str] = {}
        self._is_patient = self._is_captured = False
        self._asked: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """True while a page may request it, now or after a reload."""
        return self.watched or self._handle is not None

    @property
    def is_over(self) -> bool:
        """True if the run has ended: buttons then do nothing."""
        return bool(self._still)

    def show(self) -> None:
        from IPython.display import DisplayHandle

        self._handle = DisplayHandle()
        self._is_patient = SESSION in os.environ and is_looked_at()
        self._is_captured = is_captured()
        data, metadata = view_of(self.face)
        if data is None:
            self._handle.display(self.face)
        else:  # ipywidgets 7 displays itself without an id, so the static picture could not replace it
            self._handle.display(data, raw=True, metadata=metadata)

    def tick(
        self, now_s: float, tails: Mapping[int, str] | None = None, around: Around = ALONE, *, at_once: bool = False
    ) -> None:
        """Send changes; `at_once` even right after the last step."""
        if not at_once and now_s - self._stepped_s < LEAST_STEP_S:
            return
        self._stepped_s = now_s
        delta = self._feed.step(now_s, tails or {}, around)
        states = self._feed.states
        if self.face.states != states:
            self.face.states = states
        if delta:
            self.face.send({"delta": delta})

    def tell(self, line: str) -> None:
        """Put a line in place of the text, for a front end that shows no widgets."""
        # A page of a Jupyter server shows them, late on a busy machine, and would draw them again.
        if self._handle is None or self.is_over or self._is_patient:
            return
        self.face.line = line
        data, metadata = view_of(self.face)
        if data is not None:
            self._handle.update(data, raw=True, metadata=metadata)

    def ask(self, questions: Mapping[int, Question]) -> None:
        if (numbers := tuple(questions)) != self._asked:
            self._asked = numbers
            self.face.questions = asked(questions)

    def finish(self) -> None:
        # A page that keeps its notebook does so itself, and the view stays alive there. Elsewhere the output is
        # replaced; a widget that a page has shown stays open until `close`, for reloads. A page that has not
        # drawn a short run's view yet is waited for.
        if self._handle is None or self.is_over:
            return
        ended_s = self._record.ended_s
        self.tick(max(0.0, self._stepped_s) if ended_s is None else ended_s, at_once=True)
        self.ask({})
        self._still = static_bundle(self._record.plan, self._record, theme=self.theme, layout=self._layout)
        self.face.settle(self._still)
        if self._is_patient and not self.keeps:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up)
        else:
            self._give_up()

    def close(self) -> None:
        """Close the widget; a page that still shows the view gets its static picture."""
        # If the output cannot be replaced, the widget is that picture, and stays.
        self._replace()
        self.mute()
        if not (self._is_captured and self.is_over):
            self.face.close()

    def _give_up(self) -> None:
        if self._handle is None or self.keeps:
            return
        self._replace()
        self.mute()
        if not self.watched:
            self.close()

    def _replace(self) -> None:
        if self._handle is not None and self.is_over:
            self._handle.update(self._still, raw=True)
        self._handle = None


def make_live_view(
    record: RunRecord,
    press: Callable[[str, str | None], object],
    arriving: Callable[[int], str] | None = None,
    *,
    verbs: Sequence[str] = ("stop",),
    decide: Callable[[int, Verdict], str] | None = None,
    edit: Edit | None = None,
) -> LiveView:
    """Make the live view of a run.

    `press` gets a verb of `VERBS` and an agent's name or `None`, perhaps on another thread than the run's; `decide`
    returns why a decision has no effect. `edit` is called after the end with an agent and its new answer, or `None` to
    begin; it returns the text to begin with, or the consequences, and whether that worked.
    """
    plan = record.plan
    layout = cards_layout(plan)
    placed = sheet_of(plan) if layout is None else layout
    feed = Feed(record, placed)
    feed.step(0.0, {})
    sheet = placed if isinstance(placed, Sheet) else None
    svg = draw(scene_of(plan, record, now_s=0.0, sheet=sheet), plan, layout, theme=None)
    fixed = fixed_groups(record, placed) if isinstance(placed, Sheet) else fixed_parts(record, placed, feed)
    line = f"{single_line(plan.name)}: {steps_of(plan)}, running"
    fixed["verbs"] = list(verbs)
    widget = _widget_class()(svg=svg, states=feed.states, fixed=fixed, feed=feed, line=line)

    view = LiveView(record, widget, layout=layout, feed=feed)

    def heard(_widget: object, content: object, _buffers: object) -> None:
        match content:
            case {"cmd": "page", "dark": bool(dark), "system": bool(system), "keeps": bool(keeps)}:
                view.theme = "auto" if dark == system else "dark" if dark else "light"
                view.watched, view.keeps = True, keeps or (view.is_over and view.keeps)
                widget.is_shown = True
            case {"cmd": "detail", "agent": int(agent)} if 0 <= agent < len(plan):
                details, result = details_of(record, agent, arriving(agent) if arriving else ""), record.results[agent]
                answered = record.ended_s is not None and bool(result.attempts) and not result.is_task
                widget.send({"detail": {**details, "edits": edit is not None and answered}})
            case {"cmd": "edit"} if edit is not None and view.is_over:
                widget.send({"edit": _edited(content, plan, edit)})
            case _ if view.is_over:
                pass  # nothing is left to steer
            case {"cmd": "answer", "number": int(number), "way": str(way), "text": str(text)} if decide is not None:
                if fault := decide(number, verdict_of(way, text)):
                    widget.send({"fault": {"number": number, "text": visible(fault)}})
            case _:
                verb, name = _pressed(content, plan)
                if verb in verbs:
                    press(verb, name)

    widget.on_msg(heard)
    view.mute = functools.partial(widget.on_msg, heard, remove=True)
    widget.top = widget.model_id
    return view


def _pressed(content: object, plan: Plan) -> tuple[str, str | None]:
    match content:
        case {"cmd": str(verb), "agent": int(agent)} if verb in {"retry", "skip"} and 0 <= agent < len(plan):
            return verb, plan.agents[agent].name
        case {"cmd": str(verb)} if verb in {"stop", "pause", "resume"}:
            return verb, None
        case _:
            return "", None  # a message of another version of the front end


def _edited(content: object, plan: Plan, edit: Edit) -> dict[str, Any]:
    match content:
        case {"agent": int(agent), "text": str(text)} if 0 <= agent < len(plan):
            said, worked = edit(plan.agents[agent].name, text)
            return {"agent": agent, "done" if worked else "fault": clean(said)}
        case {"agent": int(agent)} if 0 <= agent < len(plan):
            said, worked = edit(plan.agents[agent].name, None)
            return {"agent": agent, "start" if worked else "fault": clean(said)}
        case _:
            return {}


def fixed_parts(record: RunRecord, layout: Layout, feed: Feed) -> dict[str, Any]:
    plan = record.plan
    return {
        **_fixed(plan),
        "edges": [[edge.parent, edge.child, int(passes(plan, edge))] for edge in layout.edges],
        "rows": list(feed.rows),
        "plot": _plot(plot_of(picture_width(layout), layout.height, len(feed.rows))),
    }


def fixed_groups(record: RunRecord, sheet: Sheet) -> dict[str, Any]:
    groups = [
        {"label": group.label, "where": group.where, "agents": _stretches(group.agents)} for group in sheet.groups
    ]
    plot = plot_of(picture_width(sheet.layout), groups_h(sheet), len(groups))
    return {**_fixed(record.plan), "edges": [], "groups": groups, "plot": _plot(plot)}


def _plot(plot: Plot) -> dict[str, float]:
    return {"x": plot.x, "y": plot.y, "w": plot.w, "row": plot.row_h, "bar": plot.bar_h, "bottom": plot.bottom}


def _fixed(plan: Plan) -> dict[str, Any]:
    return {
        "phases": {kind[0]: look.word for kind, look in PHASES.items()},
        "title": single_line(plan.name),
        "icons": icons(),
        "words": {state: look.word for state, look in STATES.items()},
        "meanings": {state: meaning_of(state) for state in STATES},
        "legend": LEGEND,
        "pills": {badge: round(pill_w(badge), 1) for badge in map(badge_of, SOURCES) if badge},
        "names": [single_line(name) for name in plan.names],
        "tasks": [number for number, one in enumerate(plan.agents) if one.is_task],
    }


def _stretches(agents: Sequence[int]) -> list[list[int]]:
    """Write ascending numbers as runs of (first, count)."""
    found: list[list[int]] = []
    for agent in agents:
        if found and sum(found[-1]) == agent:
            found[-1][1] += 1
        else:
            found.append([agent, 1])
    return found


def _whole(_value: object, widget: Any) -> dict[str, Any]:
    return widget.feed.whole()


@functools.cache
def _widget_class() -> Any:
    """Load ipywidgets with the first view."""
    import anywidget
    import traitlets  # noqa: PLC0415

    class RunWidget(anywidget.AnyWidget):
        _esm = built("live.js")
        _css = built("live.css")
        svg = traitlets.Unicode("").tag(sync=True)
        states = traitlets.Unicode("").tag(sync=True)
        full = traitlets.Dict().tag(sync=True, to_json=_whole)
        fixed = traitlets.Dict().tag(sync=True)
        questions = traitlets.List(traitlets.Dict()).tag(sync=True)
        still = traitlets.Dict().tag(sync=True)
        feed = traitlets.Any()
        line = traitlets.Unicode("")
        top = traitlets.Unicode("").tag(sync=True)
        is_shown = traitlets.Bool(default_value=False)

        def settle(self, still: dict[str, str]) -> None:
            self.still = still

        def close(self) -> None:
            """Close also the model of its layout, which ipywidgets leaves open."""
            # A notebook that is executed without a page keeps the state of closed widgets, too: it is
            # emptied first.
            mother: Any = super()
            if cast("Any", self).comm is not None and not self.is_shown:
                self.set_trait("_esm", "")
                self.set_trait("_css", "")
                self.svg, self.states, self.fixed, self.still = "", "", {}, {}
            mother.close()
            layout = cast("Any", self).layout
            if layout is not None:
                layout.close()

        def __repr__(self) -> str:
            return self.line  # ipywidgets 7 shows it without widgets

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """Add the text for front ends without widgets."""
            mother: Any = super()
            bundle: Any = mother._repr_mimebundle_(**options)
            data = cast("Any", bundle[0] if isinstance(bundle, tuple) else bundle)
            if data is not None:
                data["text/plain"] = self.line
            return cast("Any", bundle)

    return RunWidget


MOST_CHARS = 5_000
"""Maximum of a shown text: arriving text is sent again every second."""
MOST_ANSWER = 100_000
"""Maximum of a complete answer, which is sent once."""
MOST_ATTEMPTS = 20
MOST_CALLS = 30
MOST_RESULT = 2_000
MOST_ARGUMENT = 600
HEADINGS = ("", "sent at", "took", "first token", "tokens in", "tokens out", "cost")


def details_of(record: RunRecord, agent: int, text: str = "") -> dict[str, Any]:
    result = record.results[agent]
    state = states_of(record)[agent]
    facts = filter(None, [unmet(capped_steps(record).get(agent)), *result_facts(result, record.source_at(agent))])
    is_text = result.answer and not _is_turn(result) and not result.returns
    return {
        "agent": agent,
        "name": single_line(result.name),
        "state": state,
        "word": STATES[state].word,
        "facts": " · ".join(facts),
        "headings": list(HEADINGS),
        "attempts": [_row(one) for one in result.attempts[-MOST_ATTEMPTS:]],
        "error": single_line(result.error or result.waits_why)[:600],
        "turns": _turns(result),
        "texts": _texts(record, agent, text),
        "rendered": markdown_html(result.text[:MOST_ANSWER]) if is_text else "",
        "pictures": thumbnails(result.attempts[-1].request.files) if result.attempts else [],
    }


def _is_turn(result: AgentResult) -> bool:
    return result.stop_reason == TOOL_USE


def _row(attempt: Attempt) -> list[str]:
    usage = attempt.usage
    return [
        f"{attempt.number} {attempt.status}",
        seconds(attempt.started_s),
        seconds(attempt.duration_s) if attempt.duration_s is not None else "…",
        seconds(attempt.ttft_s) if attempt.ttft_s is not None else UNKNOWN,
        count(usage.total_input_tokens) if usage else UNKNOWN,
        count(usage.output_tokens) if usage else UNKNOWN,
        dollars(attempt.price.cost_usd if attempt.price else None),
        single_line(attempt.error or "")[:300],
    ]


def _turns(result: AgentResult) -> list[dict[str, Any]]:
    calls = result.calls[-MOST_CALLS:] if len(result.calls) > result.is_task else ()
    found: list[dict[str, Any]] = []
    for turn in dict.fromkeys(one.turn for one in calls):
        asked = result.attempts[turn - 1] if turn else None
        said = "" if asked is None or asked.answer is None else asked.answer.text
        found.append(
            {
                "heading": "calls" if asked is None else f"turn {asked.turn}",
                "said": _cut(said.strip(), result.name, MOST_CHARS),
                "calls": [_call(one, result.name) for one in calls if one.turn == turn],
            }
        )
    return found


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    took = "…" if call.duration_s is None else seconds(call.duration_s)
    trace = "" if call.ended is None else call.ended.trace
    texts = {"result": _shown_result(call), "printed": call.prints, "traceback": trace}
    return {
        "number": call.number,
        "tool": single_line(call.tool),
        "status": call.status,
        "facts": " · ".join([took, *([] if call.status == "succeeded" else [call.status])]),
        "arguments": _arguments(call.arguments, name),
        "texts": {what: _cut(text, name, MOST_RESULT) for what, text in texts.items() if text},
        "pictures": thumbnails(() if call.ended is None else call.ended.files),
    }


def _arguments(text: str, name: str) -> list[list[str]]:
    """Return rows; JSON that is not an object unchanged."""
    try:
        given: Any = json.loads(text or "{}")
    except ValueError:
        given = text
    named = cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}
    written = {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in named.items()}
    return [[single_line(key), _cut(one, name, MOST_ARGUMENT)] for key, one in written.items()]


def _shown_result(call: ToolCall) -> str:
    if call.ended is None or not call.ended.blocks:
        return call.result
    try:
        blocks = json.loads(call.result)
        return "\n".join(one["text"] if one["type"] == "text" else f"[{one['type']}]" for one in blocks)
    except (ValueError, TypeError, KeyError):
        return call.result


def _texts(record: RunRecord, agent: int, text: str) -> dict[str, str]:
    result, declared = record.results[agent], record.plan.agents[agent]
    answer, found = result.text or text, dict[str, str | None]()
    if result.is_task:
        return _task_texts(result)
    if result.attempts:
        request = result.attempts[-1].request
        found |= {"prompt as sent": request.prompt, "system": request.system, "shared context": request.context}
    else:
        found |= {"prompt as declared": declared.prompt, "system": declared.system_text}
    found["citations"] = "\n".join(
        f"{single_line(one.text)} — {single_line(one.title)}, {one.where}: {single_line(one.cited_text)}"
        for one in result.citations
    )
    if _is_turn(result):
        answer = ""
    first = {"answer": _cut(answer, declared.name, MOST_ANSWER)} if answer and result.answer else {}
    if answer and not first:
        first = {"answer so far": _cut(answer, declared.name, MOST_CHARS)}
    return {**first, **{heading: _cut(text, declared.name, MOST_CHARS) for heading, text in found.items() if text}}


def _task_texts(result: AgentResult) -> dict[str, str]:
    if not result.calls:
        return {}
    last = result.calls[-1]
    found = {
        "value": last.result if last.status == "succeeded" else "",
        "printed": last.prints,
        "traceback": "" if last.ended is None else last.ended.trace,
    }
    return {heading: _cut(text, result.name, MOST_CHARS) for heading, text in found.items() if text}


def _cut(text: str, name: str, most: int) -> str:
    if len(text) <= most:
        return clean(text)
    return f"{clean(text[:most])}\n… {len(text) - most:,} more characters: run[{name!r}]"
