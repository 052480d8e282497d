"""The Jinja2 sandbox that renders prompts, and the limits of their text.

A prompt may come from another person's notebook: the sandbox keeps expressions from Python's internals and from
changing lists and dicts. It is no protection against the values' methods: `{{ frame.to_csv("f") }}` writes a file.

A request has at most 32 MB. Python cannot limit the memory of one call, so operations that make long texts of short
ones are measured before they run. Importing Jinja2 takes longer than all the rest of a load: import this module lazily.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from functools import lru_cache, partial, wraps
from itertools import islice
from pprint import pformat
from types import BuiltinMethodType
from typing import Any, cast

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, meta, nodes
from jinja2.filters import make_attrgetter
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from agent_magic.declare.values import (
    MOST_CHARS,
    PLAIN,
    NoTextError,
    Row,
    as_json,
    as_text,
    check_size,
    column_names,
    find_name,
    is_single_use,
    is_table,
    read_table,
    same_name,
    text_size,
    whole,
)
from agent_magic.errors import did_you_mean

LARGE = 100_000
MOST_MADE = 10 * MOST_CHARS
"""Maximum characters of texts above `LARGE` in one rendering: a loop could write many."""
GLOBALS = frozenset({"range", "dict"})
NO_COMMENT = ("\x00{#", "#}\x00")
"""Jinja2 insists on comment marks. With these no prompt has comments, so `${#list[@]}` stays as it is."""
CALLED = "()"
"""Behind the name of a method that is called."""
SELF = "self_"
"""Jinja2 reserves `self`; a value of that name is renamed."""
CHANGING = frozenset({"appendleft", "extendleft", "move_to_end", "popleft", "rotate", "subtract"})
"""Methods of deques, counters and ordered dicts that Jinja2 does not know as changing them."""
MOST_NAMES = 12
MOST_ITEMS = 1_000_000
"""Maximum items of an iterator that an expression makes: it may never end."""
TEXTUAL = (
    "capitalize center e escape forceescape format indent lower replace safe string striptags title trim truncate "
    "upper urlencode urlize wordcount wordwrap"
).split()
LOADING = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
_REPEATED: tuple[type, ...] = (str, bytes, list, tuple)
_FIELDS = {
    "%": re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?"),
    "{": re.compile(r"\{[^{}]*:([^}]*)"),
}


def renamed(text: str, names: Mapping[str, str]) -> str:
    # Fields, filters, tests and the names of arguments stay as they are.
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
        if kind == "name" and same_name(value) in names and is_variable:
            made[place] = names[same_name(value)]
    return "".join(made)


class Sandbox(ImmutableSandboxedEnvironment):
    """Measures and limits what Jinja2's sandbox renders."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(
            undefined=_Undefined,
            keep_trailing_newline=True,
            autoescape=False,
            comment_start_string=NO_COMMENT[0],
            comment_end_string=NO_COMMENT[1],
            finalize=as_text,
        )
        self.made = 0  # characters in the large texts of this rendering, see `take`
        filters = cast("dict[str, Any]", self.filters)  # pyright: ignore[reportUnknownMemberType]
        filters["tojson"] = as_json
        filters["join"] = _whole_first(filters["join"])
        filters["pprint"] = _pprint
        filters.update({name: _of_text(filters[name]) for name in TEXTUAL})
        filters.update({name: self._measured(filters[name], partial(filter_size, name)) for name in MEASURED})
        filters.update({name: _read_again(work) for name, work in filters.items()})
        known = cast("dict[str, Any]", self.globals)  # pyright: ignore[reportUnknownMemberType]
        for name in set(known) - GLOBALS:
            del known[name]

    def take(self, size: float) -> None:
        """Count a text before it is written; raise `OverflowError` if it is too long."""
        if size > LARGE:
            check_size(size)
            self.made += int(size)
            check_size(self.made - MOST_MADE + MOST_CHARS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow what Jinja2 does, without further methods that change a container."""
        is_changing = isinstance(obj, deque | Counter | OrderedDict) and attr in CHANGING
        return super().is_safe_attribute(obj, attr, value) and not is_changing

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute; of a dict the key's value, unless its method is called."""
        found = self._attribute(obj, attribute)
        return found if type(found) in PLAIN else _reread(found, lambda: self._attribute(obj, attribute))

    def _attribute(self, obj: Any, attribute: str) -> Any:
        name = attribute.removesuffix(CALLED)
        if _is_missing(obj):
            return obj
        obj = _unchanged(obj, name)
        if isinstance(obj, Mapping) and name == attribute and name in obj:
            return cast("Mapping[str, Any]", obj)[name]
        obj = cast("Any", obj)
        is_missing = is_table(obj) and not hasattr(obj, name) and name not in column_names(obj)
        found = self.undefined(obj=obj, name=name) if is_missing else super().getattr(obj, name)
        if not isinstance(found, Undefined):
            return found
        if _has_column(obj, name):
            return read_table(obj)[name]
        if isinstance(obj, Mapping):
            known = find_name(name, cast("Mapping[str, Any]", obj))
            return found if known is None else cast("Mapping[str, Any]", obj)[known]
        return super().getattr(obj, same_name(name)) if same_name(name) != name else found

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = self._item(obj, argument)
        return found if type(found) in PLAIN else _reread(found, lambda: self._item(obj, argument))

    def _item(self, obj: Any, argument: Any) -> Any:
        if _is_missing(obj):
            return obj
        found = super().getitem(_unchanged(obj, argument), argument)
        return read_table(obj)[argument] if isinstance(found, Undefined) and _has_column(obj, argument) else found

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            right = whole(right)
        self.take(operator_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, BuiltinMethodType):
            self.take(method_size(function.__self__, function.__name__, *args, **kwargs))
        called = partial(super().call, context, function, *args, **kwargs)
        found = called()
        return found if type(found) in PLAIN else _reread(found, called)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the safe form of `str.format` and `str.format_map`; `None` for any other method."""
        safe = super().wrap_str_format(value)
        if safe is None:
            return None

        def filled(*args: Any, **named: Any) -> str:
            return safe(*map(whole, args), **{name: whole(one) for name, one in named.items()})

        return self._measured(filled, lambda *args, **named: format_size(value.__self__, "{", [*args, *named.values()]))

    def concat(self, parts: Iterable[str]) -> str:
        """Join the parts of a macro or block; Jinja2 calls this like `"".join`."""
        parts = list(parts)
        self.take(sum(map(len, parts)))
        return "".join(parts)

    def _measured(self, function: Callable[..., Any], size: Callable[..., float]) -> Callable[..., Any]:
        """Return a function that counts the size of its result before it computes it."""
        own = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja2's first argument, before the template's

        @wraps(function)
        def measured(*args: Any, **named: Any) -> Any:
            self.take(size(*args[own:], **named))
            return function(*args, **named)

        return measured


def _of_text(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that uses a value's whole text: `str`, which Jinja2 uses, may cut."""
    own = 1 if hasattr(work, "jinja_pass_arg") else 0  # Jinja2's first argument, before the template's

    @wraps(work)
    def filtered(*args: Any, **named: Any) -> Any:
        before, value = args[:own], args[own]
        known = isinstance(value, str | Undefined) or type(value) in {int, float, bool, type(None)}
        return work(*before, value if known else as_text(value), *map(whole, args[own + 1 :]), **named)

    return filtered


def _pprint(value: object) -> str:
    return pformat(whole(value))


def _read_again(work: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter's result readable twice, as a name that is set to it may be."""

    @wraps(work)
    def listed(*args: Any, **named: Any) -> Any:
        return _kept(work(*args, **named))

    return listed


def _reread(found: Any, get: Callable[[], Any]) -> Any:
    """Return a part of a value; refuse an iterator that the value holds."""
    if not is_single_use(found):
        return found
    if get() is found:  # the next rendering would find it empty
        raise NoTextError(f"this {type(found).__name__} can be read only once; put list(...) of it there")
    return _kept(found)


def _kept(found: Any) -> Any:
    kind = cast("type[Any]", type(found))
    if not hasattr(kind, "__next__") or kind.__module__ not in {"builtins", "itertools"}:
        return found
    items: list[Any] = list(islice(found, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        raise OverflowError(f"this {kind.__name__} gives more than {MOST_ITEMS:,} items; take the first ones in a cell")
    return items


def _unchanged(obj: Any, name: object) -> Any:
    """Return a copy of a `defaultdict` without this key: reading the key would add it."""
    given: Any = obj
    return given.copy() if isinstance(obj, defaultdict) and name not in obj else given


def _has_column(value: Any, name: object) -> bool:
    return is_table(value) and name in column_names(value)


def _is_missing(value: object) -> bool:
    """Return whether a name has no value; then its fields, which a test may use, have none either."""
    return isinstance(value, _Undefined) and value.is_missing


class _Undefined(StrictUndefined):
    """A missing value: an error with existing names, except for optional names, which are false in a test."""

    @property
    def is_missing(self) -> bool:
        return self._undefined_obj is missing

    def __bool__(self) -> bool:
        return False if self.is_missing else super().__bool__()

    @property
    def _undefined_message(self) -> str:
        owner, name = self._undefined_obj, self._undefined_name
        known: list[Any] = column_names(owner) if is_table(owner) else []
        what = f"the {type(owner).__name__} has no column"
        if isinstance(owner, Mapping):
            what = "the row has no column" if isinstance(owner, Row) else "the dict has no key"
            known = list(cast("Mapping[Any, Any]", owner))
        elif not known or not isinstance(name, str):
            return super()._undefined_message
        listed = ", ".join(map(str, known[:MOST_NAMES])) + (", …" if len(known) > MOST_NAMES else "")
        return f"{what} {name!r}; it has {listed or 'none'}.{did_you_mean(name, known)}".rstrip(".")


def _whole_first(join: Callable[..., str]) -> Callable[..., str]:
    """Return the filter `join` with the text that each part has alone."""

    @wraps(join)
    def joined(context: Any, value: Any, d: str = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            value = map(make_attrgetter(context.environment, attribute), value)
        return join(context, [as_text(one) for one in value], d)

    return joined


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    return Sandbox()


class _Names(NodeTransformer):
    """Writes names as Python compares them."""

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802 - Jinja2's name
        node.name = SELF if node.name == "self" else same_name(node.name)
        return node


class _Calls(NodeTransformer):
    """Turns `a ~ b` into a filter, which can be measured, and recognises a called method."""

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802 - Jinja2's name
        self.generic_visit(node)
        if isinstance(node.node, nodes.Getattr):
            node.node.attr += CALLED
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja2's name
        self.generic_visit(node)
        values = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(values, "join", [], [], None, None, lineno=node.lineno)


class Compiled:
    """A template parsed by Jinja2; `Template` describes most fields.

    Attributes:
        paths: Used paths; an item of a list, or of a loop over it, is a number.
        numbers: Paths compared with a number.
    """

    def __init__(self, text: str) -> None:
        tree = _Names().visit(sandbox().parse(text))
        for node in tree.find_all(LOADING):
            raise TemplateSyntaxError("a prompt stands alone and cannot load other templates", node.lineno)
        for node in tree.find_all(
            (nodes.Filter, nodes.Test)
        ):  # Jinja2 looks up those below a condition when it renders
            kind = "filter" if isinstance(node, nodes.Filter) else "test"
            if node.name == "random":  # what is shown, sent and recorded would be three prompts
                raise TemplateSyntaxError("random gives another text each time; choose in a cell", node.lineno)
            if node.name not in (sandbox().filters if kind == "filter" else sandbox().tests):  # pyright: ignore[reportUnknownMemberType]
                raise TemplateSyntaxError(f"No {kind} named {node.name!r}", node.lineno)
        names = frozenset(meta.find_undeclared_variables(tree) - GLOBALS)
        self.names = frozenset("self" if name == SELF else name for name in names)
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
        self.can_miss = self.names - {"self" if name == SELF else name for name in needed}
        self.template = sandbox().from_string(_Calls().visit(tree))

    def parts(self, values: Mapping[str, Any]) -> Iterable[str]:
        sandbox().made = 0
        return self.template.generate({SELF if name == "self" else name: value for name, value in values.items()})


def _paths(tree: nodes.Template, loops: list[nodes.For], names: Collection[str]) -> Iterable[tuple[str | int, ...]]:
    """Yield the paths a template uses; a loop variable stands for an item."""
    items: dict[str, list[nodes.Node]] = {}
    for loop in loops:
        items.setdefault(cast("nodes.Name", loop.target).name, []).append(loop.iter)

    def named(name: str, depth: int = 0) -> tuple[str | int, ...]:
        over = items.get(name, ())
        if name in names or len(over) != 1 or depth > len(items):
            return (name,) if name in names and not over else ()
        begins = _path_of(over[0], lambda one: named(one, depth + 1))
        return (*begins, 0) if begins else ()

    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        if len(found := _path_of(node, named)) > 1:
            yield found


def _path_of(node: nodes.Node, named: Callable[[str], tuple[str | int, ...]]) -> tuple[str | int, ...]:
    """Return the fields and items that a node takes of a name; empty if it is something else."""
    match node:
        case nodes.Name(name=name):
            return named(name)
        case nodes.Getattr(node=owner, attr=step) | nodes.Getitem(node=owner, arg=nodes.Const(value=step)):
            begins = _path_of(owner, named)
            return (*begins, step) if begins and isinstance(step, str | int) else ()
        case _:
            return ()


def _compared(tree: nodes.Template) -> Iterable[tuple[str | int, ...]]:
    for node in tree.find_all(nodes.Compare):
        sides = [node.expr, *(one.expr for one in node.ops)]
        for left, compared, right in zip(sides, node.ops, sides[1:], strict=False):
            for one, other in ((left, right), (right, left)):
                is_number = isinstance(other, nodes.Const) and type(other.value) in {int, float}
                if compared.op not in {"in", "notin"} and is_number and (found := _path_of(one, lambda name: (name,))):
                    yield found


def _find_needed(node: nodes.Node, known: frozenset[str], needed: set[str], *, asked: bool = False) -> None:
    """Collect required names; a name that is only tested for truth is optional."""
    match node:
        case nodes.Name(name=name):
            needed.update(() if asked else {name} - known)
        case nodes.Not(node=one):
            _find_needed(one, known, needed, asked=True)
        case nodes.Getattr(node=one) | nodes.Getitem(node=one, arg=nodes.Const()) if asked:
            _find_needed(one, known, needed, asked=True)
        case nodes.Filter(node=owner, name="default" | "d") if _owner(owner) is not None:
            for one in (*node.args, *node.kwargs):
                _find_needed(one, known, needed)
        case nodes.Test(node=one, name="defined" | "undefined") if _owner(one) is not None:
            pass
        case nodes.If() | nodes.CondExpr() | nodes.And() | nodes.Or():
            for one, more, is_test in _branches(node, asked=asked):
                _find_needed(one, known | more, needed, asked=is_test)
        case _:
            for one in node.iter_child_nodes():
                _find_needed(one, known, needed)


def _owner(node: nodes.Node | None) -> str | None:
    """Return the name that a node is, or is a field of."""
    while isinstance(node, nodes.Getattr) or (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const)):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else None


def _branches(node: nodes.Node, *, asked: bool) -> Iterable[tuple[nodes.Node, frozenset[str], bool]]:
    """Yield the parts of a conditional node, with their defined names, and whether it is only tested."""
    match node:
        case nodes.If(test=test, body=body, elif_=others, else_=last):
            yield test, frozenset(), True
            yield from ((one, _defined(test, yes=True), False) for one in body)
            yield from ((one, _defined(test, yes=False), False) for one in (*others, *last))
        case nodes.CondExpr(test=test, expr1=first, expr2=second):
            yield test, frozenset(), True
            yield first, _defined(test, yes=True), asked
            if second is not None:
                yield second, _defined(test, yes=False), asked
        case nodes.And(left=left, right=right) | nodes.Or(left=left, right=right):
            yield left, frozenset(), asked or isinstance(node, nodes.Or)  # `a and b` may be `a`
            yield right, _defined(left, yes=isinstance(node, nodes.And)), asked
        case _:
            pass


def _defined(test: nodes.Node, *, yes: bool) -> frozenset[str]:
    match test:
        case nodes.Name() | nodes.Getattr() | nodes.Getitem() | nodes.Test(name="defined"):
            name = _owner(test.node if isinstance(test, nodes.Test) else test)
            return frozenset({name}) if yes and name is not None else frozenset()
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
    """Return the maximum characters of the result; 0 if it is no text, as for the other sizes."""
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
    """Return the maximum characters, or items, of the result."""
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
