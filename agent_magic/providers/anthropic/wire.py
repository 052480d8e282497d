"""The bodies of Messages API requests.

Source: the vendor's pages on the Messages API and on prompt caching. A cached prefix is tools, then system, then
messages: so the shared context stands first in the system prompt, and what is the agent's own behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_magic.record.request import Request


def body(request: Request) -> dict[str, Any]:
    """Write a request as the API takes it: what is asked, and whether to cache its context."""
    found = request.canonical()
    if request.cached and request.context:
        long = {"ttl": request.ttl} if request.ttl != "5m" else {}
        found["system"][0]["cache_control"] = {"type": "ephemeral", **long}
    return found
