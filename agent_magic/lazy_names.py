"""Names of a package that are imported when they are first used.

`%load_ext agent_magic` and `import agent_magic` import the modules of declarations, and nothing else: `from agent_magic
import api` is quick, and `api.Plan` imports its modules.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load(place: str) -> Any:
    """Import what `module:name` names, or the module itself if it is `module:`."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def lazy_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports each name when it is first used.

    `places` are `module`, `module:name` if the name differs there, or `module:` for the module.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = load(places[name] if ":" in places[name] else f"{places[name]}:{name}")
        setattr(sys.modules[package], name, value)  # later uses find it without this function
        return value

    return find
