"""Make the pictures of docs/glance.md: twenty outputs of real runs against the mock server in a real JupyterLab.

Usage: python scripts/glance.py [--chromium PATH] [--into FOLDER] [NAME ...]     writes docs/glance/

It needs Chromium, Playwright and Pillow (`pip install pillow`); the package itself needs none.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.lab import Lab, lab, write_notebook  # noqa: E402 - the tests stand beside this folder

SETUP = """%load_ext agent_magic
%agents connect simulator --seed 11 --latency {latency}
%config AgentMagics.ledger = ":memory:"
import agent_magic as am
ip = get_ipython()
def declare(name, prompt):
    ip.run_cell_magic("agent", name, prompt)"""
PLAN = """declare("financials", "Sum up the financial plan of a chain of bakeries. [[tokens:180]]")
declare("market_size", "How big is the market? [[tokens:150]]")
declare("competitors", "Who else is there? [[tokens:210]]")
declare("operations", "What does running it take? [[tokens:320]]")
declare("market_analysis", "Analyse: {{ market_size }} {{ competitors }} [[tokens:150]]")
declare("review_finance", "Review: {{ financials }} {{ market_analysis }} [[tokens:170]]")
declare("review_ops", "Review: {{ operations }} {{ market_analysis }} [[tokens:190]]")
declare("business_plan", "Write the plan: {{ review_finance }} {{ review_ops }} [[tokens:260]]")"""
CHAIN = """for n in range(9):
    before = f"{{{{ step_{n - 1} }}}}" if n else "Ways to keep bees in a city."
    declare(f"step_{n}", f"Make this shorter: {before} [[tokens:{200 - 15 * n}]]")"""
ROWS = """import pandas as pd
from typing import Literal, TypedDict
from random import Random
draw = Random(7)
TEXTS = {"good": ["Great value, I love it.", "Works perfectly."], "bad": ["Broken after a week.", "It leaks."]}
moods = [draw.choice([*TEXTS]) for _ in range(300)]
reviews = pd.DataFrame({"text": [f"Order {n}: {draw.choice(TEXTS[m])}" for n, m in enumerate(moods)], "by_hand": moods})
class Label(TypedDict):
    mood: Literal["good", "bad"]
    confidence: float"""
LABEL = 'declare("label --each reviews --returns Label --max-tokens 100", "Label this review. {{ item.text }}")'
FLOW = """from typing import TypedDict
class Verdict(TypedDict):
    ok: bool
    notes: str
topic = "bees in the city"
def fact(query: str) -> str:
    "Look a fact up."
    return "There are 20,000 species of bees."
declare("research --tools fact", '[[tool:fact {"query": "species of bees"}]] A fact about {{ topic }}.')
declare('draft --until "critic.ok" --rounds 3', "On {{ research }}{% if critic %} {{ critic.notes }}{% endif %}")
declare("critic --returns Verdict", "Is this ready to print? {{ draft }}")
declare('apology --when "not critic.ok"', "Say sorry for: {{ draft }}")
declare("page", "Lay this out: {{ draft }} {{ apology | default('') }}")"""
MODELS = '["claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"]'

BOOKS: dict[str, list[tuple[str, str]]] = {
    "plan": [
        ("", SETUP.format(latency="x0.3")),
        ("", PLAN),
        ("plan_before", "%agents plan"),
        ("lint", "%agents lint"),
        ("finished", "run = %agents run --concurrency 2"),
        ("agents", "run.agents"),
        ("whatif", f"run.whatif(concurrency=[1, 2, 8], model={MODELS})"),
        ("tradeoff", "run.tradeoff()"),
        ("advise", "run.advise()"),
        ("timeline", "run.timeline()"),
        ("slo", "run.slo(p95_s=5, succeeded=0.995)"),
        ("reused", "again = %agents run"),
        ("", 'declare("operations", "What does running it take, in three sentences? [[tokens:90]]")'),
        ("", "later = %agents run"),
        ("compare", "am.compare(run, later)"),
        ("explore", "run.explore()"),
    ],
    "faults": [
        ("", SETUP.format(latency="x0.2")),
        ("", PLAN.replace("Who else", "[[status:529]] Who else").replace("What does", "[[status:400]] What does")),
        ("failed", "run = %agents run --max-attempts 2"),
        ("error", "%agents error competitors"),
        ("", "%agents clear"),
        ("", CHAIN),
        ("deep", "run = %agents run"),
    ],
    "rows": [
        ("", SETUP.format(latency="x0.5").replace("--seed 11", "--seed 11 --rpm 400 --slips haiku=0.2,sonnet=0.04")),
        ("", ROWS),
        ("", LABEL),
        ("group", "run = %agents run --concurrency 20"),
        ("each", 'run.each("label")'),
        ("score", 'run.score("label.mood", truth="by_hand")'),
        ("limits", "run.limits_chart()"),
        ("limits_now", "%agents limits"),
        ("dashboard", "run.dashboard()"),
        ("trial", "%agents trial label.mood --model claude-haiku-5-5,claude-sonnet-5-5 --truth by_hand --yes"),
    ],
    "flow": [
        ("", SETUP.format(latency="x0.2")),
        ("", FLOW),
        ("flow", "run = %agents run"),
        ("tool_calls", "run.tool_calls"),
        ("doctor", "%agents doctor"),
    ],
}  # fmt: skip
"""Per notebook its cells: a name where the output is a picture."""
DARK = {"reused", "tradeoff", "group", "flow"}
WIDE, HIGH = 1280, 9000
PATIENCE_MS = 90_000


def main() -> int:
    """Make every picture, or the named ones."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*")
    words.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    words.add_argument("--into", type=Path, default=ROOT / "docs" / "glance")
    given = words.parse_args()
    if not given.chromium:
        words.error("no Chromium found: give --chromium PATH")
    given.into.mkdir(exist_ok=True)
    for book, cells in BOOKS.items():
        names = {name for name, _ in cells if name}
        if given.names and not names & set(given.names):
            continue
        with tempfile.TemporaryDirectory() as folder, lab(Path(folder), given.chromium, size=(WIDE, HIGH)) as jupyter:
            write_notebook(jupyter.root / f"{book}.ipynb", [source for _, source in cells] + ['print("all done")'])
            jupyter.open(f"{book}.ipynb")
            jupyter.command("application:toggle-left-area")
            jupyter.run_all()
            jupyter.page.set_viewport_size({"width": WIDE, "height": HIGH})  # whole, however tall
            jupyter.page.locator(".jp-OutputArea-output pre", has_text="all done").wait_for(timeout=PATIENCE_MS)
            for number, (name, _) in enumerate(cells):
                if name and (not given.names or name in given.names):
                    keep(jupyter, number, given.into / f"{name}.webp", dark=name in DARK)
    return 0


def keep(jupyter: Lab, number: int, path: Path, *, dark: bool) -> None:
    """Write the picture of the output of a cell."""
    jupyter.theme("JupyterLab Dark" if dark else "JupyterLab Light")
    page = jupyter.page
    area = page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-OutputArea").first
    area.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)  # charts draw themselves
    picture = Image.open(io.BytesIO(area.screenshot())).convert("RGB")
    picture.save(path, quality=80, method=6)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
