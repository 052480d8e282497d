"""`%%agent`, `%%context` and `%agents`. A magic reads its line, makes one call, returns."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Enum, Float, Int, Unicode, observe

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL, DEFAULT_TIMEOUT_S, Agent
from agent_magic.declare.context import Context
from agent_magic.declare.each import count_items
from agent_magic.declare.plan import PLAN_WORDS
from agent_magic.declare.written import python_notes
from agent_magic.engine.policy import POLICY_WORDS, Policy
from agent_magic.errors import AgentMagicError, did_you_mean, shown_message
from agent_magic.notebook.arguments import read_command, split_command, unquoted, without_comment
from agent_magic.notebook.awaiting import awaited
from agent_magic.notebook.bridge import run_sync
from agent_magic.notebook.first_line import lines_that_declare
from agent_magic.notebook.front_end import Cell, cell_of, display_bundle, is_kernel, notes_of
from agent_magic.notebook.session import DEFAULT_PLAN, Session
from agent_magic.notebook.verbs import VERBS
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.show.cards import context_card, declaration_card

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Generator

    from agent_magic.api import Plan

_FIELDS = {one.name for one in fields(Policy)}
_UNITS = {"timeout": "timeout_s", "deadline": "deadline_s", "budget": "budget_usd"}
"""Options that the policy's fields name with their unit."""


