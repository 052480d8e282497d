"""What the API refuses in the schema of a structured answer: the first thing wrong gets a 400 that names it.

Source: the vendor's page on structured outputs: supported types, keywords and formats, and the limits of one request.
"""

from __future__ import annotations

import re

from agent_magic.simulator.errors import invalid
from agent_magic.simulator.json_types import Json, as_list, as_object

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
    """Raise `ApiError` for a schema that no grammar can be made of."""
    _Checking(schema).place(schema, (), 0)


class _Checking:
    """Walks one schema and counts what is limited."""

    def __init__(self, root: Json) -> None:
        self._definitions = {
            f"#/{home}/{name}": as_object(inner) or {}
            for home in ("$defs", "definitions")
            for name, inner in (as_object(root.get(home)) or {}).items()
        }
        self._optional = self._unions = 0

    def place(self, schema: Json, inside: tuple[str, ...], depth: int) -> None:
        """Check one place."""
        if depth > MOST_DEPTH:
            raise invalid(f"{WHERE}: Schema is too complex for compilation")
        if isinstance(reference := schema.get("$ref"), str):
            self._referenced(reference, inside, depth)
            return
        kind = schema.get("type")
        if wrong := [name for name in REFUSED if name in schema]:
            raise invalid(f"{WHERE}: For '{kind}' type, property '{wrong[0]}' is not supported")
        alternatives = [*(as_list(schema.get("anyOf")) or ()), *(as_list(schema.get("allOf")) or ())]
        kinds = as_list(kind) or ([] if kind is None else [kind])
        self._unions += bool(schema.get("anyOf")) or len(kinds) > 1
        if self._unions > MOST_UNIONS:
            raise invalid(f"{WHERE}: Schemas contain too many parameters with union types (limit: {MOST_UNIONS})")
        if not (kinds or alternatives or "enum" in schema or "const" in schema) or not set(map(str, kinds)) <= TYPES:
            raise invalid(f"{WHERE}: Schema type {kind!r} is not supported")
        self._scalar(schema)
        for each in alternatives:
            self.place(as_object(each) or {}, inside, depth + 1)
        if "object" in kinds:
            self._object(schema, inside, depth)
        if "array" in kinds:
            self.place(as_object(schema.get("items")) or {}, inside, depth + 1)

    def _referenced(self, reference: str, inside: tuple[str, ...], depth: int) -> None:
        if reference in inside or reference == "#":
            raise invalid(f"{WHERE}: Circular reference: {reference}")
        if reference not in self._definitions:
            raise invalid(f"{WHERE}: Unknown reference: {reference}")
        self.place(self._definitions[reference], (*inside, reference), depth + 1)

    def _scalar(self, schema: Json) -> None:
        if "format" in schema and schema["format"] not in FORMATS:
            raise invalid(f"{WHERE}: String format {schema['format']!r} is not supported")
        if _HARD_PATTERN.search(str(schema.get("pattern", ""))):
            raise invalid(f"{WHERE}: Pattern {schema['pattern']!r} is not supported")
        if schema.get("minItems", 0) not in (0, 1):
            raise invalid(f"{WHERE}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")

    def _object(self, schema: Json, inside: tuple[str, ...], depth: int) -> None:
        if schema.get("additionalProperties") is not False:
            raise invalid(f"{WHERE}: For 'object' type, 'additionalProperties' must be explicitly set to false")
        properties = as_object(schema.get("properties")) or {}
        self._optional += len(set(properties) - set(map(str, as_list(schema.get("required")) or ())))
        if self._optional > MOST_OPTIONAL:
            raise invalid(f"{WHERE}: Schemas contain too many optional parameters (limit: {MOST_OPTIONAL})")
        for each in properties.values():
            self.place(as_object(each) or {}, inside, depth + 1)
