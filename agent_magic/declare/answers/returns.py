"""Return types of agents: a type, its schema, and a user's check.

The value of `--returns` is a name in the notebook, or a type made of names: `list[Label]`, `Label | None`,
`Literal[...]`. It is looked up, never evaluated.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import sys
import typing
from dataclasses import dataclass, field
from datetime import date, datetime
from types import MappingProxyType, ModuleType, UnionType
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.lenient import schemas_of
from agent_magic.declare.answers.reading import as_written, by_schema, first_fit, placeholder, read, wrong_fields
from agent_magic.declare.answers.schema import (
    Schema,
    brief,
    by_item,
    choices_of,
    items_of,
    schema_of,
    sent_as,
    unwrapped,
)
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError, InvalidAnswer, did_you_mean, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.declare.answers.reading import Fields

KNOWN: dict[str, Any] = {
    **{name: getattr(builtins, name) for name in ("bool", "dict", "float", "int", "list", "set", "str", "tuple")},
    **{name: getattr(typing, name) for name in ("Any", "Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union")},
    "date": date,
    "datetime": datetime,
}
"""Names in types that need no import in the notebook, and those refused with advice."""
MADE_OF = frozenset({"Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union", "dict", "list", "set", "tuple"})
"""What brackets may follow."""
TYPES = (
    "a pydantic model, dataclass, TypedDict, NamedTuple, Enum, Literal, int, float, bool, str, list[X], dict[str, X] "
    "or X | None"
)
_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.|<locals>\.)+(?=[A-Za-z_<])")


@dataclass(frozen=True, slots=True, repr=False)
class Returns:
    """The type of an agent's answers. Two are equal if they send the same schema.

    Attributes:
        schema: The schema that is sent, as JSON text.
        written: The type as in a `%%agent` line, to look it up again; empty if given as a value.
        adapter: Makes a value of the type; `None` if only its schema is known, as in a record.
        each: For answers for several items, the type of one.
        decimals: The schema with decimals marked; empty without any.
        in_words: Why it is requested in words; empty if its schema is sent.
    """

    schema: str
    written: str = field(default="", compare=False)
    adapter: Any = field(default=None, compare=False)
    each: Returns | None = field(default=None, compare=False)
    decimals: str = field(default="", compare=False)
    in_words: str = field(default="", compare=False)

    @property
    def of_several(self) -> Returns:
        """The type of the answers for several items, which are read one by one."""
        schema = json.dumps(by_item(schema_of(self.schema)), ensure_ascii=False, separators=(",", ":"))
        return Returns(schema, self.written, each=self, in_words=self.in_words)

    @classmethod
    def of(cls, kind: object, *, agent: str, written: str = "") -> Returns:
        """Return the type of answers, of a type or a JSON schema, `written` in a cell."""
        if isinstance(kind, Returns):
            return kind
        try:
            if isinstance(kind, dict):
                schema, adapter, decimals, name = cast("Schema", kind), None, "", "The schema"
            else:
                name = _name_of(kind)
                adapter, schema, decimals = _read_by(kind, name)
            schema, why = sent_as(schema, name)
        except DeclarationError as error:
            raise DeclarationError(f"Agent {agent!r} cannot return this: {error}", agent=agent) from None
        return cls(
            json.dumps(schema, ensure_ascii=False, separators=(",", ":")),
            written,
            adapter,
            decimals=decimals,
            in_words=why,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the class out: another process may not have it, and the schema is enough to read answers."""
        return Returns, (self.schema, self.written)

    def __deepcopy__(self, _: object) -> Returns:
        return self

    def __repr__(self) -> str:
        return f"Returns({self})"

    def __str__(self) -> str:
        return brief(schema_of(self.schema))

    def placeholder(self, text: str) -> Fields | Any:
        return placeholder(unwrapped(schema_of(self.schema)), text)

    def value(self, text: str) -> Any:
        """Return the value of an answer, by the class or else the schema; `InvalidAnswer` if it does not fit."""
        if self.adapter is None:
            return read(self.schema, text)
        return first_fit(schema_of(self.schema), text, self._checked, self.decimals)

    def of_row(self, text: str) -> Any:
        """Return the value of an answer in a reply for several items, without an object around it."""
        check = by_schema(self.schema) if self.adapter is None else self._checked
        return first_fit(unwrapped(schema_of(self.schema)), text, check, self.decimals)

    def as_written(self, text: str, *, is_row: bool = False) -> Any:
        return as_written(json.dumps(unwrapped(schema_of(self.schema))) if is_row else self.schema, text)

    def _checked(self, text: str) -> Any:
        return run_user_code(lambda: self.adapter.validate_json(text), _invalid)  # validators are the user's code


