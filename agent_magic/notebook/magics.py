"""`%%agent`, `%%context` and `%agents`. A magic reads its line, makes one call, returns."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache, partial
from inspect import ismodule
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand
from traitlets import observe

from agent_magic import api, show
from agent_magic.declare.agent import ROLES
from agent_magic.declare.cells import near_headings, sections_of
from agent_magic.declare.declared import asked_apart
from agent_magic.declare.each import (
    ITEM,
    columns_missing,
    hint_at_item,
    notes_on_missing,
)
from agent_magic.declare.options import candidates_of
from agent_magic.declare.task import Task
from agent_magic.declare.values import items_now, value_notes
from agent_magic.errors import AgentMagicError, DeclarationError, PlanError, did_you_mean, shown_message
from agent_magic.notebook import verbs
from agent_magic.notebook.awaiting import awaited, run_sync
from agent_magic.notebook.command import is_edit, read_line
from agent_magic.notebook.declaring import (
    PARSERS,
    help_of,
    lines_that_declare,
    read_agent,
    read_agents,
    read_context,
    tool_lines_note,
)
from agent_magic.notebook.front_end import Cell, cell_of, display_bundle, is_kernel, notes_of
from agent_magic.notebook.registry import resources_of
from agent_magic.notebook.session import DEFAULT_PLAN, Session
from agent_magic.notebook.settings import Settings
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.files import home_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence

    from agent_magic.api import Plan
    from agent_magic.declare.context import Context
    from agent_magic.declare.step import Step
    from agent_magic.notebook.registry import Registry


@magics_class
class AgentMagics(Magics, Settings):
    """Declares, runs and shows agents. Set defaults with `%config AgentMagics.NAME = VALUE`.

    Attributes:
        session: The state of the kernel.
        undo: Functions that unload the extension.
    """

    shell: Any

    def __init__(self, shell: Any, session: Session | None = None) -> None:
        super().__init__(shell)
        self.session = session or Session()
        self.session.is_applied = lambda change: verbs.is_applied(self, change)
        self._choose_ledger()
        self.undo: list[Callable[[], object]] = []

    @observe("ledger", "reuse_simulated")
    def _choose_ledger(self, _: object = None) -> None:
        if hasattr(self, "session"):
            keeping = self.session.keeping
            keeping.choice, keeping.reuse_simulated = self.ledger, self.reuse_simulated
            keeping.home = home_of()

    @observe("roles")
    def _add_roles(self, change: Mapping[str, Any]) -> None:
        with user_errors():
            for name, text in change["new"].items():
                ROLES[name] = text

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("agent")  # pyright: ignore[reportUntypedFunctionDecorator]
    def agent(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors(partial(self._stays, line)):
            line = self._line("%%agent", line, local_ns)
            asked = self._declare_agent(line, cell)
        if asked is not None:
            with user_errors():
                run_sync(asked, message=self._stopped)

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    async def agent_async(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors(partial(self._stays, line)):
            line = self._line("%%agent", line, local_ns)
            asked = self._declare_agent(line, cell)
        if asked is not None:
            with user_errors():
                await awaited(asked, message=self._stopped)

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("context")  # pyright: ignore[reportUntypedFunctionDecorator]
    def context(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors(partial(self._stays, line)):
            declared, plan = read_context(self._line("%%context", line, local_ns), cell)
            self._declare_context(declared, plan, cell_of(self.shell), tool_lines_note(cell))

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("agents")  # pyright: ignore[reportUntypedFunctionDecorator]
    def agents_cell(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors(partial(self._stays, "")):
            look_up = partial(self.session.look_up, self.shell.user_ns)
            find_tools = partial(self.session.find_tools, self.shell.user_ns)
            find_prompt = partial(self.session.find_prompt, self.shell.user_ns)
            expand = partial(self._line, "%%agents", local_ns=local_ns)
            if is_edit(line):
                verbs.edit_cell(self, expand(line), cell)
                return
            agents, plan = read_agents(expand(line), cell, look_up, find_tools, find_prompt, expand)
            comment, sections = sections_of(cell)
            said = tool_lines_note(comment, *(one.prompt for one in sections))
            self._declare_all(agents, plan, cell_of(self.shell), [*said, *near_headings(cell)])

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("plan")  # pyright: ignore[reportUntypedFunctionDecorator]
    def plan(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors():
            run_sync(verbs.plan_goal(self, self._line("%%plan", line, local_ns), cell), message=self._stopped)

    agent.__doc__, context.__doc__ = help_of("agent"), help_of("context")
    agents_cell.__doc__, plan.__doc__ = help_of("agents"), help_of("plan")

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    async def plan_async(self, line: str, cell: str = "", local_ns: Mapping[str, Any] | None = None) -> None:
        with user_errors():
            await awaited(verbs.plan_goal(self, self._line("%%plan", line, local_ns), cell), message=self._stopped)

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    @line_magic("agents")  # pyright: ignore[reportUntypedFunctionDecorator]
    def agents(self, line: str, local_ns: Mapping[str, Any] | None = None) -> Any:
        """List, plan, run and inspect the declared agents. `%agents help` lists all commands.

        Examples::

            %agents                     list them by layer
            %agents plan                graph, prompts, tokens, dollars; nothing is spent
            run = %agents run           run them all, watch the graph
            %agents run compare --concurrency 2 --budget 0.50
            %agents start               in the background; then %agents wait, or %agents stop
            %agents show NAME           an answer; %agents error NAME shows a failure
            %agents connect simulator   simulated answers, offline; %agents connect api goes back
            %agents help run            the options of a command
        """
        with user_errors(self._leftover):
            done = self._command(self._line("%agents", line, local_ns))
            return run_sync(done, message=self._stopped) if asyncio.iscoroutine(done) else done

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @needs_local_scope  # pyright: ignore[reportUntypedFunctionDecorator]
    async def agents_async(self, line: str, local_ns: Mapping[str, Any] | None = None) -> Any:
        with user_errors(self._leftover):
            done = self._command(self._line("%agents", line, local_ns))
            return await awaited(done, message=self._stopped) if asyncio.iscoroutine(done) else done

    def end_cell(self, result: Any) -> None:
        """Record the end of a cell: steps it no longer declares are left over."""
        self.session.just_shown, cell = None, cell_of(self.shell)
        if cell.id is not None and result.success:
            self.session.executed[cell.id] = cell.execution

    def defaults(self, timeout_s: float | None = None) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "timeout_s": timeout_s or self.timeout,
            "effort": self.effort or None,
        }

    def freeze(self, given: Namespace) -> Plan:
        with notes_of(print):
            plan = self.session.plan(
                self.shell.user_ns,
                name=given.plan or DEFAULT_PLAN,
                agents=given.names,
                defaults=self.defaults(getattr(given, "timeout", None)),
                on_cycle=given.on_cycle or self.on_cycle,
                on_missing=given.on_missing or self.on_missing,
            )
        is_each = (getattr(given, "identical", None) or self.identical) == "each"
        return asked_apart(type(plan), plan) if is_each else plan

    def configure(self, name: str, value: Any) -> Callable[[], None]:
        before = getattr(self, name)
        self.set_trait(name, value)
        return partial(self.set_trait, name, before)

    def _line(self, magic: str, line: str, local_ns: Mapping[str, Any] | None) -> str:
        return read_line(line, {**self.shell.user_ns, **(local_ns or {})}, magic=magic)

    def _command(self, line: str) -> Any:
        command, rest = verbs.VERBS.split(line)
        return verbs.VERBS[command].do(self, verbs.VERBS.parser(command).read(rest))

    def _declare_agent(self, line: str, cell: str) -> Coroutine[Any, Any, None] | None:
        look_up = partial(self.session.look_up, self.shell.user_ns)
        find_tools = partial(self.session.find_tools, self.shell.user_ns)
        find_prompt = partial(self.session.find_prompt, self.shell.user_ns)
        declared, plan = read_agent(line, cell, look_up, find_tools, find_prompt)
        self._declare(declared, plan, cell_of(self.shell), tool_lines_note(cell))
        return verbs.ask_at_once(self, declared.name, plan) if PARSERS["agent"].read(line).run else None

    def _leftover(self, error: AgentMagicError) -> str:
        """Return how to remove the agent that caused an error, if it may be left over."""
        name = getattr(error, "agent", None)
        return self.session.leftover_words(name) if isinstance(name, str) and isinstance(error, PlanError) else ""

    def _stays(self, line: str, _: AgentMagicError) -> str:
        """Return a note after a refused cell: the next run uses the earlier declarations."""
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        kept = self.session.declared_by(cell_of(self.shell), name)
        return f" Still as declared before: {show.listed(kept)}." if kept else ""

    def _declare_context(self, context: Context, plan: str, cell: Cell, said: Iterable[str]) -> None:
        names, before = self.shell.user_ns, {one.name: one for one in self.session.registry(plan).contexts}
        steps = self._before(plan).values()
        missing = [name for name in context.uses if name not in names]
        rendered = cache(lambda: None if missing else context.render(names))
        notes = [*said, *lines_that_declare(context.text), *self.session.declare_context(context, plan, cell, rendered)]
        self._is_there(cell)
        if before.get(context.name, context) != context:
            users = [one.name for one in steps if context.name in {one.context, *one.reads}]
            notes += self.session.runs_old_text(users, plan, context.name)
        if context.name in names:
            notes.append(f"--context {context.name} and {{{{ {context.name} }}}} take this cell, not your variable")
        found = rendered()
        size = len(found) // CHARS_PER_TOKEN if isinstance(found, str) else None
        parts = [one if isinstance(one, str) else one.label for one in found] if isinstance(found, list) else []
        shared = self.session.sharing(context.name, plan)
        display_bundle(show.context_card(context.name, size, shared, missing, notes, parts=parts))

    def declare_task(self, task: Task, variables: Mapping[str, Any]) -> None:
        """Declare a function that a cell marks with `am.task`; modules do not declare here."""
        if variables is self.shell.user_ns or variables is self.shell.user_global_ns:
            with user_errors():
                self._declare(task, DEFAULT_PLAN, cell_of(self.shell))

    def _declare(self, agent: Step, plan: str, cell: Cell, said: Iterable[str] = ()) -> None:
        registry, names, before = self.session.registry(plan), self.shell.user_ns, self._before(plan)
        self.session.check_fields([agent], registry, names)
        self._check_servers([agent])
        notes = registry.declare(agent, cell, ran=self.session.ran, variables=names, cycles=self.on_cycle != "error")
        self._is_there(cell)
        notes += [*said, *registry.adopt(names), *self._notes_on(agent, registry)]
        notes += [*self._kept(before, registry), *self.session.gone(plan)]
        display_bundle(show.declaration_card(notes=notes, **self._told(agent, registry)))
        if is_kernel(self.shell):
            self.session.prepare()

    def _check_servers(self, agents: Sequence[Step]) -> None:
        for name in resources_of(agents):
            self.session.server_of(name, self.shell.user_ns)

    def _before(self, plan: str) -> dict[str, Step]:
        return {one.name: one for one in self.session.registry(plan).agents}

    def _is_there(self, cell: Cell) -> None:
        if cell.id is not None:
            self.session.deleted.discard(cell.id)
            self.session.executed.pop(cell.id, None)

    def _kept(self, before: Mapping[str, Step], registry: Registry) -> list[str]:
        now = {one.name: one for one in registry.agents}
        return self.session.runs_old_text([name for name in before if before[name] != now.get(name)], registry.name)

    def see_deleted(self, *_: object) -> None:
        """Record deleted cells, which the front end reports once."""
        self.session.deleted |= cell_of(self.shell).deleted

    def _declare_all(self, agents: list[Step], plan: str, cell: Cell, said: Iterable[str]) -> None:
        registry, names, before = self.session.registry(plan), self.shell.user_ns, self._before(plan)
        self.session.check_fields(agents, registry, names)
        self._check_servers(agents)
        done: Any = {"ran": self.session.ran, "variables": names, "cycles": self.on_cycle != "error"}
        notes = [*said, *registry.declare_all(agents, cell, **done), *registry.adopt(names)]
        self._is_there(cell)
        notes += [*self._kept(before, registry), *self.session.gone(plan)]
        notes += [f"{agent.name}: {note}" for agent in agents for note in self._notes_on(agent, registry)]
        display_bundle(show.declarations_card([self._told(agent, registry) for agent in agents], notes))
        if is_kernel(self.shell):
            self.session.prepare()

    def _notes_on(self, agent: Step, registry: Registry) -> list[str]:
        names = self.shell.user_ns
        hidden = agent.name in names and not agent.is_task
        taken = f"prompts take {{{{ {agent.name} }}}} from the agent, not from your variable of that name"
        said = [*lines_that_declare(agent.prompt), *value_notes(registry.variables(agent), names)]
        if agent.each is not None and agent.each in names:
            said += notes_on_missing(agent.each, names[agent.each], agent.template.paths)
        undefined = registry.undefined(agent, names)
        if undefined or any(path[0] == ITEM for path in agent.template.paths):
            (first, *_) = items_now(names.get(agent.each)) or [None]
            said += filter(None, (hint_at_item(name, first) for name in undefined))
            said += columns_missing(agent.template.paths, first)
        return [*([taken] if hidden else []), *said, *self._notes_on_models(agent)]

    def _notes_on_models(self, agent: Step) -> list[str]:
        if isinstance(agent, Task):
            return []
        models, shared = [agent.model or self.model, *agent.other_models], self.session.shared
        chosen: list[str] = []
        if candidates_of(models[0]) is not None:
            models.pop(0)
            try:
                found = api.choose(agent, shared, len(agent.prompt) // CHARS_PER_TOKEN)
                chosen = [f"auto is {found.model}: {found.why}"]
            except DeclarationError as error:  # another server may be connected to before it runs
                chosen = [str(error)]
        return [*chosen, *shared.wrong_models(models)]

    def _told(self, agent: Step, registry: Registry) -> dict[str, Any]:
        names = self.shell.user_ns
        return {
            "agent": agent.with_defaults(model=self.model, max_tokens=self.max_tokens),
            "edges": [one if kind == "prompt" else f"{one} (--{kind})" for one, kind in registry.parents(agent)],
            "undefined": [self._near(name, registry) for name in registry.undefined(agent, names)],
            "items": len(items_now(names.get(agent.each)) or ()) or None,
        }

    def _near(self, name: str, registry: Registry) -> str:
        values = self.shell.user_ns.items()  # classes, functions and modules stand in no prompt
        own = [one for one, value in values if not (one.startswith("_") or callable(value) or ismodule(value))]
        near = did_you_mean(name, [*(one.name for one in (*registry.agents, *registry.contexts)), *own], alike=0.8)
        return f"{name} ({near.strip()})" if near else name

    def _stopped(self) -> str:
        records = [driver.record for driver in self.session.running]
        records += [self.session.last.record] if self.session.last else []
        if not records:
            return "stopped"
        kept = sum(result.status == "succeeded" for result in records[0].results)
        left = len(records[0].results) - kept - len(records[0].left_out)
        said = (
            f"stopped: {kept} of {kept + left} agents had finished and are kept. %agents run continues with the rest."
        )
        return "\n".join([said, *self.session.keeping.take_notes()])  # such as what goes on at the provider


@contextlib.contextmanager
def user_errors(left: Callable[[AgentMagicError], str] = lambda _: "") -> Generator[None]:
    """Show the user's mistakes as one line without a traceback."""
    try:
        yield
    except AgentMagicError as error:
        raise UsageError(shown_message(error) + left(error)) from None
