"""Features a request needs, and refusals (`REFUSALS`) if the provider lacks them; a schema is then asked for in words.

A plan is checked when it meets a provider, and each request before it is sent, since a task or tool may return an
unforeseen picture. One answer shows whether a server follows schemas: a grammar writes an object with the schema's
fields, and nothing around it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.declare.answers.schema import told_by
from agent_magic.declare.context import shows_content
from agent_magic.declare.each import firsts
from agent_magic.declare.grouping import declared_name
from agent_magic.declare.options import AGENT
from agent_magic.declare.task import Task
from agent_magic.engine.policy import batching_of
from agent_magic.errors import DeclarationError, Rejected, shown_value
from agent_magic.providers.base import EVERYTHING, Capabilities, no_batches
from agent_magic.record.request import Request, read_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Policy
    from agent_magic.providers.base import Provider
    from agent_magic.record.answer import Answer


class Refusal(NamedTuple):
    """A refused option, in words."""

    option: str
    words: str


OPTIONS: Mapping[str, tuple[str, ...]] = {
    row.capability: tuple(one.name for one in AGENT.values() if one.capability == row.capability)
    for row in AGENT.values()
    if row.capability
}
REFUSALS: Mapping[str, Refusal] = {
    "tools": Refusal("tools", "takes no tools"),
    "server_tools": Refusal("tools", "runs no tools itself"),
    "images": Refusal("attach", "takes no pictures"),
    "documents": Refusal("attach", "takes no documents"),
    "citations": Refusal(OPTIONS["citations"][0], "gives no citations"),
    "effort": Refusal(OPTIONS["effort"][0], "has no setting for effort"),
    "sampling": Refusal(OPTIONS["sampling"][0], f"takes no {', '.join(OPTIONS['sampling'])}"),
    "stop": Refusal(OPTIONS["stop"][0], "takes no texts to stop at"),
    "extra": Refusal(OPTIONS["extra"][0], "takes no fields that agent_magic does not know"),
}


def needed_by(request: Request) -> Capabilities:
    tools: list[dict[str, Any]] = read_blocks(request.tools) if request.tools.startswith("[") else []
    kinds = {one.kind for one in request.files}
    return Capabilities(
        tools=any("input_schema" in one for one in tools),
        server_tools=any("input_schema" not in one for one in tools),
        images="image" in kinds,
        documents="document" in kinds,
        citations=request.cite,
        effort=request.effort is not None,
        **{AGENT[name].capability: True for name in request.sent},
    )


def check_plan(plan: Plan, policy: Policy, provider: Provider) -> None:
    """Refuse a plan that needs features, or batches, that its provider lacks."""
    if provider.batches is None and (batching := batching_of(plan, policy)) is not None:
        agent = plan.agents[min(batching.steps)]
        if agent.batch is None:
            raise no_batches(provider.endpoint)
        raise _refusal(declared_name(agent), f"batch={agent.batch!r}", _name(provider), "has no batches")
    everything = provider.capabilities == EVERYTHING
    for number, agent in zip(firsts(range(len(plan)), plan.dag.alike), plan.firsts, strict=True):
        if isinstance(agent, Task) or (everything and not agent.sent):
            continue
        needed, name = _needed_ahead(plan, number, agent, provider), declared_name(agent)
        if lack := _lack(needed, provider.capabilities):
            raise _refusal(name, _option(plan, agent, lack), _name(provider), REFUSALS[lack].words, lack)
        for model in (agent.model or DEFAULT_MODEL, *agent.other_models):
            if lack := _lack(needed, provider.capabilities_of(model)):
                raise DeclarationError(
                    f"Agent {name!r} has {_option(plan, agent, lack)}, and {model} {REFUSALS[lack].words}.",
                    agent=name,
                    hint="Nothing was sent. Take the option out, or ask a model that takes it.",
                )


def unsent_schema(plan: Plan, provider: Provider) -> str:
    typed = next((one.name for one in plan.firsts if not isinstance(one, Task) and one.returns is not None), "")
    if not typed or provider.capabilities.schemas:
        return ""
    return (
        f"{_name(provider)} sends no schemas: the answers of {typed!r} are read by its type, but the model is not told "
        f"it. {_declare('schemas')}"
    )


def no_cheaper_model(plan: Plan, policy: Policy, provider: Provider) -> str:
    """Return a note if the policy degrades to a cheaper model and none is named."""
    names_one = bool(provider.choices) or any(not isinstance(one, Task) and one.fallback for one in plan.firsts)
    if names_one or "model" not in (policy.degrade or ""):
        return ""
    return (
        f"degrade={policy.degrade!r} has no cheaper model to ask: {_name(provider)} lists no models. Give agents a "
        "fallback."
    )


def check_request(request: Request, provider: Provider) -> None:
    """Raise `Rejected`, with nothing sent."""
    can = provider.capabilities_of(request.model)
    if can != EVERYTHING and (lack := _lack(needed_by(request), can)):
        who = request.model if getattr(provider.capabilities, lack) else _name(provider)
        raise Rejected(f"The request has {lack}, and {who} {REFUSALS[lack].words}. It was not sent.", status=None)


def _lack(needed: Capabilities, can: Capabilities) -> str:
    return next((one for one in REFUSALS if getattr(needed, one) and not getattr(can, one)), "")


def _needed_ahead(plan: Plan, number: int, agent: Agent, provider: Provider) -> Capabilities:
    asked = Request("", "", 0, effort=agent.effort, tools=agent.tools_text, cite=agent.cite, options=agent.sent)
    if not shows_content(agent, {**plan.values, **plan.shown}):
        return needed_by(asked)
    # An attached agent's answer goes out as a document; a task's result is not known yet.
    answers = {name: "" if plan[name].is_task else "-" for name in plan.inputs[number]}
    needed = needed_by(asked._replace(attachments=plan.prompt_ahead(number, answers).attachments))
    unknown = bool(agent.attach) and not (needed.images or needed.documents)
    return replace(needed, documents=True) if unknown and not provider.capabilities.images else needed


def _option(plan: Plan, agent: Agent, lack: str) -> str:
    known = (name for name in OPTIONS.get(lack, ()) if getattr(agent, name) not in (None, ()))
    option = next(known, REFUSALS[lack].option)
    if option == "attach" and not agent.attach:
        return f"context={agent.context!r}" if agent.context in plan.documents else f"{lack} in its prompt"
    if option == "tools":
        return f"{option}={shown_value([one.name for one in agent.tools])}"
    value = getattr(agent, option)
    return f"{option}={shown_value([*agent.attach] if option == 'attach' else value)}"


def _refusal(agent: str, option: str, who: str, words: str, capability: str = "") -> DeclarationError:
    hint = "Nothing was sent. Take the option out, or connect to a provider that can."
    if capability:
        hint += f" {_declare(capability)}"
    return DeclarationError(f"Agent {agent!r} has {option}, and {who} {words}.", agent=agent, hint=hint)


def _declare(capability: str) -> str:
    return f"If this one can, its class says so: capabilities = Capabilities({capability}=True)."


def _name(provider: Provider) -> str:
    return f"{type(provider).__name__} ({provider.endpoint})"


WORDS = "Answer with JSON alone, with nothing before or behind it, that fits this JSON schema:\n{schema}"


class SchemaWatch:
    """Tracks models of a server that do not follow a schema, or refuse it."""

    def __init__(self) -> None:
        self._loose: set[str] = set()
        self._refusing: set[str] = set()

    def in_words(self, request: Request) -> Request:
        """Put the schema into the system prompt, for models that do not follow it otherwise."""
        told = told_by(request.schema)
        if not told and (not request.schema or request.model not in self._loose):
            return request
        words = WORDS.format(schema=told or request.schema)
        system = f"{request.system}\n\n{words}" if request.system else words
        return request._replace(system=system, schema="" if told or request.model in self._refusing else request.schema)

    def refuses(self, request: Request, refusal: str, fields: Iterable[str]) -> bool:
        """Return whether a refusal names a field of the schema, which is omitted from now on."""
        if (
            not request.schema
            or told_by(request.schema)
            or request.model in self._refusing
            or not any(one in refusal for one in fields)
        ):
            return False
        self._refusing.add(request.model)
        self._loose.add(request.model)
        return True

    def loosen(self, model: str) -> bool:
        """Ask a model in words from now on; return whether that is new."""
        is_new = model not in self._loose
        self._loose.add(model)
        return is_new

    def hears(self, request: Request, answer: Answer) -> bool:
        """Return whether an answer shows for the first time that its model ignores schemas."""
        if (
            not request.schema
            or told_by(request.schema)
            or answer.stop_reason != "end_turn"
            or not answer.text.strip()  # which says nothing of its form
            or _is_shaped(answer.text, read_blocks(request.schema))
        ):
            return False
        return self.loosen(request.model)


def _is_shaped(text: str, schema: Any) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    wanted = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if wanted.get("type") != "object":
        return True
    if not isinstance(found, dict):
        return False
    named = {*cast("dict[str, Any]", found)}
    known = {*wanted.get("properties", ())}
    return named >= {*wanted.get("required", ())} and (
        wanted.get("additionalProperties") is not False or named <= known
    )
