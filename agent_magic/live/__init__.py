"""The engine on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.live.ahead import asked_again, unbought
    from agent_magic.live.earlier import Earlier

__all__ = ["Earlier", "asked_again", "unbought"]

__getattr__ = lazy_names(
    __name__,
    {
        "Earlier": "agent_magic.live.earlier",
        "asked_again": "agent_magic.live.ahead",
        "unbought": "agent_magic.live.ahead",
    },
)
