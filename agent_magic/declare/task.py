"""A task: a Python function that is a step of a plan. Its parameters are its edges, by their names.

```
@am.task
def worst(label) -> pd.DataFrame:             # takes what the agent `label` answered, or the variable of that name
    return label[label.sentiment == "negative"].head(5)

%%agent report
What do these have in common? {{ worst }}
```

Of an agent that is asked `--each`, it takes a frame: a row per item, with the index of what the items are from, a
column per field of a typed answer or else `answer`, then `status` and `error` of the row. What was measured is in
`run.each("label")`.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from agent_magic.declare.alike import Copied
from agent_magic.declare.condition import FLOW, check_flow, deciding_names, without_own
from agent_magic.declare.each import Part
from agent_magic.declare.race import first_answer
from agent_magic.declare.returns import modern, wrong_fields
from agent_magic.declare.signature import (
    NOTHING,
    Parameter,
    check_function,
    is_async,
    name_of,
    parameters_of,
    source_sha,
)
from agent_magic.declare.template import Template
from agent_magic.declare.tool import Tools
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import check_integer, check_name, check_positive, check_text, listed, must_be
from agent_magic.declare.values import plain
from agent_magic.errors import DeclarationError, InvalidArguments, did_you_mean, shown_value

if TYPE_CHECKING:
    from collections.abc import Sequence

F = TypeVar("F", bound="Callable[..., Any]")

MARK = "_agent_magic_task"
"""The attribute of a function that holds its task."""
FLAGS = ("pure", "main", "process")
LISTENERS: list[Callable[[Task, Mapping[str, Any]], None]] = []
"""Are told of each function that `task` marks, with the variables of the module that does it: a notebook declares the
tasks of its cells. A decorator has no other way to the notebook it is used in."""


@dataclass(frozen=True, slots=True)
class Task(Copied):
    """A declared Python function. Declaring one runs nothing.

    Args:
        name: The key: an identifier, so that `{{ name }}` works in prompts, and `name` as a parameter of other tasks.
        function: What is called, with the values its parameters name: what agents and tasks returned, or variables.
            A default makes a parameter optional: it counts where nothing has the parameter's name.
        each: The name of a list, dict, Series or DataFrame: a plan has one task per item, which it takes as the
            parameter `item`, and its key as `key`; see `agent_magic.declare.each`.
        most, repeat, when, until, rounds, priority, expect: As those of `Agent`.
        after: Steps that must have succeeded before, whose results it does not use: a list, or `"a,b"`.
        timeout_s: Seconds until a call is given up; `None` waits.
        retries: How often a call that failed is made again.
        concurrency: How many of the tasks of one `each` run at once; `None` is the run's.
        pure: Whether its result depends on its arguments only: it may be served again.
        main: Whether it runs on the main thread, one call at a time: sqlite3, pyplot, widgets.
        process: Whether it runs in a process of its own, for long computing: at a Dask worker where requests go to
            workers, else here, where it has to be importable.
        uses_resources: The names of the resources it holds while it runs.
        writes: What it changes: names or paths.
        part: Which one of those for each item it is. Plans set it.
        returns: The type of the answer it takes out of a reply; see `agent_magic.declare.grouping`. Plans set it.
        race: Whether it takes the first of what its parameters name; see `first_of`.
        source_sha: Hash of the function's source; empty where unknown. It is read from the function.
        takes: The function's parameters. They are read from it.

    Raises:
        DeclarationError: The name, an option or a parameter cannot be used.
    """

    name: str
    function: Callable[..., Any] = field(compare=False, repr=False)
    each: str | None = field(default=None, kw_only=True)
    most: int | None = field(default=None, kw_only=True)
    repeat: int | None = field(default=None, kw_only=True)
    when: str | None = field(default=None, kw_only=True)
    until: str | None = field(default=None, kw_only=True)
    rounds: int | None = field(default=None, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    expect: float | None = field(default=None, kw_only=True, compare=False)
    after: Sequence[str] = field(default=(), kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)
    retries: int = field(default=0, kw_only=True)
    concurrency: int | None = field(default=None, kw_only=True)
    pure: bool = field(default=False, kw_only=True)
    main: bool = field(default=False, kw_only=True)
    process: bool = field(default=False, kw_only=True)
    uses_resources: Sequence[str] = field(default=(), kw_only=True)
    writes: Sequence[str] = field(default=(), kw_only=True)
    part: Part | None = field(default=None, kw_only=True, repr=False, hash=False)
    returns: Any = field(default=None, kw_only=True, repr=False, compare=False)
    race: bool = field(default=False, kw_only=True)
    source_sha: str = field(default="", kw_only=True, repr=False)
    takes: tuple[Parameter, ...] | None = field(default=None, kw_only=True, repr=False, compare=False)

    is_task: ClassVar[bool] = True
    """Whether it is a Python function, and asks no model."""
    fallback: ClassVar[tuple[str, ...]] = ()
    cascade: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    chosen: ClassVar[str] = ""
    escalate: ClassVar[None] = None
    other_models: ClassVar[tuple[str, ...]] = ()
    batch: ClassVar[None] = None
    template: ClassVar[Template] = Template.parse("", agent="")
    system: ClassVar[None] = None
    role: ClassVar[None] = None
    prompt: ClassVar[str] = ""
    """This and what follows is what only an agent has, since steps of both kinds are asked for it."""
    model: ClassVar[None] = None
    max_tokens: ClassVar[None] = None
    expect_out: ClassVar[None] = None
    effort: ClassVar[None] = None
    context: ClassVar[None] = None
    prefix: ClassVar[None] = None
    system_text: ClassVar[None] = None
    check: ClassVar[None] = None
    group: ClassVar[None] = None
    hedge: ClassVar[None] = None
    speculate: ClassVar[bool] = False
    hedges: ClassVar[None] = None
    schema: ClassVar[str] = ""
    tools: ClassVar[Tools] = Tools()
    max_turns: ClassVar[None] = None
    tools_text: ClassVar[str] = ""
    ask: ClassVar[bool] = False
    attach: ClassVar[tuple[str, ...]] = ()
    cite: ClassVar[bool] = False
    save: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_name(self.name, "a task")
        what = f"task {self.name!r}"
        check_function(self.function, what)
        _check_options(self)
        if self.takes is None:  # once for all parts of an `each`
            object.__setattr__(self, "takes", parameters_of(self.function, what, lenient=True))
            object.__setattr__(self, "source_sha", source_sha(self.function))
        for option in ("after", "uses_resources", "writes"):
            object.__setattr__(self, option, listed(getattr(self, option)))
        for_items = self.each is not None or (self.part is not None and self.part.has_item and not self.part.asked)
        if for_items and not self.race and "item" not in self.parameters:
            message = f"The task {self.name!r} is declared for each item, and has no parameter for it."
            raise DeclarationError(message, agent=self.name, hint=f"Write def {name_of(self.function)}(item): ...")

    @classmethod
    def declared(cls, given: object) -> Task | None:
        """Return the task that a function was declared to be by `am.task`; `None` where it was not.

        Args:
            given: The function, or anything else.
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
        """All names it needs: its parameters, those of its conditions, and what it is declared for each of."""
        return (*self.uses, *deciding_names(self))

    @property
    def is_async(self) -> bool:
        """Whether it is an `async def`, which runs on the loop."""
        return is_async(self.function)

    @property
    def is_recorded(self) -> bool:
        """Whether it was read from a record, which has no functions."""
        return self.function is _gone  # that of a race is here

    def with_defaults(self, **defaults: object) -> Task:
        """Return the task itself: the defaults of a session are about requests.

        Args:
            **defaults: Values by option. They change nothing.
        """
        del defaults
        return self

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the annotations of the function say they are.

        A text becomes a number where one is asked for, and a typed answer an object of the class that is named. A
        frame, or whatever else pydantic does not know, is passed on as it is if it is of its class.

        Args:
            arguments: The values by parameter.

        Raises:
            InvalidArguments: One is of another type; the message names it.
        """
        if not arguments:
            return {}
        kinds = {one.name: one.kind for one in self.takes or ()}
        return {name: _fitted(name, kinds.get(name, NOTHING), value) for name, value in arguments.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the function and its types out: they may not be importable elsewhere, and a record needs none."""
        takes = tuple(Parameter(one.name, NOTHING, _bare(one.default)) for one in self.takes or ())
        options = {name: getattr(self, name) for name in _OPTIONS}
        known = {"returns": self.returns, "source_sha": self.source_sha, "takes": takes}
        return _rebuilt, (self.name, {**options, **known})

    def __deepcopy__(self, _: object) -> Task:
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without its function and its edges."""
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS if name not in {"part", "after"}}
        lists = {name: list(options.pop(name)) for name in ("uses_resources", "writes")}
        plain = {name: value for name, value in {**options, **lists}.items() if value}
        parameters = {"parameters": list(self.parameters), "optional": sorted(self.optional)}
        return {"name": self.name, "kind": "task", **plain, **parameters, "source_sha": self.source_sha}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], part: Part | None = None) -> Task:
        """Return a task from plain data. It has no function, so it can be shown and replayed, not run.

        Args:
            data: What `to_dict` returned, with `after`.
            part: Which one of those for each item it is.
        """
        optional = set(data.get("optional", ()))
        takes = tuple(Parameter(one, NOTHING, None if one in optional else NOTHING) for one in data["parameters"])
        options = {name: data[name] for name in _OPTIONS if name in data and name != "part"}
        known = {"source_sha": str(data.get("source_sha", "")), "takes": takes, "part": part}
        return _rebuilt(str(data["name"]), {**options, **known})


_AT_FUNCTION = ("each", *FLOW[:-1], "after", "retries", "concurrency", "writes", *FLAGS)
"""The options of `task` that are called like those of `Task`."""
_OPTIONS = (*_AT_FUNCTION, "timeout_s", "uses_resources", "part", "race")


def _bare(default: Any) -> Any:
    return NOTHING if default is NOTHING else None


def _rebuilt(name: str, options: dict[str, Any]) -> Task:
    return Task(name, first_answer if options.get("race") else _gone, **options)


def _gone(**_: object) -> None:
    raise DeclarationError("This task was read from a record, which has no functions: declare it again to run it.")


def _check_options(task: Task) -> None:
    """Raise `DeclarationError` for the first option that is not what it must be."""
    of = f"of task {task.name!r}"
    error = partial(DeclarationError, agent=task.name)
    check_flow(task)
    for option, check in {
        "timeout_s": check_positive,
        "concurrency": check_integer,
        "each": check_text,
    }.items():
        if (value := getattr(task, option)) is not None:
            check(f"{option} {of}", value, error=error)
    retries: Any = task.retries
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise must_be(f"retries {of}", "an integer >= 0", retries, error=error)
    for flag in FLAGS:
        if not isinstance(getattr(task, flag), bool):
            raise must_be(f"{flag} {of}", "True or False", getattr(task, flag), error=error)
    for option in ("after", "uses_resources", "writes"):
        if not isinstance(getattr(task, option), Iterable):
            raise must_be(f"{option} {of}", "names: 'a,b', or a list", getattr(task, option), error=error)
    if task.main and task.process:
        raise error(f"Task {task.name!r} has main=True and process=True. Give one of them.")
    if task.main and is_async(task.function):
        raise error(f"Task {task.name!r} is async, so it runs on the loop anyway. Leave main=True out.")


def _fitted(name: str, kind: Any, value: Any) -> Any:
    """Return a value as a type that pydantic knows wants it; check any other by its class."""
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
    """A type as a key: itself, and not another that is equal, such as the same union in another order."""

    __slots__ = ("kind",)

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __hash__(self) -> int:
        return id(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.kind is other.kind


@functools.lru_cache(maxsize=256)
def _adapter(of: _Same) -> Any:
    """Return what reads values of a type, made once; `None` where pydantic does not know it, or the class fails."""
    import pydantic

    try:
        return pydantic.TypeAdapter(modern(of.kind))
    except Exception:  # noqa: BLE001 - whatever a class of the user's raises
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
    """Declare a function as a step. The function itself stays as it is, to be called and tested.

    Args:
        function: The function.
        name: The step's name; by default the function's.
        timeout: Seconds until a call is given up.
        uses: Names of resources that it holds while it runs.
        **options: `each`, `most`, `repeat`, `when`, `until`, `rounds`, `priority`, `expect`, `after`, `retries`,
            `concurrency`, `pure`, `main`, `process`, `writes`; see `Task`.

    Raises:
        DeclarationError: An option is not what it must be, or a parameter cannot be an edge.
    """
    if unknown := [one for one in options if one not in _AT_FUNCTION]:
        known = ("name", "timeout", "uses", *_AT_FUNCTION)
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


def first_of(name: str, agents: str | Iterable[str]) -> Task:
    """Declare a step whose value is the first answer of several agents; the others are cancelled then.

    Args:
        name: The key; `{{ name }}` is the answer that came first.
        agents: The names of the agents: a list, or `"a,b"`. Nothing else may use them.

    Raises:
        DeclarationError: These are not two names or more.
    """
    if not isinstance(agents, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be(f"first_of {name!r}", "names: 'a,b', or a list", agents)
    names = tuple(dict.fromkeys(listed(agents)))
    for one in names:
        check_name(one, "an agent")
    if len(names) < 2:
        raise must_be(f"first_of {name!r}", "the names of two agents or more", ",".join(names))
    return Task(name, first_answer, race=True, takes=tuple(Parameter(one, NOTHING, NOTHING) for one in names))
