"""The mock server, wherever Python runs: a process beside this one, or in a browser a part of it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from agent_magic.declare.options import check_keywords
from agent_magic.machine import in_browser
from agent_magic.providers.transport import SERVED
from agent_magic.simulator import child

if TYPE_CHECKING:
    from agent_magic.simulator.child import Simulator
    from agent_magic.simulator.inside import InsideSimulator


@functools.wraps(child.start)
def start(**options: Any) -> Simulator | InsideSimulator:
    """Start a mock server; see `agent_magic.simulator.start`."""
    check_keywords("Simulator", options, inspect.signature(child.start).parameters)
    if not in_browser():
        return child.start(**options)
    from agent_magic.simulator import inside  # noqa: PLC0415  # lazy: it loads an HTTP client

    server = inside.start(**options)
    SERVED[server.url] = server.transport
    return server
