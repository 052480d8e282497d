"""The engine on an event loop."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.live.ahead import asked_again, foresee, unbought
    from agent_magic.live.answer_cache import Earlier
    from agent_magic.live.driver import Driver
    from agent_magic.live.functions import run_function, tool_result

__getattr__ = lazy_names(
    __name__,
    {
        "Driver": "agent_magic.live.driver",
        "Earlier": "agent_magic.live.answer_cache",
        "asked_again": "agent_magic.live.ahead",
        "foresee": "agent_magic.live.ahead",
        "run_function": "agent_magic.live.functions",
        "tool_result": "agent_magic.live.functions",
        "unbought": "agent_magic.live.ahead",
    },
)
