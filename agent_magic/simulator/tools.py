"""The tools of a request: definitions, and which tools the model may or must call.

Source: the vendor's pages on defining tools and on each tool of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_magic.simulator.api import Json, as_flag, as_list, as_number, as_object, as_text, invalid
from agent_magic.simulator.models import Model

CHOICES = ("auto", "any", "tool", "none")
MOST_STRICT = 20
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_EDITOR = "str_replace_based_edit_tool"
_BY_SERVER = {
    **{f"web_search_{date}": "web_search" for date in (20250305, 20260209, 20260318)},
    **{f"web_fetch_{date}": "web_fetch" for date in (20250910, 20260209, 20260309, 20260318)},
    **{f"code_execution_{date}": "code_execution" for date in (20250522, 20250825, 20260120, 20260521)},
    **{f"tool_search_tool_{kind}_20251119": f"tool_search_tool_{kind}" for kind in ("regex", "bm25")},
}
_BY_CLIENT = {
    "memory_20250818": "memory",
    "bash_20250124": "bash",
    "text_editor_20250124": "str_replace_editor",
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
}
TOOLSETS = ("computer_toolset_20260801", "browser_toolset_20260801", "mcp_toolset")
"""They stand for several tools and have no name."""
NAME_OF_TYPE = {**_BY_SERVER, **_BY_CLIENT}


@dataclass(frozen=True, slots=True)
class Tools:
    """`choice` is `auto`, `any`, `tool` or `none`, `parallel` allows several calls at once."""

    offered: tuple[Json, ...] = ()
    choice: str = "auto"
    forced: str | None = None
    parallel: bool = True

    @property
    def may_call(self) -> bool:
        return bool(self.offered) and self.choice != "none"

    @property
    def must_call(self) -> bool:
        return self.choice in ("any", "tool")

    def find(self, name: str) -> Json | None:
        return next((tool for tool in self.offered if tool.get("name") == name), None)

    def prompt_tokens(self, model: Model) -> int:
        """Count the hidden instruction on tools."""
        return model.tool_prompt[self.must_call] if self.offered else 0


NO_TOOLS = Tools()


def is_of_server(tool: Json) -> bool:
    return tool.get("type") in _BY_SERVER


def is_own(tool: Json) -> bool:
    """Return whether the request defines the tool with its schema."""
    return tool.get("type") in (None, "custom")


def parse_tools(body: Json, model: Model) -> Tools:
    given = body.get("tools")
    if not (given or body.get("tool_choice") or body.get("output_config")):  # Most requests: nothing to look at.
        return NO_TOOLS
    if given is not None and as_list(given) is None:
        raise invalid("tools: Input should be a valid list")
    tools = [_tool(each, f"tools.{place}") for place, each in enumerate(as_list(given) or ())]
    names = [tool["name"] for tool in tools if "name" in tool]
    if len(set(names)) < len(names):
        raise invalid("tools: Tool names must be unique.")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise invalid("tools: At least one tool must have defer_loading=false.")
    if len(strict := [place for place, tool in enumerate(tools) if tool.get("strict")]) > MOST_STRICT:
        raise invalid(f"tools: Too many strict tools ({len(strict)}). The maximum number is {MOST_STRICT}.")
    schemas = [(f"tools.{place}.custom.input_schema", tools[place]["input_schema"]) for place in strict]
    answer = as_object((as_object((as_object(body.get("output_config")) or {}).get("format")) or {}).get("schema"))
    check_schemas([*schemas, *([(WHERE, answer)] if answer is not None else [])])
    return _chosen(body, model, tools, names)


def _tool(value: object, where: str) -> Json:
    tool = as_object(value)
    if tool is None:
        raise invalid(f"{where}.name: Field required")
    kind = tool.get("type")
    if kind in TOOLSETS:
        return tool
    if not is_own(tool) and kind not in NAME_OF_TYPE:
        known = ", ".join(f"'{each}'" for each in ("custom", *NAME_OF_TYPE, *TOOLSETS))
        raise invalid(
            f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {known}"
        )
    if (name := as_text(tool.get("name"))) is None:
        raise invalid(f"{where}.name: Field required")
    if kind in NAME_OF_TYPE:
        if name != NAME_OF_TYPE[kind]:
            raise invalid(f"{where}.{kind}.name: Input should be '{NAME_OF_TYPE[kind]}'")
        return tool
    if not NAME.fullmatch(name):
        raise invalid(f"{where}.custom.name: String should match pattern '^{NAME.pattern}$'")
    _check_own(tool, f"{where}.custom")
    return tool


def _check_own(tool: Json, where: str) -> None:
    for key, narrow, wanted in (
        ("description", as_text, "string"),
        ("strict", as_flag, "boolean"),
        ("eager_input_streaming", as_flag, "boolean"),
        ("defer_loading", as_flag, "boolean"),
        ("input_examples", as_list, "list"),
    ):
        if tool.get(key) is not None and narrow(tool[key]) is None:
            raise invalid(f"{where}.{key}: Input should be a valid {wanted}")
    if "input_schema" not in tool:
        raise invalid(f"{where}.input_schema: Field required")
    schema = as_object(tool["input_schema"])
    if schema is None or schema.get("type") != "object":
        raise invalid(f"{where}.input_schema.type: Input should be 'object'")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if as_object(properties) is None or as_list(required) is None:
        raise invalid(f"{where}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12.")
    for index, example in enumerate(as_list(tool.get("input_examples")) or ()):
        if wrong := misfit(example, schema, schema):
            raise invalid(f"{where}.input_examples.{index}: does not match the input_schema: {wrong}")


def _chosen(body: Json, model: Model, tools: Sequence[Json], names: Sequence[str]) -> Tools:
    if body.get("tool_choice") is None:
        return Tools(tuple(tools))
    choice = as_object(body["tool_choice"])
    if choice is None:
        raise invalid("tool_choice: Input should be an object")
    kind = choice.get("type")
    if kind not in CHOICES:
        raise invalid(f"tool_choice.type: Input should be one of {', '.join(CHOICES)}")
    if kind in ("any", "tool") and not model.forced_tools:
        raise invalid(f"tool_choice: {kind!r} is not supported by {model.id}; use 'auto' or output_config.format")
    if kind == "tool" and choice.get("name") not in names:
        raise invalid(f"tool_choice.name: tool {choice.get('name')!r} not found in provided tools")
    if not tools and kind != "none":
        raise invalid("tool_choice: tool_choice may only be specified while providing tools.")
    single = choice.get("disable_parallel_tool_use", False)
    if as_flag(single) is None or (kind == "none" and "disable_parallel_tool_use" in choice):
        raise invalid(f"tool_choice.{kind}.disable_parallel_tool_use: Input should be a valid boolean, not with 'none'")
    return Tools(tuple(tools), kind, choice["name"] if kind == "tool" else None, not single)


# Validation of the schemas of a request: the first error is a 400 that names it.
#
# Limits apply per request: to the schema of the answer and the schemas of strict tools together.
#
# Source: the vendor's page on structured outputs: supported types, keywords and formats, and the limits of one request.


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
    check_schemas([(WHERE, schema)])


def check_schemas(found: Iterable[tuple[str, Json]]) -> None:
    """Raise `ApiError` if one, given with its place, cannot be compiled into a grammar."""
    checking = _Checking()
    for where, schema in found:
        checking.root(where, schema)


def definitions_of(schema: Json) -> dict[str, Json]:
    return {
        f"#/{home}/{name}": as_object(inner) or {}
        for home in ("$defs", "definitions")
        for name, inner in (as_object(schema.get(home)) or {}).items()
    }


class _Checking:
    def __init__(self) -> None:
        self._where = ""
        self._definitions: dict[str, Json] = {}
        self._optional = self._unions = 0

    def root(self, where: str, schema: Json) -> None:
        self._where, self._definitions = where, definitions_of(schema)
        self.place(schema, (), 0)

    def place(self, schema: Json, inside: tuple[str, ...], depth: int) -> None:
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
    """Return where and why a value violates a schema. Formats and patterns are ignored."""
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