@magics_class
class AgentMagics(Magics):
    """Declares, runs and shows agents. Set defaults with `%config AgentMagics.NAME = VALUE`."""

    model = Unicode(DEFAULT_MODEL, help="The model of agents that name none.").tag(config=True)
    max_tokens = Int(DEFAULT_MAX_TOKENS, min=1, help="The most output tokens of agents that name none.").tag(
        config=True
    )
    timeout = Float(DEFAULT_TIMEOUT_S, min=0.001, help="Seconds an agent that names no deadline may take.").tag(
        config=True
    )
    effort = Unicode(
        "", help="The effort of agents that name none: low, medium, high, xhigh, max; empty leaves it out."
    ).tag(config=True)
    concurrency = Int(8, min=1, help="The most requests under way at once.").tag(config=True)
    schedule = Enum(
        POLICY_WORDS["schedule"],
        "ready",
        help="ready: an agent starts when its parents are done; layers: when their whole layer is; sequential.",
    ).tag(config=True)
    max_attempts = Int(3, min=1, help="The most requests for one agent, retries included.").tag(config=True)
    budget = Float(0.0, min=0.0, help="The most dollars of a run; 0 is no limit.").tag(config=True)
    confirm_agents = Int(100, min=0, help="A run of more agents than this asks first; 0 is never.").tag(config=True)
    confirm_usd = Float(5.0, min=0.0, help="A run expected to cost more dollars asks first; 0 is never.").tag(
        config=True
    )
    on_max_tokens = Enum(
        POLICY_WORDS["on_max_tokens"],
        "warn",
        help="An answer cut at max_tokens: fail its agent, pass it on and warn, or allow it.",
    ).tag(config=True)
    on_refusal = Enum(
        POLICY_WORDS["on_refusal"],
        "fail",
        help="An answer in which the model declined: fail its agent, pass it on and warn, or allow it.",
    ).tag(config=True)
    on_cycle = Enum(
        PLAN_WORDS["on_cycle"],
        "error",
        help="Agents that wait for each other: an error, or run them in declared order.",
    ).tag(config=True)
    on_missing = Enum(
        PLAN_WORDS["on_missing"],
        "error",
        help="Agents that wait for a name nobody declared: an error, or drop that edge.",
    ).tag(config=True)
    ledger = Unicode(
        "", help="The file in which all that is bought is kept; :memory: for this session only; off for none."
    ).tag(config=True)
    reuse_simulated = Bool(
        default_value=False, help="Serve made-up answers again too, labelled simulated: to try out how a run resumes."
    ).tag(config=True)

    shell: Any

    def __init__(self, shell: Any, session: Session | None = None) -> None:
        super().__init__(shell)
        self.session = session or Session()
        self._choose_ledger()
        self.take_back: list[Callable[[], object]] = []

    @observe("ledger", "reuse_simulated")
    def _choose_ledger(self, _: object = None) -> None:
        if hasattr(self, "session"):
            self.session.keeping.choice, self.session.keeping.reuse_simulated = self.ledger, self.reuse_simulated

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("agent")
    @magic_arguments()
    @argument("name", metavar="NAME", help="The agent's name; other prompts use its answer as {{ NAME }}.")
    @argument("--model", metavar="M", help="The model's id.")
    @argument("--max-tokens", type=int, metavar="N", help="The most output tokens.")
    @argument("--system", metavar="TEXT", help="The system prompt, in quotes.")
    @argument(
        "--role", metavar="NAME", help="A ready system prompt: researcher, analyzer, planner, writer, critic, ..."
    )
    @argument(
        "--context", metavar="NAME", help="The %%%%context, or variable, that goes out first, shared with other agents."
    )
    @argument("--each", metavar="NAME", help="An agent for each item of this variable: {{ item }} in its prompt.")
    @argument("--after", default="", metavar="A,B", help="Wait for these agents, without using their text.")
    @argument("--plan", default=DEFAULT_PLAN, metavar="P", help="The plan it belongs to.")
    @argument("--timeout", type=float, metavar="S", help="Deadline in seconds.")
    @argument("--effort", metavar="E", help="low to max.")  # pyright: ignore[reportUntypedFunctionDecorator]
    def agent(self, line: str, cell: str = "") -> None:
        """Declare an agent: the cell is its prompt. Free and instant; nothing is sent.

        The prompt goes out verbatim, but for Jinja2's `{{ name }}`: the answer of the agent of that name, or else the
        notebook's variable. Use an answer, and you wait for it. Examples::

            %%agent python
            Which Python web framework would you pick for {{ topic }}, and why?

            %%agent rust --role researcher --max-tokens 400
            Which Rust web framework would you pick for {{ topic }}, and why?

            %%agent compare --model claude-sonnet-5-5 --timeout 60
            Compare: {{ python }} {{ rust }}

            %%agent check --after compare --system "You are terse." --context handbook
            Does our handbook allow it?

        `--context` names a `%%context` cell, or a variable, that goes out first; agents that share it share its cache.

            %%agent label --each reviews
            Positive or negative? {{ item.text }} (For each row of the DataFrame `reviews`; or of a list.)

            %%agent report
            Sum up: {{ label }} (All their answers. Another agent --each reviews would take the one for its row.)

        Run them with `run = %agents run`. A declaration replaces the one of the same name; `%agents drop NAME` takes
        it back. `%config AgentMagics` has the defaults.
        """
        with user_errors():
            declared, plan = read_agent(line, cell)
            self._declare(declared, plan, cell_of(self.shell))

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @cell_magic("context")
    @magic_arguments()
    @argument("name", metavar="NAME", help="The context's name, for `%%%%agent ... --context NAME`.")
    @argument(
        "--plan", default=DEFAULT_PLAN, metavar="P", help="The plan whose agents share it; any, if none is named."
    )  # pyright: ignore[reportUntypedFunctionDecorator]
    def context(self, line: str, cell: str = "") -> None:
        """Declare a context: text that goes out before an agent's own, the same for all who share it. Nothing is sent.

        One agent then warms the provider's prompt cache and the others follow when its answer begins, so that a long
        text is paid for about once. It takes the notebook's variables as a prompt does, read when a run begins, and no
        agent's answer: it has to be the same bytes for everybody. Examples::

            %%context handbook
            You will be asked about these rules of {{ company }}.
            {{ rules }}

            %%agent legal --context handbook
            Which rules may not hold before a court?

            %%agent plain --context handbook
            Which rules would a newcomer misread?

        It may stand before or behind its agents, and serves every plan unless `--plan` names one. A declaration
        replaces the one of the same name, and marks what used it stale; `%agents drop NAME` takes it back. After a run
        `run.contexts` tells what it cost and saved.
        """
        with user_errors():
            declared, plan = read_context(line, cell)
            self._declare_context(declared, plan, cell_of(self.shell))

    @no_var_expand  # pyright: ignore[reportUntypedFunctionDecorator]
    @line_magic("agents")  # pyright: ignore[reportUntypedFunctionDecorator]
    def agents(self, line: str) -> Any:
        """List, plan, run and inspect the declared agents.

        Examples::

            %agents                     list them by layer
            %agents plan                graph, prompts, tokens, dollars; nothing is spent
            run = %agents run           run them all, watch the graph
            %agents run compare --concurrency 2 --schedule layers --budget 0.50
            %agents start               in the background; then %agents wait, or %agents stop
            run = %agents last          the last run, one that was cut too
            %agents show NAME, %agents error NAME
            %agents record FILE         keep the run as a file; %agents replay FILE answers from it, without a key
            %agents connect simulator   made-up answers, offline, labelled simulated; %agents connect api goes back
            %agents drop NAME, %agents clear
            %agents help                all commands; %agents help run, or %agents run --help, tells the options
        """
        with user_errors():
            done = self._command(line)
            return run_sync(done, message=self._stopped) if asyncio.iscoroutine(done) else done

    async def agents_async(self, line: str) -> Any:
        """Do what `%agents` does, awaited on the loop of the notebook."""
        with user_errors():
            done = self._command(line)
            return await awaited(done, message=self._stopped) if asyncio.iscoroutine(done) else done

    def forget_shown(self, *_: object) -> None:
        """Take in that the cell is over: a run that is shown from now on is shown whole."""
        self.session.just_shown = None

    def _command(self, line: str) -> Any:
        """Do what a line says. What has to wait comes back as a coroutine."""
        command, rest = split_command(line)
        return VERBS[command].do(self, read_command(command, rest))

    def _declare_context(self, context: Context, plan: str, cell: Cell) -> None:
        names = self.shell.user_ns
        notes = self.session.declare_context(context, plan, cell)
        if context.name in names:
            notes.append(f"--context {context.name} and {{{{ {context.name} }}}} take this cell, not your variable")
        lacking = [name for name in context.uses if name not in names]
        size = None if lacking else len(context.written(names)) // CHARS_PER_TOKEN
        display_bundle(context_card(context.name, size, self.session.sharing(context.name, plan), lacking, notes))

    def _declare(self, agent: Agent, plan: str, cell: Cell) -> None:
        registry, names = self.session.registry(plan), self.shell.user_ns
        notes = registry.declare(agent, cell, ran=self.session.ran, variables=names, cycles=self.on_cycle != "error")
        if agent.name in names:
            notes.append(f"prompts take {{{{ {agent.name} }}}} from the agent, not from your variable of that name")
        notes += [*lines_that_declare(agent.prompt), *python_notes(registry.variables(agent), names)]
        gone = registry.of_cells(cell.deleted)
        if gone:
            notes.append(f"the cell of {', '.join(gone)} is gone: %agents drop {' '.join(gone)}")
        card = declaration_card(
            agent.with_defaults(model=self.model, max_tokens=self.max_tokens),
            [f"{parent} ({'{{ }}' if kind == 'prompt' else '--after'})" for parent, kind in registry.parents(agent)],
            registry.undefined(agent, names),
            notes,
            items=count_items(names.get(agent.each)),
        )
        display_bundle(card)
        if is_kernel(self.shell):
            self.session.warm()

    def freeze(self, given: Namespace) -> Plan:
        """Make the plan that the options name of what is declared."""
        with notes_of(print):
            return self.session.plan(
                self.shell.user_ns,
                name=given.plan or DEFAULT_PLAN,
                agents=given.names,
                defaults={
                    "model": self.model,
                    "max_tokens": self.max_tokens,
                    "timeout_s": getattr(given, "timeout", None) or self.timeout,
                    "effort": self.effort or None,
                },
                on_cycle=given.on_cycle or self.on_cycle,
                on_missing=given.on_missing or self.on_missing,
            )

    def policy(self, given: Namespace) -> Policy:
        """Make the policy of the options, and of the defaults where they say nothing."""
        options: dict[str, Any] = {
            "concurrency": self.concurrency,
            "schedule": self.schedule,
            "max_attempts": self.max_attempts,
            "timeout_s": self.timeout,
            "budget_usd": self.budget or None,
            "on_max_tokens": self.on_max_tokens,
            "on_refusal": self.on_refusal,
        }
        said = {_UNITS.get(name, name): value for name, value in vars(given).items() if value is not None}
        return Policy(**options | {name: value for name, value in said.items() if name in _FIELDS})

    def _stopped(self) -> str:
        records = [driver.record for driver in self.session.running]
        records += [self.session.last.record] if self.session.last else []
        if not records:
            return "stopped"
        done = sum(result.status == "succeeded" for result in records[0].results)
        return f"stopped: {done} of {len(records[0].results)} agents had finished and are kept; run = %agents last"


