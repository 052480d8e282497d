"""Loading and unloading of the extension. Loading is idempotent, unloading leaves nothing behind.

`%reload_ext` does not reload our modules, so everything stays: declarations, provider, ledger, settings, active runs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.extensions import ExtensionManager

from agent_magic import show
from agent_magic.declare.task import LISTENERS
from agent_magic.notebook.awaiting import ASYNC_SUFFIX, AwaitRewriter, is_called_by
from agent_magic.notebook.cell_hooks import (
    CellHook,
    Dedent,
    FirstLine,
    HelpLine,
    HelpWord,
    OneLine,
    PlainSigns,
    Semicolon,
    ToolLines,
)
from agent_magic.notebook.completion import attach, attach_tooltips
from agent_magic.notebook.declaring import asks_at_once
from agent_magic.notebook.front_end import ShownLog, note, say
from agent_magic.notebook.magics import AgentMagics
from agent_magic.notebook.verbs import VERBS
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from agent_magic.api import Run
    from agent_magic.notebook.session import Session

LINE, OTHER = "agents", "am_"
"""The line magic, and the prefix of a magic if another extension has its name."""


def load(shell: InteractiveShell) -> None:
    """Register the magics; print a note of those that another extension has."""
    ip: Any = shell
    if (kept := _mine(ip)) is not None:
        if _reloads():
            say(f"agent_magic stays loaded. Kept: {kept.session.contents}.")
        return
    magics = AgentMagics(shell)
    cells = {name: _free_name(ip, "cell", name) for name in ("agent", "context", LINE, "plan")}
    line = _free_name(ip, "line", LINE)
    ip.register_magic_function(magics.agent, "cell", cells["agent"])
    ip.register_magic_function(magics.agent_async, "cell", cells["agent"] + ASYNC_SUFFIX)
    ip.register_magic_function(magics.context, "cell", cells["context"])
    ip.register_magic_function(magics.agents_cell, "cell", cells[LINE])
    ip.register_magic_function(magics.plan, "cell", cells["plan"])
    ip.register_magic_function(magics.plan_async, "cell", cells["plan"] + ASYNC_SUFFIX)
    ip.register_magic_function(magics.agents, "line", line)
    ip.register_magic_function(magics.agents_async, "line", line + ASYNC_SUFFIX)
    hooks: list[CellHook] = [
        AwaitRewriter(ip, frozenset({line, cells["plan"]}), VERBS.waits),
        AwaitRewriter(ip, frozenset({cells["agent"]}), asks_at_once),
        FirstLine(ip, frozenset(cells.values())),
        PlainSigns(ip, frozenset({line, *cells.values()})),
        Dedent(ip),
        Semicolon(ip, line),
        HelpLine(ip, line),
        HelpWord(ip, line, frozenset(VERBS)),
        ToolLines(ip, frozenset(cells.values())),
        OneLine(ip, cells["agent"], "--first-of"),
    ]
    for hook in hooks:
        hook.install()
        magics.undo.append(hook.uninstall)
    formatters = Formatters(ip, magics.session)
    formatters.install()
    magics.undo += [formatters.uninstall, attach(magics), attach_tooltips(shell)]
    ip.events.register("post_run_cell", magics.end_cell)
    ip.events.register("pre_run_cell", magics.see_deleted)
    magics.undo.append(partial(ip.events.unregister, "pre_run_cell", magics.see_deleted))
    LISTENERS.append(magics.declare_task)
    magics.undo.append(partial(LISTENERS.remove, magics.declare_task))
    log, shown = logging.getLogger("agent_magic"), ShownLog()
    log.addHandler(shown)
    magics.undo.append(partial(log.removeHandler, shown))


def unload(shell: InteractiveShell) -> None:
    ip: Any = shell
    magics = _mine(ip)
    if magics is None or _reloads():
        return
    if magics.session.simulates:
        note("the mock server has stopped: once loaded again, agent_magic sends requests to the API, which costs money")
    magics.session.close()
    ip.configurables.remove(magics)
    for kind in ("line", "cell"):
        table: dict[str, Any] = ip.magics_manager.magics[kind]
        for name in [name for name, function in table.items() if getattr(function, "__self__", None) is magics]:
            del table[name]
    for undo in magics.undo:
        undo()
    ip.events.unregister("post_run_cell", magics.end_cell)


def _reloads() -> bool:
    return is_called_by(ExtensionManager, "reload_extension")


def _mine(ip: Any) -> AgentMagics | None:
    return next((one for one in ip.configurables if isinstance(one, AgentMagics)), None)


def _free_name(ip: Any, kind: str, name: str) -> str:
    holder = ip.magics_manager.magics[kind].get(name)
    if holder is None:
        return name
    mark, otherwise = "%%" if kind == "cell" else "%", OTHER + name
    who = getattr(holder, "__module__", None) or "another extension"
    say(f"{mark}{name} belongs to {who}; use {mark}{otherwise} here.")
    return otherwise


RUN = ("agent_magic.api.run", "Run")
ONCE = (("agent_magic.api.plan", "Plan"), ("agent_magic.forecast.estimate.value", "Estimate"), RUN)
"""Classes that a cell shows once, by name, since they are loaded on first use."""
SERIES = (("pandas", "Series"), ("pandas.core.series", "Series"))
"""By name, because pandas (3, and 2) is loaded on first use."""


class Formatters:
    """Registers formatters of our values."""

    def __init__(self, shell: Any, session: Session) -> None:
        formatter = shell.display_formatter
        self._session = session
        self._itself, self._bundles = formatter.ipython_display_formatter, formatter.mimebundle_formatter
        self._html = formatter.formatters["text/html"]
        self._before: dict[tuple[str, str], Any] = {}

    def install(self) -> None:
        for kind in ONCE:
            self._itself.for_type_by_name(*kind, self._nothing_if_shown)
        self._bundles.for_type_by_name(*RUN, self._run)
        self._bundles.for_type(Shown, _bundle)
        self._before = {name: self._html.for_type_by_name(*name) for name in SERIES}
        for name, other in self._before.items():
            self._html.for_type_by_name(*name, _texts_formatter(other))

    def uninstall(self) -> None:
        for kind in ONCE:
            _restore(self._itself, kind, None)
        _restore(self._bundles, RUN, None)
        self._bundles.pop(Shown, None)
        for name, other in self._before.items():
            _restore(self._html, name, other)

    def _run(self, run: Run, include: Any = None, exclude: Any = None) -> dict[str, str]:
        del include, exclude
        return run.bundle(theme=self._session.theme)

    def _nothing_if_shown(self, value: Any) -> None:
        if value is not self._session.just_shown:
            raise NotImplementedError  # IPython then asks the next formatter


def _bundle(value: Shown) -> dict[str, str]:
    return show.bundle_of(value)


def _texts_formatter(other: Callable[[Any], str | None] | None) -> Callable[[Any], str | None]:
    def shown(series: Any) -> str | None:
        if series.name == "text" and series.index.name == "agent" and "simulated" in series.attrs:
            return show.texts_html([str(name) for name in series.index], map(str, series))
        return other(series) if other else None

    return shown


def _restore(formatter: Any, name: tuple[str, str], other: Callable[[Any], str | None] | None) -> None:
    formatter.deferred_printers.pop(name, None)
    kinds: dict[type, Any] = formatter.type_printers  # a deferred name moves here when its class was first shown
    for kind in [kind for kind in kinds if (kind.__module__, kind.__name__) == name]:
        del kinds[kind]
    if other is not None:
        formatter.for_type_by_name(*name, other)
