"""A package's `__init__` as a door: it names what others may use, and loads each name when it is first used.

`%load_ext agent_magic` and `import agent_magic` load what declaring needs. Everything else stands behind the doors of
its rooms: `from agent_magic import api` costs nothing, `api.Plan` loads what a plan needs.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load(home: str) -> Any:
    """Return what stands at a home: `module:name`, or `module:` for the module itself."""
    module, _, name = home.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def door(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are loaded when they are first used.

    Args:
        package: The package.
        homes: Where each name is: `module`, `module:name` if it has another name there, `module:` if it is the module.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = load(homes[name] if ":" in homes[name] else f"{homes[name]}:{name}")
        setattr(sys.modules[package], name, value)  # the next use finds it there, and does not ask
        return value

    return find
