"""Reads the package's source as text and says what imports what. Runs nothing of the package."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "agent_magic"
ROOT = Path(__file__).resolve().parent.parent.parent
LAZY_MARK = "# lazy:"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, or a name in it: `import a.b` is 'a.b', `from a import b` is 'a.b' too."""

    name: str
    line: int
    late: bool
    """Stands inside a function, so it happens when that is called."""
    marked: bool
    """Carries a comment `# lazy: the reason`."""
    types_only: bool = False
    """Stands under `if TYPE_CHECKING:`, so it never happens, but shows which room knows of which."""

    @property
    def top(self) -> str:
        """The distribution-level module: 'pandas' of 'pandas.api.types'."""
        return self.name.split(".")[0]


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file; empty where it cannot be parsed, which is one failure and not one for every rule."""
        try:
            return ast.parse(self.text, str(self.path))
        except SyntaxError:
            return ast.Module(body=[], type_ignores=[])

    @property
    def room(self) -> str:
        """The part of the house it belongs to: 'record' for agent_magic.record.ledger, '' for the front door."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, with how and when it happens."""
        found: list[Import] = []
        lines = self.text.splitlines()

        def visit(node: ast.AST, *, late: bool, types_only: bool) -> None:
            if isinstance(node, ast.Import | ast.ImportFrom):
                marked = any(LAZY_MARK in line for line in lines[node.lineno - 1 : node.end_lineno])
                found.extend(Import(name, node.lineno, late, marked, types_only) for name in self._names(node))
            typing = isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
            inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                in_body = typing and isinstance(node, ast.If) and child in node.body
                visit(child, late=inside, types_only=types_only or in_body)

        visit(self.tree, late=False, types_only=False)
        return found

    @property
    def loads(self) -> list[Import]:
        """The imports that happen when this module is imported."""
        return [found for found in self.imports if not found.late and not found.types_only]

    def _names(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        base = node.module or ""
        if node.level:
            here = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
            here = here[: len(here) - (node.level - 1)]
            base = ".".join([*here, base] if base else here)
        return [f"{base}.{alias.name}" for alias in node.names]


def package_modules(root: Path = ROOT) -> dict[str, Module]:
    """Read every file of the package, by dotted name."""
    modules: dict[str, Module] = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path, is_package, path.read_text(encoding="utf-8"))
    return modules


def resolve(name: str, modules: dict[str, Module]) -> str | None:
    """Name the module that an import loads: 'agent_magic.errors' for the class in it; None outside the package."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def own_imports(module: Module, modules: dict[str, Module]) -> list[tuple[Import, Module]]:
    """Pair each import of the package itself with the module it loads."""
    pairs = ((found, resolve(found.name, modules)) for found in module.imports if found.top == PACKAGE)
    return [(found, modules[target]) for found, target in pairs if target and target != module.name]


def heavy_libraries() -> frozenset[str]:
    """Read from the linter's configuration which libraries `%load_ext` must not load. IPython is there already."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    banned = config["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
    return frozenset(banned) - {"IPython"}


def import_loops(graph: dict[str, set[str]]) -> list[list[str]]:
    """Find the groups of modules that import each other, each sorted."""
    reach = {node: _reachable(graph, node) for node in graph}
    groups = {frozenset({node, *(other for other in reach[node] if node in reach[other])}) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen
