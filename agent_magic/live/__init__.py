"""The engine on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.doors import door

if TYPE_CHECKING:
    from agent_magic.live.ahead import unbought
    from agent_magic.live.earlier import Earlier

__all__ = ["Earlier", "unbought"]

__getattr__ = door(
    __name__,
    {
        "Earlier": "agent_magic.live.earlier",
        "unbought": "agent_magic.live.ahead",
    },
)
