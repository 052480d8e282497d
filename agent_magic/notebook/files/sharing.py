"""Shared notebooks: which one is running, the runs a reader needs, and its execution as the reader would do it.

That is in a clean process, without a key and a network, with answers from its cassette.
"""

from __future__ import annotations

import difflib
import html
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.api.sharing import clean_environment
from agent_magic.declare.units import plural
from agent_magic.errors import AgentMagicError
from agent_magic.machine import in_browser
from agent_magic.notebook.files.cells import read_cells, read_text
from agent_magic.notebook.session import PINNED
from agent_magic.record.cassette.reading import ANYWHERE, ENDING, TEXT_ENDING
from agent_magic.record.files import told_notebooks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


CELL_TIMEOUT_S = 600
IGNORED = "NBVAL_IGNORE_OUTPUT"
SHARES = re.compile(r"^%agents share\b(?!.*\.ipynb)", re.MULTILINE)
"""A cell that shares its own notebook; its output depends on that moment."""
GUARD = "__import__('agent_magic.api.sharing', fromlist=['sharing']).block_network()"
_ENDING = re.compile(r"^\d[\d,]* agents? in \d+ layers? · .*\n?", re.MULTILINE)
"""The last line of a run executed by a program; in a front end the picture has it."""
_NO_KEY = re.compile(r"^note: no API key\b.*\n?", re.MULTILINE)
"""The note of a run without a key, which names the provider."""
_LEFT_OUT = re.compile(r"^note: .* leaves out .*\n?", re.MULTILINE)
"""The note on omissions of an endpoint; a recording omits nothing."""
_PRICE = re.compile(r"(?<=[a-z]), about [<≥]?\$[\d.,]+(?=\.)")
"""The price of asking failed agents again; a recording has no prices for that."""
_SAME = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,64}"), "ID"),
    (re.compile(r"Connected to .*"), "Connected to …"),
    (re.compile(r"^made with .*", re.MULTILINE), "made with …"),
    (re.compile(r"\b(?:live|ledger|replay|simulated|mixed)\b(?: \+ simulated)?"), ""),
    (_PRICE, ""),
    (re.compile(r"[ \t─]+|-{4,}"), " "),
    (re.compile(r"\s*\n\s*"), "\n"),
]
"""Allowed differences between a run and its replay: provider, versions, ids, and widths of columns."""


class Compared(NamedTuple):
    """A code cell with outputs, or an error."""

    number: int
    error: str
    difference: tuple[str, ...]


def rerun(
    notebook: Path, *, cassette: Path | None = None, output: Path | None = None, more: Iterable[Path] = ()
) -> list[Compared]:
    """Execute a copy of a notebook in a temporary folder, and compare its outputs with the saved ones.

    The `cassette` is by default the file beside it written by `%agents share`, or the recording named in its cells.
    """
    try:
        nbformat, nbclient = importlib.import_module("nbformat"), importlib.import_module("nbclient")
    except ImportError:
        raise AgentMagicError("Executing notebooks needs nbclient: pip install nbclient.") from None
    text = read_text(notebook)
    sources = [source for kind, source in read_cells(text, notebook.name) if kind == "code"]
    try:
        saved, fresh = nbformat.reads(text, as_version=4), nbformat.reads(text, as_version=4)
    except nbformat.ValidationError as error:
        why = str(error).partition("\n")[0]
        raise AgentMagicError(f"{notebook.name!r} cannot be executed: {why}") from None
    tape = cassette or (beside(notebook) if beside(notebook).is_file() else None)
    environment = clean_environment(os.environ)
    if tape is not None:
        environment[PINNED] = str(tape.resolve())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        copy_needed(notebook, sources, work, more)
        client = nbclient.NotebookClient(
            fresh,
            km=_kernel(Path(folder)),
            timeout=CELL_TIMEOUT_S,
            iopub_timeout=CELL_TIMEOUT_S,  # outputs that come later than 4 s behind the reply would be lost
            resources={"metadata": {"path": str(work)}},
            allow_errors=True,
        )
        environment["AGENT_MAGIC_LEDGER"] = "off"
        try:
            client.execute(env=environment, cleanup_kc=True)
        except nbclient.exceptions.DeadKernelError:
            raise AgentMagicError("The kernel died before the notebook was through.") from None
        except nbclient.exceptions.CellTimeoutError:
            raise AgentMagicError(f"A cell took longer than {CELL_TIMEOUT_S} s: let it do less.") from None
    if output is not None:
        nbformat.write(fresh, output)
    return [one for one in map(_compare, range(1, len(saved.cells) + 1), saved.cells, fresh.cells) if one]


