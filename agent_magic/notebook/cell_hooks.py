"""Hooks that read cells before they run: IPython's input transformers, with install and uninstall."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from IPython.core.error import UsageError


@dataclass(frozen=True, slots=True)
class CellHook:
    """An input transformer: IPython calls it with the lines of each cell. A subclass says what it does with them.

    Two hooks of a kind with the same values are equal, so that loading an extension twice installs one.

    Attributes:
        ip: The `InteractiveShell` whose cells are read.
        stage: The list of IPython it belongs to.
    """

    ip: Any
    stage: ClassVar[str] = "input_transformers_post"

    def install(self) -> None:
        """Read cells from the next one on. Idempotent."""
        if self not in self._hooks:
            self._hooks.append(self)

    def uninstall(self) -> None:
        """Stop reading cells from the next one on. Idempotent."""
        self._hooks[:] = [hook for hook in self._hooks if hook != self]

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines to run instead of these."""
        raise NotImplementedError

    @property
    def _hooks(self) -> list[Any]:
        return getattr(self.ip, self.stage)


@dataclass(frozen=True, slots=True)
class FirstLine(CellHook):
    """Explains a declaration that is not in the first line of its cell.

    IPython takes `%%agent` for a cell magic only there. Further down it reports an unknown line magic, or that the
    prompt is not Python.

    Attributes:
        magics: The names of the cell magics.
    """

    magics: frozenset[str]

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines as they are.

        Raises:
            UsageError: A declaration follows other lines.
        """
        text = "".join(lines)
        for name in self.magics:
            if f"run_line_magic('%{name}'" in text or (_begins_a_line(name, text) and not _is_python(text)):
                raise UsageError(f"%%{name} must be the first line of its cell: move what is above it to another cell.")
        return lines


@dataclass(frozen=True, slots=True)
class Dedent(CellHook):
    """Removes the indentation that an editor adds behind a line magic.

    JupyterLab's editor reads a cell as Python, finds `%agents connect simulator` incomplete, and indents the next line.
    A line magic opens no block, so that indentation is never meant, and would be an `IndentationError`.
    """

    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines with what follows a line magic at the margin."""
        if not _BEHIND_MAGIC.search("".join(lines)) or not _is_indented_wrong("".join(lines)):
            return lines
        made, extra, behind = list[str](), "", False
        for line in lines:
            if line.strip():
                if behind:
                    extra = line[: len(line) - len(line.lstrip(" \t"))]
                extra = extra if line.startswith(extra) else ""
                behind = _MAGIC.match(line.removeprefix(extra)) is not None
            made.append(line.removeprefix(extra))
        return made


@dataclass(frozen=True, slots=True)
class Semicolon(CellHook):
    """Lets a line magic without options end in a semicolon, which IPython reads as a part of its name.

    Attributes:
        magic: The name of the line magic.
    """

    magic: str
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines, with a blank before such a semicolon."""
        bare = re.compile(rf"^(\s*(?:\w+[ \t]*=[ \t]*)?%{self.magic});[ \t]*$", re.MULTILINE)
        return [bare.sub(r"\1 ;", line) for line in lines]


@dataclass(frozen=True, slots=True)
class OneLine(CellHook):
    """Lets a cell magic with a certain option stand alone: IPython refuses one with nothing below it.

    Attributes:
        magic: The name of the cell magic.
        option: With this there is nothing to write below.
    """

    magic: str
    option: str
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines, with an empty one below a magic that stands alone."""
        text = "".join(lines).strip()
        alone = text.startswith(f"%%{self.magic} ") and "\n" not in text and self.option in text
        return [f"{text}\n", "\n"] if alone else lines


_MAGIC = re.compile(r"(?:\w+[ \t]*=[ \t]*)?%\w.*(?<!\\)$")
_BEHIND_MAGIC = re.compile(r"^(?:\w+[ \t]*=[ \t]*)?%\w.*(?<!\\)\n(?:[ \t]*\n)*[ \t]+\S", re.MULTILINE)


def _is_indented_wrong(text: str) -> bool:
    """Return whether only indentation makes a cell invalid, each line magic read as a statement."""
    plain = re.sub(r"^(\s*)(?:\w+[ \t]*=[ \t]*)?%\w.*$", r"\1pass", text, flags=re.MULTILINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(plain)
        except IndentationError:
            return True
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return False


def _begins_a_line(name: str, text: str) -> bool:
    return re.search(rf"^%%{name}\b", text, re.MULTILINE) is not None


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True
