"""Prompt templates: which names a prompt uses, and the text it becomes.

Most prompts are plain text with a few `{{ name }}`. Those are read and rendered here by one regular expression, at a
hundredth of the cost of a template engine. Everything else goes to Jinja2's immutable sandbox with strict undefined
names. Both ways give the same text.

What a model answered is inserted as a value: it is never read as a template again.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.serialization import as_json, as_text, sendable, value_text
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from jinja2 import Environment
    from jinja2.nodes import Node

_SIMPLE = re.compile(r"\{\{\s*([^\W\d]\w*)\s*\}\}")
"""`{{ name }}` and nothing else between the braces."""
_WORDS = frozenset({"true", "false", "none", "True", "False", "None", "loop", "self"})
_TAGS = (
    "if|elif|else|endif|for|endfor|set|endset|raw|endraw|with|endwith|macro|endmacro|call|endcall|filter|endfilter|"
    "block|endblock|autoescape|endautoescape|include|import|from|extends|do|break|continue"
)
_LONE_TAG = re.compile(r"\{%(?![-+]?\s)(?![-+]?(?:" + _TAGS + r")\b)")
"""A `{%` that begins no tag, as in the C format string `{%d}`."""
_BRACES = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_LONGEST_SHOWN = 60
_RAW = re.compile(r"(\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\})", re.DOTALL)
_REPEATED = (str, bytes, list, tuple)
"""What a whole number repeats."""
_FAILS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The ways an expression of the user's can fail."""
_LOOK = "Look at the expressions between its braces."
_RETURN = "\ud800\udbff"
"""Stands for a carriage return, which Jinja2 would make a line feed of. Two surrogates that are no text together."""
MOST_CHARS = 32_000_000
"""How long an expression may make a prompt. A request has at most 32 MB.

Source: https://platform.claude.com/docs/en/api/overview, "Request size limits"."""
GLOBALS = frozenset({"range", "dict"})
"""The functions a prompt may call."""
_NO_COLUMN = "'agent_magic.declare.each.Row object' has no attribute"
"""What Jinja2 says of a cell that is not there."""
_NO_COMMENT = ("\x00{#", "#}\x00")
"""Jinja2 insists on comment marks. With these no prompt has comments, so `${#list[@]}` stays as it is."""


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt's text with the names it uses.

    Attributes:
        text: As the user wrote it.
        names: The names it reads, in order of first appearance.
        simple: Whether it holds nothing but `{{ name }}`.
        pieces: Of a simple one, its literal text and its names in turn.
    """

    text: str
    names: tuple[str, ...]
    simple: bool
    pieces: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, agent: str, title: str = "") -> Template:
        """Read a prompt, or other text that goes out.

        Args:
            text: What the user wrote.
            agent: Whose it is.
            title: How an error calls it, where it is no agent's prompt.

        Raises:
            DeclarationError: It is not a template; the message names the line.
        """
        if "{{" not in text and "{%" not in text:
            return cls(text, (), simple=True, pieces=(text,))
        rest = _SIMPLE.sub("", text)
        names = tuple(dict.fromkeys(_SIMPLE.findall(text)))
        plain = "{{" not in rest and "{%" not in rest
        if plain and not _WORDS.intersection(names):
            return cls(text, names, simple=True, pieces=tuple(_SIMPLE.split(text)))
        return cls(text, _jinja_names(text, agent, title or f"The prompt of {agent!r}"), simple=False)

    def takes_apart(self, names: Collection[str]) -> bool:
        """Tell whether it does more with one of these names than write it whole, or ask whether it is there."""
        if self.simple:
            return False
        from jinja2 import nodes

        tree = _environment().parse(_literal_tags(self.text))
        whole = [child for node in tree.find_all(nodes.Output) for child in node.nodes]
        whole += [node.test for node in tree.find_all(nodes.If)]
        of_them = [node for node in tree.find_all(nodes.Name) if node.name in names]
        return any(not any(node is one for one in whole) for node in of_them)

    @property
    def whole(self) -> tuple[str, ...]:
        """The names that it writes whole, not a part of them or what a filter makes of them."""
        if self.simple:
            return self.names
        from jinja2 import nodes

        tree = _environment().parse(_literal_tags(self.text))
        found = (child for node in tree.find_all(nodes.Output) for child in node.nodes)
        return tuple(dict.fromkeys(one.name for one in found if isinstance(one, nodes.Name) and one.name in self.names))

    def render(self, values: Mapping[str, Any]) -> str:
        """Fill the template in.

        Args:
            values: A value for each of `names`.

        Returns:
            The text to send. Lone surrogates, which no request can carry, have become `U+FFFD`.

        Raises:
            DeclarationError: A template expression failed.
            KeyError: A simple template's name has no value.
        """
        if self.simple:
            pieces = list(self.pieces)
            for place in range(1, len(pieces), 2):
                value = values[pieces[place]]
                pieces[place] = value if isinstance(value, str) else value_text(value)
            return sendable("".join(pieces))
        return sendable(_render_jinja(self.text, {name: values[name] for name in self.names if name in values}))


@functools.lru_cache(maxsize=1)
def _environment() -> Environment:
    """Build the sandbox, on first need: importing Jinja2 takes longer than all the rest of a load."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """The sandbox, in which no expression takes all time and room."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Multiply, where the result is of a size that a prompt can use."""
            if _result_size(operator, left, right) > MOST_CHARS:
                raise OverflowError(f"{operator!r} makes more than {MOST_CHARS:,} characters of it")
            return super().call_binop(context, operator, left, right)

    sandbox = Sandbox(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
        comment_start_string=_NO_COMMENT[0],
        comment_end_string=_NO_COMMENT[1],
        finalize=as_text,
    )
    filters = cast("dict[str, Any]", sandbox.filters)  # pyright: ignore[reportUnknownMemberType]
    filters["tojson"] = as_json
    known = cast("dict[str, Any]", sandbox.globals)  # pyright: ignore[reportUnknownMemberType]
    for name in set(known) - GLOBALS:
        del known[name]
    return sandbox


