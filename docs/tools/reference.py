"""Write the reference from the package itself: classes, functions, cells, commands, settings, frames, errors.

Nothing here is copied by hand: a page is what docstrings, parsers and tables say on the day of the build.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import textwrap
from functools import cached_property
from typing import TYPE_CHECKING, get_args

import docstring_parser
from columns import FRAMES, MEANINGS
from cures import CURES

import agent_magic
from agent_magic import cli, errors
from agent_magic.declare.options import SENT
from agent_magic.forecast.advice.finding import Finding
from agent_magic.forecast.estimate.value import Expected
from agent_magic.measure.contexts import Shared
from agent_magic.measure.frames import DTYPES, dtype_of_option
from agent_magic.measure.metrics import Summary
from agent_magic.measure.trial import SCORED
from agent_magic.notebook.declaring import HELP, PARSERS
from agent_magic.notebook.settings import Settings
from agent_magic.notebook.verbs import VERBS
from agent_magic.record.answer import Source, Status
from agent_magic.record.facts import Attempt, ToolCall
from agent_magic.record.ledger.runs import PastRun
from agent_magic.record.results import AgentResult
from agent_magic.simulator import options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from columns import Frame

HOOKS = {"__version__", "load_ipython_extension", "unload_ipython_extension"}
UNITS = {
    "requests_per_min": "requests a minute",
    "tokens_per_min": "tokens a minute",
    "per_minute": "a minute",
    "jobs_per_s": "jobs a second",
    "usd_per_hour": "US dollars an hour",
    "usd_per_job": "US dollars a job",
    "cost_multiple": "",
    "usd": "US dollars",
    "_s": "seconds",
    "seconds_a": "seconds",
    "seconds_b": "seconds",
    "output_low": "tokens",
    "output_high": "tokens",
    "rss_mb": "megabytes",
    "tokens": "tokens",
    "_chars": "characters",
}
"""The unit of a column by a part of its name."""
MEANT = (AgentResult, Attempt, ToolCall, Summary, PastRun, Shared, Finding, Expected)
"""The classes whose documented attributes say what a column of the same name is."""
SAID = {
    "status": f"One of {', '.join(f'`{word}`' for word in get_args(Status))}.",
    "source": f"Where the result came from: {', '.join(f'`{word}`' for word in get_args(Source))}.",
}
"""What columns are whose words are the values of a type."""


def write_reference(folder: Path) -> None:
    """Write every page of the reference into a folder.

    Args:
        folder: Where; it is made.
    """
    for name in ("api", "commands"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    classes, functions = _public()
    for name in classes:
        (folder / "api" / f"{name}.md").write_text(_class_page(name), encoding="utf-8")
    (folder / "api" / "Run_recorded.md").write_text(_recorded_page(), encoding="utf-8")
    commands = {f"commands/{topic.replace(' ', '_')}": topic for topic in VERBS._topics}
    measuring = [name for name in functions if _measures(getattr(agent_magic, name))]
    pages = {
        "functions": ("Functions", _functions(name for name in functions if name not in measuring)),
        "functions_measuring": ("Functions: measure, forecast, keep", _functions(measuring)),
        "cells": ("Cells: `%%agent` and its kin", _cells()),
        "commands": ("Commands of `%agents`", _command_index(commands)),
        **{page: (f"Commands: {topic}", _commands(VERBS._topics[topic])) for page, topic in commands.items()},
        "settings": ("Settings: `%config AgentMagics`", _settings()),
        "shell": ("The shell: `agent-magic`", _shell()),
        **{page: (title, _frames(page)) for page, (title, _) in FRAME_PAGES.items()},
        "errors": ("Errors", _errors()),
    }
    for name, (title, lines) in pages.items():
        (folder / f"{name}.md").write_text("\n".join([f"# {title}", "", *lines, ""]), encoding="utf-8")
    order = ["cells", "commands", "settings", *FRAME_PAGES, "errors", "functions", "functions_measuring"]
    names = [f"api/{name}" for name in [*classes, "Run_recorded"]]
    (folder / "index.md").write_text(_index([*order, *sorted(names), "shell"]), encoding="utf-8")


FRAME_PAGES = {
    "frames": ("Frames and their columns", "run.agents"),
    "frames_measured": ("Frames of what a run was held by", "run.contexts"),
    "frames_compared": ("Frames of scores, trials and what-ifs", "am.compare(a, b).frame"),
    "frames_planned": ("Frames of plans, systems and the ledger", "run.advise().frame"),
}
"""The pages of frames, each with its title and the first frame on it."""
MEASURING = tuple(
    f"agent_magic.{room}" for room in "measure forecast show api.comparison api.sharing live.saving".split()
)


def _measures(function: object) -> bool:
    return getattr(function, "__module__", "").startswith(MEASURING)


def _index(pages: Iterable[str]) -> str:
    return "\n".join(
        [
            "# Reference",
            "",
            f"Made from the docstrings, option tables and frames of agent_magic {agent_magic.__version__}.",
            "",
            "```{toctree}",
            ":maxdepth: 1",
            "",
            *pages,
            "```",
            "",
        ]
    )


def _public() -> tuple[list[str], list[str]]:
    """Return the public classes, and the public functions, by name."""
    names = [name for name in agent_magic.__all__ if name not in HOOKS and name != "AgentMagicError"]
    classes = [name for name in names if inspect.isclass(getattr(agent_magic, name))]
    return classes, [name for name in names if name not in classes]


QUALITY = ("score", "judge", "judge_plan", "trial")
"""The methods of a run that stand on its second page."""


def _class_page(name: str) -> str:
    doc = inspect.getdoc(getattr(agent_magic, name)) or ""
    return "\n".join(
        [
            f"# am.{name}",
            "",
            "```{eval-rst}",
            f".. autoclass:: agent_magic.{name}",
            "   :members:",
            f"   :exclude-members: {', '.join(['__init__', *(QUALITY if name == 'Run' else ())])}" if doc else "",
            "```",
            "",
        ]
    )


def _recorded_page() -> str:
    """Return the page of what a run and a forecast have in common: it is long, and one page of both would be longer."""
    told = "What a run recorded and a forecast has too: attributes and methods of every `am.Run`."
    lines = ["# am.Run: what it recorded, and how good it is", "", told, "", "```{eval-rst}"]
    graded = ["", "## How good its answers are", "", "```{eval-rst}"]
    methods = [f".. automethod:: agent_magic.Run.{name}" for name in QUALITY]
    reading = [".. autoclass:: agent_magic.api.reading.Reading", "   :members:", "```"]
    return "\n".join([*lines, *reading, *graded, *methods, "```", ""])


def _functions(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = getattr(agent_magic, name)
        kind = "autofunction" if inspect.isroutine(value) else "autodata"
        yield from (f"## am.{name}", "")
        if kind == "autodata":
            yield from (f"A value of class `{type(value).__name__}`.", "", *_prose(inspect.getdoc(value) or ""), "")
            continue
        yield from ("```{eval-rst}", f".. {kind}:: agent_magic.{name}", "```", "")


def _cells() -> Iterator[str]:
    for magic, parser in PARSERS.items():
        yield from (f"## `%%{magic}`", "")
        yield from _help_text(HELP[magic])
        yield from _table(("option", "what it does"), parser.told())


def _help_text(text: str) -> Iterator[str]:
    """Yield a help text: prose as it is, each indented example as a cell."""
    for block in re.split(r"\n\n(?=\S|    %%)", text.strip()):
        if block.startswith("    "):
            yield from ("```ipython", textwrap.dedent(block), "```", "")
        else:
            yield from (*_prose(block), "")


def _prose(text: str) -> list[str]:
    """Return text whose `{{ name }}`, `%magic` and `<word>` reach the page as they are, and code too."""
    found: list[str] = []
    code = False
    for line in text.splitlines():
        code ^= line.startswith("```")
        plain = re.sub("^%", r"\\%", line.replace("{{", "&#123;&#123;").replace("<", "&lt;"))
        found.append(line if code or line.startswith("    ") else plain)
    return found


def _command_index(pages: Mapping[str, str]) -> Iterator[str]:
    yield from ("`%agents help COMMAND` shows the same in the notebook, and Tab completes commands and options.", "")
    yield from ("| command | what it does |", "|---|---|")
    for page, topic in pages.items():
        for name in VERBS._topics[topic]:
            first = "".join(_prose(_cell(VERBS[name].help))).partition(". ")[0].rstrip(".")
            yield f"| [`%agents {name}`]({page}.md#agents-{name}) | {first} |"
    yield from ("", "```{toctree}", ":hidden:", "", *pages, "```", "")


def _commands(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from (f"## `%agents {name}`", "", *_prose(VERBS[name].help), "")
        yield from ("```ipython", *VERBS[name].examples, "```", "")
        yield from _table(("option", "what it does"), VERBS.parser(name).told())


def _settings() -> Iterator[str]:
    yield from ("`%config AgentMagics.NAME = VALUE` sets a default of this kernel.", "")
    rows = [(name, repr(trait.default_value), trait.help) for name, trait in Settings.class_traits(config=True).items()]
    yield from _table(("name", "default", "what it is"), rows)


def _shell() -> Iterator[str]:
    parser = cli._parser()
    commands = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    summaries = {one.dest: one.help or "" for one in commands._choices_actions}
    for name, command in commands.choices.items():
        shown = options.make_parser() if name == "simulate" else command
        yield from (f"## `agent-magic {name}`", "", _sentence(summaries[name]), "", "```text")
        yield from (shown.format_help().strip(), "```", "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _frames(page: str) -> Iterator[str]:
    said = [frame.said for frame in FRAMES]
    begins = [*(said.index(first) for _, first in FRAME_PAGES.values()), len(said)]
    place = [*FRAME_PAGES].index(page)
    notes = (
        "Unknown is `NA`, never 0. A column name means the same in every frame that has it, unless it says otherwise. "
        "`frame.attrs` says which run it is of: `run`, `plan`, `source`, `simulated`; for a replayed run also "
        "`provenance`, for a forecast `basis` and `assumed`."
    )
    yield from (notes, "")
    meanings = Meanings()
    for frame in FRAMES[begins[place] : begins[place + 1]]:
        yield from (f"## `{frame.said}`", "", frame.rows, "")
        rows = [(one, dtype, _unit(one), meanings.of(one, frame)) for one, dtype in columns_of(frame).items()]
        yield from _table(("column", "dtype", "unit", "what it is"), rows)
        if frame.further:
            yield from ("Where they apply, also:", "")
            further = [(one, further_dtype(one), _unit(one), meanings.of(one, frame)) for one in frame.further.split()]
            yield from _table(("column", "dtype", "unit", "what it is"), further)


def columns_of(frame: Frame) -> Mapping[str, str]:
    """Return the columns of a frame with their dtypes, as the package declares them."""
    module, _, name = frame.table.rpartition(".")
    found = getattr(importlib.import_module(f"agent_magic.{module}"), name)
    return {one: DTYPES[one] for one in found} if isinstance(found, tuple) else found


def further_dtype(column: str) -> str:
    """Return the dtype of a column that is there only where it applies."""
    if column in SENT:
        return dtype_of_option(column)
    return "object" if column == "artifacts" else DTYPES.get(column) or ("Float64" if column in SCORED else "string")


def _unit(column: str) -> str:
    return next((unit for part, unit in UNITS.items() if part in f"{column}|" and _ends(column, part)), "")


def _ends(column: str, part: str) -> bool:
    return column.endswith(part) or (part == "usd" and "usd" in column) or (part == "tokens" and "tokens" in column)


class Meanings:
    """What a column is: by the list of columns, or else by what the classes of records say of the same name."""

    @cached_property
    def _said(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind in MEANT:
            for one in docstring_parser.parse(inspect.getdoc(kind) or "").params:
                found.setdefault(one.arg_name, " ".join((one.description or "").split()))
            for name, value in inspect.getmembers(kind):
                if isinstance(value, property) and value.__doc__:
                    found.setdefault(name, value.__doc__.strip().partition("\n")[0])
        return {**found, **SAID}

    def of(self, column: str, frame: Frame) -> str:
        """Return what a column of a frame is; empty where nobody says it."""
        own = f"{frame.table.rpartition('.')[2]}.{column}"
        return MEANINGS.get(own) or MEANINGS.get(column) or self._said.get(column, "").replace("`None`", "`NA`")


def _errors() -> Iterator[str]:
    yield from (*_error_tree(), "")
    yield from ("What is met most often stands in", "")
    yield from ("[Troubleshooting](../how_to/troubleshooting.md)", "")
    for name, value in inspect.getmembers(errors, inspect.isclass):
        if issubclass(value, errors.AgentMagicError):
            yield from (f"## {name}", "", "```{eval-rst}", f".. autoexception:: agent_magic.errors.{name}", "```", "")
            yield from (f"**What to do:** {''.join(_prose(CURES[name]))}", "")


def _error_tree() -> Iterator[str]:
    """Yield the docstring of the room: its tree is drawn in a fenced block already."""
    yield from (errors.__doc__ or "").strip().replace("```\nAgent", "```text\nAgent").splitlines()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table, its first column as code; nothing without rows."""
    given = list(rows)
    if not given:
        return
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for first, *rest in given:
        yield "| " + " | ".join([f"`{_cell(first)}`", *("".join(_prose(_cell(one))) for one in rest)]) + " |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
