"""The options of steps: one row each, read by all code that reads or writes options.

A row is a field of `StepOptions`, `AgentOptions` or `TaskOptions`, so type checkers see its type; its `Option` is read
by the `%%agent` line with help and completion, cells, plans as JSON, outlines, scripts, changes, the documentation, and
the request. An option that only passes through to the request is one row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, cast

from agent_magic.declare.each import Copied
from agent_magic.declare.units import duration
from agent_magic.declare.validation import (
    BUILTIN,
    as_builtin,
    check_integer,
    check_positive,
    check_text,
    check_word,
    is_number,
    listed,
    must_be,
)
from agent_magic.errors import DeclarationError, did_you_mean

if TYPE_CHECKING:
    from agent_magic.declare.each import Part

T = TypeVar("T")
Form = Literal["value", "names", "switch", "texts", "pairs", "notebook", "none"]
"""`texts` and `pairs` repeat the flag, `notebook` names a value, `none` is set by plans."""
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
NEEDS: Final = ("reasoning", "vision")
AUTO: Final = "auto"
ROW: Final = "option"
ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The row of one option.

    Attributes:
        doc: Its effect, for the documentation of its class.
        help: The same for the `%%agent` line; empty for an option that no line has.
        flag: Its name on a line, if not the Python name.
        unit: Name of the value in the help of a line.
        read: Parses the value on a line.
        check: Raises if a value is invalid; see `check_text`.
        apart: Options that conflict with it.
        outlined: True if the outline of a plan has it unchanged.
        changes: True if `agent_magic.declare.declared` may change it.
        sent: True if it passes through to the provider.
        inherited: True if who continues a conversation has that of its first agent.
        replaced: True if a named model takes its place.
        note: The text on a card, such as `saved to {}`.
        capability: The feature it needs of provider and model.
    """

    doc: str = ""
    help: str = ""
    form: Form = "value"
    flag: str = ""
    unit: str = "N"
    read: Callable[[str], Any] = str
    check: Callable[..., None] | None = None
    words: Sequence[str] = ()
    apart: Sequence[str] = ()
    outlined: bool = False
    changes: bool = False
    sent: bool = False
    inherited: bool = False
    replaced: bool = False
    note: str = ""
    capability: str = ""
    name: str = ""
    default: Any = None


def option(*, default: Any = None, of_field: Mapping[str, Any] | None = None, **row: Any) -> Any:
    return field(default=default, metadata={ROW: Option(default=default, **row)}, **(of_field or {}))


# How values are read from a line, and checked.


def group(text: str) -> str | int:
    """Parse items per request: a number, or `auto`."""
    return text if text == AUTO else int(text)


def hedge(text: str) -> str | float:
    """Parse the hedging threshold: seconds, or a percentile of answers, `p95`."""
    return text if text.startswith("p") else duration(text)


def pair(text: str) -> tuple[str, Any]:
    """Parse a field of an API, `NAME=JSON`."""
    quoted = text[:1] in {"'", '"'} and text[-1:] == text[:1]
    name, _, value = (text[1:-1] if quoted else text).partition("=")
    return name.strip(), json.loads(value)


def unescaped(text: str) -> str:
    letters = {letter: written for written, letter in ESCAPES.items()}
    return re.sub(r"[\n\t\\]", lambda found: letters[found[0]], text)


def escaped(text: str) -> str:
    r"""Parse a text that writes line breaks as `\n`."""
    return re.sub(r"\\[nt\\]", lambda found: ESCAPES[found[0]], text)


def _check_switch(what: str, value: object, **more: Any) -> None:
    if not isinstance(value, bool):
        raise must_be(what, "True or False", value, **more)


def _check_names(what: str, value: object, **more: Any) -> None:
    if not isinstance(value, Iterable | None):
        raise must_be(what, "names: 'a,b', or a list", value, **more)


