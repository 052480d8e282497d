"""Functions as tools and tasks: name, typed parameters, documentation, source, and the arguments that a model writes.

The JSON of arguments is read strictly, since a truncated call must never run with half of them: duplicate members,
`NaN` and text after the end are refused.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import textwrap
import typing
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from agent_magic.declare.answers.lenient import decoded, schemas_of
from agent_magic.declare.answers.reading import first_fit, wrong_fields
from agent_magic.declare.answers.returns import modern
from agent_magic.declare.answers.schema import Schema, narrow, schema_of
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import sendable
from agent_magic.errors import DeclarationError, InvalidAnswer, InvalidArguments, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

_MARKED = "_is_coroutine_mark"
"""What `inspect.markcoroutinefunction` leaves at a function, from Python 3.12 on."""
NOTHING: Any = inspect.Parameter.empty
"""Stands for a missing type or default."""
_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: ("takes any number of arguments (*{})", "Give it a list: {}: list[str]"),
    inspect.Parameter.VAR_KEYWORD: ("takes any names (**{})", "Write each of them as a parameter"),
    inspect.Parameter.POSITIONAL_ONLY: ("takes {} by its place only", "Take the / out: arguments come by name"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function, with its annotated type."""

    name: str
    kind: Any
    default: Any


def check_function(function: object, what: str) -> None:
    if not callable(function) or isinstance(function, type):
        kind = "a class" if isinstance(function, type) else shown_value(function)
        raise DeclarationError(f"The function of {what} must be a function, got {kind}.", hint=_held(function))
    if inspect.isgeneratorfunction(defined(function)) or inspect.isasyncgenfunction(defined(function)):
        message = f"The function of {what} yields. Only the first step that reads a generator gets its values."
        raise DeclarationError(message, hint="Collect it in a list, and return that.")


def _held(value: object) -> str:
    """Return a hint at the function inside a tool of another library."""
    if isinstance(value, type) or inspect.isroutine(value):
        return ""
    for name in ("func", "function", "fn", "coroutine"):
        with suppress(Exception):  # an attribute that cannot be read is no hint
            if inspect.isfunction(getattr(value, name, None)):
                return f"Give the function that it holds: its .{name}, or a @am.tool that calls it."
    return ""


def parameters_of(function: Callable[..., Any], what: str, *, lenient: bool = False) -> tuple[Parameter, ...]:
    """Return the unbound parameters; `lenient` ignores types for type checkers only."""

    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"The parameters of {what} cannot be read: {reason_of(error)}.")

    signature = run_user_code(lambda: inspect.signature(function), failed)
    bound, variables = _bound(function), getattr(defined(function), "__globals__", {})
    found: list[Parameter] = []
    for name, one in signature.parameters.items():
        if name in bound:
            continue
        if one.kind in _REFUSED:
            why, hint = (text.format(name) for text in _REFUSED[one.kind])
            hint = _held(function) or f"{hint}."
            raise DeclarationError(f"The function of {what} {why}, which a plan cannot pass.", hint=hint)
        try:
            kind = run_user_code(partial(_kind, one.annotation, variables), failed)
        except DeclarationError:
            if not lenient:
                raise
            kind = NOTHING
        found.append(Parameter(name, kind, one.default))
    return tuple(found)


def _kind(annotation: Any, variables: dict[str, Any]) -> Any:
    if annotation is NOTHING:
        return NOTHING
    written = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(written, variables, include_extras=True)["it"]


def _bound(function: Any) -> set[str]:
    return {*function.keywords, *_bound(function.func)} if isinstance(function, partial) else set()


def defined(function: Any) -> Any:
    """Return the function behind a partial, a method, an object with `__call__`."""
    if isinstance(function, partial):
        return defined(function.func)
    function = inspect.unwrap(function)
    if inspect.ismethod(function):
        return defined(function.__func__)
    return function if inspect.isroutine(function) else type(function).__call__


