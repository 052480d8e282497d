"""An agent: a named prompt with the options of its call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent_magic.declare.each import OWN, Part
from agent_magic.declare.roles import ROLES
from agent_magic.declare.template import Template
from agent_magic.declare.validation import check_name, is_number, is_word
from agent_magic.errors import DeclarationError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_MODEL = "claude-haiku-5-5"
"""The model of an agent that names none: the cheapest current one. This is the only place that says it."""
DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT_S = 300.0
EFFORTS = ("low", "medium", "high", "xhigh", "max")

OPTIONS = ("model", "max_tokens", "system", "role", "context", "effort", "timeout_s")


@dataclass(frozen=True, slots=True)
class Agent:
    """A declared unit of work. A value: declaring one costs nothing and sends nothing.

    Args:
        name: The key. A Python-like identifier, so that `{{ name }}` works in other prompts.
        prompt: A Jinja2 template. `{{ other }}` takes the answer of the agent `other`, or else the value of that
            name. The text goes out verbatim otherwise.
        model: The model's id. `None`: the default of the session, or `DEFAULT_MODEL`.
        max_tokens: The most output tokens. `None`: the default.
        system: The system prompt, sent verbatim (not a template).
        role: The name of a role whose system prompt is used; see `agent_magic.declare.roles`.
        context: The name of a context or a value that goes out first, byte for byte the same for every agent that
            shares it, so that the provider can cache it.
        after: Agents that must have succeeded before, though their text is not used. `"a,b"` will do too.
        timeout_s: Seconds from the first attempt's start to the last one's end, waiting between them included.
        effort: `low`, `medium`, `high`, `xhigh` or `max`; `None` leaves it to the model.
        each: The name of a list, dict, Series or DataFrame: a plan has an agent for each item of it, whose prompt takes
            it as `{{ item }}`; see `agent_magic.declare.each`.
        part: Which one of those it is. Plans set it.

    Raises:
        DeclarationError: The name, an option or the template cannot be read.
    """

    name: str
    prompt: str = field(repr=False)
    model: str | None = field(default=None, kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    system: str | None = field(default=None, kw_only=True)
    role: str | None = field(default=None, kw_only=True)
    context: str | None = field(default=None, kw_only=True)
    after: Sequence[str] = field(default=(), kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)
    effort: str | None = field(default=None, kw_only=True)
    each: str | None = field(default=None, kw_only=True)
    part: Part | None = field(default=None, kw_only=True, repr=False, hash=False)
    template: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.prompt, str) or not self.prompt.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(
                f"Agent {self.name!r} has no prompt.", agent=self.name, hint="Write it below the line."
            )
        _check_options(self)
        object.__setattr__(self, "after", _names(self.after))
        object.__setattr__(self, "template", Template.parse(self.prompt, agent=self.name))

    @property
    def uses(self) -> tuple[str, ...]:
        """The names its prompt reads: agents and values alike, in order of appearance."""
        names = self.template.names
        if self.each is None and self.part is None:
            return names
        return tuple(name for name in names if name not in OWN)

    @property
    def reads(self) -> tuple[str, ...]:
        """All names it needs a value or an agent for: those its prompt uses, its context, what it is for each of."""
        return (*self.uses, *(name for name in (self.context, self.each) if name is not None))

    @property
    def system_text(self) -> str | None:
        """The system prompt that goes out: its own, or its role's."""
        return self.system if self.system is not None else ROLES[self.role] if self.role else None

    def with_defaults(self, **defaults: str | float | None) -> Agent:
        """Return a copy in which options left open take these values."""
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None and value is not None}
        return replace(self, **missing) if missing else self  # pyright: ignore[reportArgumentType]


def _names(after: str | Iterable[str] | None) -> tuple[str, ...]:
    """Read `a,b` or a sequence of names; each name once, in order."""
    parts = after.split(",") if isinstance(after, str) else () if after is None else after
    return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))


def _check_options(agent: Agent) -> None:
    """Raise `DeclarationError` for the first option that cannot work."""
    tokens, seconds = agent.max_tokens, agent.timeout_s
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise _bad(agent, "max_tokens", tokens, "Give a whole number from 1.")
    if seconds is not None and not (is_number(seconds) and 0 < seconds < math.inf):
        raise _bad(agent, "timeout_s", seconds, "Give seconds above 0.")
    for option in ("model", "system", "role", "context", "each"):
        if not isinstance(getattr(agent, option), str | None):
            raise _bad(agent, option, getattr(agent, option), "Give text.")
    if agent.model is not None and not agent.model.strip():
        raise _bad(agent, "model", agent.model, "Give a model's id.")
    if not isinstance(agent.after, Iterable | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _bad(agent, "after", agent.after, "Give names: 'a,b', or a list of them.")
    if agent.effort is not None and not is_word(agent.effort, EFFORTS):
        raise _bad(agent, "effort", agent.effort, _one_of(agent.effort, EFFORTS))
    if agent.role is not None and agent.role not in ROLES:
        raise _bad(agent, "role", agent.role, _one_of(agent.role, ROLES))
    if agent.role is not None and agent.system is not None:
        raise _bad(agent, "role", agent.role, "Give a system prompt or a role, not both.")


def _one_of(word: object, words: Iterable[str]) -> str:
    known = list(words)
    return f"One of {', '.join(known)}.{did_you_mean(str(word), known)}"


def _bad(agent: Agent, option: str, value: object, hint: str) -> DeclarationError:
    return DeclarationError(f"{option}={value!r} of agent {agent.name!r} cannot work.", agent=agent.name, hint=hint)
