"""Sharing runs as a cassette: scanned for keys, and replayed in a clean process first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.api.clean import fingerprints
from agent_magic.api.run import Run
from agent_magic.errors import AgentMagicError, shown_value
from agent_magic.measure.compare import record_of
from agent_magic.measure.frames import fingerprint
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.cassette.writing import check_for_secrets, files_of, made_with, only_hash, write_cassette
from agent_magic.record.files import given_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.record.results import RunRecord

LONGEST_S = 1e9
"""A deadline is not part of a request, so a replay needs none."""


def share(
    runs: Run | Sequence[Run],
    path: str | Path,
    *,
    notebook: str | Path | None = None,
    cells: Iterable[str] = (),
    allow: Iterable[str] = (),
    redact: Callable[[str], str] | None = None,
    texts: bool = True,
) -> dict[str, Any]:
    """Scan runs for secrets, write them to a cassette, and check that it replays in a clean process.

    Args:
        runs: The runs.
        path: Where to write.
        notebook: The saved notebook, scanned too.
        cells: Texts of cells that may not be saved yet.
        allow: Marks of allowed findings.
        redact: Returns the replacement of a text, as in `Run.save`.
        texts: False to omit texts.

    Returns:
        The stamp: versions, source, date, sha256. The frames of the runs have it in `attrs["provenance"]`.

    Raises:
        SecretFound: A probable secret was found; nothing was written.
        AgentMagicError: The cassette does not replay as the run.
        OSError: The file cannot be written.
    """
    chosen, cassette = [runs] if isinstance(runs, Run) else runs, given_path(path, AgentMagicError)
    notebook = None if notebook is None else given_path(notebook, AgentMagicError)
    redact = redact if texts else only_hash
    if not isinstance(chosen, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentMagicError(f"{shown_value(runs)} cannot be shared. Give a run, or a list of them.")
    records = [record_of(run, "share") for run in chosen]
    if not records:
        raise AgentMagicError("Nothing has run yet. %agents run runs what is declared, and %agents share shares that.")
    check_for_secrets(records, cassette.name, notebook=notebook, cells=cells, allow=allow, redact=redact)
    calls = write_cassette(records, cassette, redact=redact)
    same = redact is None
    tried = fingerprints([record.plan for record in records], cassette, timeout_s=LONGEST_S, texts=same)
    for number, (record, found) in enumerate(zip(records, tried, strict=True), 1):
        differs = [name for name, digest in fingerprint(record, texts=same).items() if digest != found[name]]
        if differs:
            raise AgentMagicError(f"Run {number} does not replay as it was: {', '.join(differs)} differ.")
    return _stamp(records, cassette, calls)


def _stamp(records: Sequence[RunRecord], path: Path, calls: int) -> dict[str, Any]:
    written = read_cassette(path)
    files = list({one.sha256: one for record in records for one in files_of(record)}.values())
    stamp: dict[str, Any] = {
        "cassette": path.name,
        "sha256": written.sha256,
        "recorded": max(run.recorded for run in written.runs),
        "simulated": written.simulated,
        "redacted": written.redacted,
        "sources": sorted({call.source for call in written.calls if call.source}),
        "runs": len(written.runs),
        "calls": calls,
        "made_with": made_with(),
    }
    if files and not written.redacted:
        stamp |= {"files": len(files), "files_bytes": sum(one.size for one in files)}
    for record, run in zip(records, written.runs, strict=True):
        record.provenance = {**stamp, "recorded": run.recorded, "simulated": run.simulated}
    return stamp
