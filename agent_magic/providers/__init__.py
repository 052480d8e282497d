"""Providers: the interface (`base`), the APIs of vendors (`anthropic`, `chat`), and recordings (`recorded`)."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.engine.admission.pool import Key
from agent_magic.engine.pacing.limits import Reading
from agent_magic.lazy_names import lazy_names
from agent_magic.providers.base import Capabilities, Provider, Stream
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.request import Request

if TYPE_CHECKING:
    from agent_magic.providers.anthropic.models import limit_class
    from agent_magic.providers.base import EVERYTHING
    from agent_magic.providers.dask.client import Dask
    from agent_magic.providers.pool import Pool
    from agent_magic.providers.recorded import Deck, Nobody
    from agent_magic.providers.responses import retry_after_s

__getattr__ = lazy_names(
    __name__,
    {
        "Dask": "agent_magic.providers.dask.client",
        "Deck": "agent_magic.providers.recorded",
        "EVERYTHING": "agent_magic.providers.base",
        "Nobody": "agent_magic.providers.recorded",
        "Pool": "agent_magic.providers.pool",
        "limit_class": "agent_magic.providers.anthropic.models",
        "retry_after_s": "agent_magic.providers.responses",
    },
)
