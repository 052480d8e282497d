"""Packs a run, and the modules that forecast it, as texts inside a page."""

from __future__ import annotations

import ast
import base64
import functools
import importlib.util
import io
import json
import lzma
import tarfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.declare.options import option
from agent_magic.declare.outline import outline_of
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import plan_from_dict
from agent_magic.forecast.evidence import sent_ahead
from agent_magic.record.cassette.writing import filler, only_length, write_cassette
from agent_magic.record.codec import to_json
from agent_magic.record.prices import Prices
from agent_magic.show.explore import OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.record.results import RunRecord

ENTRY: Final = "agent_magic.show.ask.answering"
PACKAGE: Final = ENTRY.partition(".")[0]
SANDBOX: Final = "agent_magic.declare.sandbox"
TEMPLATES: Final = ("jinja2", "markupsafe")
UNUSED: Final = {"constants", "ext", "nativetypes"}
OF_TEXT: Final = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}


def pack_run(record: RunRecord, prices: Prices | None = None) -> str:
    """Return base64 text; texts of the run are replaced by their lengths."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.cassette.jsonl"
        write_cassette(record, file, redact=only_length)
        recording = file.read_text(encoding="utf-8")
    book = prices or Prices(tell=lambda _: None)
    models = sorted({*OTHERS, *record.facts.models, *(one.model for one in record.results)} - {""})
    data = {
        "plan": _outline(record),
        "recording": recording,
        "prices": {model: to_json(book.tariff_of(model)) for model in models},
    }
    return base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()


def _outline(record: RunRecord) -> Any:
    """Return an outline in which prompts that were never sent have their expected length."""
    plain, ahead = outline_of(record.plan, only_length), dict[int, str]()
    outline = plan_from_dict(plain, Plan)
    for number, result in enumerate(record.results):
        if not result.attempts and not result.is_task and result.status != "unused":
            sent, less = (sent_ahead(plan, record, number)[0] for plan in (record.plan, outline))
            characters = len(sent) - len(less) + 1
            size = len(sent.encode(errors="replace")) - len(less.encode(errors="replace")) + 1
            ahead[number] = filler(characters, size) if 0 < characters <= size <= 4 * characters else "."
    return outline_of(record.plan, only_length, ahead) if ahead else plain


def needs_templates(plan: Plan) -> bool:
    """True if the plan's conditions or optional names need Jinja2."""
    return any(one.when or one.until or (not one.is_task and one.cascade) for one in plan.agents) or any(
        one.can_miss for one in plan.agents
    )


@functools.lru_cache(maxsize=2)
def pack_engine(*, templates: bool = False) -> str:
    """Return base64 of a `tar.xz` to unpack on Python's path."""
    files = dict(_modules(*([ENTRY, SANDBOX] if templates else [ENTRY])))
    for name in TEMPLATES if templates else ():
        folder = Path(_origin(name)).parent
        wanted = [file for file in folder.glob("*.py") if file.stem not in UNUSED]
        files |= {f"{name}/{file.name}": file.read_text(encoding="utf-8") for file in wanted}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, source in sorted(files.items()):
            entry, data = tarfile.TarInfo(name), ast.unparse(_Lean().visit(ast.parse(source))).encode()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return base64.b64encode(lzma.compress(made.getvalue(), filters=[OF_TEXT])).decode()


TYPING: Final = {"TYPE_CHECKING", "t.TYPE_CHECKING"}
_Scope = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Lean(ast.NodeTransformer):
    """Removes docstrings and type hints, half of a module; annotations of fields stay."""

    _in_function = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node, in_function=False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if not self._in_function:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else ast.Pass()

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__all__" else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == cast.__name__:
            return self.visit(node.args[1])
        if isinstance(node.func, ast.Name) and node.func.id == option.__name__:
            node.keywords = [one for one in node.keywords if one.arg not in {"doc", "help", "unit", "note"}]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._plain(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._plain(node)

    def _plain(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        given, node.returns = node.args, None
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one is not None:
                one.annotation = None
        return self._inside(node, in_function=True)

    def _inside(self, node: _Scope, *, in_function: bool) -> ast.AST:
        before, self._in_function = self._in_function, in_function
        self.generic_visit(node)
        self._in_function = before
        node.body = node.body or [ast.Pass()]
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse or ast.Pass() if ast.unparse(node.test) in TYPING else node


def _modules(*entries: str) -> Iterator[tuple[str, str]]:
    root, seen, todo = Path(_origin(PACKAGE)).parent.parent, set[Path](), [*entries]
    while todo:
        name = todo.pop()
        parts = name.split(".")
        todo += [".".join(parts[:depth]) for depth in range(1, len(parts))]
        place = root.joinpath(*parts)
        file = next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)
        if parts[0] != PACKAGE or file is None or file in seen:  # a name in a module is no file
            continue
        seen.add(file)
        source = file.read_text(encoding="utf-8")
        yield file.relative_to(root).as_posix(), source
        todo += _imported(ast.parse(source))


def _imported(tree: ast.Module) -> Iterator[str]:
    todo: list[Any] = [*tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.ClassDef) or (isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING"):
            todo += node.body


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec.origin
