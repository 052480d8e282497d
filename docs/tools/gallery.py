"""Write the gallery's page: a card for each notebook, with its title, its first words and one of its own pictures."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

GROUPS = {
    "Begin here": "quickstart cost_tradeoffs share_and_replay",
    "Rows, types, functions": "every_row typed_rows tools_and_tasks reads_figures",
    "Graphs that decide": "critic_loop map_reduce plan_from_a_goal",
    "Dollars and quality": "business_plan architecture shared_context which_model cascade rate_limits claims_on_trial",
    "When a kernel dies": "resume overnight",
    "Many at once": "scaling",
}
"""The notebooks in reading order. One that stands in no group comes last."""
HEAD = """# Gallery

Each notebook runs offline from top to bottom. What you see are saved outputs of real runs against the mock server: the
answers mean nothing; times, tokens and what waited for what are measured.
"""


def write_gallery(
    notebooks: Path, folder: Path, pictures: Path, asked: Collection[str] = (), live: Collection[str] = ()
) -> None:
    """Copy the notebooks, their pictures, and write the page that leads to them.

    Args:
        notebooks: Where the notebooks are.
        folder: Where the page and the notebooks go.
        pictures: Where one picture of each goes.
        asked: Those with a page that answers what-ifs, `NAME_run.html`.
        live: Those that the JupyterLite beside the site runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures.mkdir(parents=True, exist_ok=True)
    names = [path.stem for path in sorted(notebooks.glob("*.ipynb"))]
    listed = " ".join(GROUPS.values()).split()
    groups = {**GROUPS, "More": " ".join(name for name in names if name not in listed)}
    lines = [HEAD]
    for title, its in groups.items():
        cards = [
            _card(notebooks, folder, pictures, name, _links(name, asked, live)) for name in its.split() if name in names
        ]
        if cards:
            lines += [f"## {title}", "", '<div class="am-cards">', *cards, "</div>", ""]
    order = [*listed, *groups["More"].split()]
    lines += ["```{toctree}", ":hidden:", "", *(name for name in order if name in names), "```", ""]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def _card(notebooks: Path, folder: Path, pictures: Path, name: str, links: str) -> str:
    source = notebooks / f"{name}.ipynb"
    shutil.copy(source, folder / source.name)
    cells: list[dict[str, Any]] = json.loads(source.read_text(encoding="utf-8"))["cells"]
    title, _, text = "".join(cells[0]["source"]).removeprefix("# ").partition("\n")
    words = html.escape(" ".join(text.strip().split("\n\n")[0].split()).replace("`", "").replace("*", ""))
    shown = ""
    if svg := _picture(cells):
        (pictures / f"{name}.svg").write_text(svg, encoding="utf-8")
        shown = f'<img src="../_static/gallery/{name}.svg" alt="" loading="lazy">'
    card = f'<a class="am-card" href="{name}.html">{shown}<strong>{html.escape(title)}</strong><span>{words}</span></a>'
    return f"<div>{card}{links}</div>"


def _links(name: str, asked: Collection[str], live: Collection[str]) -> str:
    """Return what leads to where a notebook answers, and to where it runs."""
    ask = f'<a class="am-run" href="{name}_run.html">Ask this run in your browser</a>' if name in asked else ""
    where = f"../lite/lab/index.html?path={name}.ipynb"
    return ask + (f'<a class="am-run" href="{where}">Run it in your browser</a>' if name in live else "")


def _picture(cells: list[dict[str, Any]]) -> str:
    """Return the first picture of a run, which comes after that of the plan; or the only one; or nothing."""
    found = [
        "".join(output["data"]["image/svg+xml"])
        for cell in cells
        for output in cell.get("outputs", [])
        if "image/svg+xml" in output.get("data", {})
    ]
    return found[min(1, len(found) - 1)] if found else ""
