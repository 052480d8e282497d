"""What is asked of a model, before any transport."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, NamedTuple

from agent_magic.declare.template import sendable

Ttl = Literal["5m", "1h"]
"""How long a cached context lives after each use."""


class Request(NamedTuple):
    """One request. A value.

    Attributes:
        context: Text that goes out before everything else, shared with other requests.
        cached: Whether the provider is asked to cache it.
        ttl: For how long, if it is.
        so_far: What was said already of an answer that the API had paused: its content blocks as JSON, which go back
            as they came. Empty for the first turn.
    """

    model: str
    prompt: str
    max_tokens: int
    system: str | None = None
    context: str | None = None
    cached: bool = False
    effort: str | None = None
    timeout_s: float = 300.0
    ttl: Ttl = "5m"
    so_far: str = ""

    def body(self) -> dict[str, Any]:
        """Write it as the Messages API wants it."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": self.prompt}],
        }
        if self.so_far:
            body["messages"].append({"role": "assistant", "content": json.loads(self.so_far)})
        if self.context:
            body["system"] = self._blocks(self.context)
        elif self.system:
            body["system"] = sendable(self.system)
        if self.effort:
            body["output_config"] = {"effort": self.effort}
        return body

    def _blocks(self, context: str) -> list[dict[str, Any]]:
        """Write the shared context first, and what is this agent's own behind it."""
        shared: dict[str, Any] = {"type": "text", "text": context}
        if self.cached:
            long = {"ttl": self.ttl} if self.ttl != "5m" else {}
            shared["cache_control"] = {"type": "ephemeral", **long}
        return [shared, *([{"type": "text", "text": sendable(self.system)}] if self.system else [])]

    def key(self, endpoint: str) -> str:
        """Return the fingerprint of this request to this endpoint: equal keys ask the same of the same."""
        body = self._replace(cached=False).body() if self.cached else self.body()  # a cache changes the bill only
        canonical = json.dumps([endpoint, body], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()
