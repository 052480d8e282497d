"""An agent: a named prompt with the options of its request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from agent_magic.declare.alike import Copied
from agent_magic.declare.condition import check_flow, check_speculate, deciding_names, without_own
from agent_magic.declare.each import Part
from agent_magic.declare.grouping import asking, check_group
from agent_magic.declare.hedge import check_hedge
from agent_magic.declare.models import check_models, each_once
from agent_magic.declare.returns import Check, Returns
from agent_magic.declare.roles import ROLES
from agent_magic.declare.saving import check_save
from agent_magic.declare.template import Template
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.declare.validation import (
    check_integer,
    check_name,
    check_positive,
    check_text,
    check_word,
    listed,
    must_be,
)
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_MODEL = "claude-haiku-5-5"
"""The model of an agent that names none: the cheapest current one. This is the only place that says it."""
DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT_S = 300.0
NO_TOOLS = Tools()
LISTS = ("after", "uses_resources", "writes", "attach", "fallback", "cascade", "needs")
"""The options that are names."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")

OPTIONS = (
    *("model", "max_tokens", "system", "role", "context", "effort", "timeout_s", "max_turns", "save", "batch"),
    "escalate",
    "group",
    "hedge",
    "hedges",
)
NAMES = ("attach", "fallback", "cascade", "needs")
"""The options that are lists, beside those of what a step holds and waits for."""


