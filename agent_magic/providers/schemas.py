"""Asks for a schema in words if the server does not enforce it.

One answer tells: a grammar writes an object with the schema's fields, and nothing around it. From then on the prompt
contains the schema.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.schema import told_by
from agent_magic.record.request import read_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

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
