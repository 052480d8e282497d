"""Letters in every output are large enough to read, in a real JupyterLab as wide as a laptop's and as a desk's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import Lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow]
LEAST_PX = 10.7
"""Eleven, but for the scroll bar of the page, which takes 15 of the 850 px that a picture is wide."""
CELLS = (
    "%load_ext agent_magic\n%agents connect simulator --latency none\nimport agent_magic as am",
    "%%agents\n## draft\nHello.\n## report\n{{ draft }}",
    "%agents plan",
    "run = %agents run",
    "run.agents",
    "run.whatif(concurrency=[1, 2], model=['claude-haiku-5-5', 'claude-opus-5-5'])",
    "run.timeline()",
    "run.dashboard()",
    "run.tradeoff()",
    "run.limits_chart()",
    "run.explore()",
    "run.slo()",
    "am.compare(run, run.forecast(concurrency=1))",
    "%agents advise",
    "%agents help",
    "am.Plan([am.Agent(f'ask_number_{n}', 'x') for n in range(8)] + [am.Agent('end', '{{ ask_number_0 }}')])",
)
# Of pictures that are images, and of those within the page, each text as large as it is drawn; of the rest each text.
LETTERS = """async () => {
    const found = [], output = '.jp-OutputArea-output';
    const take = (px, text, what) => { if (text.trim()) found.push([px, text.trim().slice(0, 40), what]); };
    const own = (node) => [...node.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data).join('');
    const inside = (svg, what, scale) => {
        for (const node of svg.querySelectorAll('text, tspan'))
            take(scale * parseFloat(getComputedStyle(node).fontSize), own(node), what);
    };
    for (const image of document.querySelectorAll(`${output} img`)) {
        const held = document.createElement('div');
        held.innerHTML = await (await fetch(image.src)).text();
        document.body.append(held);
        const svg = held.querySelector('svg');
        if (svg) inside(svg, 'image', image.getBoundingClientRect().width / svg.viewBox.baseVal.width);
        held.remove();
    }
    for (const svg of document.querySelectorAll(`${output} svg`))
        if (svg.querySelector('text') && svg.getBoundingClientRect().width)
            inside(svg, 'svg', svg.getScreenCTM().a);
    for (const node of document.querySelectorAll(`${output} *`))
        if (!node.closest('svg') && node.checkVisibility())
            take(parseFloat(getComputedStyle(node).fontSize), own(node), 'html');
    return found;
}"""


def test_no_letter_is_too_small(jupyter: Lab, book: str) -> None:
    """Nothing is under eleven pixels: not in a picture, which is scrolled rather than shrunk, nor in a table."""
    write_notebook(jupyter.root / book, CELLS)
    page = jupyter.page
    before = page.viewport_size
    jupyter.open(book)
    jupyter.run_all()
    page.locator(".am-explore img").wait_for()
    for width in (1280, 1600):
        page.set_viewport_size({"width": width, "height": 1000})
        found: list[Any] = page.evaluate(LETTERS)
        assert {"image", "html"} <= {what for _, _, what in found}
        assert len(found) > 300, "it has looked"
        assert [] == [one for one in found if one[0] < LEAST_PX], width
    if before:
        page.set_viewport_size(before)
