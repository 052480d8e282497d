"""Templates of prompts and conditions: the names they use, and the text they render.

Most prompts are plain text with a few `{{ name }}`: one regular expression renders those, at a hundredth of the cost of
a template engine. Others use Jinja2's sandbox. A model's answer is inserted as a value, never parsed as a template.

Conditions are expressions of the same language: `--when "review.score < 4"`, `--until "critic.ok"`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from agent_magic.declare.content import Marking, Prompt
from agent_magic.declare.each import OWN
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import (
    HOLDS_ITSELF,
    MOST_CHARS,
    TOO_DEEP,
    TOO_LONG,
    RenderError,
    check_size,
    is_too_deep,
    same_name,
    sendable,
    value_text,
)
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.declare.each import Part
    from agent_magic.declare.options import StepOptions
    from agent_magic.declare.sandbox import Compiled

TRUE = "true"
ANSWER = "answer"
_SET = re.compile(r"(?<![=<>!])=(?!=)")
"""An assignment, never intended in a condition."""


@lru_cache(maxsize=1024)
def condition_of(text: str, agent: str = "", option: str = "when") -> Template:
    """Return a condition as a template that renders `TRUE` if it holds."""
    title = f"--{option} {text!r} of agent {agent!r}"
    example = "answer.confidence < 0.7" if option == "escalate" else "review.score < 4"
    hint = f'Write an expression over answers and values: --{option} "{example}".'
    if _SET.search(text):
        hint = f'Two equals signs compare: --{option} "review.score == 4".'
    if "{%" in text or "%}" in text or "{{" in text:
        raise DeclarationError(f"{title} is no expression: it has braces.", agent=agent, hint=hint)
    found = Template.parse(f"{{% if {text} %}}{TRUE}{{% endif %}}", agent=agent, title=title, hint=hint)
    if "len" in found.names:
        written = re.sub(r"\blen\(\s*([\w.]+)\s*\)", r"\1 | length", text)
        hint = f'A filter counts: --{option} "{written if written != text else "report | length > 5"}".'
        raise DeclarationError(f"{title} calls len(), which a condition cannot.", agent=agent, hint=hint)
    if not found.names:
        raise DeclarationError(f"{title} names no answer and no value.", agent=agent, hint=hint)
    return found


def conditions_of(step: StepOptions) -> dict[str, Template]:
    """Return a step's conditions by the names of their options."""
    given = {option: getattr(step, option) for option in ("when", "until")}
    return {option: condition_of(text, step.name, option) for option, text in given.items() if text is not None}


def check_flow(step: StepOptions) -> None:
    error = partial(DeclarationError, agent=step.name)
    conditions_of(step)  # refuses what is no expression
    if step.until is not None and step.rounds is None:
        raise error(f"{step.name!r} has until and no rounds.", hint="Say how many there may be: --rounds 3.")
    if step.until is None and step.rounds is not None:
        raise error(f"{step.name!r} has rounds and no until.", hint='Say when it is done: --until "critic.ok".')
    if step.repeat is not None and (step.each is not None or step.until is not None):
        raise error(f"{step.name!r} has repeat beside each or until.", hint="Give one of them.")
    if step.most is not None and step.each is None and step.part is None:
        raise error(f"{step.name!r} has most and no each.", hint="Say of what: --each planner.steps --most 40.")


def deciding_names(step: StepOptions) -> tuple[str, ...]:
    over = () if step.each is None else (step.each.partition(".")[0],)
    return tuple(dict.fromkeys([*over, *(name for one in conditions_of(step).values() for name in one.names)]))


def without_own(names: tuple[str, ...], each: str | None, part: Part | None) -> tuple[str, ...]:
    """Leave out a step's own item."""
    if each is None and (part is None or not part.has_item):
        return names
    return tuple(name for name in names if name not in OWN)


def holds(condition: Template, values: Mapping[str, object]) -> bool:
    return condition.render(values).text == TRUE


