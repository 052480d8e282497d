"""Runs kept as files, and files that answer."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from IPython.core.error import UsageError

from agent_magic.api.sharing import check_for_secrets, share
from agent_magic.notebook.front_end import display_bundle
from agent_magic.notebook.sharing import beside, holds, notebook_of, stamp_bundle, worth_sharing
from agent_magic.notebook.verb import Desk, Parser, Verb
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.cassette.writing import only_hash
from agent_magic.record.files import inside
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable


def _file_options(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A cassette, such as run.cassette.jsonl.")
    parser.add_argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder.")


def _replay_options(parser: Parser) -> None:
    _file_options(parser)
    parser.add_argument("--strict", action="store_true", help="An agent that was not recorded is an error (default).")
    parser.add_argument("--fill", action="store_true", help="Buy what was not recorded.")
    parser.add_argument(
        "--pace",
        nargs="?",
        const="real",
        metavar="P",
        help="real, or a factor such as 4: play it live, not at once.",
    )


def _pace(word: str | None) -> float | None:
    """Read `--pace`."""
    if word is None or word == "real":
        return 1.0 if word else None
    try:
        pace = float(word.removeprefix("x"))
    except ValueError:
        pace = 0.0
    if not 0 < pace < math.inf:
        raise UsageError(f"--pace {word}: it is real, or a number above 0 such as 4 for four times as fast.")
    return pace


def _path(given: Namespace) -> Path:
    return Path(given.file).expanduser() if given.anywhere else inside(given.file, Path.cwd())


def _text_options(parser: Parser) -> None:
    parser.add_argument("--allow", action="append", default=[], metavar="MARK", help="A finding that is no key.")
    parser.add_argument("--no-text", action="store_true", help="Leave prompts, answers and errors out of the file.")
    parser.add_argument("--redact", metavar="FUNCTION", help="Your function: takes a text, returns what is written.")


def _redaction(desk: Desk, given: Namespace) -> Callable[[str], str] | None:
    """Return what is to be written in place of texts; `None` for themselves."""
    if given.redact is None:
        return only_hash if given.no_text else None
    found = desk.shell.user_ns.get(given.redact)
    if not callable(found):
        raise UsageError(f"--redact {given.redact}: there is no such function. It takes a text, and returns one.")
    return cast("Callable[[str], str]", found)


def _record_options(parser: Parser) -> None:
    _file_options(parser)
    _text_options(parser)


def _share_options(parser: Parser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="The notebook, or the cassette to write.")
    parser.add_argument("--last", action="store_true", help="Only the last run, not all of this session.")
    parser.add_argument("--notebook", metavar="NB", help="The notebook, where the front end does not tell it.")
    parser.add_argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder.")
    _text_options(parser)


def _share(desk: Desk, given: Namespace) -> None:
    names = desk.shell.user_ns
    told = given.notebook or (given.file if given.file and given.file.endswith(".ipynb") else None)
    notebook = _saved(told, given) if told else notebook_of(names, os.environ)
    if given.file and given.file != told:
        cassette = _path(given)
    elif notebook is not None:
        cassette = beside(notebook)
    else:
        raise UsageError("Which notebook is this? The front end does not tell. %agents share NOTEBOOK.ipynb says it.")
    cells = [cell for cell in names.get("In", ()) if isinstance(cell, str)]
    runs = [desk.session.last_run()] if given.last else worth_sharing(desk.session.runs)
    try:
        redact = _redaction(desk, given)
        stamp = share(runs, cassette, notebook=notebook, cells=cells, allow=given.allow, redact=redact)
    except OSError as error:
        raise UsageError(f"{cassette.name!r} cannot be written: {error.strerror}. Choose another place.") from None
    display_bundle(stamp_bundle(stamp))
    if notebook is None:
        print("note: the notebook was not looked over for keys: name it with --notebook, or use agent-magic scan")  # noqa: T201
    elif cells and cells[-1].strip() and not holds(notebook, cells[-1]):
        print(f"note: {notebook.name} on the disk does not hold this cell yet: save it, and share again")  # noqa: T201


def _saved(name: str, given: Namespace) -> Path:
    path = Path(name).expanduser() if given.anywhere else inside(name, Path.cwd())
    if not path.is_file():
        raise UsageError(f"{name!r} is no file. Save the notebook first, or check its name.")
    return path


def _record(desk: Desk, given: Namespace) -> None:
    run, path, redact = desk.session.last_run(), _path(given), _redaction(desk, given)
    try:
        check_for_secrets([run.record], path.name, allow=given.allow, redact=redact)
        calls = run.save(path, redact=redact)
    except OSError as error:
        raise UsageError(f"{given.file!r} cannot be written: {error.strerror}. Choose another place.") from None
    without = "" if redact is None else ", without their texts" if given.redact is None else ", their texts replaced"
    print(f"{plural(calls, 'call')} recorded in {given.file}{without}.")  # noqa: T201 - the answer


def _replay(desk: Desk, given: Namespace) -> None:
    if given.strict and given.fill:
        raise UsageError("--strict and --fill exclude each other: is what was not recorded an error, or bought?")
    cassette = read_cassette(_path(given))
    desk.session.insert(Deck(cassette, fill=given.fill, pace=_pace(given.pace)))
    made_up = " The stand-in API had made its answers up." if cassette.simulated else ""
    made_up += " Its texts were left out or replaced." if cassette.redacted else ""
    calls = plural(len(cassette.calls), "call")
    print(f"Answers come from {given.file}: {calls}, recorded {cassette.recorded_words}.{made_up}")  # noqa: T201
    if cassette.damaged:
        print(f"note: damaged or changed lines, left out: {', '.join(map(str, cassette.damaged))}")  # noqa: T201
    if cassette.missing:
        print(f"note: {plural(cassette.missing, 'line')} of the file are gone")  # noqa: T201


VERBS = {
    "record": Verb(
        "Write the last run to a cassette, to share it.",
        _record_options,
        _record,
        examples=(
            "%agents record quickstart.cassette.jsonl",
            "%agents record numbers.cassette.jsonl --no-text    # times, tokens and dollars only",
        ),
    ),
    "replay": Verb(
        "Let a cassette answer from now on: no key, no network, the recorded clock.",
        _replay_options,
        _replay,
        examples=(
            "%agents replay quickstart.cassette.jsonl",
            "run = %agents run    # answered by the file",
            "%agents replay quickstart.cassette.jsonl --pace 4    # watch it, four times as fast",
            "%agents replay quickstart.cassette.jsonl --fill    # buy what has changed since",
        ),
    ),
    "share": Verb(
        "Write all runs to a cassette beside the notebook, looked over for keys and tried in a clean process.",
        _share_options,
        _share,
        examples=("%agents share", "%agents share analysis.ipynb"),
    ),
}
