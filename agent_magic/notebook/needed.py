"""What a notebook reads from its folder: recordings, its own modules, and what its cells name. The rest stays there."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from agent_magic.errors import AgentMagicError
from agent_magic.record.cassette.reading import ENDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LEFT = (".git", ".ipynb_checkpoints", ".venv", "node_modules", "__pycache__")
"""What is not copied: it is no part of what a notebook reads."""
MOST_BYTES = 1 << 30
MOST_FILES = 20_000


def copy_needed(notebook: Path, sources: Iterable[str], work: Path, more: Iterable[Path] = ()) -> None:
    """Copy what a notebook needs into another folder.

    Args:
        notebook: The notebook.
        sources: The texts of its cells.
        work: The folder, which is made.
        more: Files and folders beside the notebook that its cells do not name.

    Raises:
        AgentMagicError: That is too much, or is not there.
    """
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
    if name.endswith(ENDING):
        return True
    if entry.suffix == ".py" or (entry.is_dir() and (entry / "__init__.py").is_file()):
        return _names(entry.stem, text) or _names(name, text)
    return _names(name, text)


def _names(word: str, text: str) -> bool:
    """Tell whether a text names a file, as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def _files(entry: Path) -> Iterator[int]:
    """Yield the size of each file."""
    if not entry.is_dir():
        yield entry.stat().st_size
        return
    for place, folders, names in os.walk(entry):
        folders[:] = [one for one in folders if one not in LEFT]
        for name in names:
            yield os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - of a hundred thousand, each costs
