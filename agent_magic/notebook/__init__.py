"""The Jupyter shell."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.notebook.awaiting import AwaitRewriter, run_sync
    from agent_magic.notebook.command import Parser
    from agent_magic.notebook.declaring import PARSERS, help_of, read_agent, read_agents
    from agent_magic.notebook.extension import load, unload
    from agent_magic.notebook.files.cells import find_agents, plan_data, to_notebook
    from agent_magic.notebook.files.scripts import from_script, to_script
    from agent_magic.notebook.front_end import Cell, cell_of
    from agent_magic.notebook.magics import AgentMagics
    from agent_magic.notebook.registry import Registry
    from agent_magic.notebook.session import Session
    from agent_magic.notebook.verbs import VERBS
    from agent_magic.notebook.verbs.plans import declared_page
    from agent_magic.notebook.verbs.results import error_page

__getattr__ = lazy_names(
    __name__,
    {
        "AgentMagics": "agent_magic.notebook.magics",
        "AwaitRewriter": "agent_magic.notebook.awaiting",
        "Cell": "agent_magic.notebook.front_end",
        "PARSERS": "agent_magic.notebook.declaring",
        "Parser": "agent_magic.notebook.command",
        "Registry": "agent_magic.notebook.registry",
        "Session": "agent_magic.notebook.session",
        "VERBS": "agent_magic.notebook.verbs",
        "cell_of": "agent_magic.notebook.front_end",
        "declared_page": "agent_magic.notebook.verbs.plans",
        "error_page": "agent_magic.notebook.verbs.results",
        "find_agents": "agent_magic.notebook.files.cells",
        "from_script": "agent_magic.notebook.files.scripts",
        "help_of": "agent_magic.notebook.declaring",
        "load": "agent_magic.notebook.extension",
        "plan_data": "agent_magic.notebook.files.cells",
        "read_agent": "agent_magic.notebook.declaring",
        "read_agents": "agent_magic.notebook.declaring",
        "run_sync": "agent_magic.notebook.awaiting",
        "to_notebook": "agent_magic.notebook.files.cells",
        "to_script": "agent_magic.notebook.files.scripts",
        "unload": "agent_magic.notebook.extension",
    },
)
