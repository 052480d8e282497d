"""The scan for secrets before sharing."""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_magic.errors import SecretFound
from agent_magic.record.cassette.writing import lines_of
from agent_magic.record.secret_scan import Finding, not_allowed, scan_data, scan_file, scan_text, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent_magic.record.results import RunRecord


def check_for_secrets(
    records: Sequence[RunRecord],
    name: str,
    *,
    notebook: Path | None = None,
    cells: Iterable[str] = (),
    allow: Iterable[str] = (),
    redact: Callable[[str], str] | None = None,
) -> None:
    """Scan data for secrets before it is shared.

    Raises:
        SecretFound: A probable secret was found.
    """
    found = not_allowed(_look(lines_of(records, redact), name, notebook, cells), allow)
    if found:
        raise SecretFound([str(one) for one in found], what=name)


def _look(lines: Iterable[dict[str, Any]], name: str, notebook: Path | None, cells: Iterable[str]) -> Iterator[Finding]:
    secrets = secrets_of(os.environ)
    for line in lines:
        if "file" in line:  # bytes: only a text can hold a readable key
            data = base64.b64decode(line["data"])
            with suppress(UnicodeDecodeError):
                yield from scan_text(data.decode(), f"{name}, a document", secrets)
            continue
        who = f", {line['agent']!r}" if "agent" in line else ""
        yield from scan_data({k: v for k, v in line.items() if k != "key"}, f"{name}{who}", secrets)
    for number, cell in enumerate(cells, 1):
        yield from scan_text(cell, f"executed cell {number}", secrets)
    if notebook is not None:
        yield from scan_file(notebook.name, notebook.read_bytes(), secrets)
