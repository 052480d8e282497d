"""IPython in a terminal, driven through a pseudo-terminal as a person drives it.

with Terminal() as terminal:
    shown = terminal.do("1 + 1")
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Self

import pexpect

ROOT = Path(__file__).resolve().parent.parent
# The toy extension stands alone: IPython 7 brings a package named `tests` of its own.
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "kernel"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
PATIENCE_S = 60
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r")


class Terminal:
    """A terminal IPython of the Python that runs the tests, with a profile of its own.

    Attributes:
        written: Everything that came, control sequences and all.
    """

    def __init__(self, columns: int = 200, lines: int = 40, **env: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="terminal-")
        home = self._folder.name
        apart = {"HOME": home, "IPYTHONDIR": home, "PYTHONPATH": PATH, "TERM": "dumb"}
        free = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
        self._cells = 0
        self._process: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            ["-m", "IPython", "--no-banner", "--colors=NoColor", "--simple-prompt"],
            env={**free, **apart, **env},
            encoding="utf-8",
            timeout=PATIENCE_S,
            dimensions=(lines, columns),
            cwd=home,
        )
        self.written = io.StringIO()
        self._process.logfile_read = self.written
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.isalive():
            self._process.kill(signal.SIGKILL)
            self._process.wait()  # `close(force=True)` waits a tenth of a second only
        self._process.close()
        self._folder.cleanup()

    def start(self, code: str) -> None:
        """Type a cell and return at once. An empty line ends a block, two of them end a cell magic."""
        blank = 2 if code.startswith("%%") else 1 if "\n" in code else 0
        for line in [*code.split("\n"), *[""] * blank]:
            self._process.sendline(line)

    def wait(self) -> str:
        """Wait for the next prompt and return what was shown before it."""
        self._cells += 1
        self._process.expect_exact(f"In [{self._cells}]: ")
        return CONTROL.sub("", self._process.before or "")

    def do(self, code: str) -> str:
        """Run a cell to its end and return what it showed, its own echo included."""
        self.start(code)
        return self.wait()

    def until(self, text: str) -> None:
        """Wait until the cell has shown a text."""
        self._process.expect_exact(text)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.sendintr()
