"""Who answers, as the user gives it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from agent_magic.errors import AgentMagicError
from agent_magic.run.claude import Claude

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agent_magic.run.client import Client


def as_client(client: Client | AsyncAnthropic | None) -> Client:
    """Take the SDK's own client too."""
    if client is None:
        return Claude()
    if hasattr(client, "call"):
        return client  # pyright: ignore[reportReturnType]
    create = getattr(getattr(client, "messages", None), "create", None)
    if create is None or not inspect.iscoroutinefunction(inspect.unwrap(create)):
        message = f"client={type(client).__name__!r} cannot answer. Give a Claude(), or an AsyncAnthropic of your own."
        raise AgentMagicError(message)
    return Claude(client)  # pyright: ignore[reportArgumentType]
