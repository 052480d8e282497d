"""The state of a kernel: declarations, provider, runs."""

from __future__ import annotations

import atexit
import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic import api, forecast, live, providers, show
from agent_magic.declare.agent import Agent
from agent_magic.declare.answers.returns import Returns, look_up
from agent_magic.declare.declared import declared_names
from agent_magic.declare.edges import Taken, answers_of, check_fields, check_items
from agent_magic.declare.expansion import check_places
from agent_magic.declare.options import AUTO
from agent_magic.declare.step import is_step
from agent_magic.declare.task import Task
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.declare.units import plural
from agent_magic.errors import AgentMagicError, DeclarationError, LedgerError, PlanError, UnknownAgent
from agent_magic.notebook.front_end import note
from agent_magic.notebook.registry import Registry, resources_of, steps_in_variables, variable_of
from agent_magic.notebook.warmup import LOADERS, WarmUp
from agent_magic.record.files import home_of
from agent_magic.record.ledger.file import OFF, default_path

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.api import Ledger, Plan, Run
    from agent_magic.api.session import IsApplied
    from agent_magic.declare.context import Context
    from agent_magic.declare.step import Step
    from agent_magic.engine.pacing.pacer import Route
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.live.driver import Driver
    from agent_magic.live.mcp import McpServer
    from agent_magic.live.people import Desk
    from agent_magic.notebook.front_end import Cell
    from agent_magic.providers.base import Provider
    from agent_magic.providers.dask.client import Dask
    from agent_magic.providers.pool import Pool
    from agent_magic.providers.recorded import Deck
    from agent_magic.record.ledger.runs import PastRun
    from agent_magic.show.live import LiveView
    from agent_magic.show.theme import Theme
    from agent_magic.simulator import Simulator
    from agent_magic.simulator.inside import InsideSimulator


