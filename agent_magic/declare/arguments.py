"""Arguments of a function, written by a model: their schema, and how they are read.

The JSON is read strictly, since a truncated call must never run with half of its arguments: duplicate members, `NaN`
and text after the end are refused.
"""

from __future__ import annotations

import json
import math
import typing
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from agent_magic.declare.answers.lenient import decoded, schemas_of
from agent_magic.declare.answers.reading import first_fit, wrong_fields
from agent_magic.declare.answers.returns import modern
from agent_magic.declare.answers.schema import Schema, narrow, schema_of
from agent_magic.declare.signature import NOTHING, Parameter, documentation, parameters_of
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import sendable
from agent_magic.errors import DeclarationError, InvalidAnswer, InvalidArguments, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

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
        fields[f"p{number}"] = (kind, pydantic.Field(**more, alias=one.name, **_description(kind, texts.get(one.name))))
    return pydantic.create_model("Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def _description(kind: Any, text: str | None) -> dict[str, Any]:
    from pydantic.fields import FieldInfo

    own = any(isinstance(one, FieldInfo) and one.description for one in getattr(kind, "__metadata__", ()))
    return {} if own or not text else {"description": text}


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
