"""The commands of `%agents`, a module per group, loaded on first use.

To add a command, write its `Verb` into the `VERBS` of a group, and its name into the table below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names, load
from agent_magic.notebook.command import Commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.notebook.command import Verb
    from agent_magic.notebook.verbs.plans import plan_goal
    from agent_magic.notebook.verbs.runs import ask_at_once
    from agent_magic.notebook.verbs.steering import edit_cell
    from agent_magic.notebook.verbs.trials import is_applied

__all__ = ["VERBS", "ask_at_once", "edit_cell", "is_applied", "plan_goal"]

__getattr__ = lazy_names(
    __name__,
    {
        "ask_at_once": "agent_magic.notebook.verbs.runs",
        "edit_cell": "agent_magic.notebook.verbs.steering",
        "is_applied": "agent_magic.notebook.verbs.trials",
        "plan_goal": "agent_magic.notebook.verbs.plans",
    },
)


def _load(group: str) -> Mapping[str, Verb]:
    return load(f"{__name__}.{group}:VERBS")


VERBS = Commands(
    {
        "declare": {"plans": "list drop clear scenario lint todo preset export", "sizing": "split size"},
        "run": {"runs": "plan run start wait batches"},
        "read": {"results": "last show error"},
        "ask": {"whatifs": "whatif explore"},
        "steer": {"steering": "stop skip pause resume retry edit pending approve deny"},
        "improve": {"trials": "advise baseline sweep score apply undo trial"},
        "come back": {"ledger": "save load runs open ledger"},
        "share": {"cassettes": "record replay share"},
        "connect": {"connections": "connect limits prices workers mcp"},
        "operate": {"operations": "telemetry dashboard alert dead"},
        "set up": {"setup": "doctor help"},
    },
    _load,
    first=("plan", "run", "last", "retry", "advise", "share"),
)
"""Every command by name, under the user's goal. Help begins with those of a first week."""