class Keeping:
    """The choice of a session's ledger: a path, `:memory:`, `off`, or empty for the default path."""

    def __init__(self) -> None:
        self.choice, self.home = "", home_of()
        self.reuse_simulated = False
        self._ledger: Ledger | None = None
        self._opened: tuple[str, bool] | None = None
        self._notes: list[str] = []

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` if the user wants none."""
        wanted = default_path(self.choice), self.reuse_simulated
        if wanted != self._opened:
            if self._ledger is None or not self._ledger.is_in_use:  # a run under way goes on storing its answers there
                self.close()
            self._ledger = None if wanted[0] == OFF else self._open(wanted[0])
            self._opened = wanted
        if self._ledger is not None:
            self._ledger.home = self.home
        return self._ledger

    def _open(self, path: str) -> Ledger:
        try:
            return api.Ledger(path, reuse_simulated=self.reuse_simulated)
        except LedgerError as error:
            if not error.unwritable:
                raise
            self._notes.append(
                f"{error} What is bought is kept in memory, until this kernel ends: %agents record FILE keeps a run."
            )
            return api.Ledger(api.MEMORY, reuse_simulated=self.reuse_simulated)

    def take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return [*notes, *show.ledger_notes(self._ledger)]

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self._opened = None, None


NO_KEY = "the-mock-server-needs-no-key"
"""Sent to the mock server. A common word would be redacted in messages, like any key."""
DEFAULT_PLAN = "agents"
MOST_RUNS = 100
MOST_LOOKED_AT = 10
MOST_VIEWS = 8
PINNED = "AGENT_MAGIC_CASSETTE"
"""The environment variable with a cassette that replaces any provider a notebook connects to."""


class Linted(NamedTuple):
    """Advice on a plan that has not run; `advised` is how often advice on its last run had been asked for."""

    run: Run
    advice: Advice
    last: Run | None
    advised: int

    def is_newest(self, last: Run | None) -> bool:
        return last is None or last.advised == (self.advised if last is self.last else 0)


def drop_command(names: Iterable[str], plan: str) -> str:
    where = "" if plan == DEFAULT_PLAN else f" --plan {plan}"
    return f"%agents drop {' '.join(names)}{where}"


class Session:
    """The state of one kernel.

    Attributes:
        runs: Finished runs, oldest first, at most `MOST_RUNS`.
        last: The last run, even if stopped.
        pilot: The last run of `%agents plan --pilot`, which the next run of its plan reuses.
        just_shown: Values the cell has shown, so that they are not displayed again as its result.
        running: Active runs, at most one in a cell and one in the background.
        executed: By the id of a cell, its last execution without an error.
        left_simulator: True after leaving the mock server, until the user is told.
        applied: Applied changes, latest last: the words and function to undo each.
        planned: Likely run of the last plan of what-ifs; `None` after a run.
    """

    def __init__(self) -> None:
        self._registries: dict[str, Registry] = {}
        self.warm_up = WarmUp([lambda: self.shared.client.warm_up(), *LOADERS])  # noqa: PLW0108 - `shared` is made later
        self._simulator: Simulator | InsideSimulator | None = None
        self.workers: Dask | None = None
        self._started: Dask | None = None
        self._deck: Deck | None = None
        self._pool: Pool | None = None
        self._pinned: Deck | None = None
        self.runs: list[Run] = []
        self.keeping = Keeping()
        self.is_applied: IsApplied = lambda _change: False
        self.last: Run | None = None
        self.pilot: Run | None = None
        self.running: list[Driver] = []
        self.desks: list[Desk] = []
        self.background: asyncio.Task[Run] | None = None
        self.just_shown: object = None
        self.theme: Theme = "auto"
        self.servers: dict[str, McpServer] = {}
        self.prompts: dict[str, str] = {}
        self.left_simulator = self._has_spent = False
        self._whom = ""
        self.deleted: set[str] = set()
        self.executed: dict[str, str | None] = {}
        self.applied: list[tuple[str, list[Callable[[], None]]]] = []
        self.linted: list[Linted] = []
        self.planned: Run | None = None
        self._views: list[LiveView] = []

    @cached_property
    def shared(self) -> api.Session:
        shared = api.Session(client=api.Claude(), ledger=lambda: self.keeping.ledger, prices={}, tell=note)
        shared.listeners.append(self.say_whom)
        shared.is_applied = lambda change: self.is_applied(change)  # noqa: PLW0108 - the magics set it later
        return shared

    @cached_property
    def forecasts(self) -> Forecasts:
        return forecast.Forecasts()

    def registry(self, plan: str = DEFAULT_PLAN) -> Registry:
        if plan not in self._registries:
            common = None if plan == DEFAULT_PLAN else self.registry()
            self._registries[plan] = Registry(plan, common)
        return self._registries[plan]

    def leftovers(self, plan: str = DEFAULT_PLAN) -> tuple[str, ...]:
        """Return the agents and contexts with cells that are deleted, or declare them no longer."""
        return self.registry(plan).of_cells(self.deleted, self.executed)

    def gone(self, plan: str) -> list[str]:
        names = self.leftovers(plan)
        drop = drop_command(names, plan)
        return [f"the cell of {show.listed(names)} is deleted or changed: {drop}"] if names else []

    def declared_by(self, cell: Cell, name: str) -> list[str]:
        """Return the declaration with a name or of a cell; the source may have been renamed since."""
        ids = () if cell.id is None else (cell.id,)
        found = [one for registry in self._registries.values() for one in registry.of_cells(ids)]
        found += [name for registry in self._registries.values() if name in registry or registry.has_context(name)]
        return list(dict.fromkeys(found))

    def leftover_words(self, name: str) -> str:
        homes = [one for one in self._registries.values() if name in one]
        if not homes:
            return ""
        drop = drop_command([name], homes[0].name)
        if name in self.leftovers(homes[0].name):
            return f" {name!r} is left over: its cell is deleted or changed. {drop} removes it."
        return f" If {name!r} is left over from a cell that was deleted or renamed, {drop} removes it."

    def runs_old_text(self, names: Iterable[str], plan: str, context: str = "") -> list[str]:
        known = [{*one.plan.index, *one.plan.groups} for one in self.running if one.plan.name == plan]
        found = [name for name in names if any(name in one for one in known)]
        return (
            [f"the run under way keeps the old {context or ', '.join(found)}; the next run takes this"] if found else []
        )

    @property
    def restarted(self) -> str:
        """A note for a new kernel, if an earlier one ran this notebook."""
        if any(map(len, self._registries.values())) or self.last is not None or self.before is None:
            return ""
        return " This kernel is new: run the cells again. Earlier answers are kept; %agents runs lists the runs."

    @property
    def ran(self) -> list[str]:
        return [] if self.last is None else [*self.last.plan.names, *self.last.plan.groups]

    def declare_context(
        self, context: Context, plan: str, cell: Cell, check: Callable[[], object] | None = None
    ) -> list[str]:
        """Declare a context if `check` succeeds."""
        ran = self.ran
        known = {one.name: one for one in self.registry(plan).contexts}
        notes = self.registry(plan).declare_context(context, cell, ran=ran, check=check)
        if plan == DEFAULT_PLAN and known.get(context.name, context) != context:
            for name, registry in self._registries.items():
                if name != plan and not registry.has_context(context.name):
                    notes += registry.stale_note(context.name, ran)
        return notes

    def sharing(self, name: str, plan: str) -> list[str]:
        found = [agent.name for agent in self.registry(plan).sharing(name)]
        if plan == DEFAULT_PLAN:
            others = [one for other, one in self._registries.items() if other != plan and not one.has_context(name)]
            found += [f"{agent.name} ({one.name})" for one in others for agent in one.sharing(name)]
        return found

    @property
    def contents(self) -> str:
        agents = sum(map(len, self._registries.values()))
        contexts = sum(len(one.contexts) for one in self._registries.values())
        counts = ((agents, "agent"), (contexts, "context"), (len(self.runs), "run"))
        told = [plural(number, word) for number, word in counts if number]
        told += [f"{plural(len(self.running), 'run')} under way"] if self.running else []
        return show.listed([f"the connection to {self.connection}", *told, "the ledger", "the settings"])

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(name for name, registry in self._registries.items() if len(registry))

    def plan(
        self,
        namespace: dict[str, Any],
        *,
        name: str = DEFAULT_PLAN,
        agents: Iterable[str] = (),
        defaults: Mapping[str, Any],
        on_cycle: Any = "error",
        on_missing: Any = "error",
    ) -> Plan:
        """Freeze the declarations as a plan, or those of `agents` and their ancestors.

        If no cell declares the plan, `name` is a variable that holds a `Plan`.
        """
        registry = self.registry(name)
        held = namespace.get(name)
        if not len(registry) and isinstance(held, api.Plan):
            plan = replace(held, agents=[one.with_defaults(**defaults) for one in held.agents], name=name)
            plan = plan.select(list(agents) or plan.names)
            return api.with_models(plan, self.shared, None if self.deck is None else self.deck.models)
        if not len(registry):
            others = f" Agents are declared in: {', '.join(self.plans)}." if self.plans else ""
            raise PlanError(
                f"No agents are declared yet in {name!r}. Write a cell that starts with %%agent NAME."
                f"{self.restarted}{others}{steps_in_variables(namespace)}"
            )
        registry.adopt(namespace)
        declared = tuple(
            self._expected(self._typed(agent, namespace)).with_defaults(**defaults) for agent in registry.agents
        )
        wanted = list(agents)
        if wanted:
            declared = _with_ancestors(declared, wanted)
        self._check_contexts(declared, registry, namespace)
        for variable in self.prompts.keys() & {used for one in declared for used in one.reads}:
            self.find_prompt(namespace, self.prompts[variable])
        values = registry.values(namespace) | self.resources(resources_of(declared), namespace)
        for title, inner in [(key, one) for key, one in values.items() if isinstance(one, api.Plan)]:
            steps = [one.with_defaults(**defaults) for one in inner.agents]
            values[title] = api.Plan(steps, inner.values, name=inner.name)
        options: Any = {"on_cycle": on_cycle, "on_missing": on_missing}
        plan = api.Plan(declared, values, name=name, contexts=registry.contexts, **options)
        return api.with_models(plan, self.shared, None if self.deck is None else self.deck.models)

    def look_up(
        self, namespace: Mapping[str, Any], agent: str, returns: str | None, check: str | None
    ) -> dict[str, Any]:
        # A recording needs no class.
        try:
            return look_up(agent, returns, check, namespace)
        except DeclarationError:
            deck = self.deck
            schema = "" if deck is None else deck.schema_of(agent)
            if not schema:
                raise
            return {"returns": Returns(schema, returns or "")}

    def find_tools(self, namespace: Mapping[str, Any], agent: str, tools: str) -> Tools:
        # A recording that answers needs no functions.
        try:
            return tools_of(tools, {**namespace, **self.servers}, agent=agent)
        except DeclarationError:
            deck = self.deck
            found = Tools() if deck is None else deck.tools_of(agent)
            if not found:
                raise
            found.written = tools
            return found

    def check_fields(self, steps: Sequence[Step], registry: Registry, namespace: Mapping[str, Any]) -> None:
        declared = {one.name: one for one in (*registry.agents, *steps)}
        for step in steps:

            def taken(name: str, step: Step = step) -> Taken | None:
                parent = declared.get(name)
                if parent is None or (name == step.name and step.until is None):
                    return None
                try:
                    returns = answers_of(self._typed(parent, namespace))
                except DeclarationError:  # its class is gone, which the plan will say
                    return None
                several = parent.repeat is not None or (parent.each is not None and parent.each != step.each)
                return None if returns is None else Taken(returns, several)

            check_fields(step, taken)
            base, *path = (step.each or "").split(".")
            own = step.each in namespace and not is_step(namespace[step.each or ""])
            if base in declared and base != step.name and not own:
                check_places(step, step.each or "", declared[base])
                if (found := taken(base)) is not None:
                    check_items(step, base, found.returns, path)

    def _typed(self, agent: Step, namespace: Mapping[str, Any]) -> Step:
        """Resolve the names in an agent's cell again, since classes may have been redefined."""
        if isinstance(agent, Task):
            return agent
        written = [(one and one.written) or None for one in (agent.returns, agent.check)]
        found: dict[str, Any] = self.look_up(namespace, agent.name, *written) if any(written) else {}
        if agent.tools.written:
            found["tools"] = self.find_tools(namespace, agent.name, agent.tools.written)
        return replace(agent, **found) if found else agent

    def _expected(self, step: Step) -> Step:
        if not isinstance(step, Agent) or step.group != AUTO or step.expect_out is not None:
            return step
        item = replace(step, name=f"{step.name}_0")
        lengths = [one.output_tokens for one in self.shared.history.of_kin(item) if one.output_tokens]
        return replace(step, expect_out=max(lengths)) if lengths else step

    def _check_contexts(self, agents: Iterable[Step], registry: Registry, namespace: Mapping[str, Any]) -> None:
        own = {one.name for one in registry.contexts}
        homes = {one.name: plan for plan, other in self._registries.items() for one in other.contexts}
        for agent in agents:
            name = agent.context
            if name in homes and name not in own and name not in namespace:
                raise PlanError(
                    f"Agent {agent.name!r} shares the context {name!r}, which is declared for the plan "
                    f"{homes[name]!r}. Declare it for this one too: %%context {name} --plan {registry.name}"
                )

    def resources(self, names: Iterable[str], namespace: Mapping[str, Any]) -> dict[str, Any]:
        """Read resources of MCP servers, by `server:name`. A plan keeps them as they are now."""
        return {name: self.server_of(name, namespace).resource(name.partition(":")[2]) for name in names}

    def find_prompt(self, namespace: dict[str, Any], prompt: str) -> str:
        """Read a prompt of an MCP server into a variable, and return its name."""
        name = variable_of(prompt)
        namespace[name] = self.server_of(prompt, namespace).prompt_with(prompt.partition(":")[2], namespace)
        self.prompts[name] = prompt
        return name

    def server_of(self, name: str, namespace: Mapping[str, Any]) -> McpServer:
        """Return a server of `%agents mcp`, or a variable."""
        server = name.partition(":")[0]
        found: Any = self.servers.get(server, namespace.get(server))
        if not hasattr(found, "resource"):
            known = f"These run: {', '.join(self.servers)}. " if self.servers else ""
            hint = f"{known}Start it: %agents mcp {server} COMMAND, or URL."
            raise DeclarationError(f"No MCP server {server!r} runs, which {name!r} names.", hint=hint)
        return found

    def add_server(self, server: McpServer) -> None:
        """Add a server of tools; it replaces one of the same name."""
        if (old := self.servers.pop(server.name, None)) is not None:
            old.close()
        self.servers[server.name] = server

    def connect_simulator(self, **options: Any) -> str:
        """Start the mock server, connect to it, and return its URL."""
        if os.environ.get(PINNED):
            return self.connection  # the recording answers, with any provider of the notebook
        try:
            simulator = api.start_simulator(**options)
        except (api.SimulatorError, OSError) as error:
            raise AgentMagicError(f"The mock server did not start: {error}") from None
        self.disconnect()
        self._simulator, self.left_simulator, self._whom = simulator, False, ""
        atexit.register(self._simulator.stop)
        # The same under each address it may have, except in its script.
        slips = f", slips {options['slips']}" if options.get("slips") else ""
        name = None if options.get("script") else f"simulator, seed {options.get('seed', 0)}{slips}"
        client = api.Claude(base_url=self._simulator.url, api_key=NO_KEY, endpoint=name, own_models=False)
        self.shared.connect(client, time_factor=simulator.time_factor)
        return self._simulator.url

    def connect(self, client: Provider, *, name: str = "", weight: float = 1.0, route: Route | None = None) -> None:
        """Connect to another provider, with a name beside other named ones."""
        pool = self._pool if name else None
        if name:
            members, weights = {name: client}, {name: weight}
            if pool is not None:
                members, weights = pool.members | members, pool.endpoints.weights | weights
                route = route or pool.endpoints.route
            pool = providers.Pool(members, weights=weights, route=route or "least loaded")
        self.disconnect()
        self._pool, self.workers = pool, client if pool is None and isinstance(client, providers.Dask) else None
        self.shared.connect(client if pool is None else pool)

    def connect_dask(self, address: str | None, workers: int | None) -> None:
        client = self.shared.client if self.workers is None else self.workers.client
        if address is not None and workers is not None:
            raise AgentMagicError("--workers starts workers here. A cluster with an address has its own.")
        dask = providers.Dask(address, client=client, workers=workers)
        dask.start()
        self._leave_workers()
        self.workers = self._started = dask
        self.shared.connect(dask, time_factor=self.shared.time_factor)

    def _leave_workers(self) -> None:
        if self._started is not None:
            self._started.close()
        self.workers = self._started = None

    @property
    def deck(self) -> Deck | None:
        name = os.environ.get(PINNED)
        if self._deck is None and self._pinned is None and name:
            self._pinned = providers.Deck(api.read_cassette(Path(name)))
        return self._deck or self._pinned

    def insert(self, deck: Deck) -> None:
        """Connect to a cassette; with `fill`, missing requests are sent."""
        if not deck.fill:
            self.disconnect()
            self.shared.connect(providers.Nobody())
        elif isinstance(self.shared.client, providers.Nobody):
            self.shared.connect(api.Claude())
        self._deck = deck

    def disconnect(self) -> None:
        if self._simulator is not None:
            atexit.unregister(self._simulator.stop)
            self._simulator.stop()
            self._simulator, self.left_simulator = None, True
        self._leave_workers()
        self.shared.connect(api.Claude())
        self._deck = self._pool = None

    def leaving_note(self) -> str:
        """Return, once, the provider after a simulated run, even of an earlier kernel."""
        if not self.spends:
            return ""
        left, self.left_simulator = self.left_simulator, False
        first, self._has_spent = not self._has_spent, True
        if left:
            return f"the mock server is disconnected: {self.connection} answers now, {self._price_words}"
        earlier = self.before if self.last is None else self.last.record  # it may be opened, or of a loaded session
        if not first or earlier is None or not earlier.simulated:
            return ""
        return f"the last run was simulated: {self.connection} answers now, {self._price_words}"

    @property
    def _price_words(self) -> str:
        return "at no cost, as you said" if self.shared.client.is_free else "which costs money"

    @property
    def before(self) -> PastRun | None:
        """The newest run of this notebook in the ledger, of an earlier kernel if this one has none."""
        return None if self.keeping.ledger is None else self.keeping.ledger.newest()

    def say_whom(self, asked: api.Session) -> None:
        """Print a note, once per provider, that a run of the Python API does not use the mock server."""
        who = asked.client.endpoint
        if self.simulates and asked is not self.shared and who != self._whom:
            self._whom = who
            note(
                f"this run asks {who}, which costs money: %agents connect simulator is for %agents run, not for the "
                "Python API. Give it session=run.session, or run a plan in a variable: %agents run --plan NAME."
            )

    @property
    def simulates(self) -> bool:
        return self._simulator is not None and self._deck is None

    @property
    def spends(self) -> bool:
        """True if answers cost money, unlike those of the mock server and of a cassette."""
        return self._simulator is None and (self.deck is None or self.deck.fill)

    @property
    def connection(self) -> str:
        if self.deck is not None:
            return f"{self.deck.cassette.name}, recorded {self.deck.cassette.recorded_words}"
        who = self.shared.client.endpoint
        if self._pool is not None:
            who = f"{', '.join(self._pool.members)} ({self._pool.endpoints.route}), at {who}"
        if self.simulates:
            who = "the mock server (responses are simulated and labelled so)"
        return who if self.workers is None else f"{who}, over Dask workers"

    def last_run(self) -> Run:
        if self.last is None and self.running:
            raise AgentMagicError(
                "The first run is under way. %agents wait waits for its end, %agents shows how far it is."
            )
        if self.last is None:
            raise AgentMagicError(
                "Nothing has run in this kernel yet. %agents run runs what is declared, and %agents open brings back "
                "a run of before."
            )
        return self.last

    def run_of(self, name: str) -> Run:
        """Return the active run that has asked this agent already, or else the last run."""
        for driver in self.running:
            plan, results = driver.plan, driver.record.results
            known = name in plan.index or name in plan.groups
            if known and any(results[number].attempts for number in plan.numbers([name])):
                history, prices = self.shared.history, driver.prices
                return api.Run(driver.record, driver, history=history, prices=prices, session=self.shared)
        return self.last_run()

    def take_lint(self, run: Run, advice: Advice) -> None:
        others = [one for one in self.linted if one.run.plan.name != run.plan.name]
        self.linted = [*others, Linted(run, advice, self.last, 0 if self.last is None else self.last.advised)]

    def settle(self, run: Run) -> None:
        self.last, self.planned = run, None
        self.runs = [*self.runs[1 - MOST_RUNS :], run]
        self.shared.settle(run.record)
        run.forecasts = self.forecasts
        run.forecasts.ran(run.record)
        self.running = [driver for driver in self.running if driver.record is not run.record]

    def stale(self, plan: Plan) -> list[str]:
        asked: dict[str, bool] = {}
        for run in self.runs[: -1 - MOST_LOOKED_AT : -1]:
            done = {one.name for one in run.record.results if one.status == "succeeded"} - asked.keys()
            if run.plan.name != plan.name or not done & plan.index.keys():
                continue
            asked = live.asked_again(plan, run.record) | asked
        names = zip(plan.names, declared_names(plan), strict=True)
        return list(dict.fromkeys(shown for name, shown in names if asked.get(name)))

    def take_view(self, view: LiveView) -> None:
        """Keep the clickable view of a finished run. Old views become pictures."""
        self.theme = view.theme
        if view.is_open:
            self._views.append(view)
        while len(self._views) > MOST_VIEWS:
            self._views.pop(0).close()

    def unfinished(self, plan: Plan) -> Run | None:
        """Return this plan's last run if not all of it succeeded: the next run continues it."""
        last = self.last
        if last is None or last.plan.name != plan.name:
            return None
        return last if not last.ok or last is self.pilot else None

    def asks_mock_again(self, plan: Plan) -> bool:
        last = self.last
        repeated = last is not None and last.plan.name == plan.name and last.record.simulated and last.ok
        return self.simulates and not self.keeping.reuse_simulated and repeated

    def prepare(self) -> None:
        _ = self.shared  # made here: the thread and a cell would each make one
        self.warm_up.start()

    def close(self) -> None:
        if self.background is not None:
            self.background.cancel()
        self.disconnect()
        for server in self.servers.values():
            server.close()
        if self.say_whom in self.shared.listeners:  # it may be closed twice
            self.shared.listeners.remove(self.say_whom)
        self.keeping.close()
        for view in self._views:
            view.close()


def shown_name(agent: Step) -> str:
    return agent.name if agent.part is None else agent.part.group


def _with_ancestors(declared: tuple[Step, ...], wanted: list[str]) -> tuple[Step, ...]:
    """Keep these agents and their ancestors."""
    by_name = {agent.name: agent for agent in declared}
    for name in wanted:
        if name not in by_name:
            raise UnknownAgent(name, known=by_name)
    keep: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name in by_name and name not in keep:
            keep.add(name)
            todo += [*by_name[name].reads, *by_name[name].after]
    return tuple(agent for agent in declared if agent.name in keep)
