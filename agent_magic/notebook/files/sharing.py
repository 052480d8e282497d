"""Sharing from a notebook: which one it is, the runs a reader needs, the stamp as a cell shows it."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.declare.units import plural
from agent_magic.machine import in_browser
from agent_magic.record.cassette.reading import ANYWHERE, ENDING, TEXT_ENDING
from agent_magic.record.home import told_notebooks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.api import Run

STAMP = "application/vnd.agent-magic.provenance+json"


def beside(notebook: Path) -> Path:
    return notebook.with_name(notebook.stem + (TEXT_ENDING if in_browser() else ENDING))


def notebook_of(names: Mapping[str, Any], environment: Mapping[str, str]) -> Path | None:
    """Return the running notebook if the front end tells it, unlike nbclient."""
    # JupyterLab names it in the environment when the kernel starts, so a renamed notebook is not found either.
    return next((Path(told) for told in told_notebooks(names, environment) if Path(told).is_file()), None)


def holds(notebook: Path, cell: str) -> bool:
    try:
        cells: list[Any] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError):
        return False
    return any("".join(one.get("source", "")).strip() == cell.strip() for one in cells)


def worth_sharing(runs: Sequence[Run]) -> list[Run]:
    """Drop runs that repeat another one and bought nothing, as when a cell runs twice."""
    kept: list[Run] = []
    seen: set[tuple[str, ...]] = set()
    for run in runs:
        facts = run.record.facts
        asked = (run.plan.name, *(one.key(ANYWHERE) for one in facts.requests))
        bought = not facts.sources.isdisjoint({"live", "simulated"})
        if (bought or asked not in seen) and not run.record.redacted:  # texts that are not there cannot be passed on
            kept.append(run)
        seen.add(asked)
    return kept


def stamp_bundle(stamp: Mapping[str, Any]) -> dict[str, Any]:
    versions = ", ".join(f"{name} {number}" for name, number in sorted(stamp["made_with"].items()))
    source = "simulated by the mock server" if stamp["simulated"] else ", ".join(stamp["sources"]) or "nobody"
    where = "this page" if in_browser() else "a clean process, without a key and without a network"
    rows = {
        "cassette": f"{stamp['cassette']}: {plural(stamp['runs'], 'run')}, {plural(stamp['calls'], 'call')}",
        "recorded": stamp["recorded"],
        "answers": source,
        "made with": versions,
        "sha256": stamp["sha256"],
        "checked": f"replayed in {where}: the same frames",
    }
    if stamp.get("files"):
        size = f"{stamp['files_bytes'] / 1e3:,.0f} KB"
        rows["files"] = f"{plural(stamp['files'], 'attachment')} of {size} in the cassette"
    if stamp["redacted"]:
        rows["texts"] = "left out or replaced: agents are told apart by their names"
    text = "\n".join(f"{name:<10} {value}" for name, value in rows.items())
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
    return {"text/plain": text, "text/html": f"<table>{cells}</table>", STAMP: dict(stamp)}