def name_of(function: Any) -> str:
    if isinstance(function, partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def documentation(function: Any) -> str:
    if isinstance(function, partial):
        return documentation(function.func)
    if inspect.isroutine(function):
        return inspect.getdoc(function) or ""
    own = defined(function).__doc__ or type(function).__doc__  # `getdoc` would find what `object` says of calls
    return inspect.cleandoc(own or "")


def is_async(function: Any) -> bool:
    if type(function) is FunctionType:  # most are: to look behind what wraps one takes ten times as long
        if function.__code__.co_flags & inspect.CO_COROUTINE:
            return True
        if "__wrapped__" not in function.__dict__ and _MARKED not in function.__dict__:
            return False
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(defined(function))


def source_sha(function: Any) -> str:
    """Return a hash of the source; empty without any, as in C."""
    try:
        source = textwrap.dedent(inspect.getsource(defined(function)))
    except (OSError, TypeError, IndentationError, SyntaxError):
        return ""
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()


_SIMPLE = frozenset({str, int, float, bool})
MOST_ECHOED = 2000
"""Characters of invalid JSON that the model sees again."""
NO_JSON = "INVALID_JSON"
"""The field that returns invalid JSON to the model."""
TYPES = "str, int, float, bool, Literal, Enum, list[...], X | None, a dataclass, TypedDict or pydantic model"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments a function takes from a model.

    Attributes:
        strict: True if the provider's grammars support the schema.
        reader: The pydantic model; `None` if only the schema is known, as in a record.
        always: Parameters that are always passed, since their default is in an annotation.
        simple: True if reading runs no code of the user.
    """

    schema: str
    description: str = ""
    strict: bool = False
    reader: Any = None
    always: frozenset[str] = frozenset()
    simple: bool = False
    decimals: str = ""

    @classmethod
    def of(cls, function: Callable[..., Any], what: str) -> Arguments:
        from pydantic.fields import FieldInfo

        parameters = parameters_of(function, what)
        for one in parameters:
            if one.kind is NOTHING:
                message = f"The parameter {one.name!r} of {what} has no type, so a model cannot know what to give."
                raise DeclarationError(message, hint=f"Write {one.name}: str, or another type.")
        description, texts = _told(documentation(function))
        reader = _model(parameters, texts, what)
        schema, decimals = _schema_of(reader, what)
        strict = False
        if schema["properties"]:
            try:
                schema, strict = narrow(schema, what), True
            except DeclarationError:  # a dict, a tuple, a class that holds itself: sent as it is, checked when here
                schema = {**schema}
        schema.pop("title", None)
        always = frozenset(one.name for one in parameters if isinstance(one.default, FieldInfo))
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        simple = all(_is_simple(one.kind) for one in parameters)
        return cls(sendable(text), sendable(description), strict, reader, always, simple, decimals)

    def read(self, text: str) -> dict[str, Any]:
        """Read a call's arguments; errors are for the model."""
        text, data = _strict(text)
        if self.reader is None:
            return data
        try:
            found = first_fit(schema_of(self.schema), text, self._checked, self.decimals)
        except InvalidAnswer as error:
            raise InvalidArguments(str(error)) from None
        fields: dict[str, Any] = self.reader.model_fields
        given, always = found.model_fields_set, self.always
        named = ((field, one.alias) for field, one in fields.items())
        return {name: getattr(found, field) for field, name in named if field in given or name in always}

    def _checked(self, text: str) -> Any:
        if not self.simple:
            return run_user_code(lambda: self.reader.model_validate_json(text), _invalid)  # validators are user code
        try:
            return self.reader.model_validate_json(text)
        except Exception as error:  # noqa: BLE001 - pydantic's
            raise _invalid(error) from None


def _is_simple(kind: Any) -> bool:
    """Return whether pydantic reads a type without the user's code."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is list and inner:
        return _is_simple(inner[0])
    return kind in _SIMPLE


def _told(text: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's descriptions of the function and each parameter."""
    import docstring_parser  # the Anthropic SDK requires it

    try:
        found = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    said = [found.short_description, found.long_description]
    if found.returns is not None and found.returns.description:
        said.append(f"Returns: {found.returns.description}")
    texts = {one.arg_name: one.description for one in found.params if one.description}
    return "\n\n".join(one.strip() for one in said if one), texts


def _model(parameters: tuple[Parameter, ...], texts: dict[str, str], what: str) -> Any:
    """Return the pydantic model; numbered fields allow any parameter names."""
    import pydantic
    from pydantic.fields import FieldInfo

    fields: dict[str, Any] = {}
    for number, one in enumerate(parameters):
        kind = _checked(one, what)
        if isinstance(one.default, FieldInfo):
            kind, default = Annotated[kind, one.default], one.default.get_default(call_default_factory=True)
        else:
            default = ... if one.default is NOTHING else one.default
        more: dict[str, Any] = {"default": default} if default is not ... else {}
        is_described = any(isinstance(m, FieldInfo) and m.description for m in getattr(kind, "__metadata__", ()))
        if not is_described and texts.get(one.name):
            more["description"] = texts[one.name]
        fields[f"p{number}"] = (kind, pydantic.Field(**more, alias=one.name))
    return pydantic.create_model("Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def _checked(parameter: Parameter, what: str) -> Any:
    """Return a type as pydantic takes it; refuse types that JSON cannot hold."""
    import pydantic

    def failed(error: BaseException) -> DeclarationError:
        name = getattr(parameter.kind, "__name__", str(parameter.kind))
        message = f"The parameter {parameter.name!r} of {what} is of type {name}, which a model cannot write."
        if not isinstance(error, pydantic.errors.PydanticUserError | pydantic.errors.PydanticUndefinedAnnotation):
            message += f" ({reason_of(error)})"
        return DeclarationError(message, hint=f"Take {TYPES}; look anything else up inside, by its name.")

    def read() -> Any:
        kind = modern(parameter.kind)
        pydantic.TypeAdapter(kind).json_schema()
        return kind

    return run_user_code(read, failed)


def _schema_of(model: Any, what: str) -> tuple[Schema, str]:
    """Return pydantic's schemas, without a warning for each default that JSON cannot hold."""

    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"The parameters of {what} have no schema: {reason_of(error)}.")

    def write() -> tuple[Schema, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found, decimals = schemas_of(model.model_json_schema)
        return {"type": "object", "properties": {}, **found, "additionalProperties": False}, decimals

    return run_user_code(write, failed)


def parsed(text: str) -> dict[str, Any]:
    """Read one JSON object without duplicate names or `NaN`."""
    return _strict(text)[1]


def _strict(text: str) -> tuple[str, dict[str, Any]]:
    text = text.strip() or "{}"
    try:
        data: Any = _STRICT.decode(text)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= MOST_ECHOED else f"{text[:MOST_ECHOED]}…"
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments(json.dumps({"error": f"no valid JSON: {why}", NO_JSON: shown})) from None
    if not isinstance(data, dict):
        raise InvalidArguments(f"The arguments must be a JSON object, got {shown_value(data)}.")
    found = cast("dict[str, Any]", data)
    return _strict(found[NO_JSON]) if [*found] == [NO_JSON] and isinstance(found[NO_JSON], str) else (text, found)


def as_input(text: str) -> dict[str, Any]:
    """Return arguments as sent back to the model: other text than a JSON object becomes a field of one.

    Source: the vendor's page on fine-grained tool streaming.
    """
    try:
        return decoded(_strict(text)[0])
    except InvalidArguments:
        return {NO_JSON: text}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite(word: str) -> float:
    number = float(word)
    return number if math.isfinite(number) else _no_number(word)


def _invalid(error: BaseException) -> InvalidAnswer:
    return InvalidAnswer(wrong_fields(error) or f"a type of the arguments raised {reason_of(error)}")


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
