"""An agent: a named prompt with the options of its request, and what these options need of each other.

Fallbacks, if its model cannot answer, and cascades, if it is unsure, are rules of an agent's attempts, not separate
steps: an agent keeps one row and one answer, and each attempt names its model.

A role is a short system prompt with the perspective of an agent. `am.roles["lawyer"] = "You are a lawyer. ..."` adds
one for `--role lawyer`. Agents take the text when they are declared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agent_magic.declare.answers.returns import Check, Returns
from agent_magic.declare.answers.schema import lacking, schema_of
from agent_magic.declare.each import OWN
from agent_magic.declare.options import (
    AUTO,
    INHERITED,
    NEEDS,
    AgentOptions,
    beside,
    candidates_of,
    check_options,
    documented,
    known_keywords,
    sent_text,
    settle_options,
    step_text,
)
from agent_magic.declare.resources import check_save, check_uses
from agent_magic.declare.template import ANSWER, Template, check_flow, condition_of, deciding_names, without_own
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.declare.validation import (
    check_name,
    check_positive,
    check_text,
    check_word,
    compare_names,
    listed,
    must_be,
)
from agent_magic.errors import DeclarationError, UndefinedField, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


class Roles(dict[str, str]):
    """System prompts by role. Names are read in any capitalization."""

    def __setitem__(self, name: str, text: str) -> None:
        """Add a role, or give one another text.

        Raises:
            DeclarationError: The name is not one word, or the text is empty.
        """
        check_name(name, "a role")
        check_text(f"role {name!r}", text)
        if not text.strip():
            raise must_be(f"role {name!r}", "the text of a system prompt", text)
        super().__setitem__(name.lower(), text)

    def __getitem__(self, name: str) -> str:
        """Return the text of a role."""
        return super().__getitem__(name.lower())

    def read(self, name: object, agent: str) -> tuple[str, str]:
        """Return a role as it is written here, and its text.

        Raises:
            DeclarationError: There is no such role.
        """
        found = name.lower() if isinstance(name, str) else name
        if not isinstance(found, str) or found not in self:
            hint = f"{did_you_mean(found, self)} Your own: am.roles['name'] = 'You are ...'"
            error = partial(DeclarationError, agent=agent)
            raise must_be(f"role of agent {agent!r}", f"one of {', '.join(self)}", name, hint, error=error)
        return found, self[found]


BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "researcher": "You are a researcher. Gather what is known about the question, say how sure you are of each "
        "point, and keep facts apart from opinions. Do not recommend anything yet.",
        "analyzer": "You are an analyst. Compare the material you are given, name patterns, contradictions and gaps, "
        "and say what follows from it. Bring in no new facts.",
        "planner": "You are a planner. Turn the goal into steps with an order, an owner's role and a check for each, "
        "and name the risks that could change the order.",
        "writer": "You are a writer. Turn the material into clear prose for its reader. Keep every number and every "
        "reservation of your sources.",
        "critic": "You are a critic. Look for the weakest assumptions, the missing evidence and the cheapest way to "
        "be wrong. Say what would change your mind.",
        "synthesizer": "You are a synthesizer. Bring the contributions together into one answer: what they agree on, "
        "where they differ and why, and what to do.",
        "coordinator": "You are a coordinator. Line up the contributions, find what is missing or doubled between "
        "them, and hand over one consistent picture.",
    }
)
ROLES = Roles(BUILT_IN)


DEFAULT_MODEL = "claude-haiku-5-5"
"""The cheapest current model."""
DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT_S = 300.0
NO_TOOLS = Tools()
FEWEST = 2
"""Minimum models of a cascade, or a choice."""
_HEDGE_SHARE: Final = re.compile(r"p([5-9]\d)")
_HEAD: Final = (
    "Do what each of these items says, apart from the others. Give exactly one answer for each item, with its number."
)


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
        _check_group(self)
        role, text = (None, None) if self.role is None else ROLES.read(self.role, self.name)
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "role_text", text)
        settle_options(self)
        object.__setattr__(self, "sent", sent_text(self))
        compare_names(self)
        for option, models in _each_once(self).items() if self.cascade or self.fallback else ():
            object.__setattr__(self, option, models)
        if self.returns is not None:
            object.__setattr__(self, "returns", Returns.of(self.returns, agent=self.name))
        if self.check is not None:
            object.__setattr__(self, "check", Check.of(self.check, agent=self.name))
        if not isinstance(self.tools, Tools):
            made = tools_of(self.tools, agent=self.name, schema=self.schema) if self.tools else NO_TOOLS
            object.__setattr__(self, "tools", made)
        text = _asking(self.prompt) if self.part is not None and self.part.asks else self.prompt
        object.__setattr__(self, "template", Template.parse(text, agent=self.name))
        check_uses(self.uses_resources)
        for check in (_check_together, check_save, _check_models, _check_continues, _check_hedge, _check_speculate):
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
        if self.continues is not None:  # they are those of its conversation, or nothing of it is cached
            defaults = {option: one for option, one in defaults.items() if option not in INHERITED}
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None and value is not None}
        return replace(self, **missing) if missing else self  # pyright: ignore[reportArgumentType]


def _check_together(agent: Agent) -> None:
    """Refuse options that the API, or an agent, cannot combine."""
    error = partial(DeclarationError, agent=agent.name)
    if agent.cite and agent.returns is not None:
        message = f"Agent {agent.name!r} has cite and returns. The API accepts only one of them."
        raise error(message, hint="Let one agent answer with citations, and another read its answer as a type.")
    if agent.role is not None and agent.system is not None:
        raise error(f"Agent {agent.name!r} has role={agent.role!r} and a system prompt. Give one of them.")


def _check_continues(agent: Agent) -> None:
    """Refuse options that would change the beginning of a continued conversation."""
    if agent.continues is None:
        return
    if agent.continues == agent.name:
        raise DeclarationError(f"Agent {agent.name!r} continues itself.", agent=agent.name, hint="Name another agent.")
    if own := beside(agent, "continues"):
        message = f"Agent {agent.name!r} continues {agent.continues!r} and has {own}."
        hint = f"A conversation has that of its first agent. Give {own} to it, or leave continues out."
        raise DeclarationError(message, agent=agent.name, hint=hint)


def _asking(prompt: str) -> str:
    inside = f'<item number="{{{{ number }}}}">\n{prompt}\n</item>'
    return f"{_HEAD}\n{{% for number, key, item in item %}}\n{inside}\n{{% endfor %}}"


def _check_group(agent: Agent) -> None:
    if agent.group is None:
        return
    group: Any = agent.group
    if group != AUTO and (not isinstance(group, int) or isinstance(group, bool) or group < 1):
        error = partial(DeclarationError, agent=agent.name)
        raise must_be(f"group of agent {agent.name!r}", "an integer >= 1, or 'auto'", group, error=error)
    what = f"Agent {agent.name!r} has group={agent.group}"
    if agent.each is None:
        raise DeclarationError(f"{what} and no each.", agent=agent.name, hint="Say of what: --each reviews --group 5.")
    if agent.returns is None:
        hint = "Give the type of one answer, --returns str or a class of yours: texts could not be told apart."
        raise DeclarationError(f"{what} and answers with text.", agent=agent.name, hint=hint)
    other = beside(agent, "group")
    other = other or next(("attach" for name in listed(agent.attach) if name in OWN), "")
    if other:
        hint = "It is for one answer, and a request has several: leave one of them out."
        raise DeclarationError(f"{what} and {other}.", agent=agent.name, hint=hint)


def _each_once(agent: Agent) -> dict[str, Any]:
    # A cascade begins with `model`; a fallback differs from those before it.
    cascade = tuple(dict.fromkeys(agent.cascade))
    model = agent.model if agent.model is not None or not cascade else cascade[0]
    fallback = tuple(one for one in dict.fromkeys(agent.fallback) if one not in {model, *cascade})
    return {"model": model, "cascade": cascade, "fallback": fallback}


def _check_models(agent: Agent) -> None:
    if agent.needs or agent.other_models or ":" in (agent.model or ""):
        _check_choice(agent)
    error = partial(DeclarationError, agent=agent.name)
    if agent.cascade:
        _check_cascade(agent, error)
    elif agent.escalate is not None:
        hint = "Say which models are asked, cheap first: --cascade CHEAP,DEAR."
        raise error(f"Agent {agent.name!r} has escalate and no cascade.", hint=hint)


def _check_choice(agent: Agent) -> None:
    error = partial(DeclarationError, agent=agent.name)
    for need in agent.needs:
        check_word(f"needs of agent {agent.name!r}", need, NEEDS, error=error)
    found = candidates_of(agent.model)
    if found is not None and ":" in (agent.model or "") and len(found) < FEWEST:
        raise error(f"Agent {agent.name!r} has model={agent.model!r}.", hint=f"Name two or more: {AUTO}:CHEAP,DEAR.")
    if agent.needs and agent.model is not None and found is None and not agent.chosen:
        message = f"Agent {agent.name!r} has needs, and model={agent.model!r} leaves nothing to choose."
        raise error(message, hint=f"Have it chosen: --model {AUTO}, or leave needs out.")
    if AUTO in {*agent.cascade, *agent.fallback}:
        raise error(f"Agent {agent.name!r} has {AUTO!r} in a list of models.", hint=f"Only --model takes {AUTO}.")


def _check_cascade(agent: Agent, error: partial[DeclarationError]) -> None:
    if len(agent.cascade) < FEWEST:
        raise error(f"The cascade of {agent.name!r} has one model.", hint="Name two or more, cheap first.")
    if agent.model != agent.cascade[0]:
        message = f"Agent {agent.name!r} has model={agent.model!r} beside a cascade."
        raise error(message, hint="Leave the model out: the cascade begins with its first.")
    if agent.tools.functions:
        message = f"Agent {agent.name!r} has a cascade and tools: the next model would call them again."
        raise error(message, hint="Let one agent work with the tools, and another with a cascade read its answer.")
    if agent.escalate is None and agent.returns is None and agent.check is None:
        hint = 'Say when: --escalate "answer.confidence < 0.7", or give it a check.'
        raise error(f"The cascade of {agent.name!r} never escalates.", hint=hint)
    if agent.escalate is not None:
        check_text(f"escalate of {agent.name!r}", agent.escalate, error=error)
        others = [one for one in condition_of(agent.escalate, agent.name, "escalate").names if one != ANSWER]
        if others:
            message = f"--escalate {agent.escalate!r} of agent {agent.name!r} is about {others[0]!r}."
            raise error(message, hint=f'It can be about the answer only: --escalate "{ANSWER}.confidence < 0.7".')
        _check_escalate_fields(agent, agent.escalate)


def _check_escalate_fields(agent: Agent, escalate: str) -> None:
    """Refuse a field that the answer lacks, before any answer is paid for."""
    for path in condition_of(escalate, agent.name, "escalate").paths:
        if agent.returns is None and len(path) > 1:
            message = f"--escalate {escalate!r} of agent {agent.name!r}: a text has no field {path[1]!r}."
            raise DeclarationError(message, hint="Give the agent a type: --returns Label.")
        lacks = None if agent.returns is None else lacking(schema_of(agent.returns.schema), path[1:])
        if lacks is not None:
            raise UndefinedField(lacks[1], of=f"{ANSWER}{lacks[0]}", agent=agent.name, known=lacks[2])


def _check_hedge(agent: Agent) -> None:
    if agent.hedge is None:
        return
    hedge, error = agent.hedge, partial(DeclarationError, agent=agent.name)
    of = f"hedge of agent {agent.name!r}"
    if isinstance(hedge, str):
        if _HEDGE_SHARE.fullmatch(hedge) is None:
            raise must_be(of, "'p50' to 'p99', or seconds", hedge, error=error)
    else:
        check_positive(of, hedge, error=error)
    other = beside(agent, "hedge")
    other = other or ("batch" if agent.batch == "on" else "")
    if other:
        hint = "A second request would do it twice, or has no time to win: leave one of them out."
        raise error(f"Agent {agent.name!r} has hedge={hedge!r} and {other}.", hint=hint)


def _check_speculate(agent: Agent) -> None:
    """Refuse `speculate` without a condition, or with effects that cannot be undone."""
    if not agent.speculate:
        return
    error = partial(DeclarationError, agent=agent.name)
    if agent.when is None:
        raise error(
            f"{agent.name!r} has speculate and no when.", hint='Say what it need not wait for: --when "review.ok".'
        )
    other = beside(agent, "speculate")
    other = other or ("batch" if agent.batch == "on" else "")
    if other:
        hint = "What it does may be thrown away: leave one of them out."
        raise error(f"{agent.name!r} has speculate and {other}.", hint=hint)
