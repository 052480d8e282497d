"""A task: a Python function that is a step of a plan. Its parameters are its edges, by name.

For an agent with `--each`, it receives a frame: a row per item, with the items' index, a column per field of a typed
answer or else `answer`, then `status` and `error`.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar, overload

from agent_magic.declare.answers.reading import plain, wrong_fields
from agent_magic.declare.answers.returns import modern
from agent_magic.declare.each import Part
from agent_magic.declare.options import (
    TASK,
    NothingOfAgents,
    TaskOptions,
    check_options,
    documented,
    known_keywords,
    settle_options,
    step_text,
    to_plain,
)
from agent_magic.declare.resources import check_uses
from agent_magic.declare.signature import (
    NOTHING,
    Parameter,
    check_function,
    is_async,
    name_of,
    parameters_of,
    source_sha,
)
from agent_magic.declare.template import Template, check_flow, deciding_names, without_own
from agent_magic.declare.tool import Tools
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import check_name, compare_names, listed, must_be
from agent_magic.errors import DeclarationError, InvalidArguments, did_you_mean, shown_value

F = TypeVar("F", bound="Callable[..., Any]")

MARK = "_agent_magic_task"
LISTENERS: list[Callable[[Task, Mapping[str, Any]], None]] = []
"""Called with each marked function and its module's variables: a decorator has no other way to its notebook."""


