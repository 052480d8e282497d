"""Make the pictures of README and documentation, from one real run against the mock server in a real JupyterLab.

Usage: python scripts/pictures.py [--chromium PATH]     writes docs/

It needs Chromium, Playwright and, for the recording, Pillow (`pip install pillow`); the package itself needs none.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))
from tests.lab import Lab, lab, write_notebook  # noqa: E402 - the tests stand beside this folder

if TYPE_CHECKING:
    from PIL.Image import Image

# Slowed, because a busy page takes seconds to load the view.
SETUP = "%load_ext agent_magic\n%agents connect simulator --seed 11 --latency x2"
DECLARE = """ip = get_ipython()
def declare(name, prompt):
    ip.run_cell_magic("agent", name, prompt)
declare("financials", "Sum up the financial plan. [[tokens:180]]")
declare("market_size", "How big is the market? [[tokens:150]]")
declare("competitors", "Who else is there? [[tokens:210]]")
declare("operations", "What does running it take? [[tokens:420]]")
declare("market_analysis", "Analyse: {{ market_size }} {{ competitors }} [[tokens:150]]")
declare("summary", "Sum up: {{ market_size }} {{ competitors }} [[tokens:190]]")
declare("review_finance", "Review: {{ financials }} {{ market_analysis }} [[status:529 times=1]] [[tokens:170]]")
declare("review_ops", "Review: {{ operations }} {{ market_analysis }} [[tokens:190]]")
declare("business_plan", "Write the plan: {{ summary }} {{ review_finance }} {{ review_ops }} [[tokens:260]]")"""
RUN = "run = %agents run --concurrency 3 --budget 0.5"
KEEP = """from agent_magic.show.graph import picture
with open("business_plan.svg", "w", encoding="utf-8") as file:
    file.write(picture(run.plan, run.record))
print("kept")"""
MOST_BYTES = 1_000_000
EVERY_S = 0.2
REST_MS = 2500
WIDTH = 900
PLAYS = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


def main() -> int:
    """Make every picture; return 1 where one is too big."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    chromium = words.parse_args().chromium
    if not chromium:
        words.error("no Chromium found: give --chromium PATH")
    for theme, name in PLAYS.items():
        with tempfile.TemporaryDirectory() as folder, lab(Path(folder), chromium, size=(1240, 940)) as jupyter:
            frames = watched(jupyter, name, DOCS / ("live.png" if theme == "light" else f"live_{theme}.png"))
            if theme == "light":
                shutil.copy(jupyter.root / "business_plan.svg", DOCS)
                save_film(frames, DOCS / "live.webp")
    size = (DOCS / "live.webp").stat().st_size
    print(f"docs/live.webp has {size:,} bytes")
    return 0 if size <= MOST_BYTES else 1


def watched(jupyter: Lab, theme: str, still: Path) -> list[tuple[float, bytes]]:
    """Run the plan and take pictures of it until it ends.

    Args:
        jupyter: Where.
        theme: The theme of the page.
        still: Where one picture, of the middle of the run, goes.

    Returns:
        Seconds and PNG of each.
    """
    write_notebook(jupyter.root / "run.ipynb", [SETUP, DECLARE, RUN, KEEP])
    jupyter.open("run.ipynb")
    page = jupyter.page
    jupyter.theme(theme)
    jupyter.command("application:toggle-left-area")
    jupyter.run_all()
    page.wait_for_selector(".am-live .n:nth-of-type(9)", state="attached", timeout=90_000)
    view = page.locator(".am-live").last
    view.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-r').length > 1")
    box: Any = view.bounding_box()  # playwright types the two differently
    frames: list[tuple[float, bytes]] = []
    while not page.locator(".am-live .am-over").count():
        began = time.monotonic()
        frames.append((began, page.screenshot(clip=box)))
        if len(frames) == 1 or 0 < page.locator(".am-live .n.s-s, .am-live .n.s-l").count() <= 5:
            still.write_bytes(frames[-1][1])
        page.wait_for_timeout(max(0.0, 1000 * (EVERY_S - (time.monotonic() - began))))
    page.locator(".jp-OutputArea-output pre", has_text="kept").wait_for()
    page.wait_for_timeout(500)  # the bar fills up
    frames.append((time.monotonic(), page.screenshot(clip=box)))  # the view stays, with everything a click gives
    return frames


def save_film(frames: list[tuple[float, bytes]], path: Path) -> None:
    """Write an animated WebP that starts over; the end rests a while."""
    from PIL import Image

    pictures: list[Image] = []
    for _, data in frames:
        one = Image.open(io.BytesIO(data)).convert("RGB")
        pictures.append(one.resize((WIDTH, round(one.height * WIDTH / one.width)), Image.Resampling.LANCZOS))
    times = [at for at, _ in frames]
    lasts = [round(1000 * (there - here)) for here, there in pairwise(times)]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=[*lasts, REST_MS], loop=0, quality=76, method=6
    )


if __name__ == "__main__":
    raise SystemExit(main())
