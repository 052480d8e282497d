"""Capabilities of the machine's Python. In a browser (Pyodide) there are no threads, no processes and no sockets.

Code that starts a thread or a process asks here, so one place knows:

* work for a thread is done at once, on the loop (`asyncio.to_thread` does so by itself there);
* what only serves other processes, or only warms up, is left out;
* what cannot be is refused in one sentence, by `needs_processes`.
"""

from __future__ import annotations

import sys

from agent_magic.errors import AgentMagicError

_IN_BROWSER = sys.platform == "emscripten"


def in_browser() -> bool:
    """Return whether this Python runs in a browser, or on its engine: without threads, processes and sockets."""
    return _IN_BROWSER


def needs_processes(what: str, instead: str) -> None:
    """Raise `AgentMagicError` in a browser, which starts no process.

    Args:
        what: The wanted feature, as the sentence begins.
        instead: What to do there.
    """
    if in_browser():
        raise AgentMagicError(f"{what} needs a process of its own, and a browser's Python starts none. {instead}")
