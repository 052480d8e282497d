"""Tools: the user's functions that a model may call, and tools run by the provider.

A function becomes a tool when an agent is declared: its description for the model is fixed from then on.
"""

from __future__ import annotations

import builtins
import enum
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast, overload, runtime_checkable

from agent_magic.declare.answers.schema import MOST_OPTIONAL, MOST_UNIONS, counted, schema_of
from agent_magic.declare.content import PLAIN_TEXT, Attachment, check_sizes
from agent_magic.declare.signature import Arguments, check_function, defined, name_of, source_sha
from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.validation import check_positive, check_text, listed, must_be
from agent_magic.declare.values import (
    as_json,
    as_text,
    count_cells,
    frozen,
    holds_content,
    is_array,
    is_table,
    plain_reason,
    read_table,
    sendable,
)
from agent_magic.errors import AgentMagicError, DeclarationError, did_you_mean, shown_value, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

MARK = "_agent_magic_tool"
FLAGS = ("ask", "main", "process", "alone", "pure", "safe")
FAMILIES = ("web_search", "web_fetch", "code_execution")
MOST_STRICT = 20
"""Maximum tools per request with enforced schemas."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. An immutable value: two are equal if description and code are.

    Attributes:
        name: Its name for the model.
        description: Its purpose, for the model.
        schema: The JSON schema of its arguments, as text.
        function: The function; `None` if read from a record.
        ask: True if a person must approve each call.
        main: True to run on the main thread, one call at a time: sqlite3, pyplot, widgets.
        process: True to run in a separate process, for long computations; see `Task`.
        alone: True if no other tool of the agent may run beside it.
        pure: True if its result depends on its arguments only and may be reused.
        safe: True if a call that may have happened can be repeated without harm.
        timeout_s: Seconds until a call is given up; `None` for no limit.
        source_sha: Hash of the function's source; empty if unknown.
        uses: Names of the resources it holds while it runs.
        writes: Names or paths it changes.
        strict: True if the provider can enforce the schema while the model writes the arguments.
    """

    name: str
    description: str
    schema: str
    function: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    ask: bool = field(default=False, kw_only=True)
    main: bool = field(default=False, kw_only=True)
    process: bool = field(default=False, kw_only=True)
    alone: bool = field(default=False, kw_only=True)
    pure: bool = field(default=False, kw_only=True)
    safe: bool = field(default=False, kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)
    source_sha: str = field(default="", kw_only=True)
    uses: tuple[str, ...] = field(default=(), kw_only=True)
    writes: tuple[str, ...] = field(default=(), kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    reader: Arguments | None = field(default=None, kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, given: Any, name: str | None = None) -> Tool:
        """Return the tool of a function.

        Args:
            given: A function, a bound method, a partial, an object with `__call__`; or a tool, returned unchanged.
            name: Its name for the model; default the function's name.

        Raises:
            DeclarationError: The model could not call it: a parameter has no type, or JSON cannot represent it.
        """
        if isinstance(given, Tool):
            return given if name is None else replace(given, name=_checked_name(name))
        options: dict[str, Any] = dict(_flags_of(given))
        named = options.pop("name", None)
        check_function(given, "a tool")
        name = _checked_name(name or named or name_of(given))
        reader = Arguments.of(given, f"tool {name!r}")
        if not reader.description:
            _warn_of_silence(name, given)
        return cls(
            name,
            reader.description,
            reader.schema,
            given,
            source_sha=source_sha(given),
            strict=reader.strict,
            reader=reader,
            **options,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out the function: it may not be importable elsewhere, and a record needs none."""
        flags = {one: getattr(self, one) for one in (*FLAGS, "timeout_s", "source_sha", "uses", "writes", "strict")}
        return partial(Tool, self.name, self.description, self.schema, **flags), ()

    def __deepcopy__(self, _: object) -> Tool:
        return self

    def definition(self) -> dict[str, Any]:
        """Return its description for the model: an element of `Request.tools`."""
        found = {"name": self.name, "description": self.description, "input_schema": schema_of(self.schema)}
        return found | ({"strict": True} if self.strict else {})

    def arguments(self, text: str) -> dict[str, Any]:
        """Read the arguments of a call.

        Args:
            text: The model's complete text; empty for no arguments.

        Returns:
            The given arguments by name, converted to the function's types.

        Raises:
            InvalidArguments: They do not fit. The message is for the model.
        """
        return (self.reader or Arguments(self.schema)).read(text)


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        what = "1 to 64 letters a-z, digits, _ and -"
        raise must_be("The name of a tool", what, name, " Give it another with @am.tool(name='...').")
    return name


class ServerTool:
    """A tool run by the provider: `ServerTool("web_search", max_uses=3)`.

    Args:
        family: Its plain name, such as `web_search`, `web_fetch` or `code_execution`. The provider chooses the version
            for the model.
        **options: Options from the provider's page on the tool, such as `max_uses` or `allowed_domains`.

    Raises:
        DeclarationError: An option cannot be written as JSON.
    """

    __slots__ = ("_options", "family")

    def __init__(self, family: str, **options: Any) -> None:
        check_text("family of a server tool", family)
        if not _NAME.fullmatch(family):
            raise must_be(
                "family of a server tool", "a name such as web_search", family, did_you_mean(family, FAMILIES)
            )
        try:
            self._options = json.dumps(options, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"The options of {family!r} cannot be written as JSON: {error}.") from None
        self.family = family

    @property
    def name(self) -> str:
        """Its name for the model."""
        return self.family

    @property
    def options(self) -> dict[str, Any]:
        """Its options by name."""
        return json.loads(self._options)

    def definition(self) -> dict[str, Any]:
        """Return the tool by its plain name: the provider adds the version for the model."""
        return {"type": self.family, "name": self.family, **self.options}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ServerTool):
            return NotImplemented
        return (self.family, self._options) == (other.family, other._options)

    def __hash__(self) -> int:
        return hash((self.family, self._options))

    def __repr__(self) -> str:
        return f"ServerTool({', '.join([repr(self.family), *(f'{k}={v!r}' for k, v in self.options.items())])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ServerTool, self.family, **self.options), ()


# flags at a function


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    ask: bool = False,
    main: bool = False,
    process: bool = False,
    alone: bool = False,
    pure: bool = False,
    safe: bool = False,
    timeout: float | None = None,
    uses: str | Iterable[str] = (),
    writes: str | Iterable[str] = (),
) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, name: str | None = None, timeout: float | None = None, **flags: Any) -> Any:
    """Set the flags of a function as a tool. The function itself is unchanged.

    A function needs this only for a flag: `--tools NAME` accepts any.

    Args:
        function: The function.
        name: Its name for the model; default the function's name.
        timeout: Seconds until a call is given up.
        **flags: `ask`: a person must approve each call. `main`: on the main thread, one at a time, for sqlite3, pyplot
            and widgets. `process`: in a separate process, for long computations. `alone`: no other tool of the agent
            beside it. `pure`: equal arguments give the same result, which may be reused. `safe`: a call that may have
            happened can be repeated. `uses`: names of resources it holds while it runs. `writes`: names or paths it
            changes.

    Raises:
        DeclarationError: An option is invalid.
    """
    options: dict[str, Any] = {}
    for flag, value in flags.items():
        if flag in {"uses", "writes"}:
            options[flag] = listed(value)
        elif flag not in FLAGS:
            known = (*FLAGS, "name", "timeout", "uses", "writes")
            raise DeclarationError(f"A tool has no option {flag!r}.{did_you_mean(flag, known)}")
        elif not isinstance(value, bool):
            raise must_be(f"{flag} of a tool", "True or False", value)
        else:
            options[flag] = value
    if options.get("main") and options.get("process"):
        raise DeclarationError("A tool has main=True and process=True. Give one of them.")
    if name is not None:
        options["name"] = _checked_name(name)
    if timeout is not None:
        check_positive("timeout of a tool", timeout)
        options["timeout_s"] = timeout

    def mark(function: Any) -> Any:
        check_function(function, "@am.tool")
        setattr(function, MARK, options)
        return function

    return mark if function is None else mark(function)


def _flags_of(function: Any) -> Mapping[str, Any]:
    for one in (function, getattr(function, "func", None), defined(function) if callable(function) else None):
        found: Any = getattr(one, MARK, None)
        if isinstance(found, Mapping):
            return cast("Mapping[str, Any]", found)
    return {}


# the tools of an agent


MOST_SEARCHES = 10
"""Maximum searches of a request without `max_uses` before it pauses. Source: the vendor's page on server tools."""


class Tools(tuple["Tool | ServerTool", ...]):  # noqa: SLOT001 - it has an attribute
    """The tools of an agent, each name once; `written` has the names as in a cell, if given so."""

    written: str = ""

    @cached_property
    def functions(self) -> tuple[Tool, ...]:
        """Their calls run here, and each needs another turn."""
        return tuple(one for one in self if isinstance(one, Tool))

    def named(self, name: str) -> Tool | None:
        return next((one for one in self.functions if one.name == name), None)

    @cached_property
    def most_searches(self) -> int:
        of_web = (one for one in self if isinstance(one, ServerTool) and one.family == "web_search")
        return sum(int(one.options.get("max_uses", MOST_SEARCHES)) for one in of_web)

    @cached_property
    def text(self) -> str:
        return json.dumps([one.definition() for one in self], ensure_ascii=True) if self else ""


def recorded_tools(definitions: Sequence[Mapping[str, Any]]) -> Tools:
    found: list[Tool | ServerTool] = []
    for one in definitions:
        if "input_schema" not in one:
            options = {name: value for name, value in one.items() if name not in {"type", "name"}}
            found.append(ServerTool(str(one["type"]), **options))
            continue
        flags: dict[str, Any] = {flag: bool(one.get(flag)) for flag in (*FLAGS, "strict")}
        sha = str(one.get("source_sha", ""))
        schema = json.dumps(one["input_schema"])
        found.append(Tool(str(one["name"]), str(one.get("description", "")), schema, source_sha=sha, **flags))
    return Tools(found)


@runtime_checkable
class Toolbox(Protocol):
    """Something with tools: `--tools NAME.*` takes all of them, `--tools NAME.TOOL` one."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...


def tools_of(
    given: object, names: Mapping[str, Any] = MappingProxyType({}), *, agent: str = "", schema: str = ""
) -> Tools:
    """Look up an agent's tools: `run_sql,web_search`, or a list of names, functions and tools."""
    if not isinstance(given, Iterable):
        raise must_be(f"tools of agent {agent!r}", "names: 'a,b', or a list of functions", given)
    parts = listed(given) if isinstance(given, str) else cast("Iterable[Any]", given)
    found: dict[str, Tool | ServerTool] = {}
    for part in parts:
        for one in _looked_up(part, names, agent) if isinstance(part, str) else _as_tools(part):
            if found.setdefault(one.name, one) != one:
                hint = "Give one of them another with @am.tool(name='...')."
                raise DeclarationError(f"Two tools of agent {agent!r} are named {one.name!r}.", agent=agent, hint=hint)
    tools = Tools(_within_limits(tuple(found.values()), schema))
    if isinstance(given, str):
        tools.written = given
    return tools


def _warn_of_silence(name: str, function: Any) -> None:
    hint = "The model knows a tool only by its docstring."
    with suppress(AttributeError, TypeError):  # some functions take no attributes
        if getattr(function, _SAID, False):
            return
        setattr(function, _SAID, True)
    warnings.warn(f"The tool {name!r} has no docstring. {hint}", UserWarning, stacklevel=3)


_SAID = "__agent_magic_has_no_docstring__"


def _as_tools(given: Any) -> Sequence[Tool | ServerTool]:
    if isinstance(given, Tool | ServerTool):
        return [given]
    return list(given.tools.values()) if isinstance(given, Toolbox) else [Tool.of(given)]


def _looked_up(written: str, names: Mapping[str, Any], agent: str) -> Sequence[Tool | ServerTool]:
    """Return the value of a name, of a toolbox too: `server.*`, `object.method`."""
    name, _, rest = written.partition(".")
    if name not in names:
        if written in FAMILIES:
            return [ServerTool(written)]
        own = (one for one in names if not one.startswith("_") and not hasattr(builtins, one))
        known = [*own, *FAMILIES]
        raise _unknown(
            written, known, agent, f"%agents mcp {name} COMMAND starts a server of that name." if rest else ""
        )
    value = names[name]
    if isinstance(value, Toolbox) and rest and rest != "*":
        if rest not in value.tools:
            raise _unknown(written, [f"{name}.{one}" for one in value.tools], agent)
        return [value.tools[rest]]
    if rest in {"", "*"}:
        wrong = not (callable(value) or isinstance(value, Tool | ServerTool | Toolbox))
        if wrong and written in FAMILIES:
            return [ServerTool(written)]
        if wrong or (rest and not isinstance(value, Toolbox)):
            message = f"--tools of agent {agent!r}: {written!r} is not a tool: {shown_value(value)}."
            raise DeclarationError(message, agent=agent, hint="Give the names of functions.")
        return _as_tools(value)
    if rest.startswith("_") or not rest.isidentifier() or not hasattr(value, rest):
        raise _unknown(written, [f"{name}.{one}" for one in dir(value) if not one.startswith("_")], agent)
    return _as_tools(getattr(value, rest))


def _unknown(name: str, known: Iterable[str], agent: str, instead: str = "") -> DeclarationError:
    hint = did_you_mean(name, known).strip() or instead or "Define the function in a cell above, and run that first."
    return DeclarationError(f"--tools of agent {agent!r}: {name!r} is not defined.", agent=agent, hint=hint)


def _within_limits(tools: tuple[Tool | ServerTool, ...], schema: str) -> tuple[Tool | ServerTool, ...]:
    """Make tools `strict` only as far as one request may have it. Source: the vendor's page on structured outputs."""
    optional, unions = map(len, counted(schema_of(schema), "")) if schema else (0, 0)
    strict, loose, found = 0, list[str](), list[Tool | ServerTool]()
    for one in tools:
        if isinstance(one, Tool) and one.strict:
            more = counted(schema_of(one.schema), one.name)
            strict, optional, unions = strict + 1, optional + len(more[0]), unions + len(more[1])
            if strict > MOST_STRICT or optional > MOST_OPTIONAL or unions > MOST_UNIONS:
                strict, optional, unions = strict - 1, optional - len(more[0]), unions - len(more[1])
                loose.append(one.name)
                found.append(replace(one, strict=False))
                continue
        found.append(one)
    if loose:
        shown = some_of(loose)
        limits = f"{MOST_STRICT} tools, {MOST_OPTIONAL} optional arguments and {MOST_UNIONS} of several types"
        message = f"The arguments of {shown} are checked only when they are here: a request takes {limits} checked."
        warnings.warn(message, UserWarning, stacklevel=3)
    return tuple(found)


MOST_CHARS = 100_000
"""Maximum characters of a result for the model: some 25,000 tokens, paid again in each later turn."""


class ToolResult(NamedTuple):
    """The result of one call, as sent to the model.

    Attributes:
        content: The text; with files, content blocks as JSON, with a sha256 instead of bytes.
        chars: Characters of the whole result.
    """

    content: str
    is_error: bool
    chars: int
    files: tuple[Attachment, ...] = ()


class _NoText(AgentMagicError): ...


def result_text(value: object, most: int = MOST_CHARS) -> ToolResult:
    """Return a tool's result for the model, at most `most` characters; the model is told of omissions."""
    if type(value) is str:
        text = sendable(value)
        return ToolResult(text, is_error=False, chars=len(text)) if len(text) <= most else _written(value, most)
    try:
        return run_user_code(lambda: _told(value, most), _failed)  # `__str__` and its like are the user's code
    except AgentMagicError as error:  # such a method may raise one of ours
        return error_text(str(error))


def _told(value: object, most: int) -> ToolResult:
    return _with_files(value, most) if holds_content(value) else _written(value, most)


def error_text(message: str, most: int = MOST_CHARS) -> ToolResult:
    """Return the message to the model about a failed or omitted call."""
    return ToolResult(sendable(message)[:most], is_error=True, chars=len(message))


def _failed(error: BaseException) -> _NoText:
    return _NoText(f"The tool ran, but what it returned cannot be sent: {plain_reason(error)}.")


def _with_files(value: Any, most: int) -> ToolResult:
    blocks: list[dict[str, Any]] = []
    files: dict[str, Attachment] = {}
    chars = 0
    for part in _parts(frozen(value, "result")):
        if isinstance(part, Attachment) and part.media_type != PLAIN_TEXT:
            files[part.sha256] = part
            blocks.append(part.block(part.sha256))
            continue
        plain = f"{part.label}\n{part.text}" if isinstance(part, Attachment) else part
        told = _written(plain, max(0, most - chars))
        chars += told.chars
        if told.content.strip():  # a block of nothing is refused
            blocks.append({"type": "text", "text": told.content})
    check_sizes(files.values(), "")
    found = tuple(files.values())
    return ToolResult(json.dumps(blocks, ensure_ascii=True), is_error=False, chars=chars, files=found)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a value in order, named ones with their names."""
    if isinstance(value, dict):
        for name, one in cast("dict[Any, Any]", value).items():
            yield f"{name}:"
            yield from _parts(one)
    elif isinstance(value, list | tuple) and holds_content(cast("list[Any]", value)):
        for one in cast("list[Any]", value):
            yield from _parts(one)
    else:
        yield value


def _written(value: Any, most: int) -> ToolResult:
    more, value = _start_of(value, most)
    text = sendable(_text(value))
    if len(text) <= most and not more:
        return ToolResult(text, is_error=False, chars=len(text))
    shown = text[: most if len(text) > most else None]
    left = f"{len(text) - len(shown):,} more characters" if not more else "the rest"
    said = f"{shown}\n[Cut here: {left} left out.{more} Ask for less, such as a selection or a sum.]"
    return ToolResult(said, is_error=False, chars=len(text))


def _start_of(value: Any, most: int) -> tuple[str, Any]:
    """Return a remark on the size of a table or an array that is too long, and the part of it that fits."""
    table = read_table(value)
    if table is not None and len(table) > (rows := most // (2 * max((1, *table.shape[1:]))) + 1):
        return f" There are {len(table):,} rows.", table.iloc[:rows]
    if table is None and is_array(value) and (count := count_cells(value)) > most:
        flat = value.toarray() if hasattr(value, "toarray") else value
        return f" There are {count:,} values.", flat.reshape(-1)[:most] if hasattr(flat, "reshape") else flat[:most]
    return "", value


def _text(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return str.__str__(value)
    if value is None:
        return "(done; there is no result)"
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{len(value):,} bytes that are no text") from None
    if is_table(value) or isinstance(value, Decimal):
        return as_text(value)
    try:
        return as_json(value)
    except (TypeError, ValueError):  # keys that are no text, what holds itself
        return as_text(value)
