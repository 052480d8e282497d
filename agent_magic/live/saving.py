"""Files that a run writes: `am.save(name, value)` in a task or tool, and answers of agents with `save`.

Each appears whole, moved from a temporary file. The record has its name and fingerprint. A replay writes none.
"""

from __future__ import annotations

import hashlib
import io
import sys
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from agent_magic.declare.resources import CODE, checked_path, ending_of
from agent_magic.declare.values import as_json, is_one, read_table
from agent_magic.errors import AgentMagicError
from agent_magic.record.events import Artifact
from agent_magic.record.files import check_regular, inside, write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

FORMS = (
    "text, bytes, a DataFrame as .csv, .json or .parquet, a figure or a picture as .png, .svg or .pdf, JSON as .json"
)


class Saves:
    """Collects what this thread or task saves inside `with saves:`."""

    def __init__(self) -> None:
        self._files: dict[str, Artifact] = {}
        self._token: Token[Saves | None] | None = None

    def __enter__(self) -> Self:
        self._token = _WHOSE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _WHOSE.reset(self._token)

    @property
    def found(self) -> tuple[Artifact, ...]:
        return tuple(self._files.values())

    def add(self, artifact: Artifact) -> None:
        self._files[artifact.path] = artifact


_WHOSE: ContextVar[Saves | None] = ContextVar("agent_magic_saves", default=None)


def save(name: str, value: Any) -> str:
    """Write a value to a file beside the notebook, whole or not at all.

    In a task or a tool of a run, the record lists the file in the column `artifacts` of `run.agents`. Elsewhere it is
    only written, so that a function can be tried in a cell. If others read or write the same file, declare it:
    `@am.task(writes=name)`.

    Args:
        name: The file, relative to the folder of the notebook. Folders are created. Its ending sets the format.
        value: A text, bytes, a DataFrame (`.csv`, `.json`, `.parquet`), a figure or picture (`.png`, `.svg`, `.pdf`),
            or JSON data (`.json`).

    Returns:
        The name, in its shortest form.

    Raises:
        AgentMagicError: The name leads out of the folder, or the value has no such format.
        OSError: The file cannot be written; an old one is unchanged.
    """
    path = checked_path(name, "The file of am.save")
    artifact = write_artifact(path, _data_of(path, value))
    if (saves := _WHOSE.get()) is not None:
        saves.add(artifact)
    return path


class Saved(NamedTuple):
    """The content in the place of an answer's file, with a note for a person who has edited it."""

    file: Artifact
    note: str = ""
    is_answer: bool = True


def write_answer(path: str, data: bytes, known: str | None, *, named: bool = True) -> Saved:
    """Write an answer to its file, unless a person has edited the file and the answer is old."""
    if not named:
        _check_place(path, known)
    place = inside(path, Path.cwd(), AgentMagicError, "Name a file in it.")
    there = hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else None
    new = hashlib.sha256(data).hexdigest()
    if there == new:
        return Saved(Artifact(path, new))
    if there is None or known is None or there == known:
        return Saved(write_artifact(path, data))
    if new == known:
        why = f"{path} was changed by hand, and the answer is the one that was written before: it was left as it is"
        return Saved(Artifact(path, there), f"{why}. Delete the file to have the answer again.", is_answer=False)
    return Saved(write_artifact(path, data), f"{path} was changed by hand, and a new answer was written over that.")


def _check_place(path: str, known: str | None) -> None:
    root = Path.cwd().resolve()
    place = inside(path, root, AgentMagicError, "Name a file in it.")
    hint = "Only a path without items may be that: write it into save, or another folder."
    hidden = [one for one in place.relative_to(root).parts if one.startswith(".") and one not in Path(path).parts]
    if hidden:
        raise AgentMagicError(f"{path} leads to {hidden[0]!r}, which is hidden. {hint}")
    if not CODE & {ending_of(path), ending_of(place.name)}:  # a link may be called anything
        return
    if place.exists() and (known is None or hashlib.sha256(place.read_bytes()).hexdigest() != known):
        raise AgentMagicError(f"{path} is there, and is no answer of before. {hint}")
    for folder in {Path(one).resolve() for one in sys.path if isinstance(one, str)}:  # pyright: ignore[reportUnnecessaryIsInstance]
        if not place.exists() and place.is_relative_to(folder):
            module = place.relative_to(folder).parts[0].partition(".")[0]
            if module in sys.modules or (module.isidentifier() and find_spec(module) is not None):
                own = folder / module
                if not own.is_dir() or (own / "__init__.py").exists():
                    raise AgentMagicError(f"{path} would be imported in place of {module!r}. {hint}")


def write_artifact(path: str, data: bytes) -> Artifact:
    """Write a file below the working folder, whole or not at all."""
    place = inside(path, Path.cwd(), AgentMagicError, "Name a file in it.")
    check_regular(place, AgentMagicError)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(place, [data])
    return Artifact(path, hashlib.sha256(data).hexdigest())


def _data_of(path: str, value: Any) -> bytes:
    ending = Path(path).suffix.lower()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    write = _writer_of(value, ending)
    if write is None:
        raise AgentMagicError(
            f"am.save({path!r}) cannot write {type(value).__name__} as {ending or 'a file without ending'}. It writes "
            f"{FORMS}."
        )
    return write()


def _writer_of(value: Any, ending: str) -> Callable[[], bytes] | None:
    if (table := read_table(value)) is not None:
        frame = table.to_frame() if table.ndim == 1 else table
        index = frame.index.name is not None or frame.index.nlevels > 1
        forms: dict[str, Callable[[], bytes]] = {
            ".csv": lambda: frame.to_csv(index=index).encode(),
            ".json": lambda: as_json(frame, indent=2).encode(),
            ".parquet": getattr(value, "to_parquet", frame.to_parquet),
        }
        return forms.get(ending)
    if hasattr(value, "savefig"):
        return _drawn(value.savefig, ending) if ending in {".png", ".svg", ".pdf", ".jpg"} else None
    if is_one(value) and hasattr(value, "save"):
        return _drawn(value.save, ending) if ending in {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"} else None
    if ending == ".json":
        return lambda: as_json(value, indent=2).encode()
    return None


def _drawn(draw: Callable[..., object], ending: str) -> Callable[[], bytes]:
    def write() -> bytes:
        file = io.BytesIO()
        draw(file, format="jpeg" if ending == ".jpg" else ending[1:])
        return file.getvalue()

    return write
