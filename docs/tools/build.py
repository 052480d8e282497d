"""Build the site into a folder: stage the pages, make the reference and the gallery, run Sphinx, follow every link.

Usage: python docs/tools/build.py [FOLDER]     out/site by default
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tools")]

from crawl import crawl  # noqa: E402 - beside this file
from gallery import write_gallery  # noqa: E402
from lite import NOTEBOOKS, build_lite  # noqa: E402
from reference import write_reference  # noqa: E402
from runs import FRONT, read_run, recorded, write_runs  # noqa: E402
from sphinx.cmd.build import build_main  # noqa: E402

from agent_magic.show.graph import static_bundle  # noqa: E402

LITE = "AGENT_MAGIC_LITE"
"""Names the folder with which a JupyterLite is built; `scripts/lite` sets it."""


def stage(folder: Path) -> None:
    """Copy what the site is made of into one folder: pages, changelog, notebooks; and write what is generated."""
    shutil.copytree(ROOT / "docs", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8").replace("](docs/", "](")
        (folder / f"{name.lower()}.md").write_text(text, encoding="utf-8")
    for page in folder.rglob("*.md"):  # in the repository a page leads to the notebook, on the site to its page
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("](../../notebooks/", "](../gallery/"), encoding="utf-8")
    asked = recorded(ROOT / "docs" / "runs")
    live = NOTEBOOKS if os.environ.get(LITE) else ()
    shown = read_run(ROOT / "docs" / "runs", FRONT).record  # the picture in front is of the run that is asked there
    (folder / "business_plan.svg").write_text(static_bundle(shown.plan, shown)["image/svg+xml"], encoding="utf-8")
    write_gallery(ROOT / "notebooks", folder / "gallery", folder / "_static" / "gallery", asked, live)
    write_reference(folder / "reference")


MENDED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<table border="1" class="dataframe">': '<table border="1" class="dataframe" tabindex="0">',
    "<th></th>": "<td></td>",
}
"""What the theme and pandas leave out for those who read by keyboard or by ear, and what stands in its place."""


def mend(target: Path) -> None:
    """Give headings of the navigation a level, landmarks a name; code and frames that scroll a place for Tab."""
    for page in target.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for said, better in MENDED.items():
            text = text.replace(said, better)
        page.write_text(text, encoding="utf-8")


MOST_BYTES = 60_000
ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)


def too_long(target: Path) -> list[str]:
    """Name the pages of the reference that are longer than a reader looks through, navigation left out."""
    pages = {page: ARTICLE.search(page.read_text(encoding="utf-8")) for page in (target / "reference").rglob("*.html")}
    sizes = {page: len(found[0].encode()) for page, found in pages.items() if found}
    return [f"{page.relative_to(target)}: {size:,} bytes" for page, size in sizes.items() if size > MOST_BYTES]


def main(target: Path) -> int:
    """Build, and return 0, or 1 where Sphinx warned, a link is broken or a page of the reference is too long."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        shutil.rmtree(target, ignore_errors=True)
        if build_main(["-W", "--keep-going", "-q", "-b", "html", "-d", f"{folder}/.doctrees", folder, str(target)]):
            return 1
    write_runs(ROOT / "docs" / "runs", target)
    mend(target)
    if pyodide := os.environ.get(LITE):
        build_lite(Path(pyodide), target)
    found = crawl(target)
    print(f"{found} in {time.monotonic() - began:.0f} s: {target}")
    wrong = [*found.bad, *too_long(target)]
    for line in wrong[:20]:
        print("  ", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out" / "site").resolve()))
