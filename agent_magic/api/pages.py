"""Runs as files for a browser."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import ENDING, read_cassette
from agent_magic.record.cassette.writing import check_for_secrets, only_hash, write_cassette
from agent_magic.record.files import check_folder, check_regular, real_path, write_bytes
from agent_magic.show.ask.packing import needs_templates, pack_engine, pack_run
from agent_magic.show.run_page import Asking, python_place, run_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd

    from agent_magic.record.prices import Prices
    from agent_magic.record.results import RunRecord

LONGEST_S = 1e9
"""A deadline is not part of a request, so a replay needs none."""


def write_page(
    record: RunRecord,
    path: str | Path,
    scenarios: pd.DataFrame | None,
    *,
    redact: Callable[[str], str] | None,
    allow: Iterable[str],
    python: str | None,
    prices: Prices | None,
) -> Path:
    """Write a run as one HTML file atomically, and return the file.

    The page shows the played-back recording, so texts replaced there cannot be in it. The data of what-ifs has no texts
    at all.

    Raises:
        DeclarationError: `python` is no address and no folder.
        SecretFound: A probable secret was found; nothing was written.
        AgentMagicError: The run cannot be recorded, or the file cannot be written.
    """
    file = real_path(path, AgentMagicError)
    check_folder(file, AgentMagicError)
    check_regular(file, AgentMagicError)
    place = None if python is None or scenarios is None else python_place(python)
    check_for_secrets([record], file.name, allow=allow, redact=redact)
    with TemporaryDirectory() as folder:
        cassette = Path(folder) / "run.cassette.jsonl"
        write_cassette(record, cassette, redact=redact)
        data, deck = cassette.read_bytes(), Deck(read_cassette(cassette))
    shown = record if redact is None else deck.play(record.plan, timeout_s=LONGEST_S)
    name = file.stem + ENDING
    asking = None
    if place is not None:
        asking = Asking(place, pack_run(record, prices), pack_engine(templates=needs_templates(record.plan)))
    more: Any = {"texts": redact is not only_hash, "scenarios": scenarios, "asking": asking, "prices": prices}
    page = run_page(shown, name=name, cassette=data, **more)
    try:
        write_bytes(file, [page.encode()])
    except OSError as error:
        why = f"{file.name!r} cannot be written: {error.strerror}. Choose another place."
        raise AgentMagicError(why) from None
    return Path(path).expanduser()
