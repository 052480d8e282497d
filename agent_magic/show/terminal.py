"""A run in a terminal: one line that is kept up to date, or in a log a line at its start and one at its end."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from agent_magic.show.markup import single_line
from agent_magic.show.scene import header_of, moment_of
from agent_magic.show.text import one_line
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from agent_magic.record.results import RunRecord
    from agent_magic.show.text import Numbers

LEAST_STEP_S = 0.25
_CLEAR_LINE = "\r\x1b[K"


class TerminalView:
    """Shows a run where there are only lines. It is used as `LiveView` is.

    Args:
        record: The run, which grows.
        stream: Where the lines go; `None` is standard output.
    """

    def __init__(self, record: RunRecord, stream: TextIO | None = None) -> None:
        self._record = record
        self._stream = stream or sys.stdout
        self._updates = self._stream.isatty()
        self._stepped_s = float("-inf")

    def show(self) -> None:
        """Say what begins."""
        plan = self._record.plan
        line = f"{single_line(plan.name)}: {plural(len(plan), 'agent')} in {plural(plan.depth, 'layer')}"
        self._write(line if self._updates else f"{line}\n")

    def tick(self, now_s: float, tails: Mapping[int, str] | None = None) -> None:  # noqa: ARG002 - as `LiveView`
        """Bring the line up to date, at most four times a second."""
        if not self._updates or now_s - self._stepped_s < LEAST_STEP_S:
            return
        self._stepped_s = now_s
        self._write(self._counts(now_s))

    def finish(self, numbers: Numbers | None = None) -> None:
        """Say how it ended."""
        line = one_line(numbers) if numbers else self._counts(moment_of(self._record, None))
        self._write(f"{line}\n", cut=False)

    def _counts(self, now_s: float) -> str:
        return f"{single_line(self._record.plan.name)}: {header_of(self._record, now_s).counts}"

    def _write(self, line: str, *, cut: bool = True) -> None:
        if self._updates:
            width = shutil.get_terminal_size().columns - 1
            line = _CLEAR_LINE + (line[:width] if cut else line)
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(line.encode(encoding, "replace").decode(encoding))
        self._stream.flush()
