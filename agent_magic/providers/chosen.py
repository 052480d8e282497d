"""Who answers, as the user gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.providers.anthropic.client import Claude

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agent_magic.providers.base import Client


def as_client(client: Client | AsyncAnthropic | None) -> Client:
    """Take the SDK's own client too.

    Raises:
        AgentMagicError: It cannot answer.
    """
    if client is None:
        return Claude()
    if hasattr(client, "call"):
        return client  # pyright: ignore[reportReturnType]
    return Claude(client)  # pyright: ignore[reportArgumentType]
