"""A session as a file: its declarations, learned rate limits and runs.

The file is a ledger with only the session's runs, and a note with the rest, so it can be opened as a ledger.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.api import Ledger
from agent_magic.errors import LedgerError
from agent_magic.notebook.declaring import read_agent, read_context
from agent_magic.notebook.files.cells import declaration
from agent_magic.notebook.session import DEFAULT_PLAN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent_magic.api import Run
    from agent_magic.notebook.front_end import Cell
    from agent_magic.notebook.session import Session

NOTE = "session"


class Kept(NamedTuple):
    """The content of a session's file; rate limits of `others`, another provider, are ignored."""

    steps: int
    runs: int
    limits: bool
    left_out: tuple[str, ...] = ()
    others: bool = False


def save_session(session: Session, path: Path) -> Kept:
    """Write a session, in place of an earlier file once it is whole."""
    if path.exists():
        _read(path)  # no other file is replaced, nor a ledger
    new = path.with_name(f".{path.name}.{os.getpid()}")
    cells, left_out = _cells(session)
    limits = session.shared.pacer.memory(time.monotonic())
    ledger = Ledger(new)
    try:
        for run in session.runs:
            ledger.copy(run.record)
        of_limits = {"limits": limits, "endpoint": session.shared.client.endpoint, "at": time.time()}
        ledger.put(NOTE, json.dumps({"cells": cells, **of_limits}))
    finally:
        ledger.close()
    new.replace(path)
    return Kept(len(cells), len(session.runs), bool(limits), left_out)


def _cells(session: Session) -> tuple[list[str], tuple[str, ...]]:
    cells: list[str] = []
    left_out: list[str] = []
    for name in dict.fromkeys((DEFAULT_PLAN, *session.plans)):
        registry, named = session.registry(name), "" if name == DEFAULT_PLAN else f" --plan {name}"
        common = session.registry().contexts if name != DEFAULT_PLAN else ()
        cells += [f"%%context {one.name}{named}\n{one.text}" for one in registry.contexts if one not in common]
        for step in registry.agents:
            text = declaration(step, named)
            if text is None:
                left_out.append(step.name)
            else:
                cells.append(text)
    return cells, tuple(left_out)


def load_session(session: Session, path: Path, namespace: Mapping[str, Any], cell: Cell) -> Kept:
    """Add a saved session to the present one; its last run becomes the last run."""
    if not path.is_file():
        raise LedgerError(f"There is no file {path.name!r}. %agents save FILE writes one.")
    data = _read(path)
    _declare(session, data["cells"], namespace, replace(cell, id=None))
    ledger = Ledger(path)
    try:
        runs = [*_runs(session, ledger)]
    finally:
        ledger.close()
    for run in runs:
        session.settle(run)
    limits = data["endpoint"] == session.shared.client.endpoint and bool(data["limits"])
    if limits:
        session.shared.pacer.remember(data["limits"], time.monotonic(), max(0.0, time.time() - data["at"]))
    return Kept(len(data["cells"]), len(runs), limits, others=bool(data["limits"]) and not limits)


def _read(path: Path) -> dict[str, Any]:
    ledger = Ledger(path)
    try:
        note = ledger.get(NOTE)
    finally:
        ledger.close()
    if note is None:
        raise LedgerError(f"{path.name!r} is a ledger, but no session. Choose another name.")
    return cast("dict[str, Any]", json.loads(note))


def _declare(session: Session, cells: list[str], namespace: Mapping[str, Any], cell: Cell) -> None:
    look_up, find_tools = partial(session.look_up, namespace), partial(session.find_tools, namespace)
    parts = [text.partition("\n") for text in cells]
    heads = [(head.partition(" ")[0], head.partition(" ")[2], f"{body}\n") for head, _, body in parts]
    # All agents are read before any is declared: a missing type or tool leaves the session as it was.
    agents = [read_agent(line, body, look_up, find_tools) for kind, line, body in heads if kind == "%%agent"]
    for kind, line, body in heads:
        if kind == "%%context":
            session.declare_context(*read_context(line, body), cell)
    for agent, plan in agents:
        session.registry(plan).declare(agent, cell, ran=(), variables=namespace, cycles=True)


def _runs(session: Session, kept: Ledger) -> Iterator[Run]:
    own = session.keeping.ledger
    for number in kept.runs()["run"][::-1]:
        run = kept.open(int(number))
        yield run if own is None else own.open(own.copy(run.record))