def _kernel(folder: Path) -> Any:
    specs_of = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager
    manager = importlib.import_module("jupyter_client.manager").AsyncKernelManager
    spec = folder / "specs" / "clean" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--IPKernelApp.log_level=ERROR"]
    argv.append(f"--IPKernelApp.exec_lines={GUARD}")
    spec.write_text(json.dumps({"argv": argv, "display_name": "clean", "language": "python"}))
    specs = specs_of(kernel_dirs=[str(folder / "specs")], ensure_native_kernel=False)
    return manager(kernel_name="clean", kernel_spec_manager=specs)


def _compare(number: int, saved: Any, fresh: Any) -> Compared | None:
    if saved.cell_type != "code":
        return None
    error, expected = _error(fresh.outputs), bool(_error(saved.outputs))
    ignored = IGNORED in saved.source or "nbval-ignore-output" in saved.metadata.get("tags", ())
    ignored = ignored or SHARES.search(saved.source) is not None
    before, now = shown(saved.outputs), shown(fresh.outputs)
    if ignored or not saved.outputs:
        return Compared(number, error, ()) if error and not expected else None
    if before.split() == now.split():  # a word more or less in a line breaks it elsewhere
        return Compared(number, "" if expected else error, ())
    lines = difflib.unified_diff(before.split("\n"), now.split("\n"), "saved", "replayed", lineterm="", n=1)
    return Compared(number, "" if expected else error, tuple(lines))


def _error(outputs: list[Any]) -> str:
    for one in outputs:
        if one.output_type == "error":
            return f"{one.ename}: {one.evalue}"
        if one.output_type == "stream" and one.name == "stderr" and one.text.startswith("UsageError: "):
            return str(one.text).strip()
    return ""


def shown(outputs: list[Any]) -> str:
    text = "\n".join(_text(one) for one in outputs)
    for pattern, same in _SAME:
        text = pattern.sub(same, text)
    return text.strip()


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return _LEFT_OUT.sub("", _NO_KEY.sub("", _ENDING.sub("", output.text)))
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return str(output.data.get("text/plain", ""))


LEFT = (".git", ".ipynb_checkpoints", ".venv", "node_modules", "__pycache__")
"""Folders that no notebook reads, so they are not copied."""
MOST_BYTES = 1 << 30
MOST_FILES = 20_000


def copy_needed(notebook: Path, sources: Iterable[str], work: Path, more: Iterable[Path] = ()) -> None:
    folder, text = notebook.resolve().parent, "\n".join(sources)
    there = (entry for entry in sorted(folder.iterdir()) if entry.name not in LEFT)
    chosen = {entry.name: entry for entry in there if _is_needed(entry, text)}
    for path in more:
        if not path.exists() or path.resolve().parent != folder:
            raise AgentMagicError(f"{str(path)!r} is not beside the notebook, so its cells could not find it there.")
        chosen[path.name] = path.resolve()
    files = size = 0
    for name, entry in chosen.items():
        for found in _files(entry):
            files, size = files + 1, size + found
            if files > MOST_FILES or size > MOST_BYTES:
                raise AgentMagicError(
                    f"The cells name {name!r}, and with it there is more to copy than {MOST_BYTES >> 30} GiB or "
                    f"{MOST_FILES:,} files. A replay runs on copies: let the notebook read a smaller sample."
                )
    work.mkdir(parents=True)
    for name, entry in chosen.items():
        if entry.is_dir():
            shutil.copytree(entry, work / name, ignore=shutil.ignore_patterns(*LEFT), symlinks=True)
        else:
            shutil.copy2(entry, work / name)


def _is_needed(entry: Path, text: str) -> bool:
    name = entry.name
    if name.endswith((ENDING, TEXT_ENDING)):
        return True
    if entry.suffix == ".py" or (entry.is_dir() and (entry / "__init__.py").is_file()):
        return _names(entry.stem, text) or _names(name, text)
    return _names(name, text)


def _names(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def _files(entry: Path) -> Iterator[int]:
    if not entry.is_dir():
        yield entry.stat().st_size
        return
    for place, folders, names in os.walk(entry):
        folders[:] = [one for one in folders if one not in LEFT]
        for name in names:
            yield os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - of a hundred thousand, each costs
