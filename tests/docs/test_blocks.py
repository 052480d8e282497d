"""Every code block of the documentation is run as it is printed: offline, without a key, from top to bottom."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import agent_magic as am
from tests.docs.blocks import Block, blocks_of
from tests.house.source import ROOT
from tests.kernels import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"README.md": "tests/kernel/test_readme.py", "providers.md": "tests/providers/test_docs.py"}
"""Pages whose blocks another test runs: they need a server of their own, or what they show is looked at."""
BLOCKS = {
    path.relative_to(ROOT).as_posix(): found
    for path in PAGES
    if path.name not in ELSEWHERE and (found := blocks_of(path.read_text(encoding="utf-8")))
}
IN_PYTHON = [page for page, found in BLOCKS.items() if not any(block.is_cell for block in found)]
IN_IPYTHON = [page for page in BLOCKS if page not in IN_PYTHON]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Who answers `am.Claude()` on a page: the mock server."""
    with am.Simulator(latency="fast") as started:
        yield started


@pytest.mark.parametrize("page", IN_PYTHON)
def test_python_runs_as_it_is_printed(page, server, monkeypatch, tmp_path):
    """The blocks of a page share one namespace, one loop and an empty folder, and `await` works as in a notebook."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    asyncio.run(_run(page, BLOCKS[page]))


async def _run(page: str, blocks: list[Block]) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "am": am}
    for block in blocks:
        # Lines are those of the page, so a traceback leads there; the namespace is a module's, for classes in it.
        source = "\n" * (block.line - 1) + block.code
        # Nothing of this file's own future comes along: a class of a page has annotations that are types.
        code = compile(source, ROOT / page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, names)  # noqa: S307, RUF100 - the documentation of this repository
        if inspect.isawaitable(result):
            await result


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """One kernel for every page: most of a page's time would be its start."""
    with Kernel() as started:
        assert "ok" == started.do("%load_ext agent_magic").status
        yield started


@pytest.mark.kernel
@pytest.mark.parametrize("page", IN_IPYTHON)
def test_cells_run_as_they_are_printed(page, kernel, tmp_path):
    """A page with magics is a notebook: its blocks are cells without a key, in a session and namespace of its own."""
    fresh = f"%unload_ext agent_magic\n%reset -f\nimport os; os.chdir({str(tmp_path)!r}); import agent_magic as am"
    assert "ok" == kernel.do(fresh).status
    for block in BLOCKS[page]:
        reply = kernel.do(block.code)
        assert "ok" == reply.status, f"{page}, line {block.line}: {reply.ename}: {reply.evalue}"


QUIET = set("print save replay stop close use plot raise_for_failures run_line_magic run_cell_magic".split())
"""What is called for what it does, not for what it shows."""


@pytest.mark.parametrize("page", BLOCKS)
def test_what_a_block_shows_stands_last(page):
    """A notebook shows the last expression of a cell only: a reader who pastes a block must not miss another one."""
    for block in BLOCKS[page]:
        if block.code.startswith("%%"):
            continue
        code = TransformerManager().transform_cell(block.code) if block.is_cell else block.code
        shown = [line.value for line in ast.parse(code).body[:-1] if isinstance(line, ast.Expr)]
        missed = [ast.unparse(one) for one in shown if not isinstance(one, ast.Call) or _name(one.func) not in QUIET]
        assert [] == missed, f"{page}, line {block.line}"


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", None) or getattr(function, "id", "")


NOT_CODE = {
    "README.md": {"./scripts/quickstart": "CI runs both commands"},
    "docs/tutorial/1_first_run.md": {"python -m venv": "tests/package/test_wheel.py installs wheel and extra"},
    "docs/tutorial/5_sharing.md": {"agent-magic replay": "tests/browser/test_tutorial.py"},
    "docs/versions.md": {"python -m venv": "tests/package/test_wheel.py"},
    "docs/how_to/use_tools_of_mcp_servers.md": dict.fromkeys(
        ("%agents mcp", "%%agent librarian", "%%agent clerk", "%%agent check", "with am.McpServer"),
        "its server comes from npm; tests/live/test_mcp.py and tests/notebook/test_mcp.py have servers of their own",
    ),
    "docs/how_to/many_workers.md": {
        "pip install": "the environment of the tests has the extra",
        "import asyncio": "test_the_script_for_workers_runs",
    },
    "docs/how_to/share_a_page_that_answers.md": {"npm pack": "tests/browser/test_ask.py does the same"},
    "docs/how_to/see_it_elsewhere.md": {"# jupytext.toml": "tests/docs/test_jupytext.py"},
    "docs/how_to/use_a_model_of_your_own.md": dict.fromkeys(
        ("%agents connect chat", "%config AgentMagics.model", "own = am.Chat", "pool = am.Pool"),
        "needs a model server; tests/providers/chat has one of its own",
    ),
    "docs/how_to/use_several_accounts.md": {"work = am.Claude": "needs two accounts and a gateway"},
}
"""Blocks that are not run here: how each begins, and what runs it, or why nothing can."""


def test_no_block_is_left_out_in_silence():
    """A block that is neither Python nor a cell is named above with what runs it; one that is named is there."""
    found = {}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        ran = {block.line for block in blocks_of(text, lab=True)}
        for fence in re.finditer(r"^ *```([^`\n]*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            if text.count("\n", 0, fence.start()) + 2 not in ran and not fence[1].startswith("{"):
                found.setdefault(path.relative_to(ROOT).as_posix(), []).append(fence[2].strip())
    for page, blocks in found.items():
        begins = NOT_CODE.get(page, {})
        assert [] == [block for block in blocks if not block.startswith(tuple(begins))], page
        assert len(blocks) == len(begins), page
    assert set(NOT_CODE) == set(found)


@pytest.mark.slow
def test_the_script_for_workers_runs(server, tmp_path):
    """The script of the page about workers, which cannot be a cell, as a file of its own."""
    text = (ROOT / "docs" / "how_to" / "many_workers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```text\n(import asyncio.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = tmp_path / "many.py"
    script.write_text(code.replace("range(500)", "range(12)"), encoding="utf-8")
    env = {**os.environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert 0 == done.returncode, done.stderr[-2000:]


def test_a_page_says_what_is_run():
    """Python, cells and comments that begin with `run` are; what a shell types, and text, is not."""
    page = "# T\n```python\na = 1\n```\n```sh\nls\n```\n<!-- run\nb = 2\n-->\n```\n%%agent x\nHi\n```\n```\ntext\n```\n"
    assert [(3, "a = 1\n", False), (9, "b = 2\n", False), (12, "%%agent x\nHi\n", True)] == blocks_of(page)


def test_the_pages_are_found():
    """A glob that finds nothing would test nothing."""
    assert BLOCKS
    assert Path(ROOT / "docs" / "index.md") in PAGES
