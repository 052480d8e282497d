"""Alternative models of an agent: fallbacks if its own cannot answer, and cascades if it is unsure.

```
%%agent label --cascade claude-haiku-5-5,claude-sonnet-5-5 --escalate "answer.confidence < 0.7" --returns Label
%%agent report --model claude-sonnet-5-5 --fallback claude-opus-5-5
```

Both are rules of an agent's attempts, not separate steps: an agent keeps one row and one answer, and each attempt names
its model.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.schema import lacking, schema_of
from agent_magic.declare.condition import condition_of
from agent_magic.declare.options import AUTO, NEEDS
from agent_magic.declare.validation import check_text, check_word, listed
from agent_magic.errors import DeclarationError, UndefinedField

if TYPE_CHECKING:
    from agent_magic.declare.agent import Agent
    from agent_magic.declare.step import Step

ANSWER = "answer"
"""The name of the answer in the condition of `escalate`."""
FEWEST = 2
"""Minimum models of a cascade, or a choice."""


def candidates_of(model: str | None) -> tuple[str, ...] | None:
    """Return the models to choose from, none for the provider's; `None` for no choice."""
    word, _, names = (model or "").partition(":")
    return listed(names) if word == AUTO else None


def models_text(step: Step, model: str) -> str:
    """Return the model of a step in words: of a cascade all of them, `A → B`; else the model of its first request."""
    return " → ".join(step.cascade) if step.cascade else model


def job_of(agent: Agent) -> str:
    """Return the fingerprint of a request without model and row: grades of one job can be compared."""
    return _fingerprint(agent, agent.effort, agent.sent)


def prompt_of(step: Step) -> str:
    """Return the fingerprint of an agent's instructions without model, effort and row, for the length of answers.

    It is empty for a task.
    """
    return "" if step.is_task else _fingerprint(cast("Agent", step), None, "")


def _fingerprint(agent: Agent, effort: str | None, sent: str) -> str:
    asked = [agent.prompt, agent.system_text, agent.context, effort, agent.schema, agent.tools_text]
    asked += [agent.cite, agent.attach, *([sent] if sent else [])]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _check_choice(agent: Agent) -> None:
    """Raise `DeclarationError` for a choice of models that is none."""
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


def each_once(agent: Agent) -> dict[str, Any]:
    """Return the options that name models, each model once."""
    # A cascade begins with `model`; a fallback differs from those before it.
    cascade = tuple(dict.fromkeys(agent.cascade))
    model = agent.model if agent.model is not None or not cascade else cascade[0]
    fallback = tuple(one for one in dict.fromkeys(agent.fallback) if one not in {model, *cascade})
    return {"model": model, "cascade": cascade, "fallback": fallback}


def check_models(agent: Agent) -> None:
    """Raise `DeclarationError` if a cascade or a choice is invalid, or a cascade has no condition to escalate."""
    if agent.needs or agent.other_models or ":" in (agent.model or ""):
        _check_choice(agent)
    error = partial(DeclarationError, agent=agent.name)
    if agent.cascade:
        _check_cascade(agent, error)
    elif agent.escalate is not None:
        hint = "Say which models are asked, cheap first: --cascade CHEAP,DEAR."
        raise error(f"Agent {agent.name!r} has escalate and no cascade.", hint=hint)


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
        _check_fields(agent, agent.escalate)


def _check_fields(agent: Agent, escalate: str) -> None:
    """Raise for a field that the answer lacks, before all answers are paid for."""
    for path in condition_of(escalate, agent.name, "escalate").paths:
        if agent.returns is None and len(path) > 1:
            message = f"--escalate {escalate!r} of agent {agent.name!r}: a text has no field {path[1]!r}."
            raise DeclarationError(message, hint="Give the agent a type: --returns Label.")
        lacks = None if agent.returns is None else lacking(schema_of(agent.returns.schema), path[1:])
        if lacks is not None:
            raise UndefinedField(lacks[1], of=f"{ANSWER}{lacks[0]}", agent=agent.name, known=lacks[2])
