"""Sharing runs as a cassette: scanned for keys, and replayed in a clean process first.

A clean process has no keys, network or session: what replays there replays for a reader. This module, run as a program,
reads plans and a cassette as JSON, and writes the fingerprints of the replays' frames.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.api.plan import Plan
from agent_magic.api.run import Run
from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.errors import AgentMagicError, shown_value
from agent_magic.machine import in_browser
from agent_magic.measure.compare import record_of
from agent_magic.measure.frames import fingerprint
from agent_magic.providers.recorded import LONGEST_S, Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.cassette.writing import check_for_secrets, files_of, made_with, only_hash, write_cassette
from agent_magic.record.files import given_path
from agent_magic.record.secret_scan import secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.declare.plan import Plan as DeclaredPlan
    from agent_magic.record.results import RunRecord


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


PATIENCE_S = 300.0
NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})
"""The audit events of what would leave the process."""
OURS = ("ANTHROPIC_", "CLAUDE_", "AGENT_MAGIC_")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without keys of providers and without our settings."""
    secrets = secrets_of(environment)
    return {
        name: value
        for name, value in environment.items()
        if value not in secrets and not name.startswith(OURS) and not name.lower().endswith("_proxy")
    }


def block_network() -> None:
    """Block the network for this process, for good."""
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event in NETWORK:
        raise PermissionError(f"a clean replay reaches no network ({event})")


def fingerprints(
    plans: Sequence[DeclaredPlan], cassette: Path, *, timeout_s: float, texts: bool = True
) -> list[dict[str, str]]:
    """Replay plans in a clean process, in a browser in this one, and return the fingerprints of their frames."""
    rows = [{"plan": plan_to_dict(plan)} for plan in plans]
    task = json.dumps({"plans": rows, "cassette": str(cassette), "timeout_s": timeout_s, "texts": texts})
    if in_browser():
        return _replayed(json.loads(task))
    done = subprocess.run(
        [sys.executable, "-m", "agent_magic.api.sharing"],
        input=task,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=clean_environment(os.environ),
    )
    if done.returncode:
        why = (done.stderr.strip() or "no error was printed").splitlines()[-1]
        raise AgentMagicError(f"The replay failed in a clean process: {why}")
    return json.loads(done.stdout)


def main() -> int:
    """Replay what standard input names."""
    block_network()
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        found = _replayed(task)
    except AgentMagicError as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the process that asked
        return 1
    json.dump(found, sys.stdout)
    return 0


def _replayed(task: Mapping[str, Any]) -> list[dict[str, str]]:
    deck = Deck(read_cassette(Path(task["cassette"])))
    plans = [Plan.from_dict(row["plan"]) for row in task["plans"]]
    played = [deck.play(plan, timeout_s=task["timeout_s"]) for plan in plans]
    return [fingerprint(record, texts=task["texts"]) for record in played]


if __name__ == "__main__":
    sys.exit(main())
