"""The engine on an event loop."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.live.ahead import asked_again, foresee, unbought
    from agent_magic.live.answer_cache import Earlier
    from agent_magic.live.driver import Controls, Driver
    from agent_magic.live.functions import pack_call, run_function, tool_result
    from agent_magic.live.monitor import Sample
    from agent_magic.live.playing import Player, lay
    from agent_magic.live.tasks import MOMENT_S, interruptible

__getattr__ = lazy_names(
    __name__,
    {
        "Controls": "agent_magic.live.driver",
        "Driver": "agent_magic.live.driver",
        "Earlier": "agent_magic.live.answer_cache",
        "MOMENT_S": "agent_magic.live.tasks",
        "Player": "agent_magic.live.playing",
        "Sample": "agent_magic.live.monitor",
        "asked_again": "agent_magic.live.ahead",
        "foresee": "agent_magic.live.ahead",
        "interruptible": "agent_magic.live.tasks",
        "lay": "agent_magic.live.playing",
        "pack_call": "agent_magic.live.functions",
        "run_function": "agent_magic.live.functions",
        "tool_result": "agent_magic.live.functions",
        "unbought": "agent_magic.live.ahead",
    },
)
