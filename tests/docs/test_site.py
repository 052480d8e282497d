"""The site: its reference is made from the package and leaves nothing out, links are followed, cells are read."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pygments.token import STANDARD_TYPES

import agent_magic
from agent_magic import cli, errors
from agent_magic.measure import frames
from agent_magic.notebook import PARSERS, VERBS
from agent_magic.notebook.settings import Settings
from agent_magic.record import read_cassette
from agent_magic.simulator.options import make_parser
from tests.house.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def load(path: str) -> Any:
    """Import a file of `docs/`, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.replace('/', '_')}", ROOT / "docs" / f"{path}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(ROOT / "docs" / "tools"))  # where the files of the tools find one another
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "docs" / "tools"))
    return module


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    """The generated pages."""
    folder = tmp_path_factory.mktemp("reference")
    load("tools/reference").write_reference(folder)
    return folder


def test_every_public_name_has_its_place(reference):
    """Each name of `__all__` is a page, a heading of the functions, or a hook of IPython."""
    pages = {page.stem for page in (reference / "api").glob("*.md")}
    functions = "".join(page.read_text(encoding="utf-8") for page in reference.glob("functions*.md"))
    hooks = {"__version__", "load_ipython_extension", "unload_ipython_extension", "AgentMagicError"}
    names = set(agent_magic.__all__) - hooks
    assert set() == {name for name in names if name not in pages and f"## am.{name}\n" not in functions}


def test_every_command_and_option_is_told(reference):
    """Commands of `%agents` with help, example and options; the options of each cell; every setting."""
    commands = "\n".join(page.read_text(encoding="utf-8") for page in (reference / "commands").glob("*.md"))
    told = commands.split("\n## `%agents ")
    for name, verb in VERBS.items():
        (page,) = (part for part in told if part.startswith(f"{name}`"))
        assert [] == [flag for flag in VERBS.parser(name).flags if flag not in page], name
        assert verb.examples[0] in page
    cells = (reference / "cells.md").read_text(encoding="utf-8")
    assert [] == [flag for parser in PARSERS.values() for flag in parser.flags if flag not in cells]
    settings = (reference / "settings.md").read_text(encoding="utf-8")
    assert [] == [name for name in Settings.class_traits(config=True) if f"| `{name}` |" not in settings]


def test_every_column_and_error_is_told(reference):
    """Columns with dtype, those in seconds, dollars and tokens with their unit; each class of error."""
    text = "".join(page.read_text(encoding="utf-8") for page in reference.glob("frames*.md"))
    assert "| `total_s` | Float64 | seconds |" in text
    assert "| `cost_usd` | Float64 | US dollars |" in text
    assert "| `input_tokens` | Int64 | tokens |" in text
    assert [] == [
        column for column in (*frames.AGENTS, *frames.ATTEMPTS, *frames.RUNS) if f"| `{column}` |" not in text
    ]
    told = (reference / "errors.md").read_text(encoding="utf-8")
    known = inspect.getmembers(errors, inspect.isclass)
    classes = [name for name, kind in known if issubclass(kind, errors.AgentMagicError)]
    assert [] == [name for name in classes if f"## {name}\n" not in told]
    assert len(classes) == told.count("**What to do:** ")
    assert [] == [name for name in classes if not (inspect.getdoc(getattr(errors, name)) or "").strip()]
    assert sorted(classes) == sorted(load("tools/cures").CURES)


def test_the_shell_and_the_mock_server_are_told(reference):
    """Every command of `agent-magic`, and the directives of the mock server."""
    text = (reference / "shell.md").read_text(encoding="utf-8")
    assert [] == [
        name for name in ("simulate", "replay", "export", "import", "scan") if f"## `agent-magic {name}`" not in text
    ]
    assert "[[status:529]]" in text


def test_a_broken_link_and_a_request_are_found(tmp_path):
    """A page that is not there, an anchor that is not there, a script and a style sheet of another host."""
    (tmp_path / "a.html").write_text(
        '<h1 id="x">A</h1><a href="b.html#y">b</a><a href="c.html">c</a><a href="#x">x</a>'
    )
    (tmp_path / "b.html").write_text(
        '<script src="https://cdn.invalid/x.js"></script><a href="https://else.invalid">e</a>'
    )
    (tmp_path / "s.css").write_text("@import 'https://fonts.invalid/a.css';")
    found = load("tools/crawl").crawl(tmp_path)
    assert (2, 3) == (found.pages, found.links)
    assert [
        "a.html: no anchor b.html#y",
        "a.html: no file c.html",
        "b.html loads https://cdn.invalid/x.js",
        "s.css loads https://fonts.invalid/a.css",
    ] == found.bad


