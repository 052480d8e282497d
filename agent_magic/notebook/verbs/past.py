"""Past runs, and the ledger that keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.errors import did_you_mean
from agent_magic.notebook.verb import Desk, Parser, Verb, add_nothing
from agent_magic.show.units import dollars, plural

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    import pandas as pd

    from agent_magic.api import Ledger, Run


def _ledger_of(desk: Desk) -> Ledger:
    ledger = desk.session.ledger
    if ledger is None:
        raise UsageError("There is no ledger: it is off. %config AgentMagics.ledger = 'FILE' chooses one.")
    for note in desk.session.keeping.take_notes():
        print(f"note: {note}")  # noqa: T201 - the user has to know
    return ledger


def _runs(desk: Desk, _: Namespace) -> pd.DataFrame:
    runs = _ledger_of(desk).runs()
    if not len(runs):
        print("note: no run is in the ledger yet")  # noqa: T201 - an empty frame says less
    return runs


def _open_options(parser: Parser) -> None:
    parser.add_argument("run", nargs="?", type=int, metavar="RUN", help="Its number in %%agents runs; else the newest.")


def _open(desk: Desk, given: Namespace) -> Run:
    run = _ledger_of(desk).open(given.run)
    desk.session.last = run
    return run


def _ledger_options(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", default="size", metavar="WHAT", help=f"One of {', '.join(_CARE)}.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="Where export writes.")
    parser.add_argument("--days", type=float, metavar="N", help="prune: what is older than this.")
    parser.add_argument("--simulated", action="store_true", help="prune: only what the stand-in made up.")


def _ledger(desk: Desk, given: Namespace) -> None:
    if given.what not in _CARE:
        hint = did_you_mean(given.what, _CARE) or f" One of {', '.join(_CARE)}."
        raise UsageError(f"%agents ledger {given.what}: unknown.{hint}")
    print(_CARE[given.what](_ledger_of(desk), given))  # noqa: T201 - the answer


def _size(ledger: Ledger, _: Namespace) -> str:
    size = ledger.size()
    where = "in memory, until this kernel ends" if ledger.path is None else _near(ledger.path)
    spent = "nothing spent" if size.cost_usd is None else f"{dollars(size.cost_usd)} spent"
    saved = "" if size.saved_usd is None else f", {dollars(size.saved_usd)} saved by serving answers again"
    lines = [
        f"ledger: {where}, {size.bytes / 1e6:,.1f} MB",
        f"{plural(size.answers, 'answer')} ({size.simulated:,} simulated) of {plural(size.runs, 'run')}",
        f"{spent}{saved}",
    ]
    lines += [f"{plural(size.unknown, 'call')} in flight when a kernel ended: may have been billed"] * bool(
        size.unknown
    )
    return "\n".join(lines)


def _near(path: Path) -> str:
    """Write a path as it is seen from the working directory, or from the user's home."""
    for base, mark in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{mark}{path.relative_to(base)}"
    return str(path)


def _verify(ledger: Ledger, _: Namespace) -> str:
    check = ledger.verify()
    found = f"{plural(check.answers, 'answer')} of {plural(check.runs, 'run')} are whole"
    if check.ok:
        return f"{found}. The file is sound."
    wrong = [*([f"{check.damaged:,} damaged, which are never served"] if check.damaged else []), *check.problems[:5]]
    return f"{found}; {'; '.join(wrong)}. A new kernel sets a damaged file aside and recovers what can be read."


def _prune(ledger: Ledger, given: Namespace) -> str:
    if given.days is None and not given.simulated:
        raise UsageError("%agents ledger prune needs --days N, --simulated or both: it says what to forget for good.")
    before = ledger.size().bytes
    gone = ledger.prune(days=given.days, simulated=given.simulated)
    return f"{plural(gone, 'answer')} forgotten, {max(0, before - ledger.size().bytes) / 1e6:,.1f} MB given back."


def _export(ledger: Ledger, given: Namespace) -> str:
    if not given.file:
        raise UsageError("%agents ledger export needs the name of a file to write.")
    try:
        answers = plural(ledger.export(Path(given.file).expanduser()), "answer")
        return f"{answers} written to {given.file}, a line of JSON each."
    except OSError as error:
        raise UsageError(f"{given.file!r} cannot be written: {error.strerror}. Choose another place.") from None


def _salvage(ledger: Ledger, _: Namespace) -> str:
    return f"{plural(ledger.salvage(), 'answer')} taken over from damaged files that had been set aside."


_CARE: dict[str, Callable[[Ledger, Any], str]] = {
    "size": _size,
    "verify": _verify,
    "prune": _prune,
    "export": _export,
    "salvage": _salvage,
}
VERBS = {
    "runs": Verb("List all runs of the ledger, those of earlier sessions too.", add_nothing, _runs),
    "open": Verb("Bring a past run back: frames, picture, timeline. Returns the run.", _open_options, _open),
    "ledger": Verb("Show what the ledger holds, or size, verify, prune, export, salvage it.", _ledger_options, _ledger),
}
