"""Sharing: the runs of a session as a cassette beside the notebook, looked over and tried before anybody sees it."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError, SecretFound
from agent_magic.measure.fingerprint import fingerprint
from agent_magic.notebook.clean import fingerprints
from agent_magic.notebook.running import ENDING
from agent_magic.record.cassette import ANYWHERE, read_cassette
from agent_magic.record.cassette_writing import lines_of, made_with, write_cassette
from agent_magic.record.secret_scan import Finding, not_allowed, scan_data, scan_file, scan_text, secrets_of
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_magic.api import Run
    from agent_magic.record.results import RunRecord

STAMP = "application/vnd.agent-magic.provenance+json"
LONGEST_S = 1e9
"""Deadlines are no part of what is asked, so a replay needs none."""


def beside(notebook: Path) -> Path:
    """Return where the cassette of a notebook lies."""
    return notebook.with_name(notebook.stem + ENDING)


def notebook_of(names: Mapping[str, Any], environment: Mapping[str, str]) -> Path | None:
    """Return the notebook that runs, where the front end tells; `None` elsewhere, as under nbclient.

    JupyterLab names it in the environment as the kernel starts, so a renamed notebook is not found either.
    """
    for told in (names.get("__vsc_ipynb_file__"), environment.get("JPY_SESSION_NAME"), names.get("__session__")):
        if isinstance(told, str) and told.endswith(".ipynb") and Path(told).is_file():
            return Path(told)
    return None


def holds(notebook: Path, cell: str) -> bool:
    """Tell whether the saved notebook has a cell with this text."""
    try:
        cells: list[Any] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError):
        return False
    return any("".join(one.get("source", "")).strip() == cell.strip() for one in cells)


def worth_sharing(runs: Sequence[Run]) -> list[Run]:
    """Leave out runs that repeat another one without having measured anything, as a cell does that ran twice."""
    kept: list[Run] = []
    seen: set[tuple[str, ...]] = set()
    for run in runs:
        asked = (run.plan.name, *(one.request.key(ANYWHERE) for one in run.record.attempts))
        bought = any(one.source in {"live", "simulated"} for one in run.record.attempts)
        if bought or asked not in seen:
            kept.append(run)
        seen.add(asked)
    return kept


def share(
    runs: Sequence[Run],
    cassette: Path,
    *,
    notebook: Path | None = None,
    cells: Iterable[str] = (),
    allow: Iterable[str] = (),
) -> dict[str, Any]:
    """Write runs to a cassette, after a look for keys, and make sure that they replay without any.

    Args:
        runs: What a reader needs.
        cassette: Where to write.
        notebook: The saved notebook, to be looked over too.
        cells: Texts of cells that may not be in it yet.
        allow: Marks of findings that are no keys.

    Returns:
        The stamp: versions, source, date, sha256. The frames of the runs carry it in `attrs["provenance"]`.

    Raises:
        SecretFound: Something looks like a key; nothing was written.
        AgentMagicError: What was written does not replay as it was.
        OSError: The file cannot be written.
    """
    if not runs:
        raise AgentMagicError("Nothing has run yet. %agents run runs what is declared, and %agents share shares that.")
    records = [run.record for run in runs]
    check_for_secrets(records, cassette.name, notebook=notebook, cells=cells, allow=allow)
    calls = write_cassette(records, cassette)
    tried = fingerprints([run.plan for run in runs], cassette, timeout_s=LONGEST_S)
    for number, (record, found) in enumerate(zip(records, tried, strict=True), 1):
        differs = [name for name, digest in fingerprint(record).items() if digest != found[name]]
        if differs:
            raise AgentMagicError(f"Run {number} does not replay as it was: {', '.join(differs)} differ.")
    return _stamp(records, cassette, calls)


def check_for_secrets(
    records: Sequence[RunRecord],
    name: str,
    *,
    notebook: Path | None = None,
    cells: Iterable[str] = (),
    allow: Iterable[str] = (),
) -> None:
    """Look for keys in what is to be shared.

    Raises:
        SecretFound: There is something that looks like one.
    """
    found = not_allowed(_look(records, name, notebook, cells), allow)
    if found:
        raise SecretFound([str(one) for one in found], what=name)


def _look(records: Sequence[RunRecord], name: str, notebook: Path | None, cells: Iterable[str]) -> Iterator[Finding]:
    secrets = secrets_of(os.environ)
    for line in lines_of(records):
        who = f", {line['agent']!r}" if "agent" in line else ""
        yield from scan_data({k: v for k, v in line.items() if k != "key"}, f"{name}{who}", secrets)
    for number, cell in enumerate(cells, 1):
        yield from scan_text(cell, f"executed cell {number}", secrets)
    if notebook is not None:
        yield from scan_file(notebook.name, notebook.read_bytes(), secrets)


def _stamp(records: Sequence[RunRecord], path: Path, calls: int) -> dict[str, Any]:
    written = read_cassette(path)
    stamp: dict[str, Any] = {
        "cassette": path.name,
        "sha256": written.sha256,
        "recorded": max(run.recorded for run in written.runs),
        "simulated": written.simulated,
        "sources": sorted({call.source for call in written.calls if call.source}),
        "runs": len(written.runs),
        "calls": calls,
        "made_with": made_with(),
    }
    for record, run in zip(records, written.runs, strict=True):
        record.provenance = {**stamp, "recorded": run.recorded, "simulated": run.simulated}
    return stamp


def stamp_bundle(stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stamp as a notebook shows it."""
    versions = ", ".join(f"{name} {number}" for name, number in sorted(stamp["made_with"].items()))
    source = "made up by the stand-in API" if stamp["simulated"] else ", ".join(stamp["sources"]) or "nobody"
    rows = {
        "cassette": f"{stamp['cassette']}: {plural(stamp['runs'], 'run')}, {plural(stamp['calls'], 'call')}",
        "recorded": stamp["recorded"],
        "answers": source,
        "made with": versions,
        "sha256": stamp["sha256"],
        "checked": "replayed in a clean process, without a key and without a network: the same frames",
    }
    text = "\n".join(f"{name:<10} {value}" for name, value in rows.items())
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
    return {"text/plain": text, "text/html": f"<table>{cells}</table>", STAMP: dict(stamp)}
