"""Where a notebook may read and write: inside its project."""

from __future__ import annotations

from pathlib import Path

from agent_magic.errors import CassetteError


def inside(name: str | Path, folder: Path) -> Path:
    """Return the path of a file that lies in a folder or below it, links followed.

    A notebook from a stranger names files too: its cells shall neither read nor write anywhere else.

    Raises:
        CassetteError: The path leads out of the folder.
    """
    root = folder.resolve()
    try:
        path = (root / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such user, a NUL in the name
        raise CassetteError(f"{str(name)!r} is no file name.") from None
    if path == root or not path.is_relative_to(root):
        raise CassetteError(
            f"{str(name)!r} leads out of the project, which is the folder of the notebook. Name a file in it, or add "
            "--anywhere."
        )
    return path
