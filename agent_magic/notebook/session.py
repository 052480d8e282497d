"""The state of a kernel: what is declared, who answers, what ran."""

from __future__ import annotations

import atexit
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.api import Ledger, Plan, Run, simulating
from agent_magic.api import Session as Shared
from agent_magic.api.choosing import with_models
from agent_magic.declare.agent import Agent
from agent_magic.declare.expansion import check_places, declared_names
from agent_magic.declare.fields import Taken, answers_of, check_fields, check_items
from agent_magic.declare.returns import Returns, look_up
from agent_magic.declare.step import is_step
from agent_magic.declare.task import Task
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.errors import AgentMagicError, DeclarationError, LedgerError, PlanError, UnknownAgent
from agent_magic.forecast.calibration import Forecasts
from agent_magic.live.ahead import unbought
from agent_magic.live.earlier import Earlier
from agent_magic.notebook.front_end import note
from agent_magic.notebook.registry import Registry, steps_in_variables
from agent_magic.notebook.warmup import LOADERS, WarmUp
from agent_magic.providers.anthropic.client import Claude
from agent_magic.providers.dask.client import DEFAULT_WORKERS, Dask
from agent_magic.providers.pool import Pool
from agent_magic.providers.recorded import Deck, Nobody
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.ledger.file import OFF, default_path
from agent_magic.record.ledger.store import MEMORY
from agent_magic.show.notes import ledger_notes
from agent_magic.simulator import SimulatorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.declare.context import Context
    from agent_magic.declare.step import Step
    from agent_magic.engine.pacing.routing import Route
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.live.driver import Driver
    from agent_magic.live.mcp import McpServer
    from agent_magic.live.people import Desk
    from agent_magic.notebook.front_end import Cell
    from agent_magic.providers.base import Provider
    from agent_magic.show.live import LiveView
    from agent_magic.show.theme import Theme
    from agent_magic.simulator import Simulator
    from agent_magic.simulator.inside import InsideSimulator


