"""The answer of one agent below its cell, replaced as it arrives: `%%agent NAME --run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.units import seconds, steps
from agent_magic.declare.values import value_text
from agent_magic.measure.metrics import summarize
from agent_magic.record.plaintext import clean, single_line
from agent_magic.show.markup import escape
from agent_magic.show.page import Line, Page
from agent_magic.show.text import facts, listed, troubles
from agent_magic.show.theme import PRE, SOFT
from agent_magic.show.values import MOST_CHARS, markdown_html

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.record.results import RunRecord
    from agent_magic.show.page import Block

EVERY_S: Final = 0.25
"""For answers up to `LONG` characters; longer ones are replaced less often."""
LONG: Final = 5_000
# The handler is the same for all: no text of a model is in it. A viewer without scripts leaves the fold to copy from.
COPY: Final = (
    'navigator.clipboard.writeText(this.closest("details").querySelector("pre").textContent)'
    '.then(()=>{this.textContent="copied"},()=>{this.textContent="select and copy"});return false'
)
BUTTON: Final = (
    "font:inherit;color:inherit;background:none;border:1px solid currentColor;border-radius:4px;padding:0 6px;"
    "margin-left:6px;cursor:pointer"
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Markdown, with a button to copy its source."""

    answer: str
    is_over: bool = True
    is_value: bool = False

    def html(self) -> str:
        shown = clean(self.answer[:MOST_CHARS])
        if self.is_value:
            return f'<pre style="{PRE}">{escape(shown)}</pre>'
        return markdown_html(shown) + (_source(shown) if self.is_over and shown.strip() else "")

    def text(self, width: int) -> str:
        del width
        return clean(self.answer)


def _source(shown: str) -> str:
    button = f'<button type="button" style="{BUTTON}" onclick="{escape(COPY)}">copy</button>'
    summary = f'<summary style="cursor:pointer;{SOFT}">Markdown {button}</summary>'
    return f'<details>{summary}<pre style="{PRE}">{escape(shown)}</pre></details>'


class AnswerView:
    """Shows the answer of one agent during a run."""

    def __init__(self, record: RunRecord, agent: int, arriving: Callable[[int], str]) -> None:
        self._record, self._agent, self._arriving = record, agent, arriving
        self._handle: Any = None
        self._shown: tuple[str, str] | None = None
        self._next_s = 0.0

    def show(self) -> None:
        from IPython.display import DisplayHandle

        self._handle = DisplayHandle()
        self._handle.display(self._page(0.0, {}).bundle(), raw=True)

    def tick(self, now_s: float, said: Mapping[int, str]) -> None:
        if now_s < self._next_s:
            return
        text, line = self._arriving(self._agent), self._line(now_s, said)
        if (text, line) != self._shown:
            self._shown = text, line
            self._next_s = now_s + EVERY_S * max(1.0, len(text) / LONG)
            self._handle.update(self._page(now_s, said).bundle(), raw=True)

    def finish(self) -> None:
        if self._handle is not None:
            self._handle.update(answer_page(self._record, self._agent).bundle(), raw=True)

    def _page(self, now_s: float, said: Mapping[int, str]) -> Page:
        text = self._arriving(self._agent)
        words: list[Block] = [Rendered(text, is_over=False)] if text else []
        return Page([*words, Line(self._line(now_s, said), "soft")])

    def _line(self, now_s: float, said: Mapping[int, str]) -> str:
        results = self._record.results
        others = [one.name for one in results if one.status == "running" and one is not results[self._agent]]
        does = f"first {listed(others, 4)}" if others else single_line(said.get(self._agent, ""))[:80]
        took = f"{now_s:.0f} s"
        return f"{took} · {does}" if does and not self._arriving(self._agent) else took


def answer_page(record: RunRecord, agent: int) -> Page:
    result, numbers = record.results[agent], summarize(record)
    text, is_value = result.text, result.returns is not None
    if is_value and result.status == "succeeded":
        text = value_text(result.name, record.plan.meaning_of(agent, text))
    words: list[Block] = [Rendered(text, is_value=is_value)] if text else []
    many = [steps(numbers.steps, numbers.tasks)] if numbers.steps > 1 else []
    line = " · ".join([*many, *troubles(numbers), seconds(numbers.wall_s), *facts(numbers)])
    return Page([*words, Line(line, "soft")])
