"""Whoever answers: the seam (`base`), the Messages API (`anthropic`), and recordings (`recorded`).

All vendor knowledge lives behind the seam. What a provider of your own needs is here; `docs/providers.md` shows one.
"""

from agent_magic.engine.admission.key import Key
from agent_magic.engine.pacing.limits import Reading
from agent_magic.providers.base import Provider, Stream
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.request import Request

__all__ = ["Answer", "Key", "Provider", "Reading", "Request", "Stream", "Usage"]