_SIMPLE = re.compile(r"\{\{\s*([^\W\d]\w*)\s*\}\}")
_WORDS = frozenset({"true", "false", "none", "True", "False", "None", "loop", "self"})
_TAGS = (
    "if|elif|else|endif|for|endfor|set|endset|raw|endraw|with|endwith|macro|endmacro|call|endcall|filter|endfilter|"
    "block|endblock|autoescape|endautoescape|include|import|from|extends|do|break|continue"
)
_LONE_TAG = re.compile(r"\{%(?![-+]?\s)(?![-+]?(?:" + _TAGS + r")\b)")
"""A `{%` that begins no tag, as in the C format string `{%d}`."""
_RAW = re.compile(r"(\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\})", re.DOTALL)
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_LONGEST_SHOWN = 60
_PLAIN_FAILURES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Usual errors of expressions, with messages that need no class beside them."""
_RETURN = "\ud800\udbff"
"""Replaces a carriage return, which Jinja2 would change: two surrogates that never occur together."""
_NO_TAG = "\ud801\udbfe"
"""Stands for a `{%` that begins no tag, while names are changed."""


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt's text with the names it uses.

    Attributes:
        pieces: Literal text and names in turn; empty if Jinja2 renders it.
        whole: Names written whole, not a part or a filter's result.
        apart: Names used otherwise than written whole or tested for existence.
        paths: Such as `('label', 'quotes', 0, 'text')`; numbers are items of lists.
        can_miss: Optional names, as in `{{ fix | default(draft) }}`.
    """

    text: str
    title: str
    agent: str
    names: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()
    paths: frozenset[tuple[str | int, ...]] = frozenset()
    can_miss: frozenset[str] = frozenset()
    numbers: frozenset[tuple[str | int, ...]] = frozenset()

    @classmethod
    def parse(cls, text: str, *, agent: str, title: str = "", hint: str = "") -> Template:
        """Parse an agent's text; errors call it `title`, and quote it unless there is a `hint`."""
        title = title or f"The prompt of agent {agent!r}"
        if "{{" not in text and "{%" not in text:
            return cls(text, title, agent, pieces=(text,))
        rest = _SIMPLE.sub("", text)
        names = tuple(dict.fromkeys(map(same_name, _SIMPLE.findall(text))))
        if "{{" not in rest and "{%" not in rest and not _WORDS.intersection(names):
            pieces = _SIMPLE.split(text)
            pieces[1::2] = map(same_name, pieces[1::2])
            return cls(text, title, agent, names, tuple(pieces), names)
        read = _parsed(text, agent, title, hint)
        order = tuple(sorted(read.names, key=lambda name: (_first_use(text, name), name)))
        whole = tuple(name for name in order if name in read.whole)
        return cls(text, title, agent, order, (), whole, read.apart, read.paths, read.can_miss, read.numbers)

    @property
    def simple(self) -> bool:
        return bool(self.pieces)

    @property
    def is_bare(self) -> bool:
        return self.simple and not "".join(self.pieces[::2]).strip()

    def render(self, values: Mapping[str, Any]) -> Prompt:
        """Fill the template in; lone surrogates, which no request can carry, become `U+FFFD`."""
        pieces = list(self.pieces)
        for index in range(1, len(pieces), 2):
            value = pieces[index] = values[pieces[index]]
            if type(value) is not str:
                break
        else:
            if pieces:  # most have nothing but texts
                return Prompt(self._joined(pieces))
        try:
            with Marking() as marks:
                return marks.placed(self._filled(values))
        except (RenderError, ValueError) as error:
            raise self._error(error) from None

    def _filled(self, values: Mapping[str, Any]) -> str:
        if not self.pieces:
            return sendable(_render(self.text, values, self.names))
        pieces = list(self.pieces)
        for index in range(1, len(pieces), 2):
            pieces[index] = value_text(pieces[index], values[pieces[index]])
        return self._joined(pieces)

    def _joined(self, pieces: list[str]) -> str:
        if sum(map(len, pieces)) > MOST_CHARS:
            raise self._error(TOO_LONG)
        text = "".join(pieces)
        return text if text.isascii() else sendable(text)

    def check_value(self, name: str, value: object) -> None:
        try:
            text = value_text(name, value)
        except RenderError as error:
            raise self._error(error) from None
        if len(text) > MOST_CHARS:
            raise self._error(f"{{{{ {name} }}}}: {TOO_LONG}")

    def _error(self, error: Exception | str) -> DeclarationError:
        said = str(error)
        end = "" if said.endswith("?") else "."
        return DeclarationError(f"{self.title} cannot be rendered: {said}{end}", agent=self.agent)

    def check_not_empty(self, text: str) -> str:
        """Return a rendered text; refuse an empty or blank one, as the API does."""
        if text and not text.isspace():
            return text
        cause = f"the values of {', '.join(self.names)}" if self.names else "its expressions"
        hint = f"Check its {{% if %}} conditions and {cause}." if "{%" in self.text else f"Check {cause}."
        raise DeclarationError(
            f"{self.title} is empty when rendered: there is nothing to send.", agent=self.agent, hint=hint
        )


