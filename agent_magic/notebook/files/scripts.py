"""Values and plans as Python source that needs no notebook: written, and read back without running it.

An attached file is the call that reads it, `report = am.pdf("report.pdf")`.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.content import PLAIN_TEXT, Attachment
from agent_magic.declare.options import AGENT
from agent_magic.declare.task import first_of
from agent_magic.declare.values import PDF, image, pdf, text_file
from agent_magic.errors import PlanError
from agent_magic.notebook.settings import run_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


READERS = {"image": image, "pdf": pdf, "text_file": text_file}
_HOMES = frozenset({"am", "agent_magic"})


class Reading(NamedTuple):
    """A file to read, `am.pdf('report.pdf')`; without a title its file name is the title."""

    reader: str
    path: str
    title: str | None = None

    def __repr__(self) -> str:
        titled = "" if self.title is None else f", title={self.title!r}"
        return f"am.{self.reader}({self.path!r}{titled})"


def value_of(node: ast.expr) -> Any:
    """Return the value written out; raise `ValueError`, or as `ast.literal_eval`, if it is computed."""
    match node:
        case ast.Call():
            return _reading(node)
        case ast.List(items):
            return [value_of(one) for one in items]
        case ast.Tuple(items):
            return tuple(value_of(one) for one in items)
        case ast.Dict(keys, values):
            names = [ast.literal_eval(one) for one in cast("list[ast.expr]", keys)]
            return dict(zip(names, map(value_of, values), strict=True))
        case _:
            return ast.literal_eval(node)


def _reading(node: ast.Call) -> Reading:
    match node:
        case ast.Call(ast.Attribute(ast.Name(home), reader), [file], titles) if home in _HOMES and reader in READERS:
            match file:
                case ast.Call(ast.Name("Path"), [written], []):
                    path = ast.literal_eval(written)
                case _:
                    path = ast.literal_eval(file)
            named = {one.arg: ast.literal_eval(one.value) for one in titles}
            if isinstance(path, str) and named.keys() <= {"title"}:
                return Reading(reader, path, named.get("title"))
        case _:
            pass
    raise ValueError("a call")


def read(value: Any, folder: Path) -> Any:
    return _each(value, lambda one: READERS[one.reader](folder / one.path, title=one.title), Reading)


def unread(value: Any, folder: Path) -> Any:
    """Replace pictures and documents by readings of their files in a folder."""
    return _each(value, lambda one: _file_of(one, folder) or one, Attachment)


def _file_of(one: Attachment, folder: Path) -> Reading | None:
    path = folder / one.title if one.title else folder
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != one.sha256:
        return None
    reader = "image" if one.kind == "image" else {PDF: "pdf", PLAIN_TEXT: "text_file"}[one.media_type]
    return Reading(reader, one.title)


def _each(value: Any, change: Callable[[Any], Any], kind: type[Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(one, change, kind) for name, one in cast("dict[Any, Any]", value).items()}
    if type(value) in {list, tuple}:
        return type(value)(_each(one, change, kind) for one in value)
    return value


SCRIPT = '''"""{title}

Needs: pip install agent-magic, and ANTHROPIC_API_KEY in the environment. Every run buys its answers.
"""

import asyncio
import sys

import agent_magic as am

{values}
AGENTS = [
{agents}
]
{contexts}

async def main() -> int:
    plan = am.Plan(AGENTS, VALUES, name={name!r}{shared})
    run = await plan.run({policy})
    print(run, file=sys.stderr)
    for name, text in run.texts.items():
        print(f"--- {{name}}\\n{{text}}")
    return 0 if run.ok else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
'''


def to_script(plan: Mapping[str, Any], *, title: str, unknown: Mapping[str, int | None], run: str = "") -> str:
    agents = "\n".join(_agent(row) for row in plan["agents"])
    return SCRIPT.format(
        title=" ".join(title.replace("\\", "/").replace('"', "'").split()),
        values=_values(plan["values"], unknown),
        agents=agents,
        contexts=_contexts(plan.get("contexts") or {}),
        shared=", contexts=CONTEXTS" if plan.get("contexts") else "",
        name=plan["name"],
        policy=_policy(run),
    )


def _values(values: Mapping[str, Any], unknown: Mapping[str, int | None]) -> str:
    rows = [f"    {name!r}: {_literal(value)}," for name, value in values.items()]
    for name, cell in unknown.items():
        where = f"cell {cell} of the notebook computes it" if cell else "the notebook does not set it"
        rows.append(f"    # {name!r}: ...,  # {where}: give it here")
    return "\n".join(["VALUES = {", *rows, "}"]) if rows else "VALUES = {}"


def _contexts(texts: Mapping[str, str]) -> str:
    if not texts:
        return ""
    rows = [f"    am.Context({name!r}, {_literal(text)})," for name, text in texts.items()]
    return "\n".join(["CONTEXTS = [", *rows, "]", ""])


def _agent(row: Mapping[str, Any]) -> str:
    if row.get("race"):
        return f"    am.first_of({row['name']!r}, {row['parameters']!r}),"
    given = [option for option in AGENT if option not in {"after", *IN_NOTEBOOK} and row.get(option) is not None]
    rows = [f"        {row['name']!r},", f"        {_literal(row['prompt'])},"]
    rows += [f"        {option}={_literal(row[option])}," for option in given]
    rows += [f"        after={row['after']!r},"] if row.get("after") else []
    return "\n".join(["    am.Agent(", *rows, "    ),"])


def _literal(value: Any) -> str:
    if not isinstance(value, str) or "\n" not in value:
        return repr(value)
    plain = all(letter.isprintable() or letter == "\n" for letter in value)
    if plain and '"""' not in value and "\\" not in value and not value.endswith('"'):
        return f'"""{value}"""'
    return repr(value)


