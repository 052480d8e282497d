"""A thousand and ten thousand agents: what an update carries, how smooth the page stays, what it costs the kernel.

Sizes and counts are held; times are printed, for a busy machine makes them what it likes.
"""

from __future__ import annotations

import re

import pytest

from tests.browser.playing import PLAYER
from tests.browser.test_live_view import alive_then_still, said, start
from tests.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]
MOST_BYTES = 20_000
PLAY_S = 8.0
# Agents that map, check and reduce: three wide layers and a narrow end. The whole story is squeezed into PLAY_S.
MANY = """third = (N - 12) // 3
names = {f"extract_{n}": () for n in range(N - 12 - 2 * third)}
names |= {f"review_{n}": (f"extract_{n}",) for n in range(third)}
names |= {f"score_{n}": (f"review_{n}",) for n in range(third)}
names |= {f"digest_{n}": tuple(f"score_{m}" for m in range(5 * n, 5 * n + 5)) for n in range(10)}
names |= {"summary": tuple(f"digest_{n}" for n in range(10)), "verdict": ("summary",)}
plan = plan_of(names, "many_reviews")
events = finished_run(plan).events
squeeze = PLAY_S / events[-1].at_s"""
PLAY = """record = record_of(plan)
view = make_live_view(record, press, verbs=VERBS)
view.show()
began, worked, steps, place = time.monotonic(), 0.0, 0, 0
while place < len(events) - 1 or not stop.is_set():  # as long as the page is looked at
    now = time.monotonic() - began
    while place < len(events) - 1 and events[place].at_s * squeeze <= now:
        record.add(events[place])
        place += 1
    before = time.thread_time()
    view.tick(now, {}, Around(64, 50.0, False, HEALTH, (30.0, 50.0)))
    worked += time.thread_time() - before
    steps += 1
    await asyncio.sleep(0.1)
took = time.monotonic() - began
print(f"kernel {100 * worked / took:.2f} % of {took:.1f} s, {1000 * worked / steps:.2f} ms a step, {steps} steps")
record.add(events[-1])
view.finish()"""
FRAMES = """(count) => new Promise((done) => {
    const gaps = []; let last = performance.now();
    const frame = (now) => { gaps.push(now - last); last = now;
        gaps.length <= count ? requestAnimationFrame(frame) : done(gaps.slice(1).sort((a, b) => a - b)); };
    requestAnimationFrame(frame); })"""


def watch(jupyter: Lab) -> list[tuple[float, int]]:
    """Note the size of every message about a widget, and when it came."""
    seen: list[tuple[float, int]] = []

    def came(payload: str | bytes) -> None:
        data = payload if isinstance(payload, bytes) else payload.encode()
        if b'"comm_msg"' in data and (b'"delta"' in data or b'"states"' in data):
            at = re.search(rb'"date": ?"[^"]*?(\d+):(\d+):([\d.]+)', data)
            hours, minutes, seconds = (float(part) for part in at.groups()) if at else (0.0, 0.0, 0.0)
            seen.append((3600 * hours + 60 * minutes + seconds, len(data)))

    jupyter.page.on("websocket", lambda socket: socket.on("framereceived", came))
    return seen


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_many_agents_stay_smooth(jupyter: Lab, book: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """At most ten updates a second of 20 kilobytes each, states included; the page keeps a few hundred elements."""
    seen = watch(jupyter)
    page = start(jupyter, book, PLAYER, f"N, PLAY_S = {count}, {PLAY_S}\n{MANY}", PLAY)
    closed = page.evaluate(FRAMES, 120)
    assert 6 == page.locator(".am-live .gr").count()
    assert page.locator(".am-live *").count() < 400
    page.locator(".am-live .gr").nth(1).click()
    page.locator(".am-drawer .z").first.wait_for()
    opened = page.evaluate(FRAMES, 120)
    assert page.locator(".am-live *").count() < 500
    page.locator(".am-stop").click()
    kernel = said(page, "kernel ")
    alive_then_still(jupyter, book)
    steps = int(re.search(r"(\d+) steps", kernel)[1])  # pyright: ignore[reportOptionalSubscript]
    sizes = [size for _, size in seen]
    assert steps <= 10 * float(re.search(r"of ([\d.]+) s", kernel)[1]) + 1  # pyright: ignore[reportOptionalSubscript]
    assert len(sizes) <= 2 * steps + 2  # the states, and what else has changed
    assert 0 < max(sizes) <= MOST_BYTES
    with capsys.disabled():
        frames = {name: f"{gaps[60]:.1f} ({gaps[114]:.1f})" for name, gaps in (("closed", closed), ("open", opened))}
        print(f"\n{count:,} agents: {kernel.strip()}; biggest message {max(sizes):,} bytes")
        print(f"  median frame (95th percentile) in ms: {frames}")


def test_two_hundred_cards_stay_smooth(jupyter: Lab, book: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The most that are shown as cards, each with its lines, edges and bars: updates of at most 20 kilobytes, too."""
    seen = watch(jupyter)
    page = start(jupyter, book, PLAYER, f"N, PLAY_S = 200, {PLAY_S}\n{MANY}", PLAY)
    assert 200 == page.locator(".am-live .n").count()
    gaps = page.evaluate(FRAMES, 120)
    page.locator(".am-stop").click()
    kernel = said(page, "kernel ")
    alive_then_still(jupyter, book)
    assert 0 < max(size for _, size in seen) <= MOST_BYTES
    with capsys.disabled():
        print(f"\n200 cards: {kernel.strip()}; biggest message {max(size for _, size in seen):,} bytes")
        print(f"  median frame (95th percentile) in ms: {gaps[60]:.1f} ({gaps[114]:.1f})")
