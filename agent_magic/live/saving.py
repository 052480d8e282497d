"""Files that a run writes: `am.save(name, value)` in a task or a tool, and the answers of agents with `save`.

Each is written beside its place and then put there, so that nobody reads half of one. The run's record has its name and
its fingerprint. A replay writes none.
"""

from __future__ import annotations

import hashlib
import io
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from agent_magic.declare.saving import checked_path
from agent_magic.declare.serialization import as_json
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
    """Collects what is saved inside `with saves:`, by this thread or task.

    Attributes:
        found: The files, in order; one that was written twice stands there once.
    """

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
        """The files."""
        return tuple(self._files.values())

    def add(self, artifact: Artifact) -> None:
        """Record a file."""
        self._files[artifact.path] = artifact


_WHOSE: ContextVar[Saves | None] = ContextVar("agent_magic_saves", default=None)


def save(name: str, value: Any) -> str:
    """Write a value to a file beside the notebook, whole or not at all.

    In a task or a tool of a run the record names the file, in the column `artifacts` of `run.agents`. Elsewhere it is
    only written, so that a function can be tried in a cell. Where others read or write the same file, declare it:
    `@am.task(writes=name)`.

    Args:
        name: The file, relative to the folder of the notebook. Folders are made. Its ending says the form.
        value: A text, bytes, a DataFrame (`.csv`, `.json`, `.parquet`), a figure or picture (`.png`, `.svg`, `.pdf`),
            or what JSON can hold (`.json`).

    Returns:
        The name, in its shortest form.

    Raises:
        AgentMagicError: The name leads out of the folder, or the value has no form of that ending.
        OSError: The file cannot be written; an old one is unchanged.
    """
    path = checked_path(name, "The file of am.save")
    artifact = write_artifact(path, _data_of(path, value))
    if (saves := _WHOSE.get()) is not None:
        saves.add(artifact)
    return path


class Saved(NamedTuple):
    """What was found in the place of an answer's file.

    Attributes:
        file: The file as it is now.
        note: What a person should know, who has changed it by hand; empty for the rest.
        is_answer: Whether the answer is in it.
    """

    file: Artifact
    note: str = ""
    is_answer: bool = True


def write_answer(path: str, data: bytes, known: str | None) -> Saved:
    """Write an answer to its file, unless it is there already, or a person has changed the file and the answer is old.

    Args:
        path: The file.
        data: The answer.
        known: The fingerprint of what was written there last; `None` where nobody knows.

    Raises:
        AgentMagicError, OSError: As `write_artifact`.
    """
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


def write_artifact(path: str, data: bytes) -> Artifact:
    """Write a file below the working folder.

    Raises:
        AgentMagicError: The path leads out of the folder by a link, or is no regular file.
        OSError: The file cannot be written; an old one is unchanged.
    """
    place = inside(path, Path.cwd(), AgentMagicError, "Name a file in it.")
    check_regular(place, AgentMagicError)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(place, [data])
    return Artifact(path, hashlib.sha256(data).hexdigest())


def _data_of(path: str, value: Any) -> bytes:
    """Return a value in the form that the ending of a name says."""
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
    """Return what writes a value in a form; `None` where it has none."""
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "to_csv"):
        frame = value.to_frame() if value.ndim == 1 else value
        index = frame.index.name is not None or frame.index.nlevels > 1
        forms: dict[str, Callable[[], bytes]] = {
            ".csv": lambda: frame.to_csv(index=index).encode(),
            ".json": lambda: frame.to_json(orient="records", indent=2).encode(),
            ".parquet": frame.to_parquet,
        }
        return forms.get(ending)
    if hasattr(value, "savefig"):
        return _drawn(value.savefig, ending) if ending in {".png", ".svg", ".pdf", ".jpg"} else None
    if library == "PIL":
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
