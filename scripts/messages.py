"""List every text that the package can show, one page to read through: errors, notes, hints, help, labels.

Usage: python scripts/messages.py            write tests/house/messages.md
       python scripts/messages.py --check    write nothing; exit status 1 where the page is not current

A field is shown as its code, such as `{agent.name!r}`. Left out are docstrings, SQL, patterns, styles, and the texts of
the mock server, which imitates an API.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, PAGE = ROOT / "agent_magic", ROOT / "tests" / "house" / "messages.md"
HEAD = """# Every text that the package shows

Made by `python scripts/messages.py`; a test compares. Read what you changed as somebody who sees it for the first time.
"""
FEWEST_WORDS, MOST_BARE_WORDS = 3, 9
WORD = re.compile(r"(?<![\w<{/.=-])[A-Za-z][a-z']*(?![\w=(>{;])")
NAMES = re.compile(r"[a-z_0-9]+(?:\[[^\]]*\])?[,|]?")
CODE = re.compile(
    r"(?:SELECT|INSERT|CREATE|UPDATE|DELETE|PRAGMA|ALTER|DROP|REPLACE)\b"  # SQL
    r"|[.@\[#:\w-]{0,40}\{[^{}]*:|\(\?|\^|\\|[.#@:]\w|[a-z-]+:[^ ]"  # styles and patterns
    r"|<\w|&|node \[|navigator\.|default-src|\(bytes\) =>"  # elements, a script
)


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    made = page()
    if "--check" not in arguments:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == made
    sys.stdout.write("current\n" if current else "not current. Run python scripts/messages.py\n")
    return 0 if current else 1


def page() -> str:
    """Return the page: a heading for each module, a line for each text."""
    parts = [HEAD]
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] != "simulator" and (found := [*dict.fromkeys(texts(path.read_text(encoding="utf-8")))]):
            parts.append("\n".join([f"## {name.as_posix()}", "", *(f"- {text}" for text in found), ""]))
    return "\n".join(parts)


def texts(source: str) -> Iterator[str]:
    """Yield what a module can show, in the order of its lines, each as one line."""
    tree = ast.parse(source)
    parts = {
        id(inner)
        for one in ast.walk(tree)
        if isinstance(one, ast.JoinedStr)
        for inner in ast.walk(one)
        if inner is not one
    }
    said = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}  # docstrings
    found = (one for one in ast.walk(tree) if isinstance(one, (ast.Constant, ast.JoinedStr)))
    for one in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        if id(one) not in parts | said and is_message(text := " ".join(written(one).split())):
            yield text


def written(one: ast.Constant | ast.JoinedStr) -> str:
    """Return a text as a template."""
    if isinstance(one, ast.Constant):
        return one.value if isinstance(one.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else _field(part) for part in one.values)


def _field(part: ast.expr) -> str:
    """Return a field of a template as it is written."""
    return ast.unparse(ast.JoinedStr([part]))[2:-1]


def is_message(text: str) -> bool:
    """Return whether people read it: it has a few words, and is no code."""
    is_list = all(NAMES.fullmatch(word) for word in text.split()) and len(text.split()) > MOST_BARE_WORDS
    return " " in text and not is_list and not CODE.match(text) and len(WORD.findall(text)) >= FEWEST_WORDS


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