@contextlib.contextmanager
def user_errors() -> Generator[None]:
    """Show the user's mistakes as a line, without a traceback. The one place that converts them."""
    try:
        yield
    except AgentMagicError as error:
        raise UsageError(shown_message(error)) from None


def read_agent(line: str, cell: str) -> tuple[Agent, str]:
    """Read a `%%agent` cell; return the agent and the name of its plan.

    Raises:
        UsageError: The line cannot be read.
        DeclarationError: The agent cannot be.
    """
    given = _read_line("%%agent", AgentMagics.agent, line)
    agent = Agent(
        given.name,
        cell.removesuffix("\n"),
        model=given.model,
        max_tokens=given.max_tokens,
        system=given.system,
        role=given.role,
        context=given.context,
        each=given.each,
        after=given.after,
        timeout_s=given.timeout,
        effort=given.effort,
    )
    return agent, given.plan


def read_context(line: str, cell: str) -> tuple[Context, str]:
    """Read a `%%context` cell; return the context and the name of its plan.

    Raises:
        UsageError: The line cannot be read.
        DeclarationError: The context cannot be.
    """
    given = _read_line("%%context", AgentMagics.context, line)
    return Context(given.name, cell.removesuffix("\n")), given.plan


def _read_line(called: str, magic: Any, line: str) -> Namespace:
    """Read the line of a cell; an unknown option gets a suggestion."""
    try:
        return unquoted(magic.parser.parse_argstring(without_comment(line)))
    except ValueError as error:  # an open quotation
        raise UsageError(f"{called}: {error}. Close the quotes.") from None
    except UsageError as error:
        unknown = str(error).partition("unrecognized arguments: ")[2]
        if not unknown:
            raise UsageError(f"{called}: {error}. See {called}? for its options.") from None
        if not unknown.startswith("-"):
            raise UsageError(
                f"{called}: {unknown!r} is more than it takes. A name is one word; a text with spaces stands in quotes."
            ) from None
        known = [option for action in magic.parser._actions for option in action.option_strings]  # noqa: SLF001
        hint = did_you_mean(unknown.split()[0], known) or f" Options: {', '.join(known)}."
        raise UsageError(f"{called}: unknown option {unknown!r}.{hint}") from None