def _read_by(kind: Any, name: str) -> tuple[Any, Schema, str]:
    """Return what reads values of a type, its schema, and that with decimals marked."""
    import pydantic

    marked = any(hasattr(kind, mark) for mark in ("__value__", "__supertype__"))  # `type X = ...`, `NewType`
    if not (isinstance(kind, type) or typing.get_origin(kind) is not None or marked):
        raise DeclarationError(f"{shown_value(kind)} is no type.", hint=f"Give {TYPES}.")

    def failed(error: BaseException) -> DeclarationError:
        if not isinstance(error, pydantic.errors.PydanticUserError | pydantic.errors.PydanticUndefinedAnnotation):
            return DeclarationError(f"{name} raised {reason_of(error)}.")
        if getattr(error, "code", "") in {"class-not-fully-defined", "undefined-annotation"}:
            return DeclarationError(f"{name} has a type in it that is not defined yet.", hint="Define that one first.")
        return DeclarationError(f"{name} is no type of answers.", hint=f"Give {TYPES}. Models of pydantic 1 are none.")

    def read() -> tuple[Any, Schema, str]:
        adapter = pydantic.TypeAdapter(modern(kind))
        return adapter, *schemas_of(adapter.json_schema)

    adapter, schema, decimals = run_user_code(read, failed)
    if isinstance(root := schema.get("$ref"), str):  # the title of a class that is defined below
        schema.setdefault("title", root.rpartition("/")[2])
    return adapter, schema, decimals


def modern(kind: Any) -> Any:
    """Return a type with the `TypedDict` of `typing_extensions`: pydantic takes no other before Python 3.12."""
    from typing_extensions import TypedDict

    if typing.is_typeddict(kind) and sys.version_info < (3, 12):
        hints = typing.get_type_hints(kind, include_extras=True)
        by_total = kind.__optional_keys__  # which knows nothing of qualifiers in annotations that are texts
        marks = {name: typing.get_origin(one) for name, one in hints.items()}
        optional = {name for name, mark in marks.items() if mark is typing.NotRequired or name in by_total}
        optional -= {name for name, mark in marks.items() if mark is typing.Required}
        fields = {
            name: typing.NotRequired[modern(one)] if name in optional else modern(one) for name, one in hints.items()
        }
        made: Any = cast("Any", TypedDict)(kind.__name__, fields)
        made.__doc__ = kind.__doc__
        if hasattr(kind, "__pydantic_config__"):
            made.__pydantic_config__ = kind.__pydantic_config__
        return made
    inner, origin = tuple(map(modern, typing.get_args(kind))), typing.get_origin(kind)
    if origin is typing.Required or origin is typing.NotRequired:
        return inner[0]
    if inner == typing.get_args(kind) or origin is typing.Literal:
        return kind
    return (typing.Union if origin is UnionType else origin)[inner]  # pyright: ignore[reportOptionalSubscript]


