"""Follow every link of a built site on the disk: files, anchors, and whatever a page would ask of another host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path

OUTSIDE = re.compile(r"(https?:)?//")
APART = {"lite", "_sources", "_static"}
"""Folders whose pages are not ours to follow."""


class _Page(HTMLParser):
    """Collects the anchors of a page, its links, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" or (tag == "link" and given.get("rel") in {"next", "prev", "index", "search", "canonical"}):
            self.links.append(given.get("href", ""))
        else:
            self.loads += [given[name] for name in ("href", "src") if given.get(name)]


@dataclass
class Crawl:
    """What was found.

    Attributes:
        pages: How many pages were read.
        links: How many local links were followed.
        bad: What is broken: a missing file, a missing anchor, something loaded from another host.
    """

    pages: int = 0
    links: int = 0
    bad: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.pages} pages, {self.links} local links and files, {len(self.bad)} bad"


def crawl(root: Path) -> Crawl:
    """Read every page below a folder and follow what it names."""
    pages = {path: _read(path) for path in sorted(root.rglob("*.html")) if path.relative_to(root).parts[0] not in APART}
    found = Crawl(len(pages))
    for path, page in pages.items():
        where = path.relative_to(root)
        found.bad += [f"{where} loads {one}" for one in page.loads if OUTSIDE.match(one)]
        for link in (*page.links, *page.loads):
            if not link or re.match(r"[a-z]+:|//", link):
                continue
            found.links += 1
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.bad.append(f"{where}: no file {link}")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                found.bad.append(f"{where}: no anchor {link}")
    for sheet in root.rglob("*.css"):
        outside = re.findall(r"(?:url\(|@import )['\"]?((?:https?:)?//[^'\")]+)", sheet.read_text(encoding="utf-8"))
        found.bad += [f"{sheet.relative_to(root)} loads {one}" for one in outside]
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page