class Keeping:
    """Which ledger a session uses.

    Attributes:
        choice: What the user has said: a path, `:memory:`, `off`, or empty for the environment's, or the usual place.
        reuse_simulated: Reuse simulated answers too.
    """

    def __init__(self) -> None:
        self.choice = ""
        self.reuse_simulated = False
        self._ledger: Ledger | None = None
        self._opened: tuple[str, bool] | None = None
        self._notes: list[str] = []

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` where the user wants none.

        Raises:
            LedgerError: The named file is not a ledger, or was written by a later version.
        """
        wanted = default_path(self.choice), self.reuse_simulated
        if wanted != self._opened:
            self.close()
            self._ledger = None if wanted[0] == OFF else self._open(wanted[0])
            self._opened = wanted
        return self._ledger

    def _open(self, path: str) -> Ledger:
        try:
            return Ledger(path, reuse_simulated=self.reuse_simulated)
        except LedgerError as error:
            if not error.unwritable:
                raise
            self._notes.append(f"{error} What is bought is kept in memory, until this kernel ends.")
            return Ledger(MEMORY, reuse_simulated=self.reuse_simulated)

    def take_notes(self) -> list[str]:
        """Return what the user should know of the ledger, once."""
        notes, self._notes = self._notes, []
        return [*notes, *ledger_notes(self._ledger)]

    def close(self) -> None:
        """Close the file. It is opened again when it is needed."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self._opened = None, None


NO_KEY = "the-mock-server-needs-no-key"
"""Sent to the mock server. A common word would be redacted in every message, as a key is."""
DEFAULT_PLAN = "agents"
MOST_RUNS = 100
MOST_LOOKED_AT = 10
"""The runs that are searched for an agent's newest answer."""
MOST_VIEWS = 8
"""Views of finished runs that stay alive."""
PINNED = "AGENT_MAGIC_CASSETTE"
"""The variable of the environment that names a cassette which answers, whatever a notebook says it connects to."""


class Linted(NamedTuple):
    """What was found in a plan that has not run.

    Attributes:
        run: The plan's estimate as a run.
        advice: What was found.
        last: The last run then; `None` before the first.
        advised: How often the advice for that had been asked for.
    """

    run: Run
    advice: Advice
    last: Run | None
    advised: int

    def is_newest(self, last: Run | None) -> bool:
        """Return whether no advice for the last run was seen since then."""
        return last is None or last.advised == (self.advised if last is self.last else 0)


class Session:
    """What one kernel knows.

    Attributes:
        warm_up: Loads what a run needs, once something is declared.
        shared: What its runs share: who answers, rate limits, slots, prices, the ledger.
        runs: The runs that are over, oldest first, `MOST_RUNS` at most.
        keeping: Where what is bought is kept.
        forecasts: What was forecast, and the runs that came after.
        last: The last run, one that was cut too; `None` before the first.
        pilot: The last run of `%agents plan --pilot`, which the next run of its plan takes over.
        just_shown: What the cell has shown already, so that it need not be shown as its value too.
        running: The runs under way, one in a cell and one in the background at most.
        desks: Where the questions of runs under way wait for a person.
        background: The task of a run in the background, or `None`.
        theme: The colours of pictures, as the page that showed the last run has them.
        servers: The servers of tools that run, by name.
        workers: The workers that make the requests; `None` where the kernel does.
        applied: What was applied, the last one last: what its words are when it is taken back, and what does that.
        linted: What `%agents lint` found last for each plan, the last one last.
    """

    def __init__(self) -> None:
        self._registries: dict[str, Registry] = {}
        self.warm_up = WarmUp([self._warm_provider, *LOADERS])
        self._simulator: Simulator | InsideSimulator | None = None
        self.workers: Dask | None = None
        self._started: Dask | None = None
        self._deck: Deck | None = None
        self._pool: Pool | None = None
        self._pinned: Deck | None = None
        self.runs: list[Run] = []
        self.keeping = Keeping()
        self.shared = Shared(client=Claude(), ledger=lambda: self.keeping.ledger, prices={}, tell=note)
        self.forecasts = Forecasts()
        self.last: Run | None = None
        self.pilot: Run | None = None
        self.running: list[Driver] = []
        self.desks: list[Desk] = []
        self.background: asyncio.Task[Run] | None = None
        self.just_shown: object = None
        self.theme: Theme = "auto"
        self.servers: dict[str, McpServer] = {}
        self.applied: list[tuple[str, list[Callable[[], None]]]] = []
        self.linted: list[Linted] = []
        self._views: list[LiveView] = []

    def registry(self, plan: str = DEFAULT_PLAN) -> Registry:
        """Return the declared agents of a plan."""
        if plan not in self._registries:
            common = None if plan == DEFAULT_PLAN else self.registry()
            self._registries[plan] = Registry(plan, common)
        return self._registries[plan]

    @property
    def ran(self) -> list[str]:
        """The agents and groups that have a result."""
        return [] if self.last is None else [*self.last.plan.names, *self.last.plan.groups]

    def declare_context(self, context: Context, plan: str, cell: Cell) -> list[str]:
        """Declare a context; return notes. Plans without one of that name share the default plan's."""
        ran = self.ran
        known = {one.name: one for one in self.registry(plan).contexts}
        notes = self.registry(plan).declare_context(context, cell, ran=ran)
        if plan == DEFAULT_PLAN and known.get(context.name, context) != context:
            for name, registry in self._registries.items():
                if name != plan and not registry.has_context(context.name):
                    notes += registry.stale_note(context.name, ran)
        return notes

    def sharing(self, name: str, plan: str) -> list[str]:
        """Name the agents that send a plan's context first; of the usual plan, those of other plans too."""
        found = [agent.name for agent in self.registry(plan).sharing(name)]
        if plan == DEFAULT_PLAN:
            others = [one for other, one in self._registries.items() if other != plan and not one.has_context(name)]
            found += [f"{agent.name} ({one.name})" for one in others for agent in one.sharing(name)]
        return found

    @property
    def plans(self) -> tuple[str, ...]:
        """The plans that have agents."""
        return tuple(name for name, registry in self._registries.items() if len(registry))

    def plan(
        self,
        namespace: Mapping[str, Any],
        *,
        name: str = DEFAULT_PLAN,
        agents: Iterable[str] = (),
        defaults: Mapping[str, Any],
        on_cycle: Any = "error",
        on_missing: Any = "error",
    ) -> Plan:
        """Freeze what is declared.

        Args:
            namespace: The notebook's variables. Only those that prompts use are read.
            name: The plan; where no cell declares one of that name, a variable that holds a `Plan`.
            agents: Only these and their ancestors; empty takes all.
            defaults: Options of agents that leave them open.
            on_cycle: See `Plan`.
            on_missing: See `Plan`.

        Raises:
            PlanError: Nothing is declared, or the plan is wrong.
        """
        registry = self.registry(name)
        held = namespace.get(name)
        if not len(registry) and isinstance(held, Plan):
            plan = replace(held, agents=[one.with_defaults(**defaults) for one in held.agents], name=name)
            plan = plan.select(list(agents) or plan.names)
            return with_models(plan, self.shared, None if self.deck is None else self.deck.models)
        if not len(registry):
            others = f" Declared are agents of: {', '.join(self.plans)}." if self.plans else ""
            raise PlanError(
                f"No agents are declared yet in {name!r}. Write a cell that starts with %%agent NAME.{others}"
                f"{steps_in_variables(namespace)}"
            )
        registry.adopt(namespace)
        declared = tuple(
            self._expected(self._typed(agent, namespace)).with_defaults(**defaults) for agent in registry.agents
        )
        wanted = list(agents)
        if wanted:
            declared = _with_ancestors(declared, wanted)
        self._check_contexts(declared, registry, namespace)
        values = registry.values(namespace)
        for title, inner in [(key, one) for key, one in values.items() if isinstance(one, Plan)]:
            steps = [one.with_defaults(**defaults) for one in inner.agents]
            values[title] = Plan(steps, inner.values, name=inner.name)
        options: Any = {"on_cycle": on_cycle, "on_missing": on_missing}
        plan = Plan(declared, values, name=name, contexts=registry.contexts, **options)
        return with_models(plan, self.shared, None if self.deck is None else self.deck.models)

    def look_up(
        self, namespace: Mapping[str, Any], agent: str, returns: str | None, check: str | None
    ) -> dict[str, Any]:
        """Return what `--returns` and `--check` of an agent mean. A recording that answers needs no class.

        Raises:
            DeclarationError: They are not defined, or not what they should be, and no recording knows them.
        """
        try:
            return look_up(agent, returns, check, namespace)
        except DeclarationError:
            deck = self.deck
            schema = "" if deck is None else deck.schema_of(agent)
            if not schema:
                raise
            return {"returns": Returns(schema, returns or "")}

    def find_tools(self, namespace: Mapping[str, Any], agent: str, tools: str) -> Tools:
        """Return what `--tools` of an agent means. A recording that answers needs no functions.

        Raises:
            DeclarationError: They are not defined, or are no functions, and no recording knows them.
        """
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
        """Raise for what steps that are declared now take of answers whose type is known and has no such field.

        Raises:
            UndefinedField: There is no such field.
            PlanError: It is declared for each of what is no list.
        """
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
        """Look up again what the agent's cell names: a class or a function that was run again since then counts."""
        if isinstance(agent, Task):
            return agent
        written = [(one and one.written) or None for one in (agent.returns, agent.check)]
        found: dict[str, Any] = self.look_up(namespace, agent.name, *written) if any(written) else {}
        if agent.tools.written:
            found["tools"] = self.find_tools(namespace, agent.name, agent.tools.written)
        return replace(agent, **found) if found else agent

    def _expected(self, step: Step) -> Step:
        """Return a step that puts items together as many as fit with what earlier answers for one of them took."""
        if not isinstance(step, Agent) or step.group != "auto" or step.expect_out is not None:
            return step
        lengths = [one.output_tokens for one in self.shared.history.of_kin(f"{step.name}_0") if one.output_tokens]
        return replace(step, expect_out=max(lengths)) if lengths else step

    def _check_contexts(self, agents: Iterable[Step], registry: Registry, namespace: Mapping[str, Any]) -> None:
        """Raise where an agent shares a context that was declared for another plan only."""
        own = {one.name for one in registry.contexts}
        homes = {one.name: plan for plan, other in self._registries.items() for one in other.contexts}
        for agent in agents:
            name = agent.context
            if name in homes and name not in own and name not in namespace:
                raise PlanError(
                    f"Agent {agent.name!r} shares the context {name!r}, which is declared for the plan "
                    f"{homes[name]!r}. Declare it for this one too: %%context {name} --plan {registry.name}"
                )

    def add_server(self, server: McpServer) -> None:
        """Take a server of tools, in place of one of the same name, which ends."""
        if (old := self.servers.pop(server.name, None)) is not None:
            old.close()
        self.servers[server.name] = server

    def connect_simulator(self, **options: Any) -> str:
        """Start the mock server, where there are processes in its own, and connect to it. Returns its URL."""
        if os.environ.get(PINNED):
            return self.connection  # the recording answers, whatever the notebook was run with
        try:
            simulator = simulating.start(**options)
        except (SimulatorError, OSError) as error:
            raise AgentMagicError(f"The mock server did not start: {error}") from None
        self.disconnect()
        self._simulator = simulator
        atexit.register(self._simulator.stop)
        # The same under each address it may have, but for its own script.
        slips = f", slips {options['slips']}" if options.get("slips") else ""
        name = None if options.get("script") else f"simulator, seed {options.get('seed', 0)}{slips}"
        client = Claude(base_url=self._simulator.url, api_key=NO_KEY, endpoint=name, own_models=False)
        self.shared.connect(client, time_factor=simulator.time_factor)
        return self._simulator.url

    def connect(self, client: Provider, *, name: str = "", weight: float = 1.0, route: Route | None = None) -> None:
        """Connect to another provider; with a name, beside those that were connected with one.

        Args:
            client: The provider.
            name: Its name among several.
            weight: How much it is to get compared with the others.
            route: How requests are shared out; `None` leaves that as it is.
        """
        pool = self._pool if name else None
        if name:
            members, weights = {name: client}, {name: weight}
            if pool is not None:
                members, weights = pool.members | members, pool.endpoints.weights | weights
                route = route or pool.endpoints.route
            pool = Pool(members, weights=weights, route=route or "least loaded")
        self.disconnect()
        self._pool, self.workers = pool, client if pool is None and isinstance(client, Dask) else None
        self.shared.connect(client if pool is None else pool)

    def connect_dask(self, address: str | None, workers: int | None) -> None:
        """Have whoever answers now asked by Dask workers.

        Raises:
            AgentMagicError: Dask is not installed, the cluster cannot be reached, or another process cannot ask them.
        """
        client = self.shared.client if self.workers is None else self.workers.client
        if not isinstance(client, Claude):
            raise AgentMagicError("Workers ask the Messages API. Connect to it first: %agents connect api")
        if address is not None and workers is not None:
            raise AgentMagicError("--workers starts workers here. A cluster with an address has its own.")
        dask = Dask(address, client=client, workers=DEFAULT_WORKERS if workers is None else workers)
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
        """The cassette that answers: the one that was inserted, or the one that the environment names."""
        name = os.environ.get(PINNED)
        if self._deck is None and self._pinned is None and name:
            self._pinned = Deck(read_cassette(Path(name)))
        return self._deck or self._pinned

    def insert(self, deck: Deck) -> None:
        """Connect to a cassette. With `fill`, the current provider answers what is not in it."""
        if not deck.fill:
            self.disconnect()
            self.shared.connect(Nobody())
        elif isinstance(self.shared.client, Nobody):
            self.shared.connect(Claude())
        self._deck = deck

    def disconnect(self) -> None:
        """Stop the mock server, eject the cassette, and connect to the API again."""
        if self._simulator is not None:
            atexit.unregister(self._simulator.stop)
            self._simulator.stop()
            self._simulator = None
        self._leave_workers()
        self.shared.connect(Claude())
        self._deck = self._pool = None

    @property
    def simulates(self) -> bool:
        """Whether the mock server answers."""
        return self._simulator is not None and self._deck is None

    @property
    def spends(self) -> bool:
        """Whether answers cost money: those of the mock server and of a cassette do not."""
        return self._simulator is None and (self.deck is None or self.deck.fill)

    @property
    def connection(self) -> str:
        """Who answers, as a message names it."""
        if self.deck is not None:
            return f"{self.deck.cassette.name}, recorded {self.deck.cassette.recorded_words}"
        who = self.shared.client.endpoint
        if self._pool is not None:
            who = f"{', '.join(self._pool.members)} ({self._pool.endpoints.route}), at {who}"
        if self.simulates:
            who = "the mock server (responses are simulated and labelled so)"
        return who if self.workers is None else f"{who}, over Dask workers"

    def last_run(self) -> Run:
        """Return the last run.

        Raises:
            AgentMagicError: There is none.
        """
        if self.last is None and self.running:
            raise AgentMagicError(
                "The first run is under way. %agents wait waits for its end, %agents shows how far it is."
            )
        if self.last is None:
            raise AgentMagicError("Nothing has run yet. %agents run runs what is declared.")
        return self.last

    def run_of(self, name: str) -> Run:
        """Return the run under way that has asked this agent or group already, or else the last run.

        Raises:
            AgentMagicError: There is none.
        """
        for driver in self.running:
            plan, results = driver.plan, driver.record.results
            known = name in plan.index or name in plan.groups
            if known and any(results[number].attempts for number in plan.numbers([name])):
                history, prices = self.shared.history, driver.prices
                return Run(driver.record, driver, history=history, prices=prices, session=self.shared)
        return self.last_run()

    def take_lint(self, run: Run, advice: Advice) -> None:
        """Keep what was found for a plan, so that `%agents apply` knows what its numbers and findings mean.

        Args:
            run: The plan's estimate as a run.
            advice: What was found.
        """
        others = [one for one in self.linted if one.run.plan.name != run.plan.name]
        self.linted = [*others, Linted(run, advice, self.last, 0 if self.last is None else self.last.advised)]

    def settle(self, run: Run) -> None:
        """Record a run that is over, or was stopped."""
        self.last = run
        self.runs = [*self.runs[1 - MOST_RUNS :], run]
        self.shared.settle(run.record)
        self.forecasts.ran(run.record)
        self.running = [driver for driver in self.running if driver.record is not run.record]

    def stale(self, plan: Plan) -> list[str]:
        """Return the agents and groups of a plan whose newest answer no longer fits: they would be asked again."""
        asked: dict[str, bool] = {}
        for run in self.runs[: -1 - MOST_LOOKED_AT : -1]:
            done = {one.name for one in run.record.results if one.status == "succeeded"} - asked.keys()
            if run.plan.name != plan.name or not done & plan.index.keys():
                continue
            origin = run.record.origin
            earlier = Earlier(run.record, origin, plan=plan)
            again = {plan.names[one] for one in unbought(plan, origin, None, earlier, fresh=False, timeout_s=1.0)}
            asked.update({name: name in again for name in done & plan.index.keys()})
        names = zip(plan.names, declared_names(plan), strict=True)
        return list(dict.fromkeys(shown for name, shown in names if asked.get(name)))

    def take_view(self, view: LiveView) -> None:
        """Keep the view of a finished run, which answers to clicks, and its colours. Old views become pictures."""
        self.theme = view.theme
        if view.is_open:
            self._views.append(view)
        while len(self._views) > MOST_VIEWS:
            self._views.pop(0).close()

    def unfinished(self, plan: Plan) -> Run | None:
        """Return the last run of this plan if not all of it succeeded: the next run continues it.

        The plan's pilot counts too: its answers are reused.
        """
        last = self.last
        if last is None or last.plan.name != plan.name:
            return None
        return last if not last.ok or last is self.pilot else None

    def asks_mock_again(self, plan: Plan) -> bool:
        """Return whether the mock server has answered this plan already and will be asked again."""
        last = self.last
        repeated = last is not None and last.plan.name == plan.name and last.record.simulated and last.ok
        return self.simulates and not self.keeping.reuse_simulated and repeated

    def _warm_provider(self) -> None:
        self.shared.client.warm_up()

    def close(self) -> None:
        """Stop what runs."""
        if self.background is not None:
            self.background.cancel()
        self.disconnect()
        for server in self.servers.values():
            server.close()
        self.keeping.close()
        for view in self._views:
            view.close()


def shown_name(agent: Step) -> str:
    """Return the name an agent was declared under: of one of a group, the group's."""
    return agent.name if agent.part is None else agent.part.group


def _with_ancestors(declared: tuple[Step, ...], wanted: list[str]) -> tuple[Step, ...]:
    """Keep these agents and their ancestors, so that a broken agent elsewhere does not matter.

    Raises:
        UnknownAgent: One of them is not declared.
    """
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
