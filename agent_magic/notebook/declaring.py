"""Parsing of `%%agent` and `%%context`: options, help, and declarations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.declare.agent import Agent
from agent_magic.declare.answers.returns import look_up
from agent_magic.declare.cells import sections_of, without_tool_lines
from agent_magic.declare.context import Context
from agent_magic.declare.coordinator import STRATEGIES
from agent_magic.declare.options import AGENT, flag_of
from agent_magic.declare.task import first_of
from agent_magic.declare.tool import Tools, tools_of
from agent_magic.errors import AgentMagicError, shown_message
from agent_magic.notebook.command import Parser, argument, without_comment
from agent_magic.notebook.registry import variable_of
from agent_magic.notebook.session import DEFAULT_PLAN

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping

    from agent_magic.declare.options import Option
    from agent_magic.declare.step import Step
    from agent_magic.declare.task import Task

    LookUp = Callable[[str, str | None, str | None], dict[str, Any]]
    FindTools = Callable[[str, str], Tools]
    FindPrompt = Callable[[str], str]

AGENT_HELP = """Declare an agent: the cell is its prompt. Free and instant; nothing is sent.

{{ name }} is the answer of the agent of that name, or else the notebook's variable. Examples:

    %%agent python
    Which Python web framework would you pick for {{ topic }}, and why?

    %%agent compare --after python --model claude-sonnet-5-5 --context handbook
    Does our handbook allow this? {{ python }}

    %%agent label --each reviews
    Positive or negative? {{ item.text }}

    %%agent label --each reviews --returns Label      # class Label(BaseModel): sentiment: Literal["good", "bad"]
    Classify this review: {{ item.text }}

    %%agent analyst --tools run_sql,web_search        # def run_sql(query: str) -> str: its docstring says what it does
    Which region lost most, and why? Check with SQL.

    %%agent reader --attach report --cite             # report = am.pdf("report.pdf"); a figure is {{ fig }}
    What does {{ fig }} show that the report does not say?

    %%agent letter --ask                              # you approve its answer before others use it, in the picture or
    Write to {{ customer }}.                          # by %agents approve; @am.tool(ask=True) asks before each call

    %%agent letter --each people --save "letters/{{ item.id }}.md"    # a file per row; am.save(name, value) in tasks
    Write to {{ item.name }}.

    %%agent label --returns Label --cascade claude-haiku-5-5,claude-sonnet-5-5 --escalate "answer.confidence < 0.7"
    Classify this review: {{ review }}    # cheap first; --fallback A,B is asked when a model is overloaded or gone

    %%agent more --continues analyst                  # goes on in its conversation, tools and thinking included;
    And the second?                                   # with --run a chat in cells

    %%agent check --prompt crm:review                 # a prompt of an MCP server; its arguments are your variables
                                                      # of these names. The text of the cell, if any, follows it
    %%agent quick --run                               # asked at once; the answer comes below the cell
    What does {{ error }} mean?

Run with `run = %agents run`. Declare a name again to replace it; `%agents drop NAME` removes it.
"""
CONTEXT_HELP = """Declare text that several agents send first, byte for byte the same. Nothing is sent.

One agent warms the provider's prompt cache, the others follow when its answer begins. A context takes variables, but no
agent's answer. `run.contexts` shows what it cost and saved. Examples:

    %%context handbook
    These are the rules of {{ company }}. {{ rules }}

    %%agent legal --context handbook
    Which rules may not hold before a court?
"""
AGENTS_HELP = """Declare several agents in one cell: a section for each. Nothing is sent.

A heading is `## name`, a role in brackets if you like, and the options of %%agent; the prompt stands below. Text before
the first heading is a comment. All are declared or, where one is wrong, none. What you take out of the cell is dropped
when it runs again; where a front end does not name its cells, %agents drop NAME drops it. Up to three blanks may stand
before a heading. A line of a prompt that begins with `## ` is written `\\## `. Example:

    %%agents
    Which language for {{ topic }}?

    ## python (researcher)
    What speaks for Python in {{ topic }}?

    ## rust (researcher) --model claude-sonnet-5-5
    What speaks for Rust in {{ topic }}?

    ## advice (synthesizer)
    Advise: {{ python }} {{ rust }}

%agents export cell writes the declared agents as such a cell, %agents export cells as a notebook of %%agent cells.
"""
PLAN_HELP = """Have a plan written: the cell is the goal. A coordinator is asked once, and its plan put below as a cell.

It is told to let as many agents as possible work at once. What comes back is checked like any plan, shown as a graph
with an estimate, and put below as one %%agents cell. Nothing of it runs until you run it. Examples:

    %%plan
    Compare Python, Rust and Go for {{ project }}, and advise.

    %%plan --agents 6 --strategy feature --model claude-opus-5-5
    A shop for second-hand bicycles: search, payment, messages.

