"""How a magic awaits on the loop that the notebook already runs.

IPython turns `%agents run` into `get_ipython().run_line_magic('agents', 'run')`, a blocking call. If `await` is legal,
`AwaitRewriter` makes of it

    (await get_ipython().run_line_magic('agents.async', 'run'))

and IPython runs the cell as a task on the kernel's loop. Otherwise (inside `def`, under `%%time` or `%%capture`, in a
script) the call is unchanged and blocks: see `run_sync`.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from IPython.core import async_helpers
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.errors import CannotNest
from agent_magic.live.tasks import interruptible, stopped
from agent_magic.notebook.cell_hooks import CellHook

__all__ = ["ASYNC_SUFFIX", "AwaitRewriter", "awaited", "cell_is_running", "is_called_by", "run_sync"]

T = TypeVar("T")
Edit: TypeAlias = tuple[int, int, bytes]

ASYNC_SUFFIX = ".async"
"""Suffix of the asynchronous twin of a magic; no user types a dot there."""

MAGIC_CALLS = frozenset({"run_line_magic", "run_cell_magic"})
# `await` is an error in the first three, turns a generator into another kind of object, and positions inside an
# f-string are wrong before Python 3.12.
NO_AWAIT = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp, ast.JoinedStr)


def every_call(magic: str, argument: str | None) -> bool:
    del magic, argument
    return True


@dataclass(frozen=True, slots=True)
class AwaitRewriter(CellHook):
    """Lets magics with a twin await; `wanted` is asked per call, its line `None` if known only when the cell runs."""

    magics: frozenset[str]
    wanted: Callable[[str, str | None], bool] = every_call

    def __call__(self, lines: list[str]) -> list[str]:
        text = "".join(lines)
        if not any(name in text for name in MAGIC_CALLS) or not can_await(self.ip):
            return lines
        if "autoawait" in text:  # the cell may switch it off, and IPython reads that line by line
            return lines
        rewritten = self.rewrite(text)
        return lines if rewritten == text else rewritten.splitlines(keepends=True)

    def rewrite(self, text: str) -> str:
        """Add `await` to a cell's text; text with a syntax error is unchanged."""
        tree = _quietly(lambda: ast.parse(text))
        if tree is None:
            return text
        source = text.encode()
        # The byte offset of each line, as Python's tokenizer counts lines: a form feed ends none.
        starts = [0, *(match.end() for match in re.finditer(rb"\r\n|\r|\n", source))]
        edits = [edit for call, bare in _calls(tree) if self._chosen(call) for edit in _edits(call, starts, bare=bare)]
        for begin, end, new in sorted(edits, reverse=True):
            source = source[:begin] + new + source[end:]
        rewritten = source.decode()
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = _quietly(lambda: compile(rewritten, "<cell>", "exec", flags=flags, dont_inherit=True))
        return text if compiled is None else rewritten

    def _chosen(self, call: ast.Call) -> bool:
        name, kind = _magic_of(call)
        if name not in self.magics or self.ip.find_magic(name + ASYNC_SUFFIX, kind) is None:
            return False
        return self.wanted(name, _argument(call))


def can_await(ip: Any) -> bool:
    """True if IPython will run the cell being transformed as a task on an asyncio loop."""
    # It will not if a cell's code does the transforming (`%%time`, `%%capture`, `run_cell`), or a callback on the
    # running loop calls `run_cell`. The stack tells these cases for certain. Events around a cell do not: a silent
    # cell has none, and an extension loaded in a cell has missed the first of them.
    if not ip.autoawait or str(ip.loop_runner) != "asyncio" or cell_is_running():
        return False
    return not (_running_loop() is not None and is_called_by(InteractiveShell, "run_cell"))


def cell_is_running() -> bool:
    """True if the code of a cell called this, however indirectly."""
    return is_called_by(InteractiveShell, "run_code")


async def awaited(work: Coroutine[Any, Any, T], *, message: Callable[[], str] = stopped) -> T:
    """Await the work of a magic so that Stop ends it, in a cell by `KeyboardInterrupt`.

    In a task started by a cell it is `CancelledError`: a `KeyboardInterrupt` would end the kernel's loop.
    """
    try:
        return await interruptible(work, message=message)
    except KeyboardInterrupt as stop:
        if cell_is_running():
            raise
        raise asyncio.CancelledError(str(stop)) from None


