"""The Jinja2 sandbox in which prompts are rendered, and how much text they may make.

The sandbox keeps expressions from Python's internals and from changing lists and dicts: a prompt may come from a
notebook of somebody else's. It is no protection against the values: their methods run, so `{{ frame.to_csv("f") }}`
writes a file, as the same line in a cell would.

A request has at most 32 MB, so no prompt may be longer, and no text made on the way to one. Python cannot limit the
memory of one call, so whatever can make a long text of short ones is measured before it runs.

Importing Jinja2 takes longer than all the rest of a load: import this module only where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sized
from functools import lru_cache, partial, wraps
from types import BuiltinMethodType
from typing import Any, cast

from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agent_magic.declare.each import Row
from agent_magic.declare.serialization import MOST_CHARS, as_json, as_text, check_size, text_size, whole

LARGE = 100_000
MOST_MADE = 10 * MOST_CHARS
"""The most characters that one rendering may make of texts above `LARGE`: a loop could make many, none too long."""
GLOBALS = frozenset({"range", "dict"})
"""The functions a prompt may call."""
NO_COMMENT = ("\x00{#", "#}\x00")
"""Jinja2 insists on comment marks. With these no prompt has comments, so `${#list[@]}` stays as it is."""
LOADING = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
_REPEATED: tuple[type, ...] = (str, bytes, list, tuple)
_FIELDS = {
    "%": re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?"),
    "{": re.compile(r"\{[^{}]*:([^}]*)"),
}
"""Per mark of a field, what finds its width."""


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return the text of a template with other names for its variables.

    Fields, filters, tests and the names of arguments stay as they are.

    Args:
        text: The text, guarded as for reading.
        names: New names by old ones.
    """
    found = [(kind, value) for _, kind, value in Sandbox().lex(text)]
    code = [
        place for place, (kind, _) in enumerate(found) if kind not in {"data", "whitespace", "raw_begin", "raw_end"}
    ]
    made, depth = [value for _, value in found], 0
    for at, place in enumerate(code):
        kind, value = found[place]
        before = found[code[at - 1]][1] if at else ""
        behind = found[code[at + 1]][1] if at + 1 < len(code) else ""
        depth += (value == "(") - (value == ")") if kind == "operator" else 0
        is_variable = before not in {".", "|", "is"} and not (behind == "=" and depth)
        if kind == "name" and value in names and is_variable:
            made[place] = names[value]
    return "".join(made)


class Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox. Jinja2 asks it for every call and operator of a prompt.

    Attributes:
        made: How many characters the large texts of this rendering have; set to 0 before each.
    """

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            autoescape=False,
            comment_start_string=NO_COMMENT[0],
            comment_end_string=NO_COMMENT[1],
            finalize=as_text,
        )
        self.made = 0
        filters = cast("dict[str, Any]", self.filters)  # pyright: ignore[reportUnknownMemberType]
        filters["tojson"] = as_json
        filters["join"] = _whole_first(filters["join"])
        filters["string"] = _string
        filters.update({name: self._measured(filters[name], partial(filter_size, name)) for name in MEASURED})
        known = cast("dict[str, Any]", self.globals)  # pyright: ignore[reportUnknownMemberType]
        for name in set(known) - GLOBALS:
            del known[name]

    def take(self, size: float) -> None:
        """Count a text that is about to be made. Raise `OverflowError` if it is too long."""
        if size > LARGE:
            check_size(size)
            self.made += int(size)
            check_size(self.made - MOST_MADE + MOST_CHARS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return what a name behind a dot means. A column of a row wins over a method that dicts have."""
        return obj[attribute] if isinstance(obj, Row) and attribute in obj else super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        self.take(operator_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return what a function returns."""
        if isinstance(function, BuiltinMethodType):
            self.take(method_size(function.__self__, function.__name__, *args, **kwargs))
        return super().call(context, function, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the safe form of `str.format` and `str.format_map`; `None` for any other method."""
        safe = super().wrap_str_format(value)
        return safe and self._measured(
            safe, lambda *args, **named: format_size(value.__self__, "{", [*args, *named.values()])
        )

    def concat(self, parts: Iterable[str]) -> str:
        """Join the parts of a macro or block. Jinja2 calls this like `"".join`."""
        parts = list(parts)
        self.take(sum(map(len, parts)))
        return "".join(parts)

    def _measured(self, function: Callable[..., Any], size: Callable[..., float]) -> Callable[..., Any]:
        """Return a function or filter that counts the size of what it makes, before it makes it."""
        own = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja2's first argument, before the template's

        @wraps(function)
        def measured(*args: Any, **named: Any) -> Any:
            self.take(size(*args[own:], **named))
            return function(*args, **named)

        return measured


def _string(value: Any) -> str:
    """Return the text of a value, nothing in it left out."""
    return str(whole(value))


def _whole_first(join: Callable[..., str]) -> Callable[..., str]:
    """Return the filter `join` with the texts of arrays and frames, of which `str` leaves the middle out."""

    @wraps(join)
    def joined(context: Any, value: Any, *args: Any, **named: Any) -> str:
        if isinstance(value, list | tuple | Generator):
            value = [whole(one) for one in cast("Iterable[Any]", value)]
        return join(context, value, *args, **named)

    return joined


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    """Return the one sandbox."""
    return Sandbox()


class _Joins(NodeTransformer):
    """Makes `a ~ b` a filter, which can be measured."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja2's name
        self.generic_visit(node)
        values = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(values, "join", [], [], None, None, lineno=node.lineno)


class Compiled:
    """A template that Jinja2 has read.

    Attributes:
        names: The names it reads and does not set itself.
        whole: Those it writes whole, not a part of them or what a filter makes of them.
        apart: Those with which it does more than to write them whole, or to ask whether they are there.
        paths: What it takes of names, step by step; an item of a list, or of a loop over it, is a number.
        numbers: What it compares with a number, as `paths` say it.
        can_miss: The names that need not be there: only asked for by `default` and `is defined`, or behind that.
        template: What renders it.

    Raises:
        TemplateSyntaxError: It is not a template, or would load another one.
        SyntaxError, RecursionError: It is nested too deeply for Python.
    """

    def __init__(self, text: str) -> None:
        tree = sandbox().parse(text)
        for node in tree.find_all(LOADING):
            raise TemplateSyntaxError("a prompt stands alone and cannot load other templates", node.lineno)
        self.names = frozenset(meta.find_undeclared_variables(tree) - GLOBALS)
        written = [child for node in tree.find_all(nodes.Output) for child in node.nodes]
        asked = [node.test for node in tree.find_all(nodes.If)]
        self.whole = frozenset(one.name for one in written if isinstance(one, nodes.Name)) & self.names
        plain = {id(one) for one in (*written, *asked)}
        self.apart = frozenset(one.name for one in tree.find_all(nodes.Name) if id(one) not in plain)
        loops = [each for each in tree.find_all(nodes.For) if isinstance(each.target, nodes.Name)]
        self.paths = frozenset(_paths(tree, loops, self.names))
        self.numbers = frozenset(_compared(tree))
        needed = set[str]()
        _find_needed(tree, frozenset(), needed)
        self.can_miss = self.names - needed
        self.template = sandbox().from_string(_Joins().visit(tree))

    def parts(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Render it, piece by piece."""
        sandbox().made = 0
        return self.template.generate(values)


def _paths(tree: nodes.Template, loops: list[nodes.For], names: Collection[str]) -> Iterable[tuple[str | int, ...]]:
    """Yield what a template takes of names. A loop's own name stands for an item, unless it is used twice."""
    items: dict[str, list[nodes.Node]] = {}
    for loop in loops:
        items.setdefault(cast("nodes.Name", loop.target).name, []).append(loop.iter)

    def path(node: nodes.Node, depth: int = 0) -> tuple[str | int, ...]:
        match node:
            case nodes.Name(name=name):
                over = items.get(name, ())
                if name in names or len(over) != 1 or depth > len(items):
                    return (name,) if name in names and not over else ()
                begins = path(over[0], depth + 1)
                return (*begins, 0) if begins else ()
            case nodes.Getattr(node=owner, attr=step) | nodes.Getitem(node=owner, arg=nodes.Const(value=step)):
                begins = path(owner, depth)
                return (*begins, step) if begins and isinstance(step, str | int) else ()
            case _:
                return ()

    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        if len(found := path(node)) > 1:
            yield found


def _compared(tree: nodes.Template) -> Iterable[tuple[str | int, ...]]:
    """Yield what a template compares with a number."""

    def path(node: nodes.Node) -> tuple[str | int, ...]:
        match node:
            case nodes.Name(name=name):
                return (name,)
            case nodes.Getattr(node=owner, attr=step) | nodes.Getitem(node=owner, arg=nodes.Const(value=step)):
                begins = path(owner)
                return (*begins, step) if begins and isinstance(step, str | int) else ()
            case _:
                return ()

    for node in tree.find_all(nodes.Compare):
        sides = [node.expr, *(one.expr for one in node.ops)]
        for left, compared, right in zip(sides, node.ops, sides[1:], strict=False):
            for one, other in ((left, right), (right, left)):
                is_number = isinstance(other, nodes.Const) and type(other.value) in {int, float}
                if compared.op not in {"in", "notin"} and is_number and (found := path(one)):
                    yield found


def _find_needed(node: nodes.Node, known: frozenset[str], needed: set[str]) -> None:
    """Collect the names that have to be there.

    Args:
        node: What is rendered.
        known: The names that are there where it is rendered.
        needed: The names found so far.
    """
    match node:
        case nodes.Name(name=name):
            needed.update({name} - known)
        case nodes.Filter(node=nodes.Name(), name="default" | "d"):
            for one in (*node.args, *node.kwargs):
                _find_needed(one, known, needed)
        case nodes.Test(node=nodes.Name(), name="defined" | "undefined"):
            pass
        case nodes.If() | nodes.CondExpr() | nodes.And() | nodes.Or():
            for one, more in _branches(node):
                _find_needed(one, known | more, needed)
        case _:
            for one in node.iter_child_nodes():
                _find_needed(one, known, needed)


def _branches(node: nodes.Node) -> Iterable[tuple[nodes.Node, frozenset[str]]]:
    """Yield the parts of a node that chooses, each with the names that are there if it comes to that part."""
    match node:
        case nodes.If(test=test, body=body, elif_=others, else_=last):
            yield test, frozenset()
            yield from ((one, _defined(test, yes=True)) for one in body)
            yield from ((one, _defined(test, yes=False)) for one in (*others, *last))
        case nodes.CondExpr(test=test, expr1=first, expr2=second):
            yield test, frozenset()
            yield first, _defined(test, yes=True)
            if second is not None:
                yield second, _defined(test, yes=False)
        case nodes.And(left=left, right=right) | nodes.Or(left=left, right=right):
            yield left, frozenset()
            yield right, _defined(left, yes=isinstance(node, nodes.And))
        case _:
            pass


def _defined(test: nodes.Node, *, yes: bool) -> frozenset[str]:
    """Return the names that are there if a test is true, or if it is false."""
    match test:
        case nodes.Test(node=nodes.Name(name=name), name="defined"):
            return frozenset({name}) if yes else frozenset()
        case nodes.Test(node=nodes.Name(name=name), name="undefined"):
            return frozenset() if yes else frozenset({name})
        case nodes.Not(node=node):
            return _defined(node, yes=not yes)
        case nodes.And(left=left, right=right) if yes:
            return _defined(left, yes=True) | _defined(right, yes=True)
        case nodes.Or(left=left, right=right) if not yes:
            return _defined(left, yes=False) | _defined(right, yes=False)
        case _:
            return frozenset()


def operator_size(operator: str, left: Any, right: Any) -> float:
    """Return the most characters that the result of an operator can have; 0 if it is no text."""
    if operator == "**":
        return left.bit_length() * right / 3 if isinstance(left, int) and isinstance(right, int) else 0
    if operator == "%" and isinstance(left, str | bytes):
        return format_size(str(left), "%", _values(right))
    many, other = (right, left) if isinstance(left, int) else (left, right)
    if not isinstance(many, _REPEATED):
        return 0
    if operator == "+":
        return _count(many) + _count(other)
    return text_size(many) * other if operator == "*" and isinstance(other, int) else 0


def method_size(owner: object, name: str, *args: Any, **named: Any) -> float:
    """Return the most characters that a method of a text can make; 0 for other methods."""
    if name == "fromkeys":
        return text_size(args[0]) + _count(args[0]) * text_size(args[1:])
    if not isinstance(owner, str | bytes):
        return 0
    match name, *args:
        case (("center" | "ljust" | "rjust" | "zfill"), int(width), *_):
            return max(len(owner), width)
        case "expandtabs", *_:
            return len(owner) + str(owner).count("\t") * max([8, *args, *named.values()])
        case "replace", old, new, *_:
            return len(owner) + owner.count(old) * len(new)
        case "join", parts:
            return text_size(parts) + _count(parts) * len(owner)
        case "translate", table:
            return len(owner) * max([1, *map(text_size, _values(table))])
        case _:
            return 0


def format_size(text: str, mark: str, values: Collection[Any]) -> float:
    """Return the most characters that a text has once these values are in its fields, each of which has this mark."""
    specs = ["".join(found) for found in _FIELDS[mark].findall(text)]
    widths = [int(number) for spec in specs for number in re.findall(r"\d+", spec)]
    if any("*" in spec or "{" in spec for spec in specs):  # a value is the width of another
        widths += [one for one in values if isinstance(one, int)]
    return len(text) + text.count(mark) * (max(map(text_size, values), default=0) + max(widths, default=0))


def _values(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).values())
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else [value]


def _count(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 1


def filter_size(name: str, value: Any, *args: Any, **named: Any) -> float:
    """Return the most characters, or items, that a filter can make of its arguments."""
    match name, *args, *named.values():
        case "center", int(width), *_:
            return max(text_size(value), width)
        case "indent", (int() | str()) as width, *_:
            return text_size(value) + (str(value).count("\n") + 1) * (width if isinstance(width, int) else len(width))
        case "wordwrap", *rest:
            return text_size(value) * (1 + sum(len(one) for one in rest if isinstance(one, str)))
        case "join", between, *_:
            return text_size(value) + _count(value) * text_size(between)
        case "replace", old, new, *_:
            return method_size(str(value), "replace", str(old), str(new))
        case "format", *values:
            return format_size(str(value), "%", values)
        case (("batch" | "slice"), int(count), *_):
            return count
        case _:
            return text_size(value)


MEASURED = (
    "batch center escape format indent join lower pprint replace slice string title tojson trim upper urlencode "
    "wordwrap"
).split()
"""The filters that can make a long text or list of short ones."""
