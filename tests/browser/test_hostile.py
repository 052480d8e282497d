"""Thirty hostile texts in every place that takes one: nothing runs, nothing is fetched, no picture breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_magic.record.display import single_line
from tests.browser.playing import PLAYER
from tests.browser.test_live_view import said, start
from tests.lab import Lab

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BAD = "window.harmed=(window.harmed||0)+1"
TAGS = "script, iframe, object, embed, base, form, video, link"
AWAY = "http://example.invalid/x"
PAYLOADS = [
    f"<script>{BAD}</script>",
    f"</script><script>{BAD}</script>",
    f"<img src=x onerror='{BAD}'>",
    f'"><img src=x onerror="{BAD}">',
    f"<svg onload='{BAD}'></svg>",
    f"</svg><script>{BAD}</script>",
    f"</text></g></svg><img src=x onerror={BAD}>",
    f"<svg><script>{BAD}</script></svg>",
    f"<svg><foreignObject><iframe srcdoc='<script>parent.{BAD}</script>'></iframe></foreignObject></svg>",
    f"<svg><animate onbegin='{BAD}' attributeName=x dur=1s></svg>",
    f"<svg><use href='data:image/svg+xml,<svg onload={BAD}>'/></svg>",
    f"<svg><image href='{AWAY}'/></svg>",
    f"<style>@import '{AWAY}'; * {{background:url({AWAY})}}</style>",
    f"</style><style>body{{background:url({AWAY})}}</style>",
    f"<link rel=stylesheet href={AWAY}>",
    f"<iframe src='javascript:parent.{BAD}'></iframe>",
    f"<a href='javascript:{BAD}'>click</a>",
    f"[click](javascript:{BAD})",
    f"![pixel]({AWAY})",
    f"<object data={AWAY}></object><embed src={AWAY}>",
    f"<base href={AWAY}>",
    f"<meta http-equiv=refresh content='0;url={AWAY}'>",
    f"<form action={AWAY}><input autofocus onfocus='{BAD}'></form>",
    f"<details open ontoggle='{BAD}'>x</details>",
    f"<video src={AWAY} onerror='{BAD}'></video>",
    f"]]><script>{BAD}</script><![CDATA[",
    f"<?xml-stylesheet href='{AWAY}'?><!DOCTYPE x [<!ENTITY e SYSTEM '{AWAY}'>]>&e;",
    f"&lt;script&gt;{BAD}&lt;/script&gt; &#60;script&#62;",
    f"${{{BAD}}} {{{{{BAD}}}}} $$\\href{{javascript:{BAD}}}{{x}}$$",
    f"\u202e<img src=x onerror={BAD}>\u2028\x1b]8;;{AWAY}\x07\x00\ud800",
]
HOSTILE = f"""PAYLOADS = {PAYLOADS!r}
from dataclasses import replace
from agent_magic.record.answer import Answer, Price, Usage
from agent_magic.record.events import AgentEnded, AgentReady, AttemptEnded, AttemptStarted, CallEnded, CallStarted
from agent_magic.api import Run
TITLE = " ".join(PAYLOADS)
plan = plan_of({{f"agent_{{n}}": () for n in range(len(PAYLOADS))}}, TITLE)
for n, text in enumerate(PAYLOADS):  # no cell can declare such a name: they are put in behind the door
    object.__setattr__(plan.agents[n], "name", text)
object.__setattr__(plan, "index", {{text: n for n, text in enumerate(PAYLOADS)}})
object.__setattr__(plan, "names", tuple(PAYLOADS))
record = RunRecord(plan, began_at=datetime(2026, 1, 2, tzinfo=UTC), models=PAYLOADS)
events = []
for n, text in enumerate(PAYLOADS):
    request = Request(text, text * 3, 800, text, text)
    answer = Answer(text * 3, "end_turn", usage=Usage(4, output_tokens=4), model=text, source="simulated")
    broken_ = n % 3 == 0
    events += [AgentReady(0.0, n), AttemptStarted(0.0, n, 1, 0.0, text if n % 2 else "", request)]
    if n % 3 < 2:
        events.append(AttemptEnded(0.3, n, 1, None if broken_ else answer, text if broken_ else None,
            text if broken_ else None, text, Usage(4, output_tokens=4), Price(0.1, text), "simulated", 200))
        given = json.dumps({{text: text, "nested": [{{text: text}}]}})
        events.append(CallStarted(0.3, n, 1, 1, text, text, given, text))
        events.append(CallEnded(0.3, n, 1, "failed" if broken_ else "succeeded", text * 3, text if broken_ else None,
            text, "live", None, text, text))
        events.append(AgentEnded(0.3, n, "failed" if broken_ else "succeeded", text if broken_ else None))
