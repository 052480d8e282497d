"""Cassettes: runs saved as files, and files that answer. Sharing a notebook with its cassette."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final, cast

from IPython.core.error import UsageError

from agent_magic.api.sharing import share
from agent_magic.declare.units import plural
from agent_magic.machine import PYODIDE
from agent_magic.notebook.command import CommandContext, Verb, argument, path_of
from agent_magic.notebook.files.sharing import beside, holds, notebook_of, stamp_bundle, worth_sharing
from agent_magic.notebook.front_end import display_bundle, note, say
from agent_magic.notebook.session import PINNED
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.cassette.writing import check_for_secrets, only_hash

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from pathlib import Path


_FILE_OPTIONS: Final = (
    argument("file", metavar="FILE", help="A cassette, such as run.cassette.jsonl."),
    argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder."),
)


def pace_of(word: str | None) -> float | None:
    if word is None or word == "real":
        return 1.0 if word else None
    try:
        pace = float(word.removeprefix("x"))
    except ValueError:
        pace = 0.0
    if not 0 < pace < math.inf:
        raise UsageError(f"--pace must be real, or a number > 0 such as 4 for four times as fast, got {word!r}.")
    return pace


_TEXT_OPTIONS: Final = (
    argument("--allow", action="append", default=[], metavar="MARK", help="Allow this finding: it is not a key."),
    argument("--no-text", action="store_true", help="Leave out prompts, answers and errors."),
    argument("--redact", metavar="FUNCTION", help="Your function: takes a text, returns the text to write."),
)


def _redaction(ctx: CommandContext, given: Namespace) -> Callable[[str], str] | None:
    if given.redact is None:
        return only_hash if given.no_text else None
    found = ctx.shell.user_ns.get(given.redact)
    if not callable(found):
        raise UsageError(f"--redact {given.redact}: no such function. It takes a text and returns one.")
    return cast("Callable[[str], str]", found)


def _share(ctx: CommandContext, given: Namespace) -> None:
    if given.page is not None:
        _share_page(ctx, given)
        return
    names = ctx.shell.user_ns
    told = given.notebook or (given.file if given.file and given.file.endswith(".ipynb") else None)
    notebook = _saved(told, given) if told else notebook_of(names, os.environ)
    if given.file and given.file != told:
        cassette = path_of(given.file, given)
    elif notebook is not None:
        cassette = beside(notebook)
    elif os.environ.get(PINNED):  # `agent-magic replay` executes all cells of a shared notebook, this one too
        say("Nothing was shared: this session replays a recording.")
        return
    else:
        raise UsageError("The front end does not tell which notebook this is. Name it: %agents share NOTEBOOK.ipynb")
    cells = [cell for cell in names.get("In", ()) if isinstance(cell, str)]
    runs = [ctx.session.last_run()] if given.last else worth_sharing(ctx.session.runs)
    try:
        redact = _redaction(ctx, given)
        stamp = share(runs, cassette, notebook=notebook, cells=cells, allow=given.allow, redact=redact)
    except OSError as error:
        raise UsageError(f"{cassette.name!r} cannot be written: {error.strerror}. Choose another place.") from None
    display_bundle(stamp_bundle(stamp))
    if notebook is None:
        note("the notebook was not scanned for keys: name it with --notebook, or use agent-magic scan")
    elif cells and cells[-1].strip() and not holds(notebook, cells[-1]):
        note(f"{notebook.name} on disk does not have this cell yet: save it and share again")


def _share_page(ctx: CommandContext, given: Namespace) -> None:
    path = path_of(given.page, given)
    redact, run = _redaction(ctx, given), ctx.session.last_run()
    size = run.to_page(path, redact=redact, allow=given.allow, python=given.python).stat().st_size
    say(f"{path.name}: {size / 1e3:,.0f} KB, to be opened in any browser. It holds the recording too.")


def _saved(name: str, given: Namespace) -> Path:
    path = path_of(name, given)
    if not path.is_file():
        raise UsageError(f"{name!r} does not exist. Save the notebook first, or check its name.")
    return path


def _record(ctx: CommandContext, given: Namespace) -> None:
    run, path, redact = ctx.session.last_run(), path_of(given.file, given), _redaction(ctx, given)
    try:
        check_for_secrets([run.record], path.name, allow=given.allow, redact=redact)
        calls = run.save(path, redact=redact)
    except OSError as error:
        raise UsageError(f"{given.file!r} cannot be written: {error.strerror}. Choose another place.") from None
    without = "" if redact is None else ", without their texts" if given.redact is None else ", their texts replaced"
    say(f"{plural(calls, 'call')} recorded in {given.file}{without}.")


def _replay(ctx: CommandContext, given: Namespace) -> None:
    if given.strict and given.fill:
        raise UsageError(
            "--strict and --fill cannot be combined: one raises for what is not in the file, the other buys it."
        )
    cassette = read_cassette(path_of(given.file, given))
    ctx.session.insert(Deck(cassette, fill=given.fill, pace=pace_of(given.pace)))
    more = " Its answers are simulated." if cassette.simulated else ""
    more += " Its texts were removed or replaced." if cassette.redacted else ""
    calls = plural(len(cassette.calls), "call")
    say(f"Connected to {given.file}: {calls}, recorded {cassette.recorded_words}.{more}")
    say("%agents connect api, or simulator, stops using the recording.")
    if cassette.damaged:
        note(f"skipped damaged or changed lines: {', '.join(map(str, cassette.damaged))}")
    if cassette.missing:
        note(f"{plural(cassette.missing, 'line')} of the file are missing")


VERBS = {
    "record": Verb(
        "Save the last run to a cassette, a file that answers without a key.",
        (
            *_FILE_OPTIONS,
            *_TEXT_OPTIONS,
        ),
        _record,
        examples=(
            "%agents record quickstart.cassette.jsonl",
            "%agents record numbers.cassette.jsonl --no-text    # times, tokens and dollars only",
        ),
    ),
    "replay": Verb(
        "Answer from a cassette from now on: no key, no network, the recorded clock.",
        (
            *_FILE_OPTIONS,
            argument("--strict", action="store_true", help="An agent that is not in the file is an error (default)."),
            argument("--fill", action="store_true", help="Ask the provider for what is not in the file."),
            argument(
                "--pace",
                nargs="?",
                const="real",
                metavar="P",
                help="Play it live: real, or a factor such as 4. Default: at once.",
            ),
        ),
        _replay,
        examples=(
            "%agents replay quickstart.cassette.jsonl",
            "run = %agents run    # answered by the file",
            "%agents replay quickstart.cassette.jsonl --pace 4    # watch it live, four times as fast",
            "%agents replay quickstart.cassette.jsonl --fill    # ask the provider for what has changed since",
        ),
    ),
    "share": Verb(
        "Save all runs to a cassette beside the notebook, scanned for keys and replayed in a clean process.",
        (
            argument("file", nargs="?", metavar="FILE", help="The notebook, or the cassette to write."),
            argument("--last", action="store_true", help="Only the last run, not all of this session."),
            argument("--page", metavar="FILE", help="Write the last run as one HTML file that anybody can open."),
            argument(
                "--python",
                metavar="PLACE",
                default=PYODIDE,
                help="Where that page finds Pyodide: an address, or a folder beside it.",
            ),
            argument("--notebook", metavar="NB", help="The notebook, if the front end does not tell."),
            argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder."),
            *_TEXT_OPTIONS,
        ),
        _share,
        examples=(
            "%agents share",
            "%agents share analysis.ipynb --last    # only the last run",
            "%agents share --page run.html          # one file for a browser, which answers what-ifs",
        ),
    ),
}
