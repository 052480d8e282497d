"""How answers look: one result, all answers of a run, an answer as Markdown. Model output is never markup."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agent_magic.declare.units import seconds, steps
from agent_magic.declare.values import value_text
from agent_magic.measure.metrics import summarize
from agent_magic.record.display import clean, single_line
from agent_magic.show.markup import escape
from agent_magic.show.page import Line, Page
from agent_magic.show.states import STATES, state_of
from agent_magic.show.text import facts, listed, result_facts, troubles
from agent_magic.show.theme import PRE, SOFT, box, inks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.show.page import Block

SHOWN_CHARS = 1_200
SHOWN_LINES = 15
MOST_CHARS = 200_000
"""Longer answers are cut in a notebook, which would save them; `.text` has all."""
_TEXT_LINES = 12
_TEXT_WIDTH = 100
_LINKS = frozenset({"http", "https", "mailto"})


def result_bundle(result: AgentResult) -> dict[str, str]:
    return {"text/html": result_html(result), "text/plain": result_text(result)}


def result_text(result: AgentResult) -> str:
    head = " · ".join([single_line(result.name), STATES[state_of(result)].word, *result_facts(result)])
    body = _first_lines(clean(result.text))
    trouble = _trouble(result)
    return "\n".join([head, *([f"  {trouble}"] if trouble else []), *(f"  {line}" for line in body)])


def result_html(result: AgentResult) -> str:
    state, trouble = state_of(result), _trouble(result)
    facts = "".join(f" · {escape(fact)}" for fact in [STATES[state].word, *result_facts(result)])
    inks = inks_of("light")
    lost = f'<div style="color:{inks["fail"]}">{escape(trouble)}</div>' if trouble else ""
    return (
        box(inks["line" if state in "pkc" else STATES[state].ink])
        + f'<div><b>{escape(single_line(result.name))}</b><span style="{SOFT}">{facts}</span></div>'
        + f"{lost}{folded(result.text)}</div>"
    )


def texts_html(names: Sequence[str], texts: Iterable[str]) -> str:
    parts = [f"<div><b>{escape(single_line(name))}</b></div>{folded(text)}" for name, text in zip(names, texts)]  # noqa: B905
    inside = '<div style="height:8px"></div>'.join(parts) or "no answers"
    return f"{box()}{inside}</div>"


def folded(text: str) -> str:
    if not text.strip():
        return f'<div style="{SOFT}">no text</div>'
    shown, rest = text[:MOST_CHARS], len(text) - MOST_CHARS
    start, end = _cut(shown)
    pre = f'<pre style="{PRE}">{escape(start)}</pre>'
    if not end:
        return pre
    more = f"{len(end):,} more characters" + (f", and {rest:,} in .text" if rest > 0 else "")
    summary = f'<summary style="cursor:pointer;{SOFT}">{more}</summary>'
    return f'{pre}<details>{summary}<pre style="{PRE}">{escape(end)}</pre></details>'


@dataclass(frozen=True, slots=True)
class Markdown:
    """Text that a notebook shows as Markdown."""

    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": markdown_html(self.text), "text/plain": clean(self.text)}

    def _repr_html_(self) -> str:
        return markdown_html(self.text)


def markdown_html(text: str) -> str:
    """Render safe HTML: raw HTML becomes text, a picture its description, other links text."""
    reader: Any = importlib.import_module("markdown_it").MarkdownIt(
        "js-default", {"html": False, "linkify": False, "typographer": False}
    )
    reader.validateLink = _may_lead
    reader.add_render_rule("image", _picture)
    reader.add_render_rule("link_open", _link)
    body: str = reader.render(clean(text[:MOST_CHARS]))
    return f'<div class="am-markdown tex2jax_ignore mathjax_ignore">{body}</div>'


def _may_lead(url: str) -> bool:
    """True if a link leads to the web or to mail, rather than running code or reading files."""
    try:
        return urlsplit(url.strip()).scheme.lower() in _LINKS
    except ValueError:  # brackets that are no address
        return False


def _picture(_: object, tokens: Sequence[Any], index: int, *__: object) -> str:
    """Write the description: loading the picture would tell its server of the reader."""
    return f"<em>[picture: {escape(str(tokens[index].content) or 'without a description')}]</em>"


def _link(_: object, tokens: Sequence[Any], index: int, *__: object) -> str:
    target = escape(str(tokens[index].attrGet("href") or ""))
    return f'<a href="{target}" title="{target}" rel="noopener noreferrer nofollow" target="_blank">'


def _trouble(result: AgentResult) -> str:
    return single_line(result.error)[:500] if result.error else ""


def _cut(text: str) -> tuple[str, str]:
    """Split a long text at the end of a line or a word."""
    lines = text.splitlines(keepends=True)
    start = "".join(lines[:SHOWN_LINES])[:SHOWN_CHARS]
    if len(text) - len(start) <= SHOWN_CHARS // 4 and len(lines) <= SHOWN_LINES + 3:
        return text, ""
    end = max(start.rfind("\n"), start.rfind(" ")) + 1
    place = end if end > len(start) // 2 else len(start)
    return text[:place], text[place:]


def _first_lines(text: str) -> list[str]:
    lines = text.splitlines()
    shown = [line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 1] + "…" for line in lines[:_TEXT_LINES]]
    if sum(map(len, shown)) < sum(map(len, lines)):
        shown.append(f"… {len(text):,} characters in all: .text")
    return shown


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