@pytest.mark.parametrize(
    ("cell", "marked"),
    [
        ("%%agent a --model m\nSay {{ b }}.\n", [("kp", "%%agent"), ("na", "--model"), ("nv", "{{ b }}")]),
        ("run = %agents run --fresh # again\n", [("kp", "run = %agents"), ("na", "--fresh"), ("c", "# again")]),
        ("!ls -l\n", [("kp", "!")]),
    ],
)
def test_cells_are_highlighted(cell, marked):
    """The magic, its options, what is filled in, and a comment; no character is lost."""
    tokens = list(load("conf").CellLexer(ensurenl=False, stripnl=False).get_tokens(cell))
    assert cell == "".join(text for _, text in tokens)
    assert marked == [
        (STANDARD_TYPES[kind], text) for kind, text in tokens if STANDARD_TYPES[kind] in {"kp", "na", "nv", "c"}
    ]


def test_python_between_magics_is_python():
    """Only the lines of magics are not; nothing is lost."""
    cell = "%load_ext agent_magic\nx = {'a': 1}\n%agents plan\n\ny = f(x)\n"
    tokens = list(load("conf").CellLexer(stripnl=False).get_tokens(cell))
    assert cell == "".join(text for _, text in tokens)
    assert ["%load_ext", "%agents"] == [text for kind, text in tokens if str(kind) == "Token.Keyword.Pseudo"]


def test_every_notebook_has_its_place_in_the_gallery(tmp_path):
    """Each is in one of four groups, with a picture of its own and words; no group names what is not there."""
    gallery = load("tools/gallery")
    listed = [name for group in gallery.GROUPS.values() for name in group.names]
    assert 4 == len(gallery.GROUPS)
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == sorted(listed)
    gallery.write_gallery(ROOT / "notebooks", tmp_path / "gallery", tmp_path / "pictures")
    page = (tmp_path / "gallery" / "index.md").read_text(encoding="utf-8")
    shown = re.findall(r'<img src="\.\./_static/gallery/([\w.]+)"', page)
    assert len(listed) == len(set(shown))
    assert [] == [name for name in shown if not (tmp_path / "pictures" / name).exists()]
    assert [] == re.findall(r"<strong>[^<]*</strong><span></span>", page)
    assert [] == [group.says for group in gallery.GROUPS.values() if group.says not in page]


def test_the_front_page_has_a_place_for_its_run():
    """The page that everybody sees first shows a recorded run and lets it be asked."""
    runs, page = load("tools/runs"), (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    run = runs.read_run(ROOT / "docs" / "runs", runs.FRONT)
    shown = runs.with_run(f"<body>{page}</body>", run, "pyodide/")
    assert 'data-python="pyodide/"' in shown
    assert "am-engine" in shown
    assert len(shown.encode()) < 500_000
    with pytest.raises(ValueError, match="0 places"):
        runs.with_run("<body></body>", run, "pyodide/")


def test_recorded_runs_are_small_and_of_the_gallery():
    """What the site lets readers ask is a run of a notebook, of the plan beside it, in 200 kB at most."""
    runs = ROOT / "docs" / "runs"
    names = load("tools/runs").recorded(runs)
    assert "business_plan" in names  # the front page leads there
    for name in names:
        cassette = runs / f"{name}.cassette.jsonl"
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
        assert cassette.stat().st_size <= 200_000
        plan = agent_magic.Plan.from_json((runs / f"{name}.plan.json").read_text(encoding="utf-8"))
        assert plan.names == tuple(one.name for one in read_cassette(cassette).runs[0].agents)


OF_OTHERS = {
    "--dest",
    "--find-links",
    "--no-index",
    "--upgrade",
    "--dist",
    "--fast",
    "--no-compile",
    "--no-dashboard",
    "--port",
    "--to",
}
"""Options on our pages that belong to pytest, to our scripts, to pip, to nbconvert and to Dask."""


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a shell's command and its commands."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        for one in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            found |= flags_of(one)
    return found


def test_pages_name_what_there_is():
    """Each command of `%agents` and each option that a page or an error's cure names is one that the package knows."""
    flags = {flag for name in VERBS for flag in VERBS.parser(name).flags} | OF_OTHERS
    flags |= {flag for parser in PARSERS.values() for flag in parser.flags}
    flags |= flags_of(cli._parser()) | flags_of(make_parser())
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "docs" / "tools" / "cures.py"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page.name == "CHANGELOG.md":  # tells of what was taken away
            continue
        assert [] == [verb for verb in re.findall(r"%agents ([a-z]\w*)", text) if verb not in VERBS], page.name
        assert [] == [one for one in re.findall(r"(?<![\w-])--[a-z][a-z-]+\b", text) if one not in flags], page.name
