"""Validation of the schemas of a request: the first error is a 400 that names it.

Limits apply per request: to the schema of the answer and the schemas of strict tools together.

Source: the vendor's page on structured outputs: supported types, keywords and formats, and the limits of one request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_magic.simulator.errors import invalid
from agent_magic.simulator.json_types import Json, as_list, as_number, as_object

MOST_OPTIONAL = 24
MOST_UNIONS = 16
MOST_DEPTH = 40
TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
REFUSED = (
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems uniqueItems prefixItems "
    "patternProperties oneOf not if then else"
).split()
_HARD_PATTERN = re.compile(r"\(\?|\\[bB1-9]")
WHERE = "output_config.format.schema"


def check_schema(schema: Json) -> None:
    """Raise `ApiError` if an answer schema cannot be compiled into a grammar."""
    check_schemas([(WHERE, schema)])


def check_schemas(found: Iterable[tuple[str, Json]]) -> None:
    """Raise `ApiError` if the schemas of a request, given with their places, cannot be compiled into a grammar."""
    checking = _Checking()
    for where, schema in found:
        checking.root(where, schema)


def definitions_of(schema: Json) -> dict[str, Json]:
    """Return the schemas that references can name."""
    return {
        f"#/{home}/{name}": as_object(inner) or {}
        for home in ("$defs", "definitions")
        for name, inner in (as_object(schema.get(home)) or {}).items()
    }


class _Checking:
    """Walks the schemas of a request and counts against the limits."""

    def __init__(self) -> None:
        self._where = ""
        self._definitions: dict[str, Json] = {}
        self._optional = self._unions = 0

    def root(self, where: str, schema: Json) -> None:
        """Check one schema."""
        self._where, self._definitions = where, definitions_of(schema)
        self.place(schema, (), 0)

    def place(self, schema: Json, inside: tuple[str, ...], depth: int) -> None:
        """Check one place."""
        if depth > MOST_DEPTH:
            raise invalid(f"{self._where}: Schema is too complex for compilation")
        if isinstance(reference := schema.get("$ref"), str):
            self._referenced(reference, inside, depth)
            return
        kind = schema.get("type")
        if wrong := [name for name in REFUSED if name in schema]:
            raise invalid(f"{self._where}: For '{kind}' type, property '{wrong[0]}' is not supported")
        alternatives = [*(as_list(schema.get("anyOf")) or ()), *(as_list(schema.get("allOf")) or ())]
        kinds = as_list(kind) or ([] if kind is None else [kind])
        self._unions += bool(schema.get("anyOf")) or len(kinds) > 1
        if self._unions > MOST_UNIONS:
            raise invalid(f"{self._where}: Schemas contain too many parameters with union types (limit: {MOST_UNIONS})")
        if not (kinds or alternatives or "enum" in schema or "const" in schema) or not set(map(str, kinds)) <= TYPES:
            raise invalid(f"{self._where}: Schema type {kind!r} is not supported")
        self._scalar(schema)
        for each in alternatives:
            self.place(as_object(each) or {}, inside, depth + 1)
        if "object" in kinds:
            self._object(schema, inside, depth)
        if "array" in kinds:
            self.place(as_object(schema.get("items")) or {}, inside, depth + 1)

    def _referenced(self, reference: str, inside: tuple[str, ...], depth: int) -> None:
        if reference in inside or reference == "#":
            raise invalid(f"{self._where}: Circular reference: {reference}")
        if reference not in self._definitions:
            raise invalid(f"{self._where}: Unknown reference: {reference}")
        self.place(self._definitions[reference], (*inside, reference), depth + 1)

    def _scalar(self, schema: Json) -> None:
        if "format" in schema and schema["format"] not in FORMATS:
            raise invalid(f"{self._where}: String format {schema['format']!r} is not supported")
        if _HARD_PATTERN.search(str(schema.get("pattern", ""))):
            raise invalid(f"{self._where}: Pattern {schema['pattern']!r} is not supported")
        if schema.get("minItems", 0) not in (0, 1):
            raise invalid(f"{self._where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")

    def _object(self, schema: Json, inside: tuple[str, ...], depth: int) -> None:
        if schema.get("additionalProperties") is not False:
            raise invalid(f"{self._where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
        properties = as_object(schema.get("properties")) or {}
        self._optional += len(set(properties) - set(map(str, as_list(schema.get("required")) or ())))
        if self._optional > MOST_OPTIONAL:
            raise invalid(f"{self._where}: Schemas contain too many optional parameters (limit: {MOST_OPTIONAL})")
        for each in properties.values():
            self.place(as_object(each) or {}, inside, depth + 1)


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def misfit(value: object, schema: Json, root: Json, where: str = "") -> str | None:
    """Return where and why a value violates a schema, or `None`. Formats and patterns are ignored."""
    if isinstance(reference := schema.get("$ref"), str):
        return misfit(value, definitions_of(root).get(reference, {}), root, where)
    options = [as_object(each) or {} for each in as_list(schema.get("anyOf")) or as_list(schema.get("oneOf")) or ()]
    wrong = [misfit(value, each, root, where) for each in options]
    if wrong and None not in wrong:
        return wrong[0]
    if value not in (as_list(schema.get("enum")) or [value]) or value != schema.get("const", value):
        return f"{where or 'value'}: {value!r} is not allowed"
    kinds = [str(kind) for kind in as_list(schema.get("type")) or [schema.get("type")] if kind is not None]
    right = any(
        isinstance(value, _PYTHON_TYPES.get(kind, (object,))) and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    )
    if kinds and not right:
        return f"{where or 'value'}: {value!r} is not of type {', '.join(kinds)}"
    return _misfit_inside(value, schema, root, where)


def _misfit_inside(value: object, schema: Json, root: Json, where: str) -> str | None:
    """Return a misfit inside an object, a list or the bounds of a number."""
    if (number := as_number(value)) is not None:
        low, high = as_number(schema.get("minimum")), as_number(schema.get("maximum"))
        if (low is not None and number < low) or (high is not None and number > high):
            return f"{where or 'value'}: {value!r} is out of range"
    if (items := as_list(value)) is not None:
        inner = as_object(schema.get("items")) or {}
        return next(filter(None, (misfit(each, inner, root, f"{where}[{at}]") for at, each in enumerate(items))), None)
    if (fields := as_object(value)) is None:
        return None
    known = as_object(schema.get("properties")) or {}
    if missing := [str(name) for name in as_list(schema.get("required")) or () if name not in fields]:
        return f"{missing[0]!r} is a required property"
    if schema.get("additionalProperties") is False and (more := [name for name in fields if name not in known]):
        return f"{more[0]!r} is not a property"
    inside = (misfit(each, as_object(known.get(name)) or {}, root, name) for name, each in fields.items())
    return next(filter(None, inside), None)
