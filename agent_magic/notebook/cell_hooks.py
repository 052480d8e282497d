"""Hooks that read cells before they run, as input transformers of IPython."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from IPython.core.error import UsageError

from agent_magic.declare.cells import without_tool_lines
from agent_magic.notebook.command import BLANKS, INVISIBLE, is_edit


@dataclass(frozen=True, slots=True)
class CellHook:
    """An input transformer: IPython calls it with the lines of each cell."""

    # Two hooks of a class with equal values are equal, so that loading an extension twice installs one.

    ip: Any
    stage: ClassVar[str] = "input_transformers_post"

    def install(self) -> None:
        if self not in self._hooks:
            self._hooks.append(self)

    def uninstall(self) -> None:
        self._hooks[:] = [hook for hook in self._hooks if hook != self]

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines to run instead."""
        raise NotImplementedError

    @property
    def _hooks(self) -> list[Any]:
        return getattr(self.ip, self.stage)


@dataclass(frozen=True, slots=True)
class FirstLine(CellHook):
    """Explains a declaration that is not in the first line of its cell."""

    # IPython takes `%%agent` for a cell magic only there. Further down it reports an unknown line magic, or that
    # the prompt is not Python.

    magics: frozenset[str]

    def __call__(self, lines: list[str]) -> list[str]:
        """Raise `UsageError` if a declaration follows other lines."""
        text = "".join(lines)
        for name in self.magics:
            begins_a_line = re.search(rf"^%%{name}\b", text, re.MULTILINE)
            if f"run_line_magic('%{name}'" in text or (begins_a_line and not _is_python(text)):
                raise UsageError(f"%%{name} must be the first line of its cell: move what is above it to another cell.")
        return lines


@dataclass(frozen=True, slots=True)
class PlainSigns(CellHook):
    """Normalises the text of our cells, which come from files and pages too."""

    # A byte order mark above a magic, or a non-breaking blank behind its name, hides it from IPython. Line ends of
    # Windows would make another prompt.

    magics: frozenset[str]
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        text, names = "".join(lines), "|".join(self.magics)
        if re.search(rf"%(?:{names})\b", text) is None:
            return lines
        text = re.sub(rf"\A(?:{INVISIBLE.pattern})+", "", text)
        if re.search(rf"^%%(?:{names})\b", text, re.MULTILINE):
            text = text.replace("\r\n", "\n")
        head = re.compile(rf"^[^\S\n]*(?:\w+[^\S\n]*=[^\S\n]*)?%%?(?:{names}){BLANKS.pattern}", re.MULTILINE)
        text = head.sub(lambda found: BLANKS.sub(" ", found[0]), text, count=text.startswith("%%"))
        return text.splitlines(keepends=True)


@dataclass(frozen=True, slots=True)
class Dedent(CellHook):
    """Removes the indentation that an editor adds behind a line magic."""

    # JupyterLab's editor reads a cell as Python, finds `%agents connect simulator` incomplete, and indents the next
    # line, which would be an `IndentationError`.

    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
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
    """Lets a line magic without options end in a semicolon, which IPython reads as part of its name."""

    magic: str
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        bare = re.compile(rf"^(\s*(?:\w+[ \t]*=[ \t]*)?%{self.magic});[ \t]*$", re.MULTILINE)
        return [bare.sub(r"\1 ;", line) for line in lines]


@dataclass(frozen=True, slots=True)
class HelpLine(CellHook):
    """Shows the help of the command before a question mark: `%agents plan?` is `%agents help plan`."""

    # IPython reads the last word only, and shows the help of `%%plan`, or a variable of that name.

    magic: str
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        if lines and lines[0].startswith("%%"):  # the text of a cell magic is no code
            return lines
        asks = rf"%{self.magic}[ \t]+(?:help[ \t]+)?(?P<command>\w[\w-]*|(?=\?))"
        asked = re.compile(
            rf"(?P<indent>\s*)(?:\?\??[ \t]*{asks}.*|(?:\w+[ \t]*=[ \t]*)?{asks.replace('command', 'named')}.*\?)\s*"
        )
        return [
            f"{found['indent']}%{self.magic} help {found['command'] or found['named']}\n" if found is not None else line
            for line, found in ((line, asked.fullmatch(line)) for line in lines)
        ]


@dataclass(frozen=True, slots=True)
class HelpWord(CellHook):
    """Shows the help of a command typed alone: `plan?` is `%agents help plan`."""

    # IPython would look for a magic with that name, and show the help of `%%plan`, or of its `%run`. A Python
    # variable or function with the name keeps its help.

    magic: str
    commands: frozenset[str]

    def __call__(self, lines: list[str]) -> list[str]:
        return [_ASKED_WORD.sub(self._help, line) for line in lines]

    def _help(self, found: re.Match[str]) -> str:
        word = found["word"]
        if word not in self.commands or word in self.ip.user_ns or hasattr(builtins, word):
            return found[0]
        return f"get_ipython().run_line_magic({self.magic!r}, 'help {word}')"


@dataclass(frozen=True, slots=True)
class ToolLines(CellHook):
    """Moves other tools' comments from above a cell magic to below its line, where prompts drop them."""

    # Colab reads `#@title` in the first line only, nbval a comment anywhere; IPython accepts `%%agent` in the first
    # only.

    magics: frozenset[str]
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        at = next((n for n, line in enumerate(lines) if line.startswith("%%")), 0)
        above = [line for line in lines[:at] if line.strip()]
        magic = lines[at].removeprefix("%%").split(maxsplit=1)[:1] if above else []
        if not self.magics.issuperset(magic) or not above or without_tool_lines("".join(above))[0].strip():
            return lines
        options = lines[at].split(maxsplit=1)[1:]
        if options and is_edit(options[0]):  # the text below is an answer, which may begin with such a line
            above = []
        return [lines[at], *above, *lines[at + 1 :]]


@dataclass(frozen=True, slots=True)
class OneLine(CellHook):
    """Lets a cell magic with an option stand alone: IPython refuses one with nothing below it."""

    magic: str
    option: str
    stage: ClassVar[str] = "input_transformers_cleanup"

    def __call__(self, lines: list[str]) -> list[str]:
        text = "".join(lines).strip()
        alone = text.startswith(f"%%{self.magic} ") and "\n" not in text and self.option in text
        return [f"{text}\n", "\n"] if alone else lines


_ASKED_WORD = re.compile(r"get_ipython\(\)\.run_line_magic\('pinfo2?', '(?P<word>\w+)'\)")
"""IPython's form of `word?`, outside of texts."""
_MAGIC = re.compile(r"(?:\w+[ \t]*=[ \t]*)?%\w.*(?<!\\)$")
_BEHIND_MAGIC = re.compile(r"^(?:\w+[ \t]*=[ \t]*)?%\w.*(?<!\\)\n(?:[ \t]*\n)*[ \t]+\S", re.MULTILINE)


def _is_indented_wrong(text: str) -> bool:
    """True if only indentation makes a cell invalid, each line magic read as a statement."""
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


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True
