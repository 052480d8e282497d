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
    from agent_magic.providers.anthropic.batches import MessageBatches
    from agent_magic.providers.anthropic.client import as_provider, body_text
    from agent_magic.providers.anthropic.errors import read_headers
    from agent_magic.providers.anthropic.models import MODELS, limit_class, min_cacheable_tokens
    from agent_magic.providers.base import EVERYTHING
    from agent_magic.providers.capabilities import check_request
    from agent_magic.providers.dask.client import Dask
    from agent_magic.providers.dask.cluster import STREAMS_PER_KERNEL, useful_workers
    from agent_magic.providers.dask.fleet import Fleet
    from agent_magic.providers.dask.serving import serve
    from agent_magic.providers.pool import Pool
    from agent_magic.providers.recorded import Deck, Nobody
    from agent_magic.providers.responses import retry_after_s

__getattr__ = lazy_names(
    __name__,
    {
        "Dask": "agent_magic.providers.dask.client",
        "Deck": "agent_magic.providers.recorded",
        "EVERYTHING": "agent_magic.providers.base",
        "Fleet": "agent_magic.providers.dask.fleet",
        "MODELS": "agent_magic.providers.anthropic.models",
        "MessageBatches": "agent_magic.providers.anthropic.batches",
        "Nobody": "agent_magic.providers.recorded",
        "Pool": "agent_magic.providers.pool",
        "STREAMS_PER_KERNEL": "agent_magic.providers.dask.cluster",
        "as_provider": "agent_magic.providers.anthropic.client",
        "body_text": "agent_magic.providers.anthropic.client",
        "check_request": "agent_magic.providers.capabilities",
        "limit_class": "agent_magic.providers.anthropic.models",
        "min_cacheable_tokens": "agent_magic.providers.anthropic.models",
        "read_headers": "agent_magic.providers.anthropic.errors",
        "retry_after_s": "agent_magic.providers.responses",
        "serve": "agent_magic.providers.dask.serving",
        "useful_workers": "agent_magic.providers.dask.cluster",
    },
)