tails = dict(enumerate(PAYLOADS))
HEALTH = Health("bad", "; ".join(PAYLOADS), limits=(LimitUse("requests", TITLE, 4000.0, 1640.0, 0.41, "announced"),),
    refusals=2, retries=5, latency_s=0.8, latency_trend_s=0.2, breakers=tuple(PAYLOADS))"""
PLAY = "await play(record, sorted(events, key=lambda one: one.at_s), 2.0, tails, lambda agent: PAYLOADS[agent])"
SHOWN = """display(Run(record)); display(plan); display(Run(record).record.results[1])
get_ipython().run_line_magic("load_ext", "agent_magic")
display(Run(record).agents); display(Run(record).attempts); display(Run(record).tool_calls); Run(record).events"""
DRAWN = """import warnings
warnings.simplefilter("ignore")  # of models without a price
from agent_magic.api.reading import compare
from agent_magic.show.notes import closing
exec(In[2].replace("\\\\ud800", ""))  # answers never have half a character, nor can a page be sent one
for one in sorted(events, key=lambda one: one.at_s):
    record.add(one)
run = Run(record)
display(run.forecast(concurrency=1), run.whatif(concurrency=[1, 2]), run.layers, run.summary, run.texts, run.slo())
display(run.timeline(), run.limits_chart(), run.dashboard(), run.tradeoff(), compare(run, run), run.advise())
display(closing(record)); run.explore(); print("drawn")"""


OPENED = """name => { const panel = document.querySelector('.am-detail');
    return panel.getAttribute('aria-label') === 'Agent ' + name && panel.querySelector('pre'); }"""


def unharmed(page: Page) -> None:
    """No text has run, and every picture is whole."""
    assert page.evaluate("window.harmed ?? 0") == 0
    assert (
        0 == page.locator(".jp-OutputArea-output :is(script, iframe, object, embed, base, form, video, link)").count()
    )
    broken = "all => all.filter((one) => !(one.complete && one.naturalWidth > 0)).length"
    assert 0 == page.locator(".jp-OutputArea-output img").evaluate_all(broken)


def test_hostile_texts_are_texts(jupyter: Lab, book: str) -> None:
    """Names, titles, models, prompts, answers, errors, tails and reasons: live, in the panel, still, and as values."""
    assert 30 == len(PAYLOADS)
    page = start(jupyter, book, PLAYER, HOSTILE, PLAY, SHOWN, DRAWN, "print('shown')")
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 10")
    unharmed(page)
    for agent in range(len(PAYLOADS)):
        page.locator(".am-live .n").nth(agent).dispatch_event("click")
        page.wait_for_function(OPENED, arg=single_line(PAYLOADS[agent]))
        page.evaluate("document.querySelectorAll('.am-detail details').forEach(one => { one.open = true; })")
        called = page.locator(".am-detail .am-call .am-given td").count()
        assert (2 if agent % 3 < 2 else 0) == called
    unharmed(page)
    page.locator(".am-stop").click()
    said(page, "shown")
    page.locator(".jp-OutputArea-output img[src^='data:image/svg']").first.wait_for()
    page.locator(".am-explore img").wait_for()
    page.evaluate("document.querySelectorAll('.jp-OutputArea-output details').forEach(one => { one.open = true; })")
    unharmed(page)
    page.wait_for_selector(".am-live.am-over")
    for agent in (1, 4, 16, 28):  # answers that are complete are rendered as Markdown
        page.locator(".am-live .n").nth(agent).dispatch_event("click")
        page.wait_for_function(OPENED, arg=single_line(PAYLOADS[agent]))
    unharmed(page)
    assert [] == jupyter.outside
    assert [] == jupyter.errors
