"""Questions to a person on a terminal."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import TYPE_CHECKING

from agent_magic.engine.calls import Verdict
from agent_magic.show.asking import DOUBT, asked_text, limit_of, ways_of

if TYPE_CHECKING:
    from agent_magic.live.people import Asker, Question
    from agent_magic.show.terminal import TableView

HINTS = "y approves, e changes it, n denies"
DOUBT_HINTS = "a calls it again, r gives a result, n says that it failed"


def asker_of(ask: Asker | None) -> Asker | None:
    """Return the user's asker, or the terminal; `None` without either."""
    return ask if ask is not None or not on_terminal() else TerminalAsker().ask


def on_terminal() -> bool:
    """Return whether a person reads the prints and can type an answer."""
    streams = sys.stdin, sys.stdout
    return all(one is not None and one.isatty() for one in streams)  # pyright: ignore[reportUnnecessaryComparison]


class TerminalAsker:
    """Asks on a terminal, one question at a time; the run goes on meanwhile."""

    # A question is removed when it is answered or no longer open.

    def __init__(self) -> None:
        self._turn, self._count = asyncio.Lock(), 0
        self._view: TableView | None = None

    def cover(self, view: TableView) -> None:
        """Prevent drawing of a view while a question is on the screen."""
        self._view = view

    async def ask(self, question: Question) -> Verdict:
        """Print a question and read the answer."""
        async with self._turn:
            self._count += 1
            if self._view is not None:
                self._view.hold()
            try:
                _drop_typed()  # text typed before the question was shown is no answer to it
                _write(f"\n{asked_text(self._count, question)}\n{limit_of(question)}\n")
                return await self._answer(question)
            finally:
                if self._view is not None:
                    self._view.show()

    async def _answer(self, question: Question) -> Verdict:
        agree, edit, hints = ("a", "r", DOUBT_HINTS) if ways_of(question) == DOUBT else ("y", "e", HINTS)
        while True:
            said = await _line(f"{hints}: ")
            word = None if said is None else said.strip().lower()
            if word is None or word in {"n", "no"}:
                why = None if word is None else await _line("why (may be empty): ")
                return Verdict(approved=False, why=(why or "").strip())
            if word == agree or (agree == "y" and word == "yes"):
                return Verdict(approved=True)
            if word == edit and (text := await _line("new text, on one line: ")) is not None:
                return Verdict(approved=True, text=text.rstrip("\n"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _drop_typed() -> None:
    if os.name == "posix":
        termios = importlib.import_module("termios")
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _line(prompt: str) -> str | None:
    """Print a prompt and read a line; `None` at the end of the input."""
    if os.name != "posix":  # no loop there watches a console
        return await asyncio.to_thread(input, prompt)
    _write(prompt)
    # A blocking read in a thread would still take the next line after it is cancelled.
    loop = asyncio.get_running_loop()
    typed = loop.create_future()
    loop.add_reader(sys.stdin, lambda: typed.done() or typed.set_result(None))
    try:
        await typed
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline() or None