%agents preset has plans that ask nobody; am.decompose makes them from files, modules, phases. The command %agents plan
is another: it shows the plan of what is declared, see %agents help plan.
"""


_TOOLS = "--tools FUNCTION,FUNCTION lets the model call functions of the notebook."
_FILES = "Read it in a cell: scan = am.image(path), am.pdf(path) or am.text_file(path); then use {{ scan }}."
_TYPES = "--returns TYPE makes answers typed: a class of the notebook, Literal['a', 'b'], int, ..."
_BRANCH = '--when "review.score < 4" runs it only then; {% if name %} ... {% endif %} puts a condition into the prompt.'
_LOOP = '--until "critic.ok" --rounds 3 runs it again until that holds.'
_MAP = "--each planner.steps --most 40 makes one per item of an answer, --each rows one per item of a variable."
_SEED = "It is not sent: models do not repeat an answer. The ledger does, for every answer that was bought."
_AT_ONCE = "Agents that do not wait for each other run at once; %agents run --concurrency N says how many."
_RETRIES = "Failed requests are sent again by themselves; %agents run --max-attempts N says how often."
_PROMPT = "The prompt is the text below the first line of the cell."
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("--parallel", "--concurrency", "--workers", "--async"), _AT_ONCE),
    **dict.fromkeys(("--retry", "--retries", "--max-retries", "--max-attempts"), _RETRIES),
    **dict.fromkeys(("--input", "--text"), _PROMPT),
    **dict.fromkeys(("--stream", "--verbose"), "Answers stream, and the live graph shows them: %agents run."),
    **dict.fromkeys(("--tool", "--function", "--functions", "--mcp"), _TOOLS),
    **dict.fromkeys(("--image", "--images", "--file", "--files", "--pdf", "--document"), _FILES),
    **dict.fromkeys(("--schema", "--json", "--type", "--format", "--output"), _TYPES),
    **dict.fromkeys(("--if", "--unless", "--condition"), _BRANCH),
    **dict.fromkeys(("--while", "--loop", "--repeat-until", "--max-rounds"), _LOOP),
    **dict.fromkeys(("--map", "--for", "--foreach", "--for-each", "--max-items"), _MAP),
    "--seed": _SEED,
    "--stop-sequences": "--stop TEXT ends an answer before that text; give it once for each.",
}


def _server_prompt(text: str) -> str:
    server, _, name = text.partition(":")
    if not server.isidentifier() or not name:
        raise UsageError(f"--prompt takes a prompt of an MCP server, such as crm:review. {_PROMPT}")
    return text


def _as_argument(row: Option) -> dict[str, Any]:
    if row.form == "switch":
        return {"action": "store_true"}
    if row.form in {"texts", "pairs"}:
        return {"action": "append", "type": row.read, "metavar": row.unit}
    return {"type": row.read, "metavar": "A,B" if row.form == "names" else row.unit, "default": row.default}


_AGENT = Parser(
    "%%agent",
    INSTEAD,
    arguments=(
        argument("name", metavar="NAME", help="The agent's name; other prompts use its answer as {{ NAME }}."),
        *(
            argument(flag_of(row), dest=row.name, help=row.help, **_as_argument(row))
            for row in AGENT.values()
            if row.help
        ),
        argument(
            "--first-of",
            metavar="A,B",
            help="Take the first answer of these agents, and cancel the others. Asks no model itself.",
        ),
        argument(
            "--prompt",
            type=_server_prompt,
            metavar="SERVER:NAME",
            help="A prompt of an MCP server, which the text of the cell follows; your variables are its arguments.",
        ),
        argument("--plan", default=DEFAULT_PLAN, metavar="P", help="The plan it belongs to."),
        argument(
            "--run", action="store_true", help="Ask it at once, with what it needs, and show the answer below the cell."
        ),
    ),
)
_CONTEXT = Parser(
    "%%context",
    arguments=(
        argument("name", metavar="NAME", help="The context's name, for %%agent ... --context NAME."),
        argument("--plan", default=DEFAULT_PLAN, metavar="P", help="The plan that shares it; by default, all."),
    ),
)
_AGENTS = Parser(
    "%%agents",
    dict.fromkeys(_AGENT.flags, "It belongs to one agent: ## name --option."),
    arguments=(argument("--plan", default=DEFAULT_PLAN, metavar="P", help="The plan that its agents belong to."),),
)
_PLAN = Parser(
    "%%plan",
    arguments=(
        argument("--model", metavar="M", help="The coordinator's model."),
        argument("--agents", type=int, metavar="N", help="The most agents of the plan."),
        argument("--strategy", default="free", metavar="WORD", help=f"How to split the work: {', '.join(STRATEGIES)}."),
        argument("--plan", default=DEFAULT_PLAN, metavar="P", help="The plan that the cell declares."),
        argument("--max-tokens", type=int, metavar="N", help="The most output tokens of the coordinator."),
        argument("--budget", type=float, metavar="USD", help="The most dollars that asking may cost."),
        argument("--fresh", action="store_true", help="Ask again, even if the ledger has the answer."),
        argument("--put", action="store_true", help="Put the cell below even if the answer was bought earlier."),
    ),
)
PARSERS: Mapping[str, Parser] = {"agent": _AGENT, "context": _CONTEXT, "agents": _AGENTS, "plan": _PLAN}
HELP: Mapping[str, str] = {"agent": AGENT_HELP, "context": CONTEXT_HELP, "agents": AGENTS_HELP, "plan": PLAN_HELP}


def help_of(magic: str) -> str:
    return f"{HELP[magic]}\n{PARSERS[magic].format_help().strip()}\n"


def _server_tools(agent: str, tools: str) -> Tools:
    return tools_of(tools, agent=agent)


def read_agent(
    line: str,
    cell: str,
    look_up: LookUp = look_up,
    find_tools: FindTools = _server_tools,
    find_prompt: FindPrompt = variable_of,
) -> tuple[Step, str]:
    """Read a `%%agent` cell; return the agent or race, and the name of its plan."""
    given = PARSERS["agent"].read(line)
    if given.first_of is not None:
        return _read_race(given, cell), given.plan
    options = look_up(given.name, given.returns, given.check)
    if given.tools is not None:
        options["tools"] = find_tools(given.name, given.tools)
    for row in AGENT.values():
        if row.form != "notebook" and (value := getattr(given, row.name, None)) is not None:
            options[row.name] = dict(value) if row.form == "pairs" else value
    text = without_tool_lines(cell)[0].removesuffix("\n")
    if given.prompt is not None:
        text = f"{{{{ {find_prompt(given.prompt)} }}}}\n\n{text}".rstrip()
    return Agent(given.name, text, **options), given.plan


def _read_race(given: Namespace, cell: str) -> Task:
    alone = vars(PARSERS["agent"].read(f"{given.name} --first-of {given.first_of}"))
    others = [name for name, value in vars(given).items() if value != alone[name] and name not in {"plan", "run"}]
    if cell.strip() or others:
        what = flag_of(AGENT[others[0]]) if others else "prompt of its own"
        raise UsageError(f"{given.name} --first-of takes the answer of others, so it has no {what}.")
    return first_of(given.name, given.first_of)


def asks_at_once(_magic: str, line: str | None) -> bool:
    return line is None or "--run" in without_comment(line).split()


def read_agents(
    line: str,
    cell: str,
    look_up: LookUp = look_up,
    find_tools: FindTools = _server_tools,
    find_prompt: FindPrompt = variable_of,
    expand: Callable[[str], str] = str,
) -> tuple[list[Step], str]:
    """Read a `%%agents` cell; return its agents and the name of their plan."""
    plan = PARSERS["agents"].read(line).plan
    comment, sections = sections_of(cell)
    if magic := re.search(rf"^%%\w+.*|{_RUNS}", comment, re.MULTILINE):
        raise UsageError(
            f"{magic[0][:60]!r} stands above the first heading, where text is a comment: it would do nothing. "
            "Move it and what belongs to it to a cell of its own."
        )
    found: dict[str, Step] = {}
    for one in sections:
        where = f"Section {one.name!r}, line {one.number}"
        try:
            written = expand(one.line)
            agent, named = read_agent(written, one.prompt, look_up, find_tools, find_prompt)
        except (UsageError, AgentMagicError) as error:
            said = shown_message(error) if isinstance(error, AgentMagicError) else str(error)
            raise UsageError(f"{where}: {said}") from None
        if asks_at_once("", written):
            raise UsageError(f"{where}: --run is for a cell of one agent. %agents run {agent.name} asks this one.")
        if named != DEFAULT_PLAN:
            raise UsageError(f"{where}: --plan belongs to the first line: %%agents --plan {named}")
        if agent.name in found:
            raise UsageError(f"{where}: the cell has two sections of that name.")
        found[agent.name] = agent
    return [*found.values()], plan


def read_context(line: str, cell: str) -> tuple[Context, str]:
    given = PARSERS["context"].read(line)
    return Context(given.name, without_tool_lines(cell)[0].removesuffix("\n")), given.plan


def tool_lines_note(*texts: str) -> list[str]:
    found = [line for text in texts for line in without_tool_lines(text)[1]]
    told = ", ".join(repr(line[:60]) for line in found)
    return [f"{told} {'is a line' if len(found) == 1 else 'are lines'} for another tool, and not sent"] if found else []


_RUNS = r"^(?:\w+[ \t]*=[ \t]*)?%agents\b.*"
"""A line magic in a cell that is no code."""


def lines_that_declare(prompt: str) -> list[str]:
    found = re.search(r"^%%(agent|context)\b.*", prompt, re.MULTILINE)
    if found:
        return [f"{found[0][:60]!r} is sent as text: each %%{found[1]} needs its own cell"]
    if found := re.search(_RUNS, prompt, re.MULTILINE):
        return [f"{found[0][:60]!r} is sent as text: to run it, write it in a cell of its own"]
    found = re.match(r"\s*(%%[a-z]\w*).*", prompt)
    return [f"{found[0].strip()[:60]!r} is sent as text: {found[1]} must be above %%agent"] if found else []
