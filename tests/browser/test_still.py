"""The still picture against the one that is kept: a change of how it looks is seen, another font is not."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from playwright.sync_api import sync_playwright

from agent_magic.show import INKS, Theme, picture, run_timeline
from agent_magic.show.theme import Ground
from tests.lab import FLAGS
from tests.show.story import business_plan, business_run, finished_run, layered_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

KEPT = Path(__file__).parent / "kept"
MOST_DIFFERENT = 0.02
"""The share of pixels that may differ: lines lie elsewhere by a pixel with another Graphviz or Chromium."""
# Texts are left out: their shapes are the font's. Per pixel a difference of 40 of 255 in a channel counts.
COMPARE = """async ([one, two]) => {
    const read = async (data) => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + data;
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
        pen.drawImage(image, 0, 0);
        return pen.getImageData(0, 0, image.width, image.height);
    };
    const [a, b] = [await read(one), await read(two)];
    if (a.width !== b.width || Math.abs(a.height - b.height) > 2) return 1;
    let different = 0;
    const size = Math.min(a.data.length, b.data.length);
    for (let at = 0; at < size; at += 4)
        if ([0, 1, 2].some((part) => Math.abs(a.data[at + part] - b.data[at + part]) > 40)) different++;
    return different / (size / 4);
}"""


CORNER = """async (data) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + data;
    await image.decode();
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d');
    pen.drawImage(image, 0, 0);
    const parts = [...pen.getImageData(12, 12, 1, 1).data].slice(0, 3);
    return '#' + parts.map((one) => one.toString(16).padStart(2, '0')).join('');
}"""


@pytest.fixture(scope="module")
def page(chromium: str) -> Iterator[Page]:
    """An empty page."""
    with sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        yield browser.new_page(viewport={"width": 1080, "height": 1200})
        browser.close()


def drawn(page: Page, svg: str) -> bytes:
    """Rasterise a picture without its texts."""
    page.set_content(f"<style>body{{margin:0}} .am-fig text{{visibility:hidden!important}}</style>{svg}")
    return page.locator("svg").screenshot()


def svg_of(name: str) -> str:
    """Draw one of the pictures that are kept."""
    kind, theme = name.split("_")
    if kind == "run":
        return picture(business_plan(), business_run(), theme=cast("Theme", theme))
    plan = layered_plan(300, 60)
    return picture(plan, finished_run(plan), theme=cast("Theme", theme))


def difference(page: Page, one: bytes, two: bytes) -> float:
    """Return the share of pixels that differ."""
    return page.evaluate(COMPARE, [base64.b64encode(data).decode() for data in (one, two)])


@pytest.mark.parametrize("name", ["run_light", "run_dark", "groups_light"])
def test_a_still_picture_looks_as_it_did(page: Page, name: str) -> None:
    """Cards, edges, bars and rings are where they were, in their colours. To keep a new look: AGENT_MAGIC_KEEP=1."""
    now, path = drawn(page, svg_of(name)), KEPT / f"{name}.png"
    if os.environ.get("AGENT_MAGIC_KEEP"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(now)
    assert difference(page, now, path.read_bytes()) <= MOST_DIFFERENT


def test_a_change_of_looks_is_noticed(page: Page) -> None:
    """Another theme, and bars of another colour, are beyond the tolerance; the same picture is not."""
    light = drawn(page, svg_of("run_light"))
    assert 0 == difference(page, light, drawn(page, svg_of("run_light")))
    assert difference(page, light, drawn(page, svg_of("run_dark"))) > MOST_DIFFERENT
    changed = svg_of("run_light").replace(INKS["light"]["done"], INKS["light"]["fail"])
    assert difference(page, light, drawn(page, changed)) > MOST_DIFFERENT


SHOWN_AS = {
    "a file": '<body style="color-scheme:{page}"><img src="data:image/svg+xml;base64,{data}">',
    "inside a page": '<body data-jp-theme-light="{light}">{svg}',
}


@pytest.mark.parametrize("chart", [False, True])
@pytest.mark.parametrize("way", SHOWN_AS)
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_a_still_picture_is_dark_where_the_page_is(page: Page, chart: bool, way: str, ground: str) -> None:
    """By itself: as a file it follows its page, inside a page what that says of itself, whatever the system likes."""
    svg = run_timeline(business_run()).svg if chart else picture(business_plan(), business_run())
    data = base64.b64encode(svg.encode()).decode()
    page.emulate_media(color_scheme="light" if ground == "dark" else "dark")
    light = str(ground == "light").lower()
    page.set_content(SHOWN_AS[way].format(page=ground, light=light, svg=svg, data=data))
    shown = page.locator("img, svg.am-auto").first
    shown.evaluate("one => one.decode?.()")
    assert INKS[cast("Ground", ground)]["ground"] == page.evaluate(
        CORNER, base64.b64encode(shown.screenshot()).decode()
    )
    page.emulate_media(color_scheme="light")


def test_a_still_picture_prints(page: Page) -> None:
    """It becomes a page of a PDF, as nbconvert's webpdf makes one: vectors, no error, nothing asked for elsewhere."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_content(svg_of("run_light"))
    assert page.pdf().startswith(b"%PDF")
    assert [] == asked
