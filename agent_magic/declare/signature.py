"""Metadata of functions for tools and tasks: name, typed parameters, documentation, source."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
import typing
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import DeclarationError, shown_value

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
