"""A run in a terminal: what the table shows, at any width, with and without colours, and in a log."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.measure import summarize
from agent_magic.show import STATES, LineView, TableView, groups_of, one_line, states_of, terminal_view
from tests.show.story import business_plan, business_run, finished_run, layered_plan, record_of
from tests.show.test_pictures import HOSTILE

pyte: Any = pytest.importorskip("pyte")


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:  # noqa: D102
        return True


class Screen:
    """A terminal that takes what is written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int = 100, lines: int = 24, **env: str) -> None:
        for name, value in {"COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm-256color", **env}.items():
            monkeypatch.setenv(name, value)
        self.stream = Tty()
        self._screen = pyte.HistoryScreen(columns, lines, history=1000)

    @property
    def lines(self) -> list[str]:
        """Everything that stands in it, above the window too."""
        columns, lines = self._screen.columns, self._screen.lines
        screen = pyte.HistoryScreen(columns, lines, history=1000)
        stream = pyte.Stream(screen)
        stream.feed(self.stream.getvalue().replace("\n", "\r\n"))
        above = ["".join(row[column].data for column in range(columns)) for row in screen.history.top]
        return [line.rstrip() for line in [*above, *screen.display]]

    @property
    def text(self) -> str:
        """The same in one piece."""
        return "\n".join(self.lines).rstrip()


def played(
    screen: Screen, record: Any, *, at: tuple[float, ...] = (), tails: Any = None, is_over: bool = False
) -> None:
    """Show a run at some moments, and its end if it is over."""
    view = terminal_view(record, screen.stream)
    assert isinstance(view, TableView)
    view.show()
    for now_s in at:
        view.tick(now_s, tails)
    if is_over:
        view.finish()


def test_every_state_has_a_sign_of_its_own():
    """No state is told by its colour alone, in Unicode and in ASCII."""
    for signs in zip(*(state.signs for state in STATES.values()), strict=True):
        assert len(STATES) == len(set(signs))
    assert "".join(state.signs[1] for state in STATES.values()).isascii()


def test_the_table_while_it_runs(monkeypatch: pytest.MonkeyPatch):
    """The header counts; each agent has its sign, seconds, tokens, dollars and the last line of what arrives."""
    screen = Screen(monkeypatch)
    played(screen, business_run(5.0), at=(5.0,), tails={3: "so the first\nstep is", 5: "In short"})
    text = screen.text
    assert text.startswith("business_plan: 4 of 9 done · 3 running · 5.0 s · ")
    assert "━" in screen.lines[1]
    assert "  layer 0\n  ✓ market_size" in text
    assert "  ✓ market_size      2.1 s  812 tok  $0.0021  Good." in screen.lines
    assert "  ▶ operations       5.0 s                    so the first step is" in screen.lines
    assert "  · business_plan                             waits: summary, review_finance +1" in screen.lines


def test_the_table_is_drawn_over_itself_and_stays_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """However often it is drawn there is one table; in the end it has one honest line under it, and no header."""
    screen, record = Screen(monkeypatch), business_run()
    played(screen, record, at=tuple(step / 2 for step in range(20)), is_over=True)
    lines = screen.text.splitlines()
    assert one_line(summarize(record)) == lines[-1]
    assert "  layer 0" == lines[0]
    assert 4 + 9 + 1 == len(lines)
    assert not screen.stream.getvalue().rstrip().endswith("\x1b[?25l")


@pytest.mark.parametrize("columns", [20, 34, 50, 71, 72, 120])
def test_narrow_terminals(monkeypatch: pytest.MonkeyPatch, columns: int):
    """No line is wrapped, whatever the width: columns go, then the ends of lines."""
    screen, record = Screen(monkeypatch, columns), business_run(5.0)
    played(screen, record, at=(1.0, 5.0), tails={3: "x" * 300})
    assert 2 + 4 + 9 == len(screen.text.splitlines())
    assert ("812 tok" in screen.text) == (columns >= 72)


