"""Shift+Tab: the help of the command, the magic or the option at the cursor.

IPython looks up the word at the cursor: `%%plan` for `%agents plan`, its own `%run` for `%agents run`, nothing for an
option.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent_magic.notebook.declaring import PARSERS, help_of
from agent_magic.notebook.front_end import is_kernel
from agent_magic.notebook.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.notebook.command import Parser

_CELL = re.compile(r"%%(?:am_)?(?P<magic>agents?|context|plan)\b")
_LINE = re.compile(r"(?:^|[=;\s])%(?:am_)?agents\b[ \t]*(?P<command>[\w-]*)")
_HEADING = re.compile(r" {0,3}##[ \t]")
_OPTION = re.compile(r"--[\w-]+")


def attach(shell: Any) -> Callable[[], None]:
    kernel: Any = shell.kernel if is_kernel(shell) else None
    own = getattr(kernel, "do_inspect", None)
    if own is None:
        return lambda: None

    def do_inspect(code: str, cursor_pos: int, *more: Any, **options: Any) -> Any:
        if (text := tooltip(code, cursor_pos)) is None:
            return own(code, cursor_pos, *more, **options)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    kernel.do_inspect = do_inspect

    def detach() -> None:
        if kernel.do_inspect is do_inspect:
            kernel.do_inspect = own

    return detach


def tooltip(code: str, cursor: int) -> str | None:
    """Return `None` if the place is not ours."""
    before, after = code[:cursor], code[cursor:]
    line = before.rpartition("\n")[2] + after.partition("\n")[0]
    at = len(before.rpartition("\n")[2])
    cell = _CELL.match(code.lstrip())
    if cell is None:
        return _of_command(line, at)
    if not before.strip() or "\n" not in before.lstrip():
        return _option(PARSERS[cell["magic"]], line, at) or help_of(cell["magic"])
    is_heading = cell["magic"] == "agents" and _HEADING.match(line)
    return _option(PARSERS["agent"], line, at) if is_heading else None


def _of_command(line: str, at: int) -> str | None:
    found = [one for one in _LINE.finditer(line) if one.start() <= at]
    if not found:
        return None
    command = found[-1]["command"]
    if command not in VERBS:
        return VERBS.help().text()
    return _option(VERBS.parser(command), line, at) or VERBS.help(command).text()


def _option(parser: Parser, line: str, at: int) -> str | None:
    named = [one[0] for one in _OPTION.finditer(line) if one.start() <= at]
    told = (
        f"{option}\n    {said}" for option, said in parser.told() if named and named[-1] in re.split(r"[ ,]+", option)
    )
    return next(told, None)
