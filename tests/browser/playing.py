"""Notebooks that the browser tests open: real runs against the mock server, and runs played from simulated events."""

from __future__ import annotations

REAL = """%load_ext agent_magic
%agents connect simulator --seed 3
from agent_magic.api import Agent"""

SLOW = "[[tokens:60]] [[pace:25]]"

DECLARE = f"""ip = get_ipython()
def declare(name, prompt):
    ip.run_cell_magic("agent", name, prompt)
declare("weather", "Look at the weather. {SLOW}")
declare("costs", "Add the costs up. [[status:500 times=3]] {SLOW}")
declare("route", "Find a route for {{{{ weather }}}} {SLOW}")
declare("bill", "Write a bill for {{{{ costs }}}} {SLOW}")
declare("hotel", "Find a hotel on {{{{ route }}}} {SLOW}")
declare("trip", "Plan: {{{{ hotel }}}} {SLOW}")"""
"""Six agents of about three seconds each; `costs` fails three times, which is all its attempts, and then would work."""

RUN = "run = %agents run --concurrency 3 --budget 2"
TELL = 'print("statuses", {one.name: one.status for one in run.record.results})'

LONGER = 'declare("trip", "Plan: {{ hotel }} [[tokens:3600]] [[pace:1]]")'
"""The last agent takes an hour: however late a page opens, it finds the run under way."""

UNTIL_LET_GO = """%agents drop trip
import asyncio, pathlib
import agent_magic as am
@am.task
async def trip(hotel):
    while not pathlib.Path("let_go").exists():
        await asyncio.sleep(0.05)"""
"""The last step waits for a file beside the notebook: however late a page opens, it finds the run under way."""

PLAYER = """import asyncio, json, time
from agent_magic.engine.health import Health
from agent_magic.engine.pacing.class_pacer import LimitUse
from agent_magic.show.live.feed import Around
from agent_magic.show.live import VERBS, make_live_view
from tests.show.story import *
stop, pressed = asyncio.Event(), []
def press(verb, agent):
    pressed.append((verb, agent))
    if verb == "stop":
        stop.set()
HEALTH = Health("bad", "input at 86 % of the limit", refusals=2, retries=5, latency_s=0.8, latency_trend_s=0.2,
    limits=tuple(LimitUse(kind, "haiku", most, used * most, used, "announced")
                 for kind, most, used in (("requests", 4000.0, 0.41), ("input", 1e6, 0.86), ("output", 2e5, 0.23))))
async def play(record, events, until_s=5.1, tails=None, arriving=None):
    view = make_live_view(record, press, arriving, verbs=VERBS)
    view.show()
    began, events = time.monotonic(), list(events)
    while not stop.is_set():
        now = min(until_s, time.monotonic() - began)
        while events and events[0].at_s <= now:
            record.add(events.pop(0))
        view.tick(time.monotonic() - began, tails or {}, Around(3, 0.5, False, HEALTH, (4.0, 6.0)))
        await asyncio.sleep(0.1)
    for event in events:
        record.add(event)
    view.finish()
    print("finished")"""

STORY = "await play(record_of(business_plan()), business_events())"