def _result_size(operator: str, left: Any, right: Any) -> float:
    """Return how large a product or a power of whole numbers and sequences is at most; 0 for all other values."""
    if operator == "**":
        return left.bit_length() * right / 3 if isinstance(left, int) and isinstance(right, int) else 0
    many: Any
    many, times = (right, left) if isinstance(left, int) else (left, right)
    return len(cast("str", many)) * times if isinstance(times, int) and isinstance(many, _REPEATED) else 0


def _literal_tags(text: str) -> str:
    """Guard what Jinja2 would change: carriage returns, and each `{%` that begins no tag, outside raw blocks."""
    text = sendable(text).replace("\r", _RETURN)
    if "{%" not in text:
        return text
    parts = _RAW.split(text)
    return "".join(part if index % 2 else _LONE_TAG.sub("{{ '{%' }}", part) for index, part in enumerate(parts))


def _jinja_names(text: str, agent: str, title: str) -> tuple[str, ...]:
    """Let Jinja2 read the prompt and say which names it needs."""
    from jinja2 import TemplateSyntaxError

    try:
        return _found_names(text)
    except (SyntaxError, RecursionError):
        message = f"{title} cannot be read: its expressions are nested too deeply."
        raise DeclarationError(message, agent=agent, hint="Work the value out in a cell, and use its name.") from None
    except TemplateSyntaxError as error:
        lines = text.splitlines() or [""]
        line = lines[min(error.lineno, len(lines)) - 1].strip()
        why = (error.message or "a syntax error").rstrip(".")
        message = f"{title} cannot be read in line {error.lineno}, {line[:60]!r}: {why}."
        hint = "To send braces as they are, put {% raw %} before and {% endraw %} behind them."
        raise DeclarationError(message, agent=agent, hint=hint) from None


@functools.lru_cache(maxsize=512)
def _found_names(text: str) -> tuple[str, ...]:
    """Read a prompt's names, first use first; once where many agents have one prompt."""
    from jinja2 import meta, nodes

    environment = _environment()
    tree = environment.parse(_literal_tags(text))
    _refuse_loading(next(tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)), None))
    found = meta.find_undeclared_variables(tree) - GLOBALS
    environment.from_string(_literal_tags(text))
    return tuple(sorted(found, key=lambda name: _first_use(text, name)))


def _refuse_loading(node: Node | None) -> None:
    """Raise for a tag that would load another template."""
    from jinja2 import TemplateSyntaxError

    if node is not None:
        raise TemplateSyntaxError("a prompt stands alone and cannot load other templates", node.lineno)


def _first_use(text: str, name: str) -> int:
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return match.start() if match else len(text)


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> Any:
    return _environment().from_string(_literal_tags(text))


def _render_jinja(text: str, values: dict[str, Any]) -> str:
    """Fill a prompt in. Its expressions are the user's, so they can fail in any way."""
    return run_user_code(lambda: _filled_in(text, values), lambda error: _failed(error, text))


def _filled_in(text: str, values: dict[str, Any]) -> str:
    size, parts = 0, list[str]()
    for part in _compiled(text).generate(values):
        parts.append(part)
        size += len(part)
        if size > MOST_CHARS:
            why = f"it has more than {MOST_CHARS:,} characters, and no request can be as long"
            raise DeclarationError(f"A prompt could not be filled in: {why}.", hint=_LOOK)
    return "".join(parts).replace(_RETURN, "\r")


def _failed(error: BaseException, text: str) -> DeclarationError:
    """Say that a prompt cannot be filled in, and why."""
    from jinja2 import TemplateError

    why = str(error).replace(_NO_COLUMN, "the row has no column").rstrip(".") or type(error).__name__
    if not isinstance(error, (TemplateError, *_FAILS)):
        why = reason_of(error)
    return DeclarationError(f"A prompt could not be filled in: {_place_of(error, text)}{why}.", hint=_LOOK)


def _place_of(error: BaseException, text: str) -> str:
    """Say in which line of a prompt an error was raised, and by which expression where the line has only one."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            template = trace.tb_frame.f_globals.get("__jinja_template__")  # Jinja2 maps the lines of an `Exception`
            line = trace.tb_lineno if template is None else template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    if not line:
        return ""
    found = _BRACES.findall(text.split("\n")[line - 1])
    return f"line {line}, {found[0]}: " if len(found) == 1 and len(found[0]) <= _LONGEST_SHOWN else f"line {line}: "