@dataclass(frozen=True, slots=True)
class Agent(Copied):
    """A declared unit of model work. Declaring one costs nothing and sends nothing.

    Args:
        name: The key: an identifier, so that `{{ name }}` works in other prompts.
        prompt: A Jinja2 template. `{{ other }}` is the answer of the agent `other`, or else the value of that name.
            All other text is sent as it is.
        model: The id of the model. `None`: the default of the session, or `claude-haiku-5-5`. `auto` has one chosen
            when the plan is frozen, `auto:A,B` among these, from cheap to dear; see `agent_magic.api.choosing`.
        needs: With `auto`, what the model needs: `reasoning`, `vision`; a list, or `"a,b"`.
        fallback: Models that are asked in its place, in this order, where it is overloaded, gone or its breaker is
            open: a list, or `"a,b"`. Each row says which model answered.
        cascade: Models from cheap to dear, in place of `model`. The first is asked; the next one, where `escalate`
            holds or the answer does not fit its type or its check. All are on the bill.
        escalate: A condition on the answer, `"answer.confidence < 0.7"`, with which the next model of the cascade is
            asked. The last one's answer is passed on as it is.
        max_tokens: The most output tokens. `None`: 2,048.
        system: The system prompt, sent as it is (not a template).
        role: The name of a ready system prompt, or of one of your own; see `agent_magic.declare.roles`.
        context: The name of a context or a value that is sent first, byte for byte the same for every agent that
            shares it, so that the provider can cache it: a text, a picture or a document.
        after: Agents that must have succeeded before, whose answers the prompt does not use: a list, or `"a,b"`.
        timeout_s: Seconds from the start of the first attempt to the end of the last, backoff included.
        effort: `low`, `medium`, `high`, `xhigh` or `max`. `None` leaves it to the model.
        each: The name of a list, dict, Series or DataFrame: a plan has one agent per item, whose prompt takes it as
            `{{ item }}`; see `agent_magic.declare.each`. Or a step that returns a list, or such a field of its answer,
            `planner.steps`: then `most` is a must.
        most: So many items that may have; more are an error.
        group: With `each` of a value and `returns`: so many items are asked for in one request, with `auto` as many as
            fit, and the answers are taken apart again. What is missing is asked for once more; see
            `agent_magic.declare.grouping`.
        hedge: Ask it a second time where its answer is overdue; the first answer counts. Overdue after so many
            seconds, or with `p95` after what 95 of 100 answers of this run took; see `agent_magic.declare.hedge`.
        repeat: How often it is asked, each time anew: `{{ name }}` is then all its answers, `am.vote` what most say.
        when: A condition on what is in the plan, `"review.score < 4"`. Where it is false, the agent is skipped, and so
            is what cannot do without it; `{{ fix | default(draft) }}` can.
        speculate: Whether it begins before `when` can be decided, as if that held. Where it does not, it ends as
            skipped, and what was spent is on the bill.
        until: Run it, and all that leads from it to this condition, again until the condition holds. Prompts take
            what was answered in the round before: `None` in the first.
        rounds: The most rounds that `until` makes.
        priority: Those with more go first when something has to wait; then those with more work to come.
        expect: Seconds that its answer is expected to take, where no earlier answers of it are known.
        expect_out: Output tokens that an answer is expected to use, likewise; with `group`, that for one item.
        returns: The type of its answers: a pydantic model, dataclass, TypedDict, Enum, `Literal`, `int`, `list[...]`
            and the like; see `agent_magic.declare.returns`; or a JSON schema. `None`: text.
        check: A function that takes an answer's value, or its text, and returns `None` or what is wrong with it. Then
            the agent is asked once more.
        tools: The functions that the model may have called: functions, `Tool`s, and names of tools that the provider
            runs, such as `web_search`.
        ask: Whether a person has to agree to the answer before it is passed on.
        max_turns: The most requests for one answer, with those after calls of tools. In the last one the model may
            ask for no call, so with 1 it makes none. `None`: the policy's.
        uses_resources: Names of resources that it holds while it runs, and paths that are read: a list, or `"a,b"`.
        writes: Names and paths that are changed while it runs.
        attach: Names of pictures and documents, values or answers, that are sent before the text: a list, or `"a,b"`.
            What is neither picture nor document goes out as a document of its text.
        cite: Whether the model says which places of the documents it quotes; see `run["name"].citations`.
        save: The file its answer is written to, relative to the folder of the notebook: the text, or JSON where it
            `returns` a type. With `each`, a template of `{{ item }}`, `{{ key }}` and `{{ name }}`.
        batch: `on` sends its requests as batches, `off` never; `True` and `False` mean the same. `None`: as the policy
            says. With tools of yours, `on` waits for a batch in each turn.
        part: Which one of those it is. Plans set it.
        chosen: Why its model was chosen, where it was to be. Plans set it.
        hedges: The name of the step beside which it may be asked a second time. Plans set it.

    Raises:
        DeclarationError: The name, an option or the template cannot be read.
    """

    name: str
    prompt: str = field(repr=False)
    model: str | None = field(default=None, kw_only=True)
    needs: Sequence[str] = field(default=(), kw_only=True)
    fallback: Sequence[str] = field(default=(), kw_only=True)
    cascade: Sequence[str] = field(default=(), kw_only=True)
    escalate: str | None = field(default=None, kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    system: str | None = field(default=None, kw_only=True)
    role: str | None = field(default=None, kw_only=True)
    context: str | None = field(default=None, kw_only=True)
    after: Sequence[str] = field(default=(), kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)
    effort: str | None = field(default=None, kw_only=True)
    each: str | None = field(default=None, kw_only=True)
    most: int | None = field(default=None, kw_only=True)
    group: int | str | None = field(default=None, kw_only=True)
    hedge: str | float | None = field(default=None, kw_only=True)
    repeat: int | None = field(default=None, kw_only=True)
    when: str | None = field(default=None, kw_only=True)
    speculate: bool = field(default=False, kw_only=True)
    until: str | None = field(default=None, kw_only=True)
    rounds: int | None = field(default=None, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    expect: float | None = field(default=None, kw_only=True, compare=False)
    expect_out: int | None = field(default=None, kw_only=True, compare=False)
    returns: Any = field(default=None, kw_only=True)
    check: Any = field(default=None, kw_only=True, repr=False, hash=False)
    tools: Any = field(default=(), kw_only=True, repr=False)
    ask: bool = field(default=False, kw_only=True)
    max_turns: int | None = field(default=None, kw_only=True)
    uses_resources: Sequence[str] = field(default=(), kw_only=True)
    writes: Sequence[str] = field(default=(), kw_only=True)
    attach: Sequence[str] = field(default=(), kw_only=True)
    cite: bool = field(default=False, kw_only=True)
    save: str | None = field(default=None, kw_only=True)
    batch: str | bool | None = field(default=None, kw_only=True)
    part: Part | None = field(default=None, kw_only=True, repr=False, hash=False)
    chosen: str = field(default="", kw_only=True, repr=False, compare=False)
    hedges: str | None = field(default=None, kw_only=True, repr=False)
    role_text: str | None = field(init=False, repr=False)
    template: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.batch, bool):
            object.__setattr__(self, "batch", "on" if self.batch else "off")
        if not isinstance(self.prompt, str) or not self.prompt.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "Write it below the %%agent line, or give prompt='...'."
            raise DeclarationError(f"The prompt of agent {self.name!r} is empty.", agent=self.name, hint=hint)
        _check_options(self)
        role, text = (None, None) if self.role is None else ROLES.read(self.role, self.name)
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "role_text", text)
        for option in LISTS:
            object.__setattr__(self, option, listed(getattr(self, option)))
        for option, models in each_once(self).items() if self.cascade or self.fallback else ():
            object.__setattr__(self, option, models)
        if self.returns is not None:
            object.__setattr__(self, "returns", Returns.of(self.returns, agent=self.name))
        if self.check is not None:
            object.__setattr__(self, "check", Check.of(self.check, agent=self.name))
        if not isinstance(self.tools, Tools):
            made = tools_of(self.tools, agent=self.name, schema=self.schema) if self.tools else NO_TOOLS
            object.__setattr__(self, "tools", made)
        text = asking(self.prompt) if self.part is not None and self.part.asks else self.prompt
        object.__setattr__(self, "template", Template.parse(text, agent=self.name))
        _check_together(self)

    is_task: ClassVar[bool] = False
    """Whether it is a Python function, and asks no model."""
    race: ClassVar[bool] = False
    """Whether it takes the first answer of several agents."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """The names it can do without."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """The names that the function of a task takes."""
    source_sha: ClassVar[str] = ""
    """The fingerprint of the source of a task."""

    @property
    def other_models(self) -> tuple[str, ...]:
        """The models that it may ask besides `model`."""
        return (*self.cascade[1:], *self.fallback) if self.cascade or self.fallback else ()

    @property
    def tools_text(self) -> str:
        """The definitions of its tools as JSON text; empty for none."""
        return self.tools.text if self.tools else ""

    @property
    def uses(self) -> tuple[str, ...]:
        """The names its prompt uses, of agents and values, in order of appearance."""
        names = tuple(dict.fromkeys((*self.attach, *self.template.names))) if self.attach else self.template.names
        return without_own(names, self.each, self.part)

    @property
    def can_miss(self) -> frozenset[str]:
        """The names its prompt can do without, as `{{ name | default("") }}` can."""
        return self.template.can_miss

    @property
    def reads(self) -> tuple[str, ...]:
        """All names it needs: those its prompt uses, its context and conditions, what it is declared for each of."""
        if self.context is None and self.each is None and self.when is None and self.until is None:
            return self.uses
        return (*self.uses, *(() if self.context is None else (self.context,)), *deciding_names(self))

    @property
    def system_text(self) -> str | None:
        """The system prompt that is sent: its own, or its role's."""
        return self.system if self.system is not None else self.role_text

    @property
    def schema(self) -> str:
        """The schema of its answers as JSON text; empty for text."""
        return "" if self.returns is None else self.returns.schema

    @property
    def prefix(self) -> str | None:
        """The name of what it can share in the prompt cache: its context, apart from agents of other types.

        Source: the vendor's page on structured outputs: another format empties the cache.
        """
        return self.context if self.context is None or not self.schema else f"{self.context} {self.schema}"

    def with_defaults(self, **defaults: str | float | None) -> Agent:
        """Return a copy in which options that are `None` have these values.

        Args:
            **defaults: Values by option; `None` changes nothing.
        """
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None and value is not None}
        return replace(self, **missing) if missing else self  # pyright: ignore[reportArgumentType]