def _policy(run: str) -> str:
    try:
        words = [part for word in shlex.split(run) for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    except ValueError:
        return ""
    known = {option.flag: option for option in run_options()}
    given: list[str] = []
    for word, value in itertools.pairwise(words):
        if word in known:
            try:
                given.append(f"{known[word].field}={known[word].kind(value)!r}")
            except ValueError:
                raise PlanError(f"%agents run {word} must be a number, got {value!r}.") from None
    return f"am.Policy({', '.join(given)})" if given else ""


IN_NOTEBOOK = frozenset({"check", "tools", "part"})
"""Options of agents that are no plain values."""
# What these calls take by position.
BY_PLACE = ("name", "prompt")
PLAN = ("agents", "values")
CONTEXT = ("name", "text")
POLICY = ("concurrency", "schedule")


def from_script(text: str) -> tuple[dict[str, Any], str]:
    """Return a JSON plan, and its `Policy` as options of `%agents run`, from an exported script."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise PlanError(f"Line {error.lineno}: not valid Python ({error.msg}).") from None
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    plans = [node for node in calls if _called(node) == "Plan"]
    if not plans:
        raise PlanError("The script declares no plan: it never calls am.Plan(...).")
    reader = _Reader(names)
    given = reader.arguments(plans[0], PLAN)
    plan: dict[str, Any] = {
        "agents": reader.items(given.get("agents"), reader.agent),
        "values": reader.value(given["values"]) if "values" in given else {},
    }
    options = ("name", "description", "on_cycle", "on_missing")
    plan |= {one: reader.value(given[one]) for one in options if one in given}
    contexts = reader.items(given.get("contexts"), lambda one: reader.call(one, "Context", CONTEXT))
    if contexts:
        plan["contexts"] = {one.get("name"): one.get("text") for one in contexts}
    policies = [reader.call(node, "Policy", POLICY) for node in calls if _called(node) == "Policy"]
    policy = {} if not policies else policies[0]
    options_of_run = {option.flag: policy.get(option.field) for option in run_options()}
    return plan, " ".join(f"{flag} {value}" for flag, value in options_of_run.items() if value is not None)


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


class _Reader:
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def follow(self, node: ast.expr) -> ast.expr:
        return self._names.get(node.id, node) if isinstance(node, ast.Name) else node

    def value(self, node: ast.expr) -> Any:
        try:
            return value_of(self.follow(node))
        except (ValueError, SyntaxError, TypeError, RecursionError):
            raise _computed(node) from None

    def arguments(self, node: ast.expr, places: tuple[str, ...]) -> dict[str, ast.expr]:
        if not isinstance(node, ast.Call) or len(node.args) > len(places) or None in [one.arg for one in node.keywords]:
            raise _computed(node)
        return {**dict(zip(places, node.args, strict=False)), **{one.arg or "": one.value for one in node.keywords}}

    def items(self, node: ast.expr | None, read: Callable[[ast.expr], dict[str, Any]]) -> list[dict[str, Any]]:
        if node is None:
            return []
        found = self.follow(node)
        if not isinstance(found, ast.List | ast.Tuple):
            raise _computed(node)
        return [read(self.follow(one)) for one in found.elts]

    def call(self, node: ast.expr, kind: str, places: tuple[str, ...]) -> dict[str, Any]:
        if _called(node) != kind:
            raise PlanError(f"Line {node.lineno}: expected am.{kind}(...), got {_shown(node)}. {_HOW}")
        return {name: self.value(one) for name, one in self.arguments(node, places).items()}

    def agent(self, node: ast.expr) -> dict[str, Any]:
        if _called(node) == "first_of":
            race = self.call(node, "first_of", ("name", "agents"))
            return {**first_of(race["name"], race["agents"]).to_dict(), "after": []}
        row = self.call(node, "Agent", BY_PLACE)
        wrong = sorted(set(row) - {*BY_PLACE, *AGENT} | set(row) & IN_NOTEBOOK)
        if wrong:
            raise PlanError(f"Line {node.lineno}: Agent has no option {wrong[0]!r}.")
        after: Any = row.get("after") or ()
        several = isinstance(after, tuple | set)  # a text such as "a,b" stays as it is
        return {**row, "after": list(cast("tuple[str, ...]", after)) if several else after}


_HOW = "Only plain values can be read without running the script; a plan writes itself with plan.to_json()."


def _computed(node: ast.expr) -> PlanError:
    return PlanError(f"Line {node.lineno}: {_shown(node)} is computed. {_HOW}")


def _shown(node: ast.expr) -> str:
    return repr(ast.unparse(node)[:60])
