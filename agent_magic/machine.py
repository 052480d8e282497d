"""Capabilities of the machine's Python. In a browser (Pyodide) there are no threads, no processes and no sockets.

Work for a thread is then done at once, on the loop (`asyncio.to_thread` does so by itself), what only serves other
processes or warms up is left out, and what cannot be is refused by `needs_processes`.
"""

from __future__ import annotations

import sys
from typing import Final

from agent_magic.errors import AgentMagicError

PYODIDE_VERSION: Final = "314.0.7"
PYODIDE: Final = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE_VERSION}/full/"
"""Pyodide's own distribution. Source: pyodide.org, "Downloading and deploying"."""
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