_CHECKS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("max_tokens", "max_turns"), check_integer),
    "timeout_s": check_positive,
    **dict.fromkeys(("model", "system", "context", "each", "save"), check_text),
    "effort": partial(check_word, words=EFFORTS),
    "batch": partial(check_word, words=("on", "off")),
}


def _check_options(agent: Agent) -> None:
    """Raise `DeclarationError` for the first option that is not what it must be."""
    of = f"of agent {agent.name!r}"
    error = partial(DeclarationError, agent=agent.name)
    check_flow(agent)
    for option, check in _CHECKS.items():
        if (value := getattr(agent, option)) is not None:
            check(f"{option} {of}", value, error=error)
    if agent.model is not None and not agent.model.strip():
        raise must_be(f"model {of}", "the id of a model", agent.model, error=error)
    for option in LISTS:
        if not isinstance(getattr(agent, option), Iterable | None):
            raise must_be(f"{option} {of}", "names: 'a,b', or a list", getattr(agent, option), error=error)
    if not isinstance(agent.cite, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be(f"cite {of}", "True or False", agent.cite, error=error)
    if agent.group is not None:
        check_group(agent)
    if agent.cite and agent.returns is not None:
        message = f"Agent {agent.name!r} has cite and returns, and the API takes one of them."
        raise error(message, hint="Let one agent answer with citations, and another read its answer as a type.")
    if agent.role is not None and agent.system is not None:
        raise error(f"Agent {agent.name!r} has role={agent.role!r} and a system prompt. Give one of them.")


def _check_together(agent: Agent) -> None:
    """Raise `DeclarationError` for the first options that exclude each other."""
    if agent.save is not None:
        check_save(agent)
    check_models(agent)
    if agent.hedge is not None:
        check_hedge(agent)
    if agent.speculate:
        check_speculate(agent)
