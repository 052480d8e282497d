"""Runs kept as files, and files that answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.verb import Desk, Parser, Verb
from agent_magic.record.cassette import read_cassette
from agent_magic.record.place import inside
from agent_magic.run.replay import Deck
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from argparse import Namespace


def _file_options(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A cassette, such as run.cassette.jsonl.")
    parser.add_argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder.")


def _path(given: Namespace) -> Path:
    return Path(given.file).expanduser() if given.anywhere else inside(given.file, Path.cwd())


def _record(desk: Desk, given: Namespace) -> None:
    try:
        calls = desk.session.last_run().save(_path(given))
    except OSError as error:
        raise UsageError(f"{given.file!r} cannot be written: {error.strerror}. Choose another place.") from None
    print(f"{plural(calls, 'call')} recorded in {given.file}.")  # noqa: T201 - the answer


def _replay(desk: Desk, given: Namespace) -> None:
    cassette = read_cassette(_path(given))
    desk.session.insert(Deck(cassette))
    made_up = " The stand-in API had made its answers up." if cassette.simulated else ""
    calls = plural(len(cassette.calls), "call")
    print(f"Answers come from {given.file}: {calls}, recorded {cassette.recorded}.{made_up}")  # noqa: T201
    if cassette.damaged:
        print(f"note: damaged or changed lines, left out: {', '.join(map(str, cassette.damaged))}")  # noqa: T201
    if cassette.missing:
        print(f"note: {plural(cassette.missing, 'line')} of the file are gone")  # noqa: T201


VERBS = {
    "record": Verb(
        "Write the last run to a cassette, to share it.",
        _file_options,
        _record,
        examples=("%agents record quickstart.cassette.jsonl",),
    ),
    "replay": Verb(
        "Let a cassette answer from now on: no key, no network, the recorded clock.",
        _file_options,
        _replay,
        examples=("%agents replay quickstart.cassette.jsonl", "run = %agents run    # answered by the file"),
    ),
}