@known_keywords
@documented
@dataclass(frozen=True, slots=True, repr=False)
class Task(TaskOptions, NothingOfAgents):
    """A declared Python function. Declaring one runs nothing.

    Args:
        name: The key: an identifier, for `{{ name }}` in prompts, and `name` as a parameter of other tasks.
        function: The function, called with the values its parameters name: results of agents and tasks, or variables.
            A default makes a parameter optional: it is used if the parameter's name is undefined.
        returns: Type of the answer it takes from a reply; see `agent_magic.declare.grouping`. Set by plans.
        source_sha: Hash of the function's source, read from it; empty if unknown.
        takes: The function's parameters, read from it.

    Raises:
        DeclarationError: The name, an option or a parameter is invalid.
    """

    function: Callable[..., Any] = field(compare=False, repr=False)
    returns: Any = field(default=None, kw_only=True, repr=False, compare=False)
    source_sha: str = field(default="", kw_only=True, repr=False)
    takes: tuple[Parameter, ...] | None = field(default=None, kw_only=True, repr=False, compare=False)

    is_task: ClassVar[bool] = True
    """True for a Python function, which asks no model."""
    other_models: ClassVar[tuple[str, ...]] = ()
    """This and the following are empty: only agents have them, but code reads them from all steps."""
    template: ClassVar[Template] = Template.parse("", agent="")
    prompt: ClassVar[str] = ""
    prefix: ClassVar[None] = None
    system_text: ClassVar[None] = None
    schema: ClassVar[str] = ""
    tools: ClassVar[Tools] = Tools()
    tools_text: ClassVar[str] = ""
    sent: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a task")
        what = f"task {self.name!r}"
        check_function(self.function, what)
        _check_options(self)
        if self.takes is None:  # once for all parts of an `each`
            object.__setattr__(self, "takes", parameters_of(self.function, what, lenient=True))
            object.__setattr__(self, "source_sha", source_sha(self.function))
        settle_options(self)
        check_uses(self.uses_resources)
        compare_names(self)
        for_items = self.each is not None or (self.part is not None and self.part.has_item and not self.part.asked)
        if for_items and not self.race and "item" not in self.parameters:
            message = f"The task {self.name!r} is declared for each item, and has no parameter for it."
            raise DeclarationError(message, agent=self.name, hint=f"Write def {name_of(self.function)}(item): ...")

    def __repr__(self) -> str:
        return step_text(self)

    @classmethod
    def declared(cls, given: object) -> Task | None:
        """Return the task declared by `am.task` for a function, if any.

        Args:
            given: The function, or any other value.
        """
        found: Any = getattr(given, MARK, None)
        return found if isinstance(found, cls) else None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the function's parameters, in order."""
        return tuple(one.name for one in self.takes or ())

    @property
    def optional(self) -> frozenset[str]:
        """The names it can do without: those with a default."""
        return frozenset(one.name for one in self.takes or () if one.default is not NOTHING)

    @property
    def uses(self) -> tuple[str, ...]:
        """The names it takes, of steps and values, in order. Some may be optional."""
        return without_own(self.parameters, self.each, self.part)

    @property
    def can_miss(self) -> frozenset[str]:
        """The names it can do without: those with a default; of a race, all that are not first."""
        return frozenset(self.parameters) if self.race else self.optional

    @property
    def reads(self) -> tuple[str, ...]:
        """All names it needs: its parameters, those in its conditions, and `each`."""
        return (*self.uses, *deciding_names(self))

    @property
    def is_async(self) -> bool:
        """True for an `async def`, which runs on the loop."""
        return is_async(self.function)

    @property
    def is_recorded(self) -> bool:
        """True if it was read from a record, which has no functions."""
        return self.function is _gone  # a race's is here

    def with_defaults(self, **defaults: object) -> Task:
        """Return the task itself: a session's defaults concern requests.

        Args:
            **defaults: Values by option. They change nothing.
        """
        del defaults
        return self

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments converted to the function's annotations.

        A text becomes a number if required, and a typed answer an object of the named class. Frames, and other values
        pydantic does not know, are passed on unchanged if they have the named class.

        Args:
            arguments: The values by parameter.

        Raises:
            InvalidArguments: One has another type; the message names it.
        """
        if not arguments:
            return {}
        kinds = {one.name: one.kind for one in self.takes or ()}
        return {name: _fitted(name, kinds.get(name, NOTHING), value) for name, value in arguments.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out the function and its types: they may not be importable elsewhere, and a record needs none."""
        defaults = ((one.name, NOTHING if one.default is NOTHING else None) for one in self.takes or ())
        takes = tuple(Parameter(name, NOTHING, default) for name, default in defaults)
        options = {name: getattr(self, name) for name in TASK}
        known = {"returns": self.returns, "source_sha": self.source_sha, "takes": takes}
        return _rebuilt, (self.name, {**options, **known})

    def __deepcopy__(self, _: object) -> Task:
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without its function and its edges."""
        plain = {name: value for name, value in to_plain(self).items() if name != "after"}
        parameters = {"parameters": list(self.parameters), "optional": sorted(self.optional)}
        return {"name": self.name, "kind": "task", **plain, **parameters, "source_sha": self.source_sha}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], part: Part | None = None) -> Task:
        """Return a task from plain data. It has no function, so it can be shown and replayed, not run.

        Args:
            data: Result of `to_dict`, with `after`.
            part: Its position in its group.
        """
        optional = set(data.get("optional", ()))
        takes = tuple(Parameter(one, NOTHING, None if one in optional else NOTHING) for one in data["parameters"])
        options = {name: data[name] for name in TASK if name in data and name != "part"}
        known = {"source_sha": str(data.get("source_sha", "")), "takes": takes, "part": part}
        return _rebuilt(str(data["name"]), {**options, **known})


_RENAMED = {"timeout": "timeout_s", "uses": "uses_resources"}
_AT_FUNCTION = [name for name, row in TASK.items() if row.form != "none" and name not in _RENAMED.values()]


def _rebuilt(name: str, options: dict[str, Any]) -> Task:
    return Task(name, first_answer if options.get("race") else _gone, **options)


def _gone(**_: object) -> None:
    raise DeclarationError("This task was read from a record, which has no functions: declare it again to run it.")


def _check_options(task: Task) -> None:
    error = partial(DeclarationError, agent=task.name)
    check_options(task, f"task {task.name!r}")
    check_flow(task)
    if task.main and task.process:
        raise error(f"Task {task.name!r} has main=True and process=True. Give one of them.")
    if task.main and is_async(task.function):
        raise error(f"Task {task.name!r} is async, so it runs on the loop anyway. Leave main=True out.")


def _fitted(name: str, kind: Any, value: Any) -> Any:
    if kind is NOTHING or kind is Any or isinstance(kind, typing.TypeVar):
        return value

    def failed(error: BaseException) -> InvalidArguments:
        return InvalidArguments(f"{name}: {wrong_fields(error) or reason_of(error)}, got {shown_value(value)}")

    if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1):
        value = value.item()
    adapter = _adapter(_Same(kind))
    if adapter is None:
        if isinstance(kind, type) and not isinstance(value, kind):
            wrong = f"{name}: must be of type {kind.__name__}, got {shown_value(value)}"
            raise InvalidArguments(wrong)
        return value
    return run_user_code(lambda: adapter.validate_python(plain(value)), failed)


class _Same:
    """A type as a key by identity, since an equal one may differ, such as a union in another order."""

    __slots__ = ("kind",)

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __hash__(self) -> int:
        return id(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.kind is other.kind


@functools.lru_cache(maxsize=256)
def _adapter(of: _Same) -> Any:
    """Return a type's reader; `None` if pydantic does not know the type, or the class fails."""
    import pydantic

    try:
        return pydantic.TypeAdapter(modern(of.kind))
    except Exception:  # noqa: BLE001 - any error of a user's class
        return None