def _check_texts(what: str, value: object, **more: Any) -> None:
    given: Any = [value] if isinstance(value, str) else value or ()
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one for one in cast("list[Any]", given)):
        raise must_be(what, "a text, or a list of texts that are not empty", value, **more)


def _check_model(what: str, value: object, **more: Any) -> None:
    check_text(what, value, **more)
    if not str(value).strip():
        raise must_be(what, "the id of a model", value, **more)


def _check_from_0(what: str, value: object, most: float = 1e9, **more: Any) -> None:
    if not is_number(value) or not 0 <= cast("float", value) <= most:
        raise must_be(what, "a number >= 0" if most > 1 else f"a number from 0 to {most:g}", value, **more)


def _check_fields(what: str, value: object, *, error: Callable[..., Exception] = DeclarationError) -> None:
    """Refuse anything but JSON by names that are no options."""
    if not isinstance(value, Mapping) or not all(
        isinstance(one, str) and one for one in cast("Mapping[Any, Any]", value)
    ):
        raise must_be(what, "a mapping of names to JSON: {'service_tier': 'flex'}", cast("object", value), error=error)
    for name, each in cast("Mapping[str, Any]", value).items():
        if name in OWN_FIELDS:
            raise error(f"{what} has {name!r}, {OWN_FIELDS[name]}.")
        try:
            json.dumps(each, allow_nan=False)
        except (TypeError, ValueError):
            raise must_be(f"{what}[{name!r}]", "plain JSON", each, error=error) from None