def renamed_names(template: Template, names: Mapping[str, str]) -> str:
    """Rename variables, which must not also be, say, arguments of macros."""
    if names.keys().isdisjoint(template.names):
        return template.text
    if template.pieces:
        return _SIMPLE.sub(lambda found: f"{{{{ {names.get(same_name(found[1]), found[1])} }}}}", template.text)
    from agent_magic.declare.sandbox import renamed  # noqa: PLC0415 - it imports Jinja2

    text = renamed(_guarded(template.text, _NO_TAG), names).replace(_RETURN, "\r").replace(_NO_TAG, "{%")
    wanted = {names.get(name, name) for name in template.names}
    if set(Template.parse(text, agent=template.agent, title=template.title).names) != wanted:
        message = f"{template.title} cannot join another plan: it uses one name for several things."
        raise DeclarationError(message, agent=template.agent, hint="Give its macro or loop variable another name.")
    return text


def _guarded(text: str, lone_tag: str = "{{ '{%' }}") -> str:
    """Replace what Jinja2 would change: carriage returns, and each `{%` that begins no tag."""
    text = sendable(text).replace("\r", _RETURN)
    if "{%" not in text:
        return text
    parts = _RAW.split(text)
    return "".join(part if index % 2 else _LONE_TAG.sub(lone_tag, part) for index, part in enumerate(parts))


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> Compiled:
    from agent_magic.declare.sandbox import Compiled  # noqa: PLC0415 - it imports Jinja2

    return Compiled(_guarded(text))


def _parsed(text: str, agent: str, title: str, hint: str) -> Compiled:
    from jinja2 import TemplateSyntaxError

    try:
        return _compiled(text)
    except (SyntaxError, RecursionError):
        message = f"{title} cannot be read: its expressions are nested too deeply."
        raise DeclarationError(message, agent=agent, hint="Work the value out in a cell, and use its name.") from None
    except TemplateSyntaxError as error:
        lines = text.splitlines() or [""]
        line = lines[min(error.lineno, len(lines)) - 1].strip()
        why = (error.message or "a syntax error").rstrip(".").replace("'end of statement block'", "end")
        where = "" if hint else f" in line {error.lineno}, {line[:_LONGEST_SHOWN]!r}"
        message = f"{title} cannot be read{where}: {why}."
        hint = hint or "To send braces as they are, put {% raw %} before and {% endraw %} behind them."
        raise DeclarationError(message, agent=agent, hint=hint) from None


def _first_use(text: str, name: str) -> int:
    match = re.search(rf"\b{re.escape(name)}\b", same_name(text))
    return match.start() if match else len(text)


def _render(text: str, values: Mapping[str, Any], names: Iterable[str]) -> str:
    """Render a prompt with Jinja2; the user's expressions and values can fail in any way."""
    used = {name: values[name] for name in names if name in values}
    return run_user_code(lambda: _rendered(text, used), lambda error: _failed(error, text, used))


def _rendered(text: str, values: dict[str, Any]) -> str:
    size, parts = 0, list[str]()
    for part in _compiled(text).parts(values):
        parts.append(part)
        size += len(part)
        check_size(size)
    return "".join(parts).replace(_RETURN, "\r")


def _failed(error: BaseException, text: str, values: Mapping[str, Any]) -> RenderError:
    from jinja2 import TemplateError

    why = str(error).rstrip(".") or type(error).__name__
    if not isinstance(error, (TemplateError, *_PLAIN_FAILURES)):
        why = reason_of(error)
    if isinstance(error, RecursionError) or HOLDS_ITSELF in why:
        deep = [name for name, value in values.items() if is_too_deep(value)]
        why = f"{', '.join(deep) or 'a value'} {TOO_DEEP}"
    empty = [name for name, value in values.items() if value is None]
    if empty and why.startswith(("'None' has no ", "'NoneType' object ")):
        why += (
            f"; {empty[0]} has no value here, as in the first round of a loop: put {{% if {empty[0]} %}} before it and "
            "{% endif %} behind it"
        )
    return RenderError(f"{_place_of(error, text)}{why}")


def _place_of(error: BaseException, text: str) -> str:
    """Return the line with an error, and its expressions if short."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            template = trace.tb_frame.f_globals.get("__jinja_template__")  # Jinja2 maps the lines of an `Exception`
            line = trace.tb_lineno if template is None else template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    if not line:
        return ""
    found = _EXPRESSION.findall(text.split("\n")[line - 1])
    shown = " ".join(found)
    return f"line {line}, {shown}: " if 0 < len(shown) <= _LONGEST_SHOWN else f"line {line}: "