@overload
def task(function: F, /) -> F: ...
@overload
def task(
    *,
    name: str | None = None,
    each: str | None = None,
    most: int | None = None,
    repeat: int | None = None,
    when: str | None = None,
    until: str | None = None,
    rounds: int | None = None,
    priority: int = 0,
    expect: float | None = None,
    after: str | Iterable[str] = (),
    timeout: float | None = None,
    retries: int = 0,
    concurrency: int | None = None,
    pure: bool = False,
    main: bool = False,
    process: bool = False,
    uses: str | Iterable[str] = (),
    writes: str | Iterable[str] = (),
) -> Callable[[F], F]: ...
def task(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    uses: str | Iterable[str] = (),
    **options: Any,
) -> Any:
    """Declare a function as a step. The function itself is unchanged, to be called and tested.

    Args:
        function: The function.
        name: The step's name; default the function's.
        timeout: Seconds until a call is given up.
        uses: Names of resources it holds while it runs.
        **options: `each`, `most`, `repeat`, `when`, `until`, `rounds`, `priority`, `expect`, `after`, `retries`,
            `concurrency`, `pure`, `main`, `process`, `writes`; see `Task`.

    Raises:
        DeclarationError: An option is invalid, or a parameter cannot be an edge.
    """
    if unknown := [one for one in options if one not in _AT_FUNCTION]:
        known = ("name", *_RENAMED, *_AT_FUNCTION)
        hint = did_you_mean(unknown[0], known).strip() or f"It has {', '.join(known)}."
        raise DeclarationError(f"A task has no option {unknown[0]!r}.", hint=hint)
    options = {**options, "timeout_s": timeout, "uses_resources": uses}

    def mark(function: Any) -> Any:
        check_function(function, "@am.task")
        made = Task(name or name_of(function), function, **options)
        setattr(function, MARK, made)
        variables: Any = getattr(function, "__globals__", {})
        for tell in LISTENERS:
            tell(made, variables)
        return function

    return mark if function is None else mark(function)


async def first_answer(**answers: Any) -> Any:  # its source is in the fingerprint of every race
    """Return the only answer left: agents that have lost are left out."""
    return next(iter(answers.values()))


def first_of(name: str, agents: str | Iterable[str]) -> Task:
    """Declare a step with the first answer of several agents as its value; the others are then cancelled.

    Args:
        name: The key; `{{ name }}` is the first answer.
        agents: The names of the agents: a list, or `"a,b"`. No other step may use them.

    Raises:
        DeclarationError: These are not two or more names.
    """
    if not isinstance(agents, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be(f"first_of {name!r}", "names: 'a,b', or a list", agents)
    names = tuple(dict.fromkeys(listed(agents)))
    for one in names:
        check_name(one, "an agent")
    if len(names) < 2:
        raise must_be(f"first_of {name!r}", "the names of two agents or more", ",".join(names))
    return Task(name, first_answer, race=True, takes=tuple(Parameter(one, NOTHING, NOTHING) for one in names))