def is_called_by(kind: type, method: str) -> bool:
    code = getattr(vars(kind)[method], "__code__", None)
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _quietly(compiling: Callable[[], T]) -> T | None:
    """Return `None` on an error, which IPython will show itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compiling()
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the calls where `await` is legal, and whether the cell does not await them itself."""
    # An explicit stack: an expression of many terms is deeper than Python's recursion limit.
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, True)]
    while waiting:
        node, legal, bare = waiting.pop()
        if legal and isinstance(node, ast.Call):
            yield node, bare
        legal = legal and not isinstance(node, NO_AWAIT)
        body = node.body if isinstance(node, ast.AsyncFunctionDef) else []
        for child in ast.iter_child_nodes(node):
            inside = child in body if isinstance(node, ast.AsyncFunctionDef) else legal
            waiting.append((child, inside, not isinstance(node, ast.Await)))


def _magic_of(call: ast.Call) -> tuple[str, str]:
    """Return name and kind (`name`, `line`) of a call of a magic; empty for any other call."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=attr),
            args=[ast.Constant(value=str(name)), *_],
        ) if attr in MAGIC_CALLS:
            return name, attr.split("_")[1]
        case _:
            return "", ""


def _argument(call: ast.Call) -> str | None:
    """Return a magic's line; `None` if its first word is known only when the cell runs."""
    match call.args[1:2]:
        case [ast.Constant(value=str(line))]:
            # IPython expands `{name}` and `$name` in the line of a magic.
            return None if re.match(r"\s*\S*[{$]", line) else line
        case []:
            return ""
        case _:
            return None


def _edits(call: ast.Call, starts: list[int], *, bare: bool) -> list[Edit]:
    name = cast("ast.Constant", call.args[0])
    first, last = _span(name, starts)
    edits: list[Edit] = [(first, last, repr(f"{name.value}{ASYNC_SUFFIX}").encode())]
    if bare:
        begin, end = _span(call, starts)
        edits += [(begin, begin, b"(await "), (end, end, b")")]
    return edits


def _span(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    # The parser sets the ends of every expression; the type says that they may be missing.
    end_line, end_column = cast("int", node.end_lineno), cast("int", node.end_col_offset)
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


# The first ipykernel that runs all cells in one shared `contextvars.Context`, which `nest_asyncio` cannot enter twice.
SHARED_CONTEXT = 7


def run_sync(work: Coroutine[Any, Any, T], *, message: Callable[[], str] = stopped) -> T:
    """Run a coroutine, and close it if it cannot be run; raise `CannotNest` if the loop cannot be entered again.

    Connections belong to their loop, so a running loop is made re-entrant by `nest_asyncio2` instead of starting a
    second one.
    """
    loop = _running_loop()
    nested = loop is not None
    if loop is None:
        loop = _idle_loop()
    else:
        problem = _obstacle(loop)
        if problem:
            work.close()
            raise CannotNest(problem)
        if not _is_patched_by_other():  # by nest_asyncio, on a kernel that supports it
            importlib.import_module("nest_asyncio2").apply(loop)
    task = loop.create_task(_outcome(work, message))
    try:
        result = loop.run_until_complete(task)
    finally:
        task.cancel()  # does nothing, unless an interrupt came before our handler was there
    if isinstance(result, KeyboardInterrupt):
        # Out of a task, this error would end the kernel's loop, and the kernel with it.
        raise asyncio.CancelledError(str(result)) if nested and not cell_is_running() else result
    return result


async def _outcome(work: Coroutine[Any, Any, T], message: Callable[[], str]) -> T | KeyboardInterrupt:
    """Return an interrupt instead of raising it, which would break a nested loop."""
    try:
        return await interruptible(work, message=message)
    except KeyboardInterrupt as stop:
        return stop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _idle_loop() -> asyncio.AbstractEventLoop:
    known: Mapping[str, Any] = vars(async_helpers)
    if "get_asyncio_loop" in known:
        return known["get_asyncio_loop"]()
    return known["_asyncio_runner"].loop  # IPython 7


def _is_patched_by_other() -> bool:
    return hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2")


def _obstacle(loop: asyncio.AbstractEventLoop) -> str:
    major = int(str(getattr(sys.modules.get("ipykernel"), "__version__", "0")).split(".", maxsplit=1)[0])
    if _is_patched_by_other() and (not hasattr(loop, "_nest_patched") or major >= SHARED_CONTEXT):
        cause = "nest_asyncio is applied in this kernel, and on this ipykernel it loses the cells queued behind a call"
    elif not isinstance(loop, asyncio.BaseEventLoop):
        cause = f"the running loop, {type(loop).__module__}.{type(loop).__qualname__}, cannot be entered a second time"
    else:
        return ""
    return (
        f"A blocking call cannot run here: {cause}. Put the magic on its own line of a cell, outside "
        "def, %%time and %%capture, or use `await plan.run()`."
    )
