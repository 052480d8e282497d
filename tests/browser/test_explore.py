"""`run.explore()` in JupyterLab: a slider is moved, and the number and the picture follow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lab import PATIENCE_S, Lab

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.kernel]
CELLS = (
    "%load_ext agent_magic\n%agents connect simulator --latency fast",
    *(f"%%agent part_{number}\nHello. [[tokens:60]]" for number in range(4)),
    "%%agent whole\n{{ part_0 }} {{ part_1 }} {{ part_2 }} {{ part_3 }} [[tokens:60]]",
    "%agents plan",
    "run = %agents run",
    "run.explore()",
)


def test_a_slider_moves_the_forecast(jupyter: Lab, book: str, tmp_path: Path):
    """The line says other seconds, the picture is another one, and what is saved is the picture that was shown last.

    So it is for a plan, whose controls come by a click on the button under its picture. Opened again, with another
    kernel, the notebook has those pictures and no broken controls.
    """
    page = jupyter.play(book, CELLS)
    line = page.locator(".am-explore-line")
    line.wait_for(timeout=PATIENCE_S * 1000)
    picture = page.locator(".am-explore img")
    picture.wait_for(timeout=PATIENCE_S * 1000)
    before, drawn = line.inner_text(), picture.get_attribute("src")
    assert before.startswith("forecast")
    slider = page.get_by_label("concurrency")
    slider.focus()
    for _ in range(7):
        slider.press("ArrowLeft")
    page.wait_for_function("before => document.querySelector('.am-explore-line').innerText !== before", arg=before)
    page.wait_for_function(
        "drawn => document.querySelector('.am-explore img').src !== drawn",
        arg=drawn,
    )
    page.wait_for_function("/limited by .*slot/.test(document.querySelector('.am-explore-line').innerText)")
    page.get_by_role("button", name="Write as a cell").click()
    page.get_by_text("%agents apply chosen").wait_for()
    page.get_by_role("button", name="Explore").click()
    page.wait_for_function("() => document.querySelectorAll('.am-explore-line').length === 2")
    page.screenshot(path=str(tmp_path / "explore.png"), full_page=True)
    jupyter.save()
    page.goto("about:blank")
    jupyter.end_kernels()
    jupyter.open(book, kernel=False)
    page.locator(".jp-OutputArea-output img").last.wait_for()
    jupyter.wait_idle()
    assert 0 == page.get_by_text("Error displaying widget").count()
    assert [] == jupyter.errors
    assert [] == jupyter.outside
    saved = json.loads((jupyter.root / book).read_text())
    outputs = saved["cells"][-2]["outputs"]
    svg = [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert "concurrency 1" in "".join(svg[-1])
    (planned,) = [cell for cell in saved["cells"] if "".join(cell["source"]) == "%agents plan"]
    texts = ["".join(output["data"]["text/plain"]) for output in planned["outputs"] if "data" in output]
    assert [True] == [True for text in texts if text.startswith("forecast, as planned")]


HUNDRED = (
    "%load_ext agent_magic\n%agents connect simulator --latency x0.5",  # so that a slot less is seconds more
    """ip = get_ipython()
for number in range(90):
    ip.run_cell_magic("agent", f"part_{number}", "Hello. [[tokens:40]]")
for number in range(9):
    parts = " ".join("{{ part_%d }}" % (10 * number + one) for one in range(10))
    ip.run_cell_magic("agent", f"sum_{number}", parts + " [[tokens:40]]")
ip.run_cell_magic("agent", "whole", " ".join("{{ sum_%d }}" % one for one in range(9)))""",
    "run = %agents run --yes --concurrency 16",
    "run.explore()",
)
# Moves the slider by one; returns the milliseconds until the line and until the picture is another one, or nothing
# where the forecast says the same of both.
ANSWERS = """([key, limit]) => new Promise((done) => {
    const line = document.querySelector('.am-explore-line'), began = performance.now(), before = line.innerText;
    const area = line.closest('.am-explore'), drawn = () => area.querySelector('img').src;
    const src = drawn(), found = {};
    const watch = new MutationObserver(() => {
        if (!found.line && line.innerText !== before) found.line = performance.now() - began;
        if (!found.picture && drawn() && drawn() !== src) found.picture = performance.now() - began;
        if (found.line && found.picture) { watch.disconnect(); done([found.line, found.picture]); }
    });
    setTimeout(() => { watch.disconnect(); done([]); }, limit);
    watch.observe(area, {subtree: true, childList: true, characterData: true, attributes: true});
    const slider = area.querySelector('input[type=range]');
    slider.value = Number(slider.value) + (key === 'ArrowLeft' ? -1 : 1);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
})"""


@pytest.mark.slow
def test_a_hundred_agents_are_answered_at_once(jupyter: Lab, book: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From a key on the slider to the other number and picture in the page. The time is printed, not held."""
    page = jupyter.play(book, HUNDRED)
    page.locator(".am-explore img").wait_for(timeout=PATIENCE_S * 1000)
    tries: list[list[float]] = [page.evaluate(ANSWERS, ["ArrowLeft", 2_000]) for _ in range(12)]
    if len([times for times in tries if times]) < 5:  # a busy machine: the same way back, with more time
        tries = [page.evaluate(ANSWERS, ["ArrowRight", 15_000]) for _ in range(11)]
    assert [] == jupyter.errors
    took = [times for times in tries if times]
    assert len(took) >= 5
    with capsys.disabled():
        middle = [sorted(times)[len(took) // 2] for times in zip(*took, strict=True)]
        print(f"\nexplore, 100 agents: number after {middle[0]:.0f} ms, picture after {middle[1]:.0f} ms (median)")
