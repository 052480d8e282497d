"""Notebooks as files: the agents that their cells declare, and cells that declare the agents of a plan.

A saved session is a ledger with only the session's runs, and a note with its declarations and learned rate limits, so
it can be opened as a ledger.
"""

from __future__ import annotations

import ast
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager

from agent_magic.api import Ledger
from agent_magic.declare.agent import Agent
from agent_magic.declare.answers.returns import look_up
from agent_magic.declare.cells import options_text, race_text
from agent_magic.declare.content import Attachment
from agent_magic.declare.context import Context
from agent_magic.declare.options import to_plain
from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.declare.step import Step
from agent_magic.declare.task import Task
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.errors import AgentMagicError, DeclarationError, LedgerError, PlanError
from agent_magic.notebook.declaring import read_agent, read_agents, read_context
from agent_magic.notebook.files.scripts import unread, value_of
from agent_magic.notebook.session import DEFAULT_PLAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent_magic.api import Run
    from agent_magic.declare.plan import Plan
    from agent_magic.notebook.declaring import FindTools, LookUp
    from agent_magic.notebook.front_end import Cell
    from agent_magic.notebook.session import Session


T = TypeVar("T")
_CONFIG = re.compile(r"^\s*%config\s+AgentMagics\.(\w+)\s*=\s*(.+)$", re.MULTILINE)
STEPS = frozenset({"Task", "Agent", "first_of"})
_BLANK = re.compile(r"\A(?:[ \t]*\n)+")
_DEFAULTS = {"model": "model", "max_tokens": "max_tokens", "timeout": "timeout_s", "effort": "effort"}
"""Settings of `%config AgentMagics` that are defaults of agents, by the agents' names."""


@dataclass(slots=True)
class Found:
    """Declarations in the cells of a notebook, the last one per plan and name.

    `computed`, `defined` and `steps` are cells by the names that they set to values, functions or classes, and steps.
    """

    agents: dict[str, dict[str, Step]] = field(default_factory=dict[str, dict[str, Step]])
    contexts: dict[str, dict[str, Context]] = field(default_factory=dict[str, dict[str, Context]])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    computed: dict[str, int] = field(default_factory=dict[str, int])
    defined: dict[str, int] = field(default_factory=dict[str, int])
    tasks: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    steps: dict[str, int] = field(default_factory=dict[str, int])
    runs: list[str] = field(default_factory=list[str])


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise AgentMagicError(f"{path.name!r} is not UTF-8 text: give a notebook, a script or a JSON plan.") from None


