"""The code blocks of a page of Markdown, as a reader would run them from top to bottom."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

FENCE = re.compile(r"^ *(?:(`{3,})([^`\n]*)\n(.*?)^ *\1$|<!-- run\n(.*?)^-->$)", re.MULTILINE | re.DOTALL)
MAGIC = re.compile(r"^\s*(?:[\w.]+ *= *)?%", re.MULTILINE)


class Block(NamedTuple):
    """Code of a page.

    Attributes:
        line: Where it begins.
        code: What is run.
        is_cell: Whether it needs IPython.
    """

    line: int
    code: str
    is_cell: bool


LAB = "ipython lab"
"""The language of a cell that needs JupyterLab: a button that is pressed, or the name of the notebook."""


def blocks_of(text: str, *, lab: bool = False) -> list[Block]:
    """Return the blocks that are run, in order.

    Those are ```` ```python ```` and ```` ```ipython ````; a fence without a language where it is a `%%` cell; and a
    comment that begins with `<!-- run`, for what a reader has and the page does not show, such as a data frame.

    Args:
        text: The page.
        lab: Whether those that need JupyterLab are among them.
    """
    wanted = {"python", "ipython", LAB} if lab else {"python", "ipython"}
    found: list[Block] = []
    for match in FENCE.finditer(text):
        _, language, shown, hidden = match.groups()
        code = textwrap.dedent(shown if hidden is None else hidden)
        if hidden is None and language not in wanted and (language or not code.startswith("%%")):
            continue
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(line, code, language in {"ipython", LAB} or MAGIC.search(code) is not None))
    return found
