"""A cell declares one agent, and its first line says so. What else users write is answered before anything else is."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from IPython.core.error import UsageError

from agent_magic.notebook.cell_hook import CellHook


@dataclass(frozen=True, slots=True)
class FirstLine(CellHook):
    """An input transformer that says what to do where a declaration stands behind something else.

    IPython takes `%%agent` for a cell only in its first line. Behind other lines it says that there is no such line
    magic, or the prompt is Python with a mistake in it.

    Attributes:
        magics: The names that declare.
    """

    magics: frozenset[str]

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines as they are.

        Raises:
            UsageError: A declaration stands behind something else.
        """
        text = "".join(lines)
        for name in self.magics if "agent" in text or "context" in text else ():
            if f"run_line_magic('%{name}'" in text or (_begins_a_line(name, text) and not _is_python(text)):
                raise UsageError(f"%%{name} has to be the first line of its cell: give what is above it another cell.")
        return lines


def lines_that_declare(prompt: str) -> list[str]:
    """Say that a line of a prompt looks like another declaration: it goes out as text."""
    found = re.search(r"^%%(agent|context)\b.*", prompt, re.MULTILINE)
    return [f"{found[0][:60]!r} is a line of this prompt: each %%{found[1]} needs its own cell"] if found else []


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
