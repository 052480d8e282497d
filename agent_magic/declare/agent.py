"""An agent: a named prompt with the options of its request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from agent_magic.declare.answers.returns import Check, Returns
from agent_magic.declare.condition import check_flow, check_speculate, deciding_names, without_own
from agent_magic.declare.grouping import asking, check_group
from agent_magic.declare.hedge import check_hedge
from agent_magic.declare.models import check_models, each_once
from agent_magic.declare.options import (
    AgentOptions,
    check_options,
    documented,
    known_keywords,
    sent_text,
    settle_options,
    step_text,
)
from agent_magic.declare.roles import ROLES
from agent_magic.declare.saving import check_save
from agent_magic.declare.template import Template
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.declare.validation import check_name, compare_names
from agent_magic.errors import DeclarationError

DEFAULT_MODEL = "claude-haiku-5-5"
"""The model of an agent that names none: the cheapest current one."""
DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT_S = 300.0
NO_TOOLS = Tools()
_OF_THE_FIRST = ("system", "role", "context", "cite", "group")
"""Options that belong to the first agent of a conversation."""


@known_keywords
@documented
@dataclass(frozen=True, slots=True, repr=False)
class Agent(AgentOptions):
    """A declared unit of model work. Declaring one costs nothing and sends nothing.

    Args:
        name: The key: an identifier, so that `{{ name }}` works in other prompts.
        prompt: A Jinja2 template. `{{ other }}` is the answer of the agent `other`, or else the value of that name.
            All other text is sent as it is.

    Raises:
        DeclarationError: The name, an option or the template cannot be read.
    """

    name: str
    prompt: str = field(repr=False)
    role_text: str | None = field(init=False, repr=False)
    sent: str = field(init=False, repr=False, compare=False)
    template: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.batch, bool):
            object.__setattr__(self, "batch", "on" if self.batch else "off")
        if not isinstance(self.prompt, str) or not self.prompt.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "Write it below the %%agent line, or give prompt='...'."
            raise DeclarationError(f"The prompt of agent {self.name!r} is empty.", agent=self.name, hint=hint)
        check_options(self, f"agent {self.name!r}")
        check_flow(self)
        check_group(self)
        role, text = (None, None) if self.role is None else ROLES.read(self.role, self.name)
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "role_text", text)
        settle_options(self)
        object.__setattr__(self, "sent", sent_text(self))
        compare_names(self)
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
        for check in (_check_together, check_save, check_models, _check_continues, check_hedge, check_speculate):
            check(self)

    def __repr__(self) -> str:
        return step_text(self)

    is_task: ClassVar[bool] = False
    """True for a Python function, which asks no model."""
    race: ClassVar[bool] = False
    """True for a step that takes the first answer of several agents."""
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
        """The names its prompt uses, of agents and values, in order of appearance; first whom it continues."""
        names = self.template.names
        if self.attach or self.continues is not None:
            before = () if self.continues is None else (self.continues,)
            names = tuple(dict.fromkeys((*before, *self.attach, *names)))
        return without_own(names, self.each, self.part)

    @property
    def can_miss(self) -> frozenset[str]:
        """The names its prompt can do without, as `{{ name | default("") }}` can."""
        return self.template.can_miss

    @property
    def reads(self) -> tuple[str, ...]:
        """All names it needs: in its prompt, context, conditions, and `each`."""
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
        """The name of its cacheable prefix: its context, separate per answer type.

        Source: the vendor's page on structured outputs: another format empties the cache.
        """
        return self.context if self.context is None or not self.schema else f"{self.context} {self.schema}"

    def with_defaults(self, **defaults: str | float | None) -> Agent:
        """Return a copy in which options that are `None` have these values.

        Args:
            **defaults: Values by option; `None` changes nothing.
        """
        if self.continues is not None:  # model and effort are those of its conversation, or nothing of it is cached
            defaults = {option: one for option, one in defaults.items() if option not in {"model", "effort"}}
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None and value is not None}
        return replace(self, **missing) if missing else self  # pyright: ignore[reportArgumentType]


def _check_together(agent: Agent) -> None:
    """Raise `DeclarationError` for two options of which the API, or an agent, takes one."""
    error = partial(DeclarationError, agent=agent.name)
    if agent.cite and agent.returns is not None:
        message = f"Agent {agent.name!r} has cite and returns. The API accepts only one of them."
        raise error(message, hint="Let one agent answer with citations, and another read its answer as a type.")
    if agent.role is not None and agent.system is not None:
        raise error(f"Agent {agent.name!r} has role={agent.role!r} and a system prompt. Give one of them.")


def _check_continues(agent: Agent) -> None:
    """Raise `DeclarationError` if an agent that continues a conversation would change its beginning."""
    if agent.continues is None:
        return
    if agent.continues == agent.name:
        raise DeclarationError(f"Agent {agent.name!r} continues itself.", agent=agent.name, hint="Name another agent.")
    own = [option for option in _OF_THE_FIRST if getattr(agent, option)]
    if own:
        message = f"Agent {agent.name!r} continues {agent.continues!r} and has {own[0]}."
        hint = f"A conversation has that of its first agent. Give {own[0]} to it, or leave continues out."
        raise DeclarationError(message, agent=agent.name, hint=hint)
