"""Signs that only look right, in each option of each magic; and what of Python is the user's stays the user's."""

from __future__ import annotations

import asyncio
import locale
import logging
import os
import random
import signal
import sys
import warnings
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.api import Session
from agent_magic.notebook import PARSERS, VERBS, unload
from agent_magic.notebook.command import read_line

LINES = [
    *(("%agents", command, VERBS.parser(command)) for command in VERBS),
    *((f"%%{magic}", "a", parser) for magic, parser in PARSERS.items()),
]
OPTIONS = [
    (magic, f"{start} {{}}", flag) for magic, start, parser in LINES for flag in parser.flags if flag.startswith("--")
]
SIGNS = {
    "{flag} “two words”": "straight",
    "{flag}=„two”": "straight",
    "{flag} «one»": "straight",
    "—{word} 1": "two hyphens: {flag}",
    "–{word} 1": "two hyphens: {flag}",
    "−−{word} 1": "two hyphens: {flag}",
    "{flag} 1 \\": "a backslash does not continue",
}
FORMS = {
    "%agents": [
        "%agents {line}",
        "run = %agents {line}",
        "%%time\n%agents {line}",
        "def go():\n    %agents {line}\ngo()",
        "get_ipython().run_line_magic('agents', {text})",
    ],
    "%%": [
        "{magic} {line}\nHi",
        "%%time\n{magic} {line}\nHi",
        "get_ipython().run_cell_magic({name!r}, {text}, 'Hi')",
        "def go():\n    get_ipython().run_cell_magic({name!r}, {text}, 'Hi')\ngo()",
    ],
}


@pytest.fixture
def shell(tmp_path, monkeypatch) -> Iterator[Any]:
    """A shell of its own with the extension, in an empty folder, with a ledger of its own and no key."""
    monkeypatch.setattr(Session, "listeners", [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_MAGIC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    yield made
    unload(made)
    InteractiveShell.clear_instance()


def error_of(shell: Any, cell: str) -> str:
    """Run a cell; return its error."""
    done = shell.run_cell(cell)
    error = done.error_in_exec or done.error_before_exec
    return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_that_only_looks_right_is_told_in_every_option(shell, capsys, sign):
    """Curly quotes, long dashes and a backslash: each option of each magic, one form after the other."""
    shell.run_cell("%load_ext agent_magic")
    forms = {kind: cycle(lines) for kind, lines in FORMS.items()}
    for magic, start, flag in OPTIONS:
        form = next(forms["%agents" if magic == "%agents" else "%%"])
        line = start.format(sign.format(flag=flag, word=flag.removeprefix("--")))
        cell = form.format(magic=magic, name=magic.strip("%"), line=line, text=repr(line))
        if f"{line}\n" in cell and magic == "%agents" and line.endswith("\\"):
            continue  # IPython itself joins the next line to a line magic's
        told = error_of(shell, cell)
        assert told.startswith("UsageError: "), (cell, told)
        assert SIGNS[sign].format(flag=flag) in told, (cell, told)
    capsys.readouterr()


@pytest.mark.parametrize("blank", ["\u00a0", "\u2009", "\u202f", "\u3000", "\u200b \u200b", "\ufeff "])
def test_a_blank_of_another_kind_parts_words_in_every_option(blank):
    """In quotes it is the user's text."""
    for magic, start, flag in OPTIONS:
        plain = f'{start.format(flag)} value "two words"'
        outside, quoted = plain.split(' "')
        assert plain == read_line(f'{outside.replace(" ", blank)} "{quoted}', {}, magic=magic)


def of_python() -> dict[str, Any]:
    """Return what belongs to the user of this process."""
    package = logging.getLogger("agent_magic")
    others = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    signals = [one for one in signal.valid_signals() if one not in {signal.SIGKILL, signal.SIGSTOP}]
    return {
        "random": random.getstate(),
        "numpy": [str(one) for one in np.random.get_state()],  # noqa: NPY002 - what older code of users draws from
        "recursion limit": sys.getrecursionlimit(),
        "warnings filters": list(warnings.filters),
        "locale": locale.setlocale(locale.LC_ALL),
        "root logger": (list(logging.root.handlers), logging.root.level, logging.root.disabled),
        "its logger's level": (package.level, package.propagate),
        "levels of loggers": {name: one.level for name, one in others.items() if not name.startswith("agent_magic")},
        "signal handlers": {one: signal.getsignal(one) for one in signals},
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook),
        "event loop policy": asyncio.get_event_loop_policy() if sys.version_info < (3, 14) else None,
        "folder": Path.cwd(),
        "environment": {name: one for name, one in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "path": list(sys.path),
    }


LIFE = [
    "%load_ext agent_magic",
    "%agents connect simulator --latency none",
    "%%agent a\nSay hi.",
    "%%agent b\nSay it again: {{ a }}",
    "%agents plan",
    "run = %agents run",
    "%agents advise",
    "%agents whatif --concurrency 1,2",
    "run.whatif(concurrency=[1, 2])",
    "run.agents",
    "%agents share out.cassette.jsonl",
    "%reload_ext agent_magic",
    "%%time\nrun = %agents run --fresh",
    "%agents doctor",
    "%unload_ext agent_magic",
]


def test_what_is_the_users_stays_as_it_was(shell, capsys):
    """From loading to unloading: random numbers, limits, filters, logs, signals, hooks, folder and environment."""
    random.seed(1)
    before = of_python()
    for cell in LIFE:
        assert shell.run_cell(cell).success, capsys.readouterr()
        now = of_python()
        now["levels of loggers"] = {name: now["levels of loggers"][name] for name in before["levels of loggers"]}
        assert [] == [name for name in before if before[name] != now[name]], cell
    capsys.readouterr()