def read_cells(text: str, name: str) -> list[tuple[str, str]]:
    try:
        data: Any = json.loads(text)
        cells = cast("list[Any]", data["cells"])
        return [(str(cell["cell_type"]), "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError):
        raise AgentMagicError(f"{name!r} is not a notebook: it has no list of cells.") from None


def find_agents(cells: list[tuple[str, str]]) -> Found:
    """Read the declarations in cells, without running any of them."""
    found, defaults = Found(), dict[str, Any]()
    types, tools = _finders(found)
    for number, (kind, written) in enumerate(cells, 1):
        if kind != "code":
            continue
        source = _BLANK.sub("", written, count=1)  # as IPython does
        first, _, rest = source.partition("\n")
        magic, _, line = first.strip().partition(" ")
        if magic == "%%agent":
            agent, plan = _read(partial(read_agent, look_up=types, find_tools=tools), line, rest, number)
            found.agents.setdefault(plan, {})[agent.name] = agent
        elif magic == "%%agents":
            agents, plan = _read(partial(read_agents, look_up=types, find_tools=tools), line, rest, number)
            found.agents.setdefault(plan, {}).update({agent.name: agent for agent in agents})
        elif magic == "%%context":
            context, plan = _read(read_context, line, rest, number)
            found.contexts.setdefault(plan, {})[context.name] = context
        elif not first.startswith("%%"):
            for option, value in _CONFIG.findall(source):
                if option in _DEFAULTS:
                    defaults[_DEFAULTS[option]] = _literal(value)
            found.runs += re.findall(r"%agents (?:run|start)\b([^\n#]*)", source)
            _assignments(source, number, found)
    for agents in found.agents.values():  # a setting counts when the plan is run, wherever its cell stands
        agents.update({name: agent.with_defaults(**defaults) for name, agent in agents.items()})
    return found


def _finders(found: Found) -> tuple[LookUp, FindTools]:
    """Return lookups for `read_agent`; definitions of cells exist only when they run."""

    def refuse(agent: str, option: str, text: str | None) -> None:
        with suppress(SyntaxError):  # looking it up reports its error
            for node in ast.walk(ast.parse(text or "None", mode="eval")):
                if isinstance(node, ast.Name) and node.id in found.defined:
                    where = f"which cell {found.defined[node.id]} defines"
                    raise _needs_code(f"{option} of agent {agent!r} names {node.id!r}, {where}")

    def types(agent: str, returns: str | None, check: str | None) -> dict[str, Any]:
        refuse(agent, "--returns", returns)
        refuse(agent, "--check", check)
        return look_up(agent, returns, check)

    def tools(agent: str, names: str) -> Tools:
        refuse(agent, "--tools", names)
        return tools_of(names, agent=agent)

    return types, tools


def _needs_code(what: str) -> PlanError:
    return PlanError(
        f"{what}. An export holds prompts and plain values, no code of the notebook. "
        "Run the notebook itself (jupyter execute), or write its agents as am.Agent(...) beside that code."
    )


def _read(read: Callable[[str, str], tuple[T, str]], line: str, text: str, number: int) -> tuple[T, str]:
    try:
        return read(line.strip(), text if text.endswith("\n") else text + "\n")  # as IPython hands it over
    except (UsageError, AgentMagicError) as error:
        raise AgentMagicError(f"Cell {number}: {error}") from None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def _assignments(source: str, number: int, found: Found) -> None:
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.defined[node.name] = number
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.defined.update({one.asname or one.name: number for one in node.names})
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_is_task, node.decorator_list)):
            taken = node.args
            found.tasks[node.name] = {one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    for name, value in _named(tree):
        found.steps.pop(name, None)
        try:
            found.values[name] = value_of(value)
            found.computed.pop(name, None)
        except (ValueError, SyntaxError, TypeError, RecursionError):
            found.values.pop(name, None)
            found.computed[name] = number
            if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in STEPS:
                found.steps[name] = number


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names set at the top level with their values."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
                each = values if len(parts) == len(values) and parts != [target] else [node.value] * len(parts)
                yield from ((part.id, one) for part, one in zip(parts, each, strict=True) if isinstance(part, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _is_task(decorator: ast.expr) -> bool:
    name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] == "task"


def plan_data(found: Found, name: str) -> tuple[dict[str, Any], dict[str, int | None]]:
    """Return a JSON plan, and its names without a plain value, each with its cell."""
    agents = found.agents.get(name)
    if not agents:
        others = f" It declares the plans: {', '.join(found.agents)}." if found.agents else ""
        raise PlanError(f"The notebook declares no agents of the plan {name!r}.{others}")
    named = dict.fromkeys(used for agent in agents.values() for used in agent.reads)
    common = {**found.contexts.get(DEFAULT_PLAN, {}), **found.contexts.get(name, {})}
    contexts = {one: text for one, text in common.items() if one in named and one not in agents}
    wanted = dict.fromkeys([*named, *(used for context in contexts.values() for used in context.uses)])
    wanted = [one for one in wanted if one not in agents and one not in contexts]
    rows: list[dict[str, Any]] = [
        {**agent.to_dict(), "after": []}
        if isinstance(agent, Task)
        else {
            "name": agent.name,
            "prompt": agent.prompt,
            **to_plain(agent),
            **({"returns": json.loads(agent.schema)} if agent.returns else {}),
            "after": list(agent.after),
        }
        for agent in agents.values()
    ]
    for task, parameters in found.tasks.items():
        if task in wanted or parameters & agents.keys():
            raise _needs_code(f"The plan {name!r} has the task {task!r}, a function of cell {found.defined[task]}")
    for step in found.steps.keys() & wanted:
        raise _needs_code(f"The plan {name!r} has the step {step!r}, which cell {found.steps[step]} makes in Python")
    values = {one: found.values[one] for one in wanted if one in found.values}
    unknown = {one: found.computed.get(one) for one in wanted if one not in found.values}
    plan: dict[str, Any] = {"name": name, "agents": rows, "values": values}
    if contexts:
        plan["contexts"] = {context.name: context.text for context in contexts.values()}
    return plan, unknown


def to_notebook(
    plan: Plan, run: str = "", *, steps: Sequence[Step] = (), known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write a plan as a notebook: values, contexts, agents, and the run with its options.

    `steps` are as declared, and `known` the values they take; by default the plan's.
    """
    for step in steps or plan.agents:
        _check_code(step)
    cells = [
        _cell("markdown", f"# {plan.name}\n\n{plan.description}".strip()),
        _cell("code", "%load_ext agent_magic"),
    ]
    named = "" if plan.name == "agents" else f" --plan {plan.name}"
    contexts = _contexts(plan, named)
    values = [
        _assigned(name, value)
        for name, value in (plan.values if known is None else known).items()
        if name not in contexts and name.isidentifier()
    ]
    if any(" = am." in one or "[am." in one for one in values):
        values.insert(0, "import agent_magic as am\n")
    if values:
        cells.append(_cell("code", "\n".join(values)))
    written = [declaration(agent, named) if _has_its_type(agent) else None for agent in steps or plan.agents]
    if None in written:
        text = json.dumps(plan_to_dict(plan), indent=2)
        cells.append(_cell("code", f"import agent_magic as am\n\nplan = am.Plan.from_json({text!r})\nplan"))
        cells += [_cell("code", "run = await plan.run()\nrun"), _cell("code", "run.agents")]
    else:
        run = f" {run}" if run else ""
        cells += [_cell("code", text) for text in contexts.values()]
        cells += [_cell("code", text) for text in written if text is not None]
        cells += [
            _cell("code", f"%agents plan{named}"),
            _cell("code", f"run = %agents run{named}{run}"),
            _cell("code", "run.agents"),
        ]
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def _check_code(step: Step) -> None:
    if isinstance(step, Agent):
        needs = [f"tool {one.name!r}" for one in step.tools.functions]
        needs += [f"check {step.check.written or 'function'!r}"] if step.check else []
        if needs:
            raise _needs_code(f"Agent {step.name!r} needs the {needs[0]}, a function of this notebook")
    elif not step.race:
        raise _needs_code(f"The task {step.name!r} is a function of this notebook")


def _has_its_type(step: Step) -> bool:
    """True if `--returns` can be read without this notebook: JSON has a class's schema, a cell its name."""
    if isinstance(step, Agent) and step.returns and step.returns.written:
        try:
            look_up(step.name, step.returns.written, None)
        except DeclarationError:
            return False
    return True


def _cell(kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def _contexts(plan: Plan, named: str) -> dict[str, str]:
    shared = dict.fromkeys(agent.context for agent in plan.agents if agent.context is not None)
    cells: dict[str, str] = {}
    for name in shared:
        text: Any = plan.values[name]
        try:
            same = isinstance(text, str) and read_context(f"{name}{named}", f"{text}\n")[0].render({}) == text
        except (UsageError, AgentMagicError, KeyError):  # it has other braces, or nothing
            same = False
        if same:
            ending = "\n" if text.endswith("\n") else ""
            cells[name] = f"%%context {name}{named}\n{text}{ending}"
    return cells


def _assigned(name: str, value: object) -> str:
    value = unread(value, Path.cwd())
    try:
        plain = value_of(ast.parse(repr(value), mode="eval").body) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        plain = False
    kind = value.label if isinstance(value, Attachment) else type(value).__name__
    return f"{name} = {value!r}" if plain else f"# {name} = ...  # {kind}: load it here"


def declaration(agent: Step, plan: str) -> str | None:
    """Return a `%%agent` cell; `None` if the agent's options do not fit in a line."""
    if agent.race:
        return f"%%agent {agent.name} {race_text(agent)}{plan}\n"
    if not isinstance(agent, Agent):
        return None
    try:
        line = " ".join(filter(None, [agent.name, options_text(agent)])) + plan
    except PlanError:
        return None
    ending = "\n" if agent.prompt.endswith("\n") else ""  # IPython takes one off
    return f"%%agent {line}\n{agent.prompt}{ending}"


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
        _note_of(path)  # no other file is replaced, nor a ledger
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
    data = _note_of(path)
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


def _note_of(path: Path) -> dict[str, Any]:
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
