"""Files of the user: which may be read or replaced, how one is written whole, and which one started a run.

The *home* of a run is the notebook, if the front end tells it as JupyterLab, VS Code and Papermill do, or the script;
else, as under nbclient and in a terminal, the working folder with a slash at its end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError, CassetteError, shown_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def real_path(path: str | Path, error: type[AgentMagicError]) -> Path:
    """Follow links, or raise `error`."""
    try:
        found = Path(path).expanduser().resolve()
        if not found.is_symlink():  # a loop of links, which is no error from Python 3.13 on
            return found
    except FileNotFoundError:
        raise error(f"{str(path)!r} is relative, and the working directory does not exist any more.") from None
    except (OSError, RuntimeError, ValueError, TypeError):  # a loop of links, no such user, a NUL, a number
        pass
    raise _no_file_name(path, error)


def given_path(path: str | Path, error: type[AgentMagicError]) -> Path:
    if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _no_file_name(path, error)
    return Path(path)


def _no_file_name(path: object, error: type[AgentMagicError]) -> AgentMagicError:
    return error(f"{shown_value(str(path) if isinstance(path, Path) else path)} is no file name. Choose another.")


def check_regular(path: Path, error: type[AgentMagicError], hint: str = "Choose another name.") -> None:
    """Raise `error` for a folder, a device or a pipe, without opening it."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as wrong:  # such as a name that is too long, or a folder that may not be read
        raise error(f"{shown_value(path.name)} cannot be a file here: {wrong.strerror}. {hint}") from None
    if kind != stat.S_IFREG:
        raise error(f"{path.name!r} is {KINDS.get(kind, 'no file')}, not a file. {hint}")


def check_folder(path: Path, error: type[AgentMagicError]) -> None:
    folder = path.parent
    if not folder.is_dir():
        where = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        raise error(f"The folder of {path.name!r} does not exist: {str(where)!r}. Choose another place, or make it.")


def write_whole(path: Path, lines: Iterable[str], *, private: bool = False) -> None:
    write_bytes(path, (f"{line}\n".encode() for line in lines), private=private)


def write_bytes(path: Path, parts: Iterable[bytes], *, private: bool = False) -> None:
    """Write atomically. An existing file keeps its mode; `private` makes a new one its owner's alone."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder to disk; Windows opens no folders, and does not need it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def inside(
    name: str | Path,
    folder: Path,
    error: type[AgentMagicError] = CassetteError,
    hint: str = "Name a file in it, or add --anywhere.",
) -> Path:
    """Follow links; raise `error` outside the folder."""
    # A notebook from a stranger names files too. Its cells must not read or write anywhere else.
    root = folder.resolve()
    path = real_path(name if str(name).startswith("~") else root / name, error)
    if path == root or not path.is_relative_to(root):
        raise error(f"{str(name)!r} leads out of the project, which is the folder of the notebook. {hint}")
    return path


NOTEBOOK = ".ipynb"


def told_notebooks(names: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    # JupyterLab sets the environment as the kernel starts, so a later name is not in it.
    for told in (names.get("__vsc_ipynb_file__"), environment.get("JPY_SESSION_NAME"), names.get("__session__")):
        if isinstance(told, str) and told.endswith(NOTEBOOK):
            yield told


def home_of() -> str:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        found: object = next(told_notebooks(shell.user_ns, os.environ), None)
    else:
        found = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return str(Path(found).absolute()) if isinstance(found, str) and found else f"{Path.cwd().as_posix()}/"
    except OSError:  # the folder is gone
        return ""


def is_file(home: str) -> bool:
    return bool(home) and not home.endswith("/")


def shown_home(home: str | None) -> str:
    """Return the last two parts of a home: a shared notebook must not tell more."""
    if not home:
        return "unknown"
    kind = PureWindowsPath if PureWindowsPath(home).drive else PurePosixPath  # the ledger may be of another machine
    parts = kind(home).parts[-2 if is_file(home) else -1 :]
    return "/".join(parts) + ("" if is_file(home) else "/")
