"""Pages that can be read: paragraphs are short, and each page has its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.house.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
MOST_WORDS = 120
GROUPS = ["Write agents", "Spend less", "Go faster and scale", "Keep and share", "When something is wrong"]


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and items of lists; no code, table, comment or element."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2[^\n]*$|<!--.*?-->", "\n", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        for part in re.split(r"\n(?=\s*(?:[*+-]|\d+\.) )", block):
            if part.strip() and not part.lstrip().startswith(("|", "<", ":::")):
                yield " ".join(part.split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_paragraph_is_a_wall(path):
    """At most 120 words: a reader who looks for one thing finds it."""
    words = {one[:60]: len(one.split()) for one in paragraphs(path.read_text(encoding="utf-8"))}
    assert {} == {begin: count for begin, count in words.items() if count > MOST_WORDS}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b\nc\n\nd", ["a b c", "d"]),
        ("* one\n  more\n* two", ["* one more", "* two"]),
        ("x\n```python\nno = 1\n\nno = 2\n```\ny", ["x", "y"]),
        ("| a | b |\n|---|---|\n\n<!-- no\n\nno -->\n\n1. z", ["1. z"]),
    ],
)
def test_what_counts_as_a_paragraph(text, found):
    """Lines that belong together, an item of a list at a time."""
    assert found == list(paragraphs(text))


def test_every_page_of_the_guide_stands_in_one_group():
    """Five groups by noun, each page in one, and under a title that says what it is about."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = dict(re.findall(r"```{toctree}\n:hidden:\n:caption: (.*?)\n\n(.*?)```", index, re.DOTALL))
    listed = [page for group in GROUPS for page in trees[group].split() if page.startswith("how_to/")]
    assert sorted(f"how_to/{path.stem}" for path in (ROOT / "docs" / "how_to").glob("*.md")) == sorted(listed)
    titles = [(ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0] for page in listed]
    assert [] == [title for title in titles if title.endswith("?") and ":" not in title]
