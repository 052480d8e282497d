"""What a newcomer reads of loops, maps, conditions and plans in plans, on a real run; and axe on what is around."""

from __future__ import annotations

import re

import pytest

from tests.browser.test_accessible import violations
from tests.browser.test_live_view import start
from tests.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETUP = """%load_ext agent_magic
%agents connect simulator --seed 3 --latency x0.3
import agent_magic as am
research = am.Plan([am.Agent("sources", "Name three sources."), am.Agent("notes", "Sum up: {{ sources }}")])"""
DECLARE = """%%agents
## planner --returns list[str]
Which steps does moving house take?
## work --each planner --most 5
Say how: {{ item }}
## draft --until "critic > 3" --rounds 3
Two lines on {{ research }}. {% if critic %}{{ critic }}{% endif %}
## critic --returns int
Rate this: {{ draft }}
## fix --when "critic > 1000"
Mend this: {{ work }} {{ draft }}"""


def test_loops_maps_conditions_and_boxes_say_what_they_are(jupyter: Lab, book: str) -> None:
    """A way back for the loop, a map that fills, a grey step, a box that opens and closes; no violation of axe."""
    page = start(jupyter, book, SETUP, DECLARE, "%agents", "run = %agents run")
    card = {name: page.locator(".am-live .gr", has=page.locator(f".t:text-is('{name}')")) for name in NAMES}
    card["draft"].locator(".pl", has_text="↻ until critic > 3").wait_for()
    assert 1 == page.locator(".am-live .bk").count()
    card["work"].locator(".l", has_text=re.compile(r"^(\d) of \1$")).wait_for()
    card["fix"].locator(".wh", has_text="condition is false").wait_for()
    assert "s-k" in (card["fix"].get_attribute("class") or "")
    assert (card["research"].locator(".an").text_content() or "").startswith("notes: ")
    assert (card["critic"].locator(".an").text_content() or "").startswith("round 1: ")
    card["research"].click()
    page.locator(".am-drawer .z").first.wait_for(state="attached")
    assert [] == violations(jupyter)
    page.keyboard.press("Escape")
    page.locator(".am-drawer").wait_for(state="hidden")
    listing = page.locator(".jp-OutputArea-output .am-value", has_text="%agents plan shows")
    assert 5 == listing.locator("tbody tr").count()
    assert [] == violations(jupyter, ".am-value", rules=5)
    assert [] == jupyter.errors


NAMES = ("draft", "critic", "work", "fix", "research")
