"""The Jupyter shell."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.notebook.declaring import PARSERS, read_agent
    from agent_magic.notebook.files.cells import find_agents, plan_data
    from agent_magic.notebook.files.scripts import from_script, to_script
    from agent_magic.notebook.front_end import Cell
    from agent_magic.notebook.magics import AgentMagics
    from agent_magic.notebook.session import Session
    from agent_magic.notebook.verbs import VERBS
    from agent_magic.notebook.verbs.results import error_page

__getattr__ = lazy_names(
    __name__,
    {
        "AgentMagics": "agent_magic.notebook.magics",
        "Cell": "agent_magic.notebook.front_end",
        "PARSERS": "agent_magic.notebook.declaring",
        "Session": "agent_magic.notebook.session",
        "VERBS": "agent_magic.notebook.verbs",
        "error_page": "agent_magic.notebook.verbs.results",
        "find_agents": "agent_magic.notebook.files.cells",
        "from_script": "agent_magic.notebook.files.scripts",
        "plan_data": "agent_magic.notebook.files.cells",
        "read_agent": "agent_magic.notebook.declaring",
        "to_script": "agent_magic.notebook.files.scripts",
    },
)
