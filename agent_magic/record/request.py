"""What is asked of a model, before any transport."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from agent_magic.declare.template import sendable


@dataclass(frozen=True, slots=True)
class Request:
    """One request. A value."""

    model: str
    prompt: str
    max_tokens: int
    system: str | None = field(default=None, kw_only=True)
    effort: str | None = field(default=None, kw_only=True)
    timeout_s: float = field(default=300.0, kw_only=True)

    def body(self) -> dict[str, Any]:
        """Write it as the Messages API wants it."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": self.prompt}],
        }
        if self.system:
            body["system"] = sendable(self.system)
        if self.effort:
            body["output_config"] = {"effort": self.effort}
        return body

    def key(self, endpoint: str) -> str:
        """Return the fingerprint of this request to this endpoint: equal keys ask the same of the same."""
        canonical = json.dumps([endpoint, self.body()], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()