def test_no_colours(monkeypatch: pytest.MonkeyPatch):
    """NO_COLOR is respected: not one colour is asked for."""
    screen = Screen(monkeypatch, NO_COLOR="1")
    played(screen, business_run(5.0), at=(5.0,))
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", screen.stream.getvalue()) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2"}


def test_a_big_run_fits_the_window(monkeypatch: pytest.MonkeyPatch):
    """What runs and what failed comes first, the rest is counted, and the window does not scroll."""
    screen, record = Screen(monkeypatch, 100, 24), finished_run(layered_plan(1000, 50), until_s=20.0)
    played(screen, record, at=(20.0,))
    lines = screen.text.splitlines()
    assert len(lines) <= 24
    assert any("▶ agent_" in line or "✗ agent_" in line for line in lines)
    assert "more agents" in lines[-1]


@given(st.integers(1, 400), st.integers(1, 60), st.floats(0, 40), st.integers(3, 80))
@settings(max_examples=30, deadline=None)
def test_the_table_never_has_more_lines_than_there_are(count: int, width: int, until_s: float, most: int):
    """Shown and counted agents are all agents, and headings and rows keep to the room."""
    record = finished_run(layered_plan(count, width), until_s=until_s)
    groups = groups_of(record, until_s, {}, most=most)
    assert sum(1 + len(group.rows) for group in groups) <= max(most, 3)
    shown = sum(len(group.rows) for group in groups)
    last = groups[-1].heading
    hidden = int(last.split()[1].replace(",", "")) if last.startswith("and ") else 0
    assert count == shown + hidden


@pytest.mark.parametrize("payload", [*HOSTILE, "\x1b[2J\x1b]0;owned\x07[bold red]x[/]", "界" * 60])
def test_texts_cannot_drive_the_terminal(monkeypatch: pytest.MonkeyPatch, payload: str):
    """Names, answers and errors are cleaned of control sequences, and their brackets are no markup."""
    screen, record = Screen(monkeypatch), business_run(5.0)
    object.__setattr__(record.plan, "name", payload)
    record.results[3].name = record.results[0].name = payload
    played(screen, record, at=(5.0,), tails={3: payload, 5: payload})
    plain = screen.stream.getvalue()
    assert "\x1b]" not in plain
    assert "\x1b[2J" not in plain
    assert 2 + 4 + 9 == len(screen.text.splitlines())


def test_ascii_terminals(monkeypatch: pytest.MonkeyPatch):
    """A terminal without Unicode gets signs it has."""
    screen = Screen(monkeypatch)
    screen.stream.encoding = "ascii"
    played(screen, business_run(5.0), at=(5.0,))
    assert "  + market_size" in screen.text


def test_a_log_gets_a_line_at_the_start_and_one_at_the_end():
    """Where nothing can be overwritten, nothing is repeated."""
    record, stream = business_run(), io.StringIO()
    view = terminal_view(record, stream)
    assert isinstance(view, LineView)
    view.show()
    for step in range(20):
        view.tick(step / 2, {})
    view.finish()
    lines = stream.getvalue().splitlines()
    assert ["business_plan: 9 agents in 4 layers, running", one_line(summarize(record))] == lines


def test_a_log_says_how_far_a_long_run_is():
    """What is done, seconds, dollars and what agents wait for; after ten seconds, then rarer and rarer."""
    record, stream = business_run(3.0), io.StringIO()
    view = LineView(record, stream)
    queued = {agent: "waits for a slot" for agent, state in enumerate(states_of(record)) if state == "q"}
    for step in range(10 * 3600):
        view.tick(step / 10, queued)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("business_plan: 3 of 9 done · 2 running · 1 queued · 10.0 s · ")
    assert lines[0].endswith(" · queued: waits for a slot")
    assert "$" in lines[0]
    assert 25 > len(lines)


def test_a_dumb_terminal_is_a_log(monkeypatch: pytest.MonkeyPatch):
    """TERM=dumb cannot move its cursor."""
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(terminal_view(record_of(business_plan()), Tty()), LineView)
