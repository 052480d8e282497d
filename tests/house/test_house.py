"""The rules of the house, read from its source. A stop is a sign to split the room, not a number to raise."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.house.source import PACKAGE, ROOT, Module, heavy_libraries, import_loops, own_imports, package_modules

ROOMS = [
    "errors",
    "lazy_names",
    "machine",
    "declare",
    "record",
    "engine",
    "providers",
    "live",
    "measure",
    "forecast",
    "show",
    "api",
    "notebook",
    "cli",
]
"""From the ground up: a room imports its own level and those below."""
WALLS = {("live", "measure"), ("measure", "live"), ("live", "forecast"), ("forecast", "live")}
APART = "simulator"
HOSTS_OF_APART = {"", "api", "notebook", "cli"}
FRONT = {"", "__main__", "testing"}
"""Doors, not rooms: they may import every room, and no room imports them."""
FILE_STOP = 1_000
FUNCTION_STOP = 80

MODULES = package_modules()


def every_module(rule: Callable[[Module], None]) -> Callable[[], None]:
    """Make one test of a rule that every module must keep; it names all that break it."""

    def test() -> None:
        broken: list[str] = []
        for name, module in MODULES.items():
            try:
                rule(module)
            except (AssertionError, SyntaxError) as error:
                broken.append(f"{name}: {error}")
        assert not broken, "\n\n".join(broken)

    test.__name__, test.__doc__ = rule.__name__, rule.__doc__
    return test


def uphill(here: Module, there: Module) -> bool:
    """Say whether an import leads up the stairs, through the wall, or out of the front door."""
    if here.room == there.room:
        return False
    if APART in {here.room, there.room}:
        return here.room not in HOSTS_OF_APART
    if here.room in FRONT:
        return False
    if there.room in FRONT:
        return True
    return (here.room, there.room) in WALLS or ROOMS.index(there.room) > ROOMS.index(here.room)


@every_module
def test_every_file_parses(module: Module) -> None:
    """The source is valid in the Python that runs the tests; the oldest supported one is among them."""
    ast.parse(module.text, str(module.path), feature_version=(3, 11))


@every_module
def test_every_module_belongs_to_a_room(module: Module) -> None:
    """A new room is drawn into the plan first."""
    assert module.room in {*ROOMS, *FRONT, APART}


@every_module
def test_imports_go_one_way(module: Module) -> None:
    """A room imports only rooms below it; live sees neither measure nor forecast; the simulator stands apart.

    Types count: a room that annotates with a name from above knows of it.
    """
    wrong = [
        f"{module.name}:{found.line} imports {there.name}"
        for found, there in own_imports(module, MODULES)
        if uphill(module, there)
    ]
    assert [] == wrong


def test_no_modules_import_each_other() -> None:
    """There are no import loops."""
    graph = {
        name: {there.name for found, there in own_imports(module, MODULES) if found in module.loads}
        for name, module in MODULES.items()
    }
    assert [] == import_loops(graph)


def test_at_most_three_files_know_each_other() -> None:
    """By types and late imports too: who changes one file of a ring has to read the others."""
    graph = {name: {there.name for _, there in own_imports(module, MODULES)} for name, module in MODULES.items()}
    assert [] == [ring for ring in import_loops(graph) if len(ring) > 3]


@functools.cache
def heavy_modules() -> set[str]:
    """Name the modules whose import loads a heavy library, directly or through another module of ours."""
    libraries = heavy_libraries()
    heavy = {name for name, module in MODULES.items() if any(found.top in libraries for found in module.loads)}
    while True:
        more = {
            name
            for name, module in MODULES.items()
            if any(there.name in heavy and found in module.loads for found, there in own_imports(module, MODULES))
        }
        if more <= heavy:
            return heavy
        heavy |= more


@every_module
def test_own_modules_are_imported_late_only_to_stay_light(module: Module) -> None:
    """Only the front door imports our own modules late, and who needs a heavy one, or says why in `# lazy: ...`."""
    heavy = heavy_modules()
    wrong = [
        f"{module.name}:{found.line} imports {there.name} late"
        for found, there in own_imports(module, MODULES)
        if found.late
        and module.room not in FRONT
        and there.name not in heavy
        and there.room != APART
        and not found.marked
    ]
    assert [] == wrong


@pytest.mark.parametrize("door", ["agent_magic", "agent_magic.api", "agent_magic.notebook.extension"])
def test_the_doors_are_light(door: str) -> None:
    """What `%load_ext` and `import agent_magic` load leads to no heavy library, by whatever way."""
    assert {door} <= set(MODULES)
    assert door not in heavy_modules()


@every_module
def test_imports_are_written_as_imports(module: Module) -> None:
    """Only doors import our own modules by a string, which these rules could not read; see the next test."""
    wrong = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        if not isinstance(node.args[0], ast.Constant) or str(node.args[0].value).startswith(PACKAGE)
    ]
    assert module.room in {*FRONT, "lazy_names"} or [] == wrong


def homes_of(module: Module) -> dict[str, str]:
    """Read the table of a door: the home of each of its names."""
    tables = [
        node.args[1] if isinstance(node, ast.Call) else node.value
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("lazy_names") and len(node.args) == 2)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PLACES")
    ]
    found = [ast.literal_eval(table) for table in tables if isinstance(table, ast.Dict)]
    return {name: home for table in found for name, home in table.items()}


@every_module
def test_a_door_leads_where_its_types_say(module: Module) -> None:
    """What a door loads by its table is what it imports for the type checker, so that these rules see it."""
    homes = homes_of(module) if module.is_package else {}
    seen = {found.name for found in module.imports if found.types_only and found.top == PACKAGE}
    lost = []
    for name, home in homes.items():
        where, colon, other = home.partition(":")
        if (where if colon and not other else f"{where}.{other or name}") not in seen:
            lost.append(name)
    assert [] == lost


@every_module
def test_a_door_names_nothing_as_a_module_beside_it(module: Module) -> None:
    """A module that is imported becomes an attribute of its package, in place of what a door lists by that name."""
    homes = homes_of(module) if module.is_package else {}
    assert [] == [name for name, home in homes.items() if f"{module.name}.{name}" in MODULES and home[-1] != ":"]


def test_tests_enter_by_a_door() -> None:
    """A test imports what a door lists from the door, so a module inside can be moved or split without it."""
    doors = {
        f"{home.partition(':')[0]}.{home.partition(':')[2] or name}": door.name
        for door in sorted(MODULES.values(), key=lambda one: one.room, reverse=True)  # the front door wins
        for name, home in homes_of(door).items()
        if door.name in {PACKAGE, f"{PACKAGE}.{door.room}"} and door.room != "api" and home.count(".") > 1
        if home[-1] != ":"  # a module, whose names may be imported from it
    }
    found: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found += [
                    f"{path.relative_to(ROOT)}:{node.lineno} {node.module}.{one.name}"
                    for one in node.names
                    if doors.get(f"{node.module}.{one.name}", node.module) != node.module
                ]
    assert [] == found


MOST_LOADED = 120
"""`%load_ext agent_magic` is for declaring: what a run, an estimate or a picture needs is loaded when it is used."""


def test_the_extension_loads_what_declaring_needs() -> None:
    """At most 120 modules of the package, and none of the engine, of forecasts, of charts, or of commands."""
    code = "import json, sys, agent_magic.notebook.extension; print(json.dumps(sorted(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(child.stdout) if name.partition(".")[0] == PACKAGE]
    assert MOST_LOADED >= len(loaded)
    wrong = ("engine.run", "engine.requests", "forecast.", "show.charts", "show.graph", "measure.", "notebook.verbs.")
    assert [] == [name for name in loaded if name.removeprefix(f"{PACKAGE}.").startswith(wrong)]


@every_module
def test_files_are_short(module: Module) -> None:
    """A file has at most 1,000 lines."""
    assert FILE_STOP >= module.text.count("\n")


@every_module
def test_functions_are_short(module: Module) -> None:
    """A function has at most 80 lines, docstring included."""
    lengths = {
        f"{node.name} (line {node.lineno})": (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {} == {name: length for name, length in lengths.items() if length > FUNCTION_STOP}


@every_module
def test_there_is_no_global(module: Module) -> None:
    """State has an owner: the `global` statement is not used."""
    assert [] == [node.lineno for node in ast.walk(module.tree) if isinstance(node, ast.Global)]


@every_module
def test_data_is_never_code(module: Module) -> None:
    """Nothing read from a file, a cell or a model is executed: no pickle, marshal, eval, exec, yaml.load."""
    imported = [found.name for found in module.imports if found.top in {"pickle", "marshal", "shelve", "dill"}]
    called = [
        f"{ast.unparse(node.func)} (line {node.lineno})"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"eval", "exec", "__import__", "yaml.load"}
    ]
    assert [] == imported + called


VENDOR = re.compile(
    r"claude-[a-z]+-\d|ratelimit-|message_(start|delta|stop)|content_block_|overloaded_error|rate_limit_error|ephemeral"
)
"""A family of models, a header, an event or a kind of error of one vendor."""
DEFAULT_MODEL_HOME = "agent_magic.declare.agent"


@every_module
def test_only_its_provider_knows_a_vendor(module: Module) -> None:
    """Outside of a provider's folder nothing names a vendor's models, headers, events, errors, but the default model.

    Docstrings may, and examples of commands: nothing is decided by those. The mock server is a vendor's server. What
    all providers share, the modules of `providers` itself, knows none.
    """
    if module.room == APART or module.path.parent.parent.name == "providers":
        return
    told = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    wrong = [
        f"{node.lineno}: {node.value!r}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
        if VENDOR.search(node.value) and "%agents" not in node.value and "%%agent" not in node.value
    ]
    assert len(wrong) <= (module.name == DEFAULT_MODEL_HOME), wrong


# The brackets keep this file from finding itself.
UNWANTED = {
    "a path of somebody's machine": r"(?<![\w.~-])/(?:[w]ork|[r]oot|[t]mp/v|[h]ome/(?!jovyan\b)\w+)/",
    "a registry's host": r"\b(?:[p]ypi\.org|[f]iles\.pythonhosted|[r]egistry\.npmjs|[d]eb\.debian|[r]egistry\.yarnpkg)",
    "a key": r"\b[s]k-ant-[A-Za-z0-9]{2,}-[A-Za-z0-9_-]{20,}",
    "a folder outside the checkout": r"\.\./[s]hared\b",
}


def shared_files() -> list[str]:
    """Name the files that a commit would hold, as git sees them."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return sorted(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())


@pytest.mark.parametrize("what", UNWANTED)
def test_files_tell_nothing_about_machines_or_keys(what: str) -> None:
    """What is shared names no machine's paths, no package registry and no key."""
    pattern = re.compile(UNWANTED[what])
    found = []
    for name in shared_files():
        text = (ROOT / name).read_bytes().decode("utf-8", errors="ignore")
        found += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    assert [] == found
