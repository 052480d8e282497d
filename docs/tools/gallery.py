"""Write the gallery's page: a card for each notebook, with its title, its first words and one of its own pictures."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


class Group(NamedTuple):
    """Notebooks that belong together.

    Attributes:
        says: What a reader learns from them, in a sentence.
        names: The notebooks, in reading order.
    """

    says: str
    names: tuple[str, ...]


GROUPS = {
    "Begin here": Group(
        "Declare a few agents, see them run, ask what another setup would have cost, and give the run away.",
        ("quickstart", "before_you_pay", "cost_tradeoffs", "share_and_replay", "conversations", "edit_and_go_on"),
    ),
    "Rows, types and tools": Group(
        "Ask for every row of a table, get typed columns back, and let models call your functions and read documents.",
        ("every_row", "typed_rows", "tools_and_tasks", "reads_figures"),
    ),
    "Graphs that decide": Group(
        "Let agents build on each other: loops with a critic, maps over an answer, plans that a model writes.",
        ("critic_loop", "map_reduce", "plan_from_a_goal", "business_plan", "architecture"),
    ),
    "Dollars, limits and faults": Group(
        "Pay less and know what you give up; meet rate limits, killed kernels and hundreds of requests.",
        (
            *("shared_context", "which_model", "cascade", "overnight", "claims_on_trial"),
            *("rate_limits", "scaling", "a_model_of_your_own", "resume"),
        ),
    ),
}
"""The notebooks by what a reader wants. One that stands in no group comes last."""
TABLES = {"claims_on_trial": "trial.webp", "a_model_of_your_own": "whatif.webp"}
"""Notebooks that show tables only, and a picture of such a table."""
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
    listed = [name for group in GROUPS.values() for name in group.names]
    left = tuple(name for name in names if name not in listed)
    lines = [HEAD]
    for title, group in {**GROUPS, "More": Group("Not sorted yet.", left)}.items():
        cards = [
            _card(notebooks, folder, pictures, name, _links(name, asked, live)) for name in group.names if name in names
        ]
        if cards:
            lines += [f"## {title}", "", group.says, "", '<div class="am-cards">', *cards, "</div>", ""]
    order = [*listed, *left]
    lines += ["```{toctree}", ":hidden:", "", *(name for name in order if name in names), "```", ""]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def _card(notebooks: Path, folder: Path, pictures: Path, name: str, links: str) -> str:
    source = notebooks / f"{name}.ipynb"
    shutil.copy(source, folder / source.name)
    cells: list[dict[str, Any]] = json.loads(source.read_text(encoding="utf-8"))["cells"]
    title, _, text = "".join(cells[0]["source"]).removeprefix("# ").partition("\n")
    words = html.escape(" ".join(text.strip().split("\n\n")[0].split()).replace("`", "").replace("*", ""))
    file = f"{name}.svg"
    if svg := _picture(cells):
        (pictures / file).write_text(svg, encoding="utf-8")
    else:
        file = TABLES[name]
        shutil.copy(notebooks.parent / "docs" / "glance" / file, pictures / file)
    shown = f'<img src="../_static/gallery/{file}" alt="" loading="lazy">'
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
