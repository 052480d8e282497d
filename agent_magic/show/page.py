"""Composed outputs: lines, tables and folded parts, as HTML without scripts and as the same words in plain text."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from agent_magic.record.display import clean, single_line
from agent_magic.show.markup import TEXT_WIDTH, escape, wrapped
from agent_magic.show.theme import PAGE_CSS, PRE, TONES, box

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.show.theme import Tone

GAP = "  "


class Block(Protocol):
    """A part of a page."""

    def html(self) -> str: ...

    def text(self, width: int) -> str:
        """Return the text for a width; longer words may stand out."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text that wraps; `head` is bold text before it."""

    words: str
    tone: Tone = ""
    head: str = ""

    def html(self) -> str:
        head = f"<b>{escape(single_line(self.head))}</b>{' ' if self.words else ''}" if self.head else ""
        return f'<div style="{TONES[self.tone]}">{head}{escape(single_line(self.words))}</div>'

    def text(self, width: int) -> str:
        return wrapped(single_line(f"{self.head} {self.words}" if self.head else self.words), width)


@dataclass(frozen=True, slots=True)
class Words:
    """Text in which lines and spaces count; shows at most `most` characters, 0 for all."""

    words: str
    most: int = 0

    def html(self) -> str:
        return f'<pre style="{PRE}">{escape(self._shown())}</pre>'

    def text(self, width: int) -> str:
        return "\n".join(wrapped(one, width) for one in clean(self._shown()).split("\n"))

    def _shown(self) -> str:
        left = len(self.words) - self.most
        return self.words if not self.most or left <= 0 else f"{self.words[: self.most]}\n… {left:,} more characters"


Kind = Literal["text", "number", "prose"]
_CLASSES: Final[dict[Kind, str]] = {"text": "", "number": ' class="r"', "prose": ' class="w"'}


@dataclass(frozen=True, slots=True)
class Column:
    """`prose` wraps, `number` is on the right; cells longer than `most` (0: no limit) are cut."""

    title: str
    kind: Kind = "text"
    most: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """`strong` if the first column is bold, `wide` if it is wider than a page."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    strong: bool = field(default=False, kw_only=True)
    wide: bool = field(default=False, kw_only=True)

    def html(self) -> str:
        head = self._row_html("th", [one.title for one in self.columns])
        titled = f"<thead>{head}</thead>" if any(one.title for one in self.columns) else ""
        body = "".join(self._row_html("td", row) for row in self._cells())
        # On a narrow page any table scrolls; without a place for the keyboard it could not be read whole.
        keys = f'tabindex="0" role="group" aria-label="{"all columns" if self.wide else "table"}"'
        return f'<div class="am-rows" {keys}><table>{titled}<tbody>{body}</tbody></table></div>'

    def _row_html(self, tag: str, cells: Sequence[str]) -> str:
        written: list[str] = []
        for index, (cell, column) in enumerate(zip(cells, self.columns, strict=True)):
            inside = f"<b>{escape(cell)}</b>" if self.strong and not index else escape(cell)
            kind = tag if cell else "td"  # a heading without words is none
            written.append(f"<{kind}{_CLASSES[column.kind]}>{inside}</{kind}>")
        return f"<tr>{''.join(written)}</tr>"

    def text(self, width: int) -> str:
        rows = self._cells()
        titled = any(one.title for one in self.columns)
        lines = [[one.title for one in self.columns], *rows] if titled else rows
        widths = self._widths(lines, width)
        return "\n".join(line for row in lines for line in self._written(row, widths))

    def _cells(self) -> list[list[str]]:
        return [
            [cut(single_line(cell), one.most) for cell, one in zip(row, self.columns, strict=True)] for row in self.rows
        ]

    def _widths(self, lines: Sequence[Sequence[str]], width: int) -> list[int]:
        natural = [max((columns_of(row[place]) for row in lines), default=0) for place in range(len(self.columns))]
        over = sum(natural) + len(GAP) * (len(natural) - 1) - width
        prose = [place for place, one in enumerate(self.columns) if one.kind == "prose"]
        for place in sorted(prose, key=lambda place: -natural[place]):
            kept = max(natural[place] - max(over, 0), min(natural[place], LEAST_PROSE))
            over -= natural[place] - kept
            natural[place] = kept
        return natural

    def _written(self, row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
        parts = [
            wrapped(cell, wide).split("\n") if one.kind == "prose" else [cell]
            for cell, one, wide in zip(row, self.columns, widths, strict=True)
        ]
        for line in range(max(map(len, parts))):
            cells = [part[line] if line < len(part) else "" for part in parts]
            yield GAP.join(
                padded(cell, wide, right=one.kind == "number")
                for cell, one, wide in zip(cells, self.columns, widths, strict=True)
            ).rstrip()


LEAST_PROSE = 20


@dataclass(frozen=True, slots=True)
class Fold:
    """A part that opens on a click; in text it is written out, or replaced by the line `instead`."""

    summary: str
    blocks: Sequence[Block]
    instead: str | None = field(default=None, kw_only=True)

    def html(self) -> str:
        inside = "".join(block.html() for block in self.blocks)
        summary = f'<summary style="{TONES["soft"]}">{escape(single_line(self.summary))}</summary>'
        return f"<details>{summary}{inside}</details>"

    def text(self, width: int) -> str:
        if self.instead is not None:
            return wrapped(single_line(self.instead), width) if self.instead else ""
        return "\n".join(["", self.summary, *(block.text(width) for block in self.blocks)])


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """An output made of blocks: HTML in notebooks, text elsewhere."""

    blocks: Sequence[Block]

    def bundle(self, width: int = TEXT_WIDTH) -> dict[str, str]:
        body = "".join(block.html() for block in self.blocks)
        return {"text/html": f"<style>{PAGE_CSS}</style>{box()}{body}</div>", "text/plain": self.text(width)}

    def text(self, width: int = TEXT_WIDTH) -> str:
        return "\n".join(filter(None, (block.text(width) for block in self.blocks)))

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return self.bundle()

    def _repr_html_(self) -> str:
        return self.bundle()["text/html"]


def columns_of(text: str) -> int:
    """Return the columns that a text takes in a terminal: East Asian letters take two, accents none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, most: int) -> str:
    return text if not most or len(text) <= most else text[: most - 1].rstrip() + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    blank = " " * max(0, width - columns_of(text))
    return blank + text if right else text + blank
