"""The arguments of a function that a model writes: their schema, and how they are read.

The schema is made of the signature, the annotations and the docstring. What the model writes is JSON, read strictly,
since a call that was cut must never run with half of its arguments: two members of one name, `NaN` and anything behind
the end are refused. Then pydantic makes of it what the function takes, such as an `Enum` or a model of the user's.
"""

from __future__ import annotations

import json
import math
import typing
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from agent_magic.declare.returns import modern, wrong_fields
from agent_magic.declare.schema import Schema, narrow, schema_of
from agent_magic.declare.serialization import sendable
from agent_magic.declare.signature import NOTHING, Parameter, documentation, parameters_of
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import with_case
from agent_magic.errors import DeclarationError, InvalidArguments, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

_SIMPLE = frozenset({str, int, float, bool})
MOST_ECHOED = 2000
"""The characters of a text that was no JSON which the model sees again."""
NO_JSON = "INVALID_JSON"
"""The field in which a model finds what it wrote where that was no JSON."""
TYPES = "str, int, float, bool, Literal, Enum, list[...], X | None, a dataclass, TypedDict or pydantic model"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function takes from a model.

    Attributes:
        schema: The JSON schema, as text.
        description: What the function does, by its docstring.
        strict: Whether the provider's grammars can hold the schema.
        reader: The pydantic model of the arguments; `None` where only the schema is known, as in a record.
        always: Parameters that are always passed, since their default stands in an annotation.
        simple: Whether nothing of the user's runs while they are read: texts, numbers and the like, and lists of them.
    """

    schema: str
    description: str = ""
    strict: bool = False
    reader: Any = None
    always: frozenset[str] = frozenset()
    simple: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any], what: str) -> Arguments:
        """Return what a function takes.

        Args:
            function: The function.
            what: Whose it is, for errors: `tool 'search'`.

        Raises:
            DeclarationError: A parameter has no type, or one that cannot be written as JSON.
        """
        from pydantic.fields import FieldInfo

        parameters = parameters_of(function, what)
        for one in parameters:
            if one.kind is NOTHING:
                message = f"The parameter {one.name!r} of {what} has no type, so a model cannot know what to give."
                raise DeclarationError(message, hint=f"Write {one.name}: str, or another type.")
        description, texts = _told(documentation(function))
        reader = _model(parameters, texts, what)
        schema = _schema_of(reader, what)
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
        return cls(sendable(text), sendable(description), strict, reader, always, simple)

    def read(self, text: str) -> dict[str, Any]:
        """Read the arguments of a call; see `Tool.arguments`.

        Raises:
            InvalidArguments: They do not fit. The message is for the model.
        """
        data = parsed(text)
        if self.reader is None:
            return data
        if self.simple:
            try:
                return self._validated(data)
            except Exception as error:  # noqa: BLE001 - pydantic's
                raise _invalid(error) from None
        return run_user_code(lambda: self._validated(data), _invalid)  # validators are the user's code

    def _validated(self, data: dict[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        found: Any
        try:
            found = self.reader.model_validate(data)
        except ValidationError:
            mended = with_case(schema_of(self.schema), data)
            if mended == data:
                raise
            found = self.reader.model_validate(mended)
        fields: dict[str, Any] = self.reader.model_fields
        given, always = found.model_fields_set, self.always
        named = ((field, one.alias) for field, one in fields.items())
        return {name: getattr(found, field) for field, name in named if field in given or name in always}


def _is_simple(kind: Any) -> bool:
    """Return whether pydantic reads a type without calling anything of the user's."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is list and inner:
        return _is_simple(inner[0])
    return kind in _SIMPLE


def _told(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of the function, and of each parameter. Google, NumPy and Sphinx styles all work."""
    import docstring_parser

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
    """Return the pydantic model of the arguments. Its fields are numbered: any name is fine for a parameter."""
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
        fields[f"p{number}"] = (kind, pydantic.Field(**more, alias=one.name, **_description(kind, texts.get(one.name))))
    return pydantic.create_model("Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def _description(kind: Any, text: str | None) -> dict[str, Any]:
    """Return the description of a parameter by the docstring, unless its annotation has one."""
    from pydantic.fields import FieldInfo

    own = any(isinstance(one, FieldInfo) and one.description for one in getattr(kind, "__metadata__", ()))
    return {} if own or not text else {"description": text}


def _checked(parameter: Parameter, what: str) -> Any:
    """Return the type of a parameter as pydantic takes it.

    Raises:
        DeclarationError: It cannot be written as JSON.
    """
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


def _schema_of(model: Any, what: str) -> Schema:
    """Return the schema that pydantic writes, without a warning for each default that JSON cannot hold."""

    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"The parameters of {what} have no schema: {reason_of(error)}.")

    def write() -> Schema:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found: Schema = model.model_json_schema()
        return {"type": "object", "properties": {}, **found, "additionalProperties": False}

    return run_user_code(write, failed)


def parsed(text: str) -> dict[str, Any]:
    """Read the arguments of a call, strictly: one JSON object, no name twice, no number that is none.

    Raises:
        InvalidArguments: They are something else. The message is for the model.
    """
    try:
        data: Any = _STRICT.decode(text.strip() or "{}")
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= MOST_ECHOED else f"{text[:MOST_ECHOED]}…"
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments(json.dumps({"error": f"no valid JSON: {why}", NO_JSON: shown})) from None
    if not isinstance(data, dict):
        raise InvalidArguments(f"The arguments must be a JSON object, got {shown_value(data)}.")
    found = cast("dict[str, Any]", data)
    return parsed(found[NO_JSON]) if [*found] == [NO_JSON] and isinstance(found[NO_JSON], str) else found


def as_input(text: str) -> dict[str, Any]:
    """Return the arguments of a call as they go back to the model: what is no JSON object stands in a field of one.

    Source: the vendor's page on fine-grained tool streaming.
    """
    try:
        return parsed(text)
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


def _invalid(error: BaseException) -> InvalidArguments:
    """Say what does not fit, as the model is told it."""
    return InvalidArguments(wrong_fields(error) or f"a type of the arguments raised {reason_of(error)}")


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