def _name_of(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else _MODULES.sub("", str(kind))


def _invalid(error: BaseException) -> InvalidAnswer:
    wrong = wrong_fields(error, got=True)
    return InvalidAnswer(wrong) if wrong else InvalidAnswer(f"its class raised {reason_of(error)}", mendable=False)


@dataclass(frozen=True, slots=True)
class Check:
    """A user's check of an answer: it returns `None`, or the error as text."""

    name: str
    call: Callable[[Any], object]
    written: str = field(default="", compare=False)

    @classmethod
    def of(cls, given: object, *, agent: str, written: str = "") -> Check:
        if isinstance(given, Check):
            return given
        if not callable(given) or isinstance(given, type) or inspect.iscoroutinefunction(given):
            message = f"check of agent {agent!r} must be a function that is not async, got {shown_value(given)}."
            hint = "It takes the value and returns None, or a text that says what is wrong."
            raise DeclarationError(message, agent=agent, hint=hint)
        return cls(str(getattr(given, "__name__", "check")), given, written)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the function out: it may not be importable elsewhere, and a record needs none."""
        return Check, (self.name, _accept, self.written)

    def __deepcopy__(self, _: object) -> Check:
        return self

    def run(self, value: object) -> None:
        """Raise `InvalidAnswer` if a value is wrong; `mendable` is false if the function itself failed."""
        found = run_user_code(lambda: self.call(value), self._failed)
        if isinstance(found, str) and found.strip():
            raise InvalidAnswer(found.strip())
        if found is not None and not isinstance(found, str):
            what = f"{self.name} returned {shown_value(found)}; it must return None, or what is wrong as text"
            raise InvalidAnswer(what, mendable=False)

    def _failed(self, error: BaseException) -> InvalidAnswer:
        if isinstance(error, ValueError | AssertionError) and str(error):  # as validators of pydantic say it
            return InvalidAnswer(str(error))
        return InvalidAnswer(f"{self.name} raised {reason_of(error)}", mendable=False)


def _accept(_: object) -> None:
    return None


# looking up the names of a cell


def look_up(
    agent: str, returns: str | None, check: str | None, namespace: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the `returns` and `check` of an agent from its `%%agent` line, by the notebook's variables."""
    found: dict[str, Any] = {}
    if returns is not None:
        try:
            tree = ast.parse(returns.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _unreadable(returns, agent) from None
        found["returns"] = Returns.of(_type_of(tree, namespace, returns, agent), agent=agent, written=returns)
    if check is not None:
        found["check"] = Check.of(_named(check.strip(), namespace, agent, "--check"), agent=agent, written=check)
    return found


def found_again(returns: Returns, namespace: Mapping[str, Any], agent: str) -> Returns | None:
    """Return the type with a record's schema under its name in the notebook; `None` if no type has that schema."""
    own = [name for name, value in namespace.items() if not name.startswith("_") and _is_declared_type(value)]
    schema = unwrapped(schema_of(returns.schema))
    lists = [one for one in (schema, items_of(schema)) if (choices_of(one))]
    words = [f"Literal[{', '.join(map(repr, choices_of(one) or ()))}]" for one in lists]
    names = [*own, "str", "int", "float", "bool", "date", "datetime", *words]
    for written in (text for name in names for text in (name, f"list[{name}]", f"{name} | None")):
        try:
            found = look_up(agent, written, None, namespace)["returns"]
        except DeclarationError:
            continue
        if found == returns:
            return found
    return None


def _is_declared_type(value: object) -> bool:
    marks = ("model_json_schema", "__dataclass_fields__", "__required_keys__", "__members__")
    return typing.get_origin(value) is not None or (isinstance(value, type) and any(hasattr(value, m) for m in marks))


def _named(name: str, namespace: Mapping[str, Any], agent: str, option: str) -> Any:
    if name in namespace:
        return namespace[name]
    if name in KNOWN and option == "--returns":
        return KNOWN[name]
    known = [
        one
        for one, value in {**namespace, **KNOWN}.items()
        if not one.startswith("_") and inspect.isroutine(value) == (option == "--check")
    ]
    hint = did_you_mean(name, known).strip() or "Define it in a cell above, and run that first."
    raise DeclarationError(f"{option} of agent {agent!r}: {name!r} is not defined.", agent=agent, hint=hint)


def _type_of(node: ast.expr, namespace: Mapping[str, Any], written: str, agent: str) -> Any:

    def inner(one: ast.expr) -> Any:
        return _type_of(one, namespace, written, agent)

    match node:
        case ast.Name(name):
            return _named(name, namespace, agent, "--returns")
        case ast.Constant(None):
            return None
        case ast.Attribute(owner, name):
            home = inner(owner)
            if isinstance(home, ModuleType | type) and name in vars(home):
                return vars(home)[name]
        case ast.BinOp(left, ast.BitOr(), right):
            return typing.Union[inner(left), inner(right)]  # noqa: UP007 - made of values
        case ast.Subscript(ast.Name(made_of), inside) if made_of in MADE_OF and made_of not in namespace:
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if made_of == "Literal":
                return typing.Literal[tuple(_constant(one, written, agent) for one in parts)]
            return KNOWN[made_of][tuple(map(inner, parts)) if len(parts) > 1 else inner(parts[0])]
        case ast.Subscript(ast.Name(made_of), _) if made_of in MADE_OF and namespace[made_of] is KNOWN[made_of]:
            return _type_of(node, {k: v for k, v in namespace.items() if k != made_of}, written, agent)
        case _:
            pass
    raise _unreadable(written, agent)


def _constant(node: ast.expr, written: str, agent: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _unreadable(written, agent) from None


def _unreadable(written: str, agent: str) -> DeclarationError:
    message = f"--returns of agent {agent!r} is not a type that can be read: {shown_value(written)}."
    hint = "Give the type a name in a cell, such as Answer = list[Label], and write --returns Answer."
    return DeclarationError(message, agent=agent, hint=hint)
