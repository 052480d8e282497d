"""Loading and unloading. Loading twice does no harm, unloading leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.api import Run
from agent_magic.notebook.arguments import waits
from agent_magic.notebook.awaiting import ASYNC_SUFFIX, AwaitRewriter
from agent_magic.notebook.completion import attach
from agent_magic.notebook.first_line import FirstLine
from agent_magic.notebook.looks import show_values
from agent_magic.notebook.magics import AgentMagics
from agent_magic.show.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

CELL, CONTEXT, LINE = "agent", "context", "agents"
ELSE_CELL, ELSE_CONTEXT, ELSE_LINE = "am_agent", "am_context", "am_agents"


def load(shell: InteractiveShell) -> None:
    """Register the magics; where another extension holds a name, take another and say so."""
    held: Any = shell
    if _mine(held) is not None:
        return
    magics = AgentMagics(shell)
    cell = _free_name(held, "cell", CELL, ELSE_CELL)
    line = _free_name(held, "line", LINE, ELSE_LINE)
    held.register_magic_function(magics.agent, "cell", cell)
    context = _free_name(held, "cell", CONTEXT, ELSE_CONTEXT)
    held.register_magic_function(magics.context, "cell", context)
    held.register_magic_function(magics.agents, "line", line)
    held.register_magic_function(magics.agents_async, "line", line + ASYNC_SUFFIX)
    _rewriter(held, line).install()
    first = FirstLine(held, frozenset({cell, context}))
    first.install()
    magics.take_back += [first.uninstall, show_values(held, _run_bundle(magics), _chart_bundle(magics)), attach(magics)]
    held.events.register("post_run_cell", magics.forget_shown)


def unload(shell: InteractiveShell) -> None:
    """Take everything back that `load` did, and stop what runs."""
    held: Any = shell
    magics = _mine(held)
    if magics is None:
        return
    magics.session.close()
    held.configurables.remove(magics)
    for kind in ("line", "cell"):
        table: dict[str, Any] = held.magics_manager.magics[kind]
        for name in [name for name, function in table.items() if getattr(function, "__self__", None) is magics]:
            del table[name]
    for line in (LINE, ELSE_LINE):
        _rewriter(held, line).uninstall()
    for take_back in magics.take_back:
        take_back()
    held.events.unregister("post_run_cell", magics.forget_shown)


def _mine(shell: Any) -> AgentMagics | None:
    return next((one for one in shell.configurables if isinstance(one, AgentMagics)), None)


def _rewriter(shell: Any, line: str) -> AwaitRewriter:
    return AwaitRewriter(shell, frozenset({line}), waits)


def _free_name(shell: Any, kind: str, name: str, otherwise: str) -> str:
    """Return `name`, or another where somebody else has it."""
    holder = shell.magics_manager.magics[kind].get(name)
    if holder is None:
        return name
    mark = "%%" if kind == "cell" else "%"
    who = getattr(holder, "__module__", None) or "another extension"
    print(f"{mark}{name} is held by {who}; here it is {mark}{otherwise}.")  # noqa: T201 - the user has to know
    return otherwise


def _chart_bundle(magics: AgentMagics) -> Callable[..., Any]:
    """Show a chart in the colours of the page."""

    def bundle(chart: Chart, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        del include, exclude
        return chart.bundle(dark=magics.session.dark)

    return bundle


def _run_bundle(magics: AgentMagics) -> Callable[..., Any]:
    """Show a run as its line where its picture stands just above, and as its picture everywhere else."""

    def bundle(run: Run, include: Any = None, exclude: Any = None) -> dict[str, str]:
        del include, exclude
        session = magics.session
        return {"text/plain": repr(run)} if run is session.just_shown else run.bundle(theme=session.theme)

    return bundle