# The table.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions(Copied):
    """The options of all steps, and their name."""

    name: str = field(kw_only=False)
    each: str | None = option(
        doc="The name of a list, dict, Series or DataFrame: a plan has one agent per item, whose prompt takes it as "
        "`{{ item }}`; see `agent_magic.declare.each`. Or a step that returns a list, or such a field of its answer, "
        "`planner.steps`: then `most` is a must.",
        help="One agent per item of this variable or answer: {{ item }} in its prompt.",
        unit="NAME",
        check=check_text,
    )
    most: int | None = option(
        doc="The most items that may have; more are an error.",
        help="With --each of an answer: the most items it may have.",
        read=int,
        check=check_integer,
    )
    repeat: int | None = option(
        doc="How many times it is asked: `{{ name }}` is then all its answers, and `am.vote` takes the majority.",
        help="Ask it N times; {{ NAME }} is all its answers. See am.vote.",
        read=int,
        check=check_integer,
        apart=("group", "hedge"),
    )
    when: str | None = option(
        doc='A condition on what is in the plan, `"review.score < 4"`. Where it is false, the agent is skipped, and so '
        "is what cannot do without it; `{{ fix | default(draft) }}` can.",
        help='Run it only if this holds: "review.score < 4".',
        unit="EXPR",
        check=check_text,
        apart=("group",),
    )
    until: str | None = option(
        doc="Run it, and the steps from it to this condition, again until the condition holds. Prompts take the "
        "answers of the previous round, `None` in the first.",
        help='Run it, and what leads to this condition, again until it holds: "critic.ok".',
        unit="EXPR",
        check=check_text,
        apart=("group", "hedge", "speculate"),
    )
    rounds: int | None = option(
        doc="The most rounds that `until` makes.",
        help="With --until: the most rounds.",
        read=int,
        check=check_integer,
        outlined=True,
    )
    priority: int = option(
        default=0,
        doc="Higher ones go first when something has to wait; then those with more work after them.",
        help="Higher ones go first when something has to wait.",
        read=int,
        check=partial(check_integer, least=-math.inf),
        outlined=True,
    )
    expect: float | None = option(
        doc="Seconds that its answer is expected to take, where no earlier answers of it are known.",
        help="Seconds its answer is expected to take: 90, 90s, 2m.",
        unit="S",
        read=duration,
        check=check_positive,
        of_field={"compare": False},
    )
    after: Sequence[str] = option(
        default=(),
        doc='Agents that must have succeeded before, whose answers the prompt does not use: a list, or `"a,b"`.',
        help="Wait for these agents without using their answers.",
        form="names",
        changes=True,
    )
    timeout_s: float | None = option(
        doc="Seconds from the start of the first attempt to the end of the last, backoff included.",
        help="Deadline in seconds.",
        flag="--timeout",
        unit="S",
        read=float,
        check=check_positive,
        outlined=True,
    )
    uses_resources: Sequence[str] = option(
        default=(),
        doc='Names of resources that it holds while it runs, and paths that are read: a list, or `"a,b"`.',
        help="Resources that it holds while it runs, and paths that are read.",
        form="names",
        flag="--uses",
    )
    writes: Sequence[str] = option(
        default=(),
        doc="Names and paths that are changed while it runs.",
        help="What it changes while it runs: no other step writes or uses it.",
        form="names",
        apart=("speculate",),
    )
    part: Part | None = option(
        doc="Which one of those it is. Plans set it.", form="none", of_field={"repr": False, "hash": False}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions(StepOptions):
    """The options of agents only."""

    model: str | None = option(
        doc="The id of the model. `None`: the default of the session, or the cheapest current one. `auto` has one "
        "chosen when the plan is frozen, `auto:A,B` among these, from cheap to dear; see `agent_magic.api.choosing`.",
        help="The model's id; auto, or auto:A,B, has one chosen by score, price and need.",
        unit="M",
        check=_check_model,
        inherited=True,
        outlined=True,
        changes=True,
    )
    needs: Sequence[str] = option(
        default=(),
        doc='With `auto`, what the model needs: `reasoning`, `vision`; a list, or `"a,b"`.',
        help="With --model auto: reasoning, vision.",
        form="names",
        words=NEEDS,
        replaced=True,
    )
    fallback: Sequence[str] = option(
        default=(),
        doc="Models that are asked in its place, in this order, where it is overloaded, gone or its breaker is open: a "
        'list, or `"a,b"`. Each row says which model answered.',
        help="Models asked in its place when it is overloaded or gone.",
        form="names",
        outlined=True,
        changes=True,
    )
    cascade: Sequence[str] = option(
        default=(),
        doc="Models from cheap to dear, in place of `model`. The first is asked; the next one, where `escalate` holds "
        "or the answer does not fit its type or its check. All are on the bill.",
        help="Models from cheap to dear, in place of --model: see --escalate.",
        form="names",
        replaced=True,
        apart=("group", "hedge"),
        outlined=True,
        changes=True,
    )
    escalate: str | None = option(
        doc='A condition on the answer, `"answer.confidence < 0.7"`, with which the next model of the cascade is '
        "asked. The last one's answer is passed on as it is.",
        help='Ask the next model of the cascade: "answer.confidence < 0.7".',
        unit="EXPR",
        replaced=True,
        apart=("group",),
        changes=True,
    )
    max_tokens: int | None = option(
        doc="The most output tokens. `None`: 2,048.",
        help="The most output tokens.",
        read=int,
        check=check_integer,
        outlined=True,
        changes=True,
    )
    system: str | None = option(
        doc="The system prompt, sent as it is (not a template).",
        help="The system prompt, in quotes.",
        unit="TEXT",
        check=check_text,
        apart=("continues",),
    )
    role: str | None = option(
        doc="The name of a ready system prompt, or of one of your own; see `agent_magic.declare.agent`.",
        help="A ready system prompt: researcher, planner, writer, critic, ...",
        note="role {}",
        unit="NAME",
        apart=("continues",),
    )
    context: str | None = option(
        doc="The name of a context or a value that is sent first, byte for byte the same for every agent that shares "
        "it, so that the provider can cache it: a text, a picture or a document.",
        help="The %%context or variable sent first: text, pictures, documents, a list.",
        note="context {}",
        unit="NAME",
        check=check_text,
        apart=("continues",),
        outlined=True,
        changes=True,
    )
    continues: str | None = option(
        doc="The agent in whose conversation it goes on: what that one was told and has answered, its tools and what "
        "they returned, byte for byte, then this prompt; see `agent_magic.declare.context`.",
        help="Continue the conversation of this agent: all its messages, then this prompt.",
        note="continues {}",
        unit="NAME",
        check=check_text,
    )
    group: int | str | None = option(
        doc="With `each` of a value and `returns`: this many items in one request, with `auto` as many as fit. "
        "Missing answers are asked for once more; see `agent_magic.declare.grouping`.",
        help="With --each and --returns: N items in one request, or auto.",
        read=group,
        apart=("continues", "hedge", "speculate"),
    )
    hedge: str | float | None = option(
        doc="Ask it a second time if its answer is overdue; the first answer counts. Overdue after these seconds, "
        "or with `p95` after the time that 95 of 100 answers of this run took; see `agent_magic.declare.race`.",
        help="Ask it again when its answer is overdue, the first answer counts: p95 of this run's answers, or 20s.",
        unit="WHEN",
        read=hedge,
        apart=("speculate",),
        outlined=True,
    )
    hedges: str | None = option(
        doc="The name of the step beside which it may be asked a second time. Plans set it.",
        form="none",
        outlined=True,
        of_field={"repr": False},
    )
    speculate: bool = option(
        default=False,
        doc="Whether it begins before `when` can be decided, as if that held. Where it does not, it ends as skipped, "
        "and what was spent is on the bill.",
        help="Begin before --when is known; thrown away, and paid, where it is false.",
        form="switch",
        outlined=True,
    )
    expect_out: int | None = option(
        doc="Output tokens that an answer is expected to use, likewise; with `group`, that for one item.",
        help="Output tokens it is expected to use.",
        read=int,
        check=check_integer,
        of_field={"compare": False},
    )
    returns: Any = option(
        doc="The type of its answers: a pydantic model, dataclass, TypedDict, Enum, `Literal`, `int`, `list[...]` and "
        "the like; see `agent_magic.declare.answers.returns`; or a JSON schema. `None`: text.",
        help="The type of its answers: a class of the notebook, Literal[...], int, ...",
        form="notebook",
        unit="TYPE",
    )
    check: Any = option(
        doc="A function that takes an answer's value, or its text, and returns `None` or what is wrong with it. Then "
        "the agent is asked once more.",
        help="Takes an answer; returns None, or a text that says what is wrong.",
        form="notebook",
        unit="FUNCTION",
        of_field={"repr": False, "hash": False},
    )
    tools: Any = option(
        default=(),
        doc="Functions that the model may call: functions, `Tool`s, and names of tools that the provider "
        "runs, such as `web_search`.",
        help="Functions of the notebook that the model may call; web_search, ...",
        form="notebook",
        unit="A,B",
        apart=("group", "hedge", "speculate"),
        of_field={"repr": False},
    )
    max_turns: int | None = option(
        doc="The most requests for one answer, with those after calls of tools. In the last one the model may ask for "
        "no call, so with 1 it makes none. `None`: the policy's.",
        help="The most requests for one answer, those after tool calls too.",
        read=int,
        check=check_integer,
    )
    ask: bool = option(
        default=False,
        doc="Whether a person must approve the answer before it is passed on.",
        help="You approve its answer before others use it.",
        note="you approve its answer",
        form="switch",
        apart=("group", "hedge", "speculate"),
    )
    attach: Sequence[str] = option(
        default=(),
        doc='Names of pictures and documents, values or answers, that are sent before the text: a list, or `"a,b"`. '
        "What is neither picture nor document goes out as a document of its text.",
        help="Pictures and documents (am.image, am.pdf, figures, server:resource of MCP) to send first.",
        form="names",
        changes=True,
    )
    cite: bool = option(
        default=False,
        doc='Whether the model says which places of the documents it quotes; see `run["name"].citations`.',
        help="Cite the places in the documents that the answer quotes.",
        note="cites its documents",
        capability="citations",
        form="switch",
        apart=("continues", "group", "hedge"),
    )
    save: str | None = option(
        doc="The file its answer is written to, relative to the folder of the notebook: the text, or JSON where it "
        "`returns` a type. With `each`, a template of `{{ item }}`, `{{ key }}` and `{{ name }}`.",
        help="Write its answer to this file beside the notebook, if it succeeds.",
        note="saved to {}",
        unit="FILE",
        check=check_text,
        apart=("group", "hedge", "speculate"),
    )
    batch: str | bool | None = option(
        doc="`on` sends its requests as batches, `off` never; `True` and `False` mean the same. `None`: as the policy "
        "says. With tools of yours, `on` waits for a batch in each turn.",
        help="on: half the price, within hours. off: never by batch. See %%agents run --batch.",
        unit="WORD",
        words=("on", "off"),
    )
    effort: str | None = option(
        doc="`low`, `medium`, `high`, `xhigh` or `max`. `None` leaves it to the model.",
        help="low, medium, high, xhigh or max.",
        capability="effort",
        unit="E",
        words=EFFORTS,
        inherited=True,
        outlined=True,
        changes=True,
    )
    temperature: float | None = option(
        doc="How random the choice of words is, from 0 on. Newer models take none; `None` sends none.",
        help="How random the choice of words is, from 0 on.",
        note="temperature {}",
        read=float,
        check=_check_from_0,
        sent=True,
        capability="sampling",
        changes=True,
    )
    top_p: float | None = option(
        doc="Words are drawn from the most likely ones, whose chances add up to this, 0 to 1.",
        help="Draw from the most likely words, whose chances add up to this: 0.9.",
        note="top_p {}",
        read=float,
        check=partial(_check_from_0, most=1),
        sent=True,
        capability="sampling",
        changes=True,
    )
    top_k: int | None = option(
        doc="Only this many of the most likely words are considered.",
        help="Consider only this many of the most likely words.",
        note="top_k {}",
        read=int,
        check=partial(check_integer, least=0),
        sent=True,
        capability="sampling",
        changes=True,
    )
    stop: Sequence[str] = option(
        default=(),
        doc="Texts at which an answer ends, without them: a text, or a list.",
        help="End the answer before this text; may be given several times.",
        note="stops at {}",
        form="texts",
        unit="TEXT",
        read=escaped,
        sent=True,
        capability="stop",
        changes=True,
    )
    extra: Mapping[str, Any] | None = option(
        doc="Fields of the API that this package does not know, sent as they are: `{'service_tier': 'flex'}`.",
        help='A field of the API that is sent as it is, as JSON: service_tier="flex"; may be given several times.',
        note="extra {}",
        form="pairs",
        unit="NAME=JSON",
        read=pair,
        sent=True,
        capability="extra",
        changes=True,
        of_field={"hash": False},
    )
    chosen: str = option(
        default="",
        doc="Why its model was chosen, where it was to be. Plans set it.",
        form="none",
        replaced=True,
        of_field={"repr": False, "compare": False},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions(StepOptions):
    """The options of tasks only."""

    retries: int = option(
        default=0, doc="How often a call that failed is made again.", check=partial(check_integer, least=0)
    )
    concurrency: int | None = option(
        doc="How many tasks of one `each` run at once; `None`: as the run allows.", check=check_integer
    )
    pure: bool = option(
        default=False, doc="Whether its result depends on its arguments only: it may be served again.", form="switch"
    )
    main: bool = option(
        default=False,
        doc="Whether it runs on the main thread, one call at a time: sqlite3, pyplot, widgets.",
        form="switch",
    )
    process: bool = option(
        default=False,
        doc="Whether it runs in a process of its own, for long computing: at a Dask worker where requests go to "
        "workers, else here, where it has to be importable.",
        form="switch",
    )
    race: bool = option(
        default=False, doc="Whether it takes the first of what its parameters name; see `first_of`.", form="none"
    )


class NothingOfAgents:
    """The options of agents that code reads of every step: a task has none."""

    __slots__ = ()
    model: ClassVar[None] = None
    needs: ClassVar[tuple[str, ...]] = ()
    fallback: ClassVar[tuple[str, ...]] = ()
    cascade: ClassVar[tuple[str, ...]] = ()
    escalate: ClassVar[None] = None
    max_tokens: ClassVar[None] = None
    system: ClassVar[None] = None
    role: ClassVar[None] = None
    context: ClassVar[None] = None
    continues: ClassVar[None] = None
    effort: ClassVar[None] = None
    group: ClassVar[None] = None
    hedge: ClassVar[None] = None
    hedges: ClassVar[None] = None
    speculate: ClassVar[bool] = False
    expect_out: ClassVar[None] = None
    check: ClassVar[None] = None
    max_turns: ClassVar[None] = None
    ask: ClassVar[bool] = False
    attach: ClassVar[tuple[str, ...]] = ()
    cite: ClassVar[bool] = False
    save: ClassVar[None] = None
    batch: ClassVar[None] = None
    chosen: ClassVar[str] = ""


# The readers of the table.


AFTER_WHEN: Final = "group"
"""The first agent option after those of every step, in headings and help."""


@cache
def options_of(kind: type) -> Mapping[str, Option]:
    """Return the rows by name: model, then when and how often, then how."""
    of_all = [one.name for one in fields(StepOptions) if ROW in one.metadata]
    rows = {one.name: replace(one.metadata[ROW], name=one.name) for one in fields(kind) if ROW in one.metadata}
    own = [name for name in rows if name not in of_all]
    place = own.index(AFTER_WHEN) if AFTER_WHEN in own else 0
    return {name: rows[name] for name in (*own[:place], *of_all, *own[place:])}


AGENT: Final = options_of(AgentOptions)
TASK: Final = options_of(TaskOptions)
SENT: Final = tuple(row.name for row in AGENT.values() if row.sent)
INHERITED: Final = tuple(row.name for row in AGENT.values() if row.inherited)
OWN_FIELDS: Final[Mapping[str, str]] = {
    **{name: f"which has an option of its own, {name}=" for name in AGENT},
    **dict.fromkeys(("messages", "stream"), "which agent_magic sets itself"),
}
"""What `extra` cannot say, and why."""


def candidates_of(model: str | None) -> tuple[str, ...] | None:
    """Return the models to choose from, none for the provider's; `None` for no choice."""
    word, _, names = (model or "").partition(":")
    return listed(names) if word == AUTO else None


def rows_of(step: Any) -> Iterable[Option]:
    return options_of(step.__class__).values()


def flag_of(row: Option) -> str:
    return row.flag or f"--{row.name.replace('_', '-')}" if row.help else ""


OF_ALL: Final = (("name", "", None), ("prompt", "", None))
CHECKS: Final[Mapping[str, Callable[..., None]]] = {
    "names": _check_names,
    "switch": _check_switch,
    "texts": _check_texts,
    "pairs": _check_fields,
}


@cache
def _checks_of(kind: type) -> Sequence[tuple[str, Any, Callable[..., None] | None]]:
    found: list[tuple[str, Any, Callable[..., None] | None]] = []
    for row in options_of(kind).values():
        words = partial(check_word, words=row.words) if row.words and row.form == "value" else None
        if row.form not in {"notebook", "none"}:
            found.append((row.name, row.default, words or CHECKS.get(row.form, row.check)))
    return found


def check_options(step: Any, what: str) -> None:
    """Check the options, with texts and numbers made Python's own."""
    for name, default, check in (*OF_ALL, *_checks_of(step.__class__)):
        value = getattr(step, name)
        if value is default:
            continue
        if type(value) not in BUILTIN:
            value = as_builtin(value)
            object.__setattr__(step, name, value)
        if check is not None:
            check(f"{name} of {what}", value, error=partial(DeclarationError, agent=step.name))


def check_option(name: str, value: Any) -> Any:
    row, found = AGENT[name], as_builtin(value)
    if row.read is int and isinstance(found, float) and found.is_integer():  # a cell of a frame
        found: Any = int(found)
    for one, _, check in _checks_of(AgentOptions):
        if one == name and check is not None:
            check(name, found)
    return _texts(found) if row.form == "texts" else found


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(as_builtin, (value,) if isinstance(value, str) else cast("Sequence[str]", value or ())))


def settle_options(step: Any) -> None:
    """Make lists tuples."""
    for row in rows_of(step):
        value = getattr(step, row.name)
        if row.form == "names":
            object.__setattr__(step, row.name, listed(value))
        elif row.form == "texts":
            object.__setattr__(step, row.name, _texts(value))
        elif row.form == "pairs" and value is not None:
            object.__setattr__(step, row.name, json.loads(json.dumps(dict(value))) or None)


def beside(step: Any, name: str) -> str:
    rows = rows_of(step)
    return next((row.name for row in rows if name in row.apart and getattr(step, row.name)), "")


def to_plain(step: Any) -> dict[str, Any]:
    # Types, checks and tools of the notebook are left out, and so is its position in a group.
    found: dict[str, Any] = {}
    for row in rows_of(step):
        value = getattr(step, row.name)
        if row.form == "notebook" or row.name == "part" or value is None or value == row.default:
            continue
        found[row.name] = list(value) if row.form in {"names", "texts"} else value
    return found


def from_plain(kind: type, data: Mapping[str, Any], wrong: Callable[[str, str, object], Exception]) -> dict[str, Any]:
    """Return options in plain data, possibly a model's, as arguments."""
    found: dict[str, Any] = {}
    for row in options_of(kind).values():
        value = data.get(row.name)
        if value is None or row.form == "notebook" or row.name == "part":
            continue
        if row.form == "switch":
            found[row.name] = value is True
        elif row.form == "names":
            if not isinstance(value, str | list):
                raise wrong(row.name, "a list", value)
            found[row.name] = value
        else:
            found[row.name] = value
    return found


def sent_text(agent: Any) -> str:
    found = {name: value for name in SENT if (value := getattr(agent, name)) is not None and value != ()}
    return json.dumps(found, sort_keys=True) if found else ""


def note_of(step: Any, name: str) -> str:
    row, value = options_of(step.__class__)[name], getattr(step, name)
    if not row.note or value is None or value == row.default:
        return ""
    return row.note.format(json.dumps(value, ensure_ascii=False) if row.form in {"texts", "pairs"} else value)


def step_text(step: Any) -> str:
    rows = [one for one in fields(step) if one.repr and ROW in one.metadata]
    given = [(one.name, value) for one in rows if (value := getattr(step, one.name)) != one.default]
    return f"{type(step).__name__}({', '.join([repr(step.name), *(f'{name}={value!r}' for name, value in given)])})"


def check_keywords(kind: str, given: Iterable[str], known: Collection[str]) -> None:
    for wrong in given:
        if wrong not in known:
            hint = did_you_mean(wrong, known).strip() or f"It has {', '.join(sorted(known))}."
            raise DeclarationError(f"{kind} has no option {wrong!r}.", hint=hint)


def known_keywords(kind: type[T]) -> type[T]:
    made: Any = kind.__init__
    known = {one.name for one in fields(cast("Any", kind)) if one.init}

    @wraps(made)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        check_keywords(kind.__name__, given, known)
        made(self, *args, **given)

    cast("Any", kind).__init__ = checked
    return kind


def documented(kind: type[T]) -> type[T]:
    """Add the options to the arguments in a class's docstring."""
    lines = [f"    {row.name}: {row.doc}" for row in options_of(kind).values()]
    head, _, rest = (kind.__doc__ or "").partition("\n\n    Raises:")
    kind.__doc__ = f"{head}\n" + "\n".join(f"    {line}" for line in lines) + (f"\n\n    Raises:{rest}" if rest else "")
    return kind
